/* Damaged weights: NaN and infinity in the files of a checkpoint. */
#ifndef QUIRE_MODEL_CHECK_WEIGHTS_H
#define QUIRE_MODEL_CHECK_WEIGHTS_H

#include "base/log.h"
#include "model/weights.h"

/* Warns on `log` of every float32, float16, bfloat16 or fp8 (e4m3) tensor of the files that holds NaN or infinity, with
 * its name and how many there are. Reads every byte of the files, so it does nothing unless the log takes messages of
 * LOG_INFO (--verbose), nor for weights without files. */
void model_weights_check_finite(const struct model_weights *weights, const struct log *log);

#endif
