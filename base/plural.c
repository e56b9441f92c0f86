#include "base/plural.h"

const char *plural(int64_t count)
{
    return count == 1 ? "" : "s";
}
