#include "runtime/options/model_folder.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "runtime/options/hub_cache.h"

/* ---- the model that ships with quire ---- */

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

/* ---- a name ---- */

static enum status no_revision(const char *model, const char *revision, struct error *err)
{
    if (!revision) return STATUS_OK;
    return error_set(err, STATUS_INVALID,
                     "--revision %s is for a model ORG/NAME in the Hugging Face cache, but the model is the folder %s; "
                     "leave it out",
                     revision, model);
}

/* A name in the cache, with the revision that stands beside it. */
static enum status find_in_cache(const char *model, const char *revision, bool with_weights, char *path, size_t size,
                                 struct error *err)
{
    char name[PATH_MAX];
    const char *at = strchr(model, '@');
    if (at && revision && strcmp(at + 1, revision) != 0)
        return error_set(err, STATUS_INVALID, "%s has a revision already, and --revision is %s; leave one of the two",
                         model, revision);
    snprintf(name, sizeof name, "%s%s%s", model, revision && !at ? "@" : "", revision && !at ? revision : "");
    if (!hub_cache_is_name(name))
        return error_set(err, STATUS_INVALID, "--revision %s is no branch, tag or commit", revision);
    return hub_cache_find(name, with_weights, path, size, err);
}

enum status model_folder_resolve(const char **model, const char *revision, bool with_weights, char *path, size_t size,
                                 struct error *err)
{
    struct stat info;
    enum status status = STATUS_OK;
    if (!*model) {
        status = default_model_find(path, size, err);
        *model = path;
    }
    if (status != STATUS_OK) return status;
    if (lstat(*model, &info) == 0) return no_revision(*model, revision, err);
    if (!strchr(*model, '/'))
        return error_set(err, STATUS_IO, "%s: no such folder; a model in the Hugging Face cache is named ORG/NAME",
                         *model);
    if (!hub_cache_is_name(*model)) return no_revision(*model, revision, err);
    status = find_in_cache(*model, revision, with_weights, path, size, err);
    *model = path;
    return status;
}

enum status model_folder_of_engine(struct engine_options *options, char *path, size_t size, struct error *err)
{
    const bool with_weights = options->load_format != LOAD_FORMAT_DUMMY;
    enum status status = model_folder_resolve(&options->model, options->revision, with_weights, path, size, err);
    char folder[sizeof options->speculative.model];
    const char *draft = options->speculative.model;
    if (status != STATUS_OK || options->speculative.method != DRAFT_MODEL) return status;
    status = model_folder_resolve(&draft, NULL, with_weights, folder, sizeof folder, err);
    if (draft == folder) memcpy(options->speculative.model, folder, sizeof folder);
    return status == STATUS_OK ? status : error_prefix(err, status, "the draft model");
}
