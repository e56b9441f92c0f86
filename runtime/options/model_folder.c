#include "runtime/options/model_folder.h"

#include <string.h>
#include <sys/stat.h>

#include "runtime/options/default_model.h"
#include "runtime/options/hub_cache.h"

enum status model_folder_resolve(const char **model, bool with_weights, char *path, size_t size, struct error *err)
{
    struct stat info;
    enum status status = STATUS_OK;
    if (!*model) {
        status = default_model_find(path, size, err);
        *model = path;
    }
    if (status != STATUS_OK || lstat(*model, &info) == 0) return status;
    if (!strchr(*model, '/'))
        return error_set(err, STATUS_IO, "%s: no such folder; a model in the Hugging Face cache is named ORG/NAME",
                         *model);
    if (!hub_cache_is_name(*model)) return STATUS_OK;
    status = hub_cache_find(*model, with_weights, path, size, err);
    *model = path;
    return status;
}

enum status model_folder_of_engine(struct engine_options *options, char *path, size_t size, struct error *err)
{
    return model_folder_resolve(&options->model, options->load_format != LOAD_FORMAT_DUMMY, path, size, err);
}
