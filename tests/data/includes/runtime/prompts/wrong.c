/* test_includes_refused: nor may what turns JSON into requests. */
#include "runtime/generate/journal.h"
