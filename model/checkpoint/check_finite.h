/* Damaged weights: NaN and infinity in the files of a checkpoint. */
#ifndef QUIRE_MODEL_CHECKPOINT_CHECK_FINITE_H
#define QUIRE_MODEL_CHECKPOINT_CHECK_FINITE_H

#include "base/log.h"
#include "model/checkpoint/tensor_file.h"

/* Warns on `log` of every float32, float16, bfloat16 or fp8 (e4m3) tensor of the files that holds NaN or infinity, with
 * its name and how many there are. Reads every byte of the files, so it does nothing unless the log takes messages of
 * LOG_INFO (--verbose), nor if `file` is NULL: for weights without files. */
void tensor_file_check_finite(const struct tensor_file *file, const struct log *log);

#endif
