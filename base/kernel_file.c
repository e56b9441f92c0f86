#include "base/kernel_file.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

bool kernel_file_line(const char *root, const char *path, const char *key, char *out, size_t size)
{
    char full[PATH_MAX], line[512];
    const size_t length = strlen(key);
    bool found = false;
    out[0] = '\0';
    if (snprintf(full, sizeof full, "%s%s", root, path) >= (int)sizeof full) return false;
    FILE *file = fopen(full, "re");
    while (file && !found && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, length) != 0) continue;
        const char *value = line + length + strspn(line + length, " \t:");
        snprintf(out, size, "%.*s", (int)strcspn(value, "\n"), value);
        found = true;
    }
    if (file) fclose(file);
    return found;
}

int64_t kernel_file_number(const char *root, const char *path, const char *key, int64_t fallback)
{
    char line[64];
    int64_t number;
    return kernel_file_line(root, path, key, line, sizeof line) && sscanf(line, "%" SCNd64, &number) == 1 ? number
                                                                                                          : fallback;
}
