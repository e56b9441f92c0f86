/* test_includes_refused: the engine may not include the rest of runtime/. */
#include "runtime/options/options.h"
