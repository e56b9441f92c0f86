/* test_includes_refused: a family may not know checkpoints. */
#include "model/checkpoint/tensor_file.h"
