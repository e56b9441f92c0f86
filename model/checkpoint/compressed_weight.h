/* A matrix that weight_source_read quantizes, as compressed-tensors stores it: fp8, and int8 whose activations are
 * quantized too, as NAME.weight with NAME.weight_scale; int4 and other int8 as NAME.weight_packed with scales,
 * NAME.weight_shape and, if the scheme has them, zero points. Read from there it is the same struct weight. */
#ifndef QUIRE_MODEL_CHECKPOINT_COMPRESSED_WEIGHT_H
#define QUIRE_MODEL_CHECKPOINT_COMPRESSED_WEIGHT_H

#include "model/checkpoint/tensor_layout.h"
#include "model/checkpoint/weight_source.h"

enum { COMPRESSED_MAX_TENSORS = 4 };

/* Adds its stored tensors to the layout. `name` is that of the floats, and ends in ".weight". False: memory ran out. */
bool compressed_weight_place(struct tensor_layout *layout, const struct weight_source *s, const char *name);

/* Some rows, as they lie in each of these tensors. */
struct compressed_rows {
    struct compressed_part {
        void *data;            /* [bytes], owned */
        int64_t bytes, offset; /* offset: in the stored tensor */
    } parts[COMPRESSED_MAX_TENSORS];
    int num_parts;
};

/* Reads and quantizes rows [first, first + count), as weight_source_read takes them; the shape comes with the first
 * rows. Any thread. Free *out with compressed_rows_free, after a failure, too. */
enum status compressed_weight_read(const struct weight_source *s, int64_t first, int64_t count,
                                   struct compressed_rows *out, struct error *err);
void compressed_rows_free(struct compressed_rows *rows);

#endif
