#include "runtime/options/model_folder.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/options/default_model.h"
#include "runtime/options/hub_cache.h"

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
    return model_folder_resolve(&options->model, options->revision, options->load_format != LOAD_FORMAT_DUMMY, path,
                                size, err);
}
