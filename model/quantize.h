/* Quantizes the rows of a matrix of floats to the formats of struct weight (kernels/backend.h).
 *
 * FP8 and INT8: a scale for each row, absmax / 448 and absmax / 127, and no zero points. INT4: a scale and a zero point
 * from 0 to 15 for each group of input features, which make the sum of squared errors small: of some ranges, from that
 * of the group's elements to half of it, the one whose best scale has the smallest error is taken. Elements are
 * rounded to the nearest code of the scale as it is stored; ties go to even.
 *
 * A row, or group of INT4, that holds a NaN or an infinity gets the scale NaN, so that damaged weights show in the
 * logits as they do without quantizing. One of zeros gets scale 1; so does one that is too small for a normal float32
 * as its scale. */
#ifndef QUIRE_MODEL_QUANTIZE_H
#define QUIRE_MODEL_QUANTIZE_H

#include <stdint.h>

#include "kernels/backend.h"

enum { QUANTIZE_MAX_GROUP = 256 };

struct quantize_args {
    const void *rows; /* [num_rows, in_features] dtype; may be at any address */
    enum dtype dtype; /* float32, float16 or bfloat16 */
    int64_t num_rows, in_features;
    enum weight_format format; /* FP8, INT8 or INT4 */
    int64_t group_size;        /* INT4: even, at most QUANTIZE_MAX_GROUP, divides in_features; otherwise not used */
    void *data;                /* out: [num_rows, in_features], INT4 [num_rows, in_features / 2] bytes */
    void *scales;              /* out: [num_rows], INT4 [num_rows, in_features / group_size] scale_dtype */
    enum dtype scale_dtype;    /* float32; INT4 also bfloat16, or float16, whose scales are from 2^-14 to 65504 */
    uint8_t *zeros;            /* out, INT4 only: [num_rows, in_features / group_size] */
};

/* Rows are independent: several threads may each quantize some rows of a matrix. Allocates nothing. */
void quantize_rows(const struct quantize_args *args);

#endif
