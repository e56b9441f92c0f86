/* Quantizes rows of floats on the host, as struct weight_quantize_args (kernels/backend.h) describes it. */
#ifndef QUIRE_MODEL_CHECKPOINT_QUANTIZE_H
#define QUIRE_MODEL_CHECKPOINT_QUANTIZE_H

#include "kernels/backend.h"

/* rows may be at any address. Rows are independent: several threads may each quantize some rows of a matrix. Allocates
 * nothing. */
void quantize_rows(const struct weight_quantize_args *args);

#endif
