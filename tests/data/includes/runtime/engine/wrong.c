/* test_includes_refused: the engine may not include the rest of runtime/, nor what a model is made of, nor the reader
 * of a format. */
#include "runtime/options/options.h"
#include "model/model_state.h"
#include "model/checkpoint/safetensors.h"
