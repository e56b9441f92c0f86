#include "base/plural.h"

#include <stdio.h>

const char *plural(int64_t count)
{
    return count == 1 ? "" : "s";
}

struct grouped grouped(int64_t number)
{
    struct grouped g = {""};
    char digits[24];
    const int length = snprintf(digits, sizeof digits, "%lld", (long long)number);
    size_t at = 0;
    for (int i = 0; i < length; i++) {
        if (i > (number < 0) && (length - i) % 3 == 0) g.text[at++] = ',';
        g.text[at++] = digits[i];
    }
    return g;
}
