#include "kernels/gpu_list.h"

#include <stdlib.h>
#include <string.h>

static const char PREFIX[] = "cuda:";

/* The digits of a number that an int32_t holds; 0: there is none. */
static size_t number_length(const char *text)
{
    const size_t length = strspn(text, "0123456789");
    return strtoll(text, NULL, 10) <= INT32_MAX ? length : 0;
}

int32_t gpu_list_count(const char *device)
{
    const size_t prefix = strlen(PREFIX);
    int32_t count = 0;
    if (strncmp(device, PREFIX, prefix) != 0) return 0;
    for (const char *at = device + prefix;; at++) {
        const size_t length = number_length(at);
        if (length == 0) return 0;
        at += length;
        count++;
        if (*at == '\0') return count;
        if (*at != ',') return 0;
    }
}

int32_t gpu_list_at(const char *device, int32_t place)
{
    const char *at = device + strlen(PREFIX);
    while (place-- > 0) at = strchr(at, ',') + 1;
    return (int32_t)strtol(at, NULL, 10);
}
