#include "runtime/options/default_model.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

static bool has_model(const char *folder, const char *name, char *path, size_t size)
{
    char config[4096];
    return path_join(path, size, folder, name) && path_join(config, sizeof config, path, "config.json") &&
           file_exists(config);
}

/* Looks at the executable's own folder, and at those above it: build/NAME/quire lies two below the source tree. */
static bool find_near_executable(char *path, size_t size)
{
    char folder[4096];
    const ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);
    if (length <= 0) return false;
    folder[length] = '\0';
    for (int level = 0; level < 4; level++) {
        char *slash = strrchr(folder, '/');
        if (!slash) return false;
        *slash = '\0';
        if (level == 1 && has_model(folder, "share/quire/models/guide", path, size)) return true;
        if (has_model(folder, "models/guide", path, size)) return true;
    }
    return false;
}

enum status default_model_find(char *path, size_t size, struct error *err)
{
    if (find_near_executable(path, size) || has_model(QUIRE_SOURCE_FOLDER, "models/guide", path, size))
        return STATUS_OK;
    return error_set(err, STATUS_INVALID,
                     "the model that ships with quire was found neither beside the executable nor in %s/models; "
                     "name a checkpoint folder with --model PATH",
                     QUIRE_SOURCE_FOLDER);
}
