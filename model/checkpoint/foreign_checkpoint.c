#include "model/checkpoint/foreign_checkpoint.h"

#include <fnmatch.h>
#include <limits.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"

#define TRANSFORMERS_LAYOUT "name a folder with the model as transformers saves it: config.json and model*.safetensors"
#define ADAPTER "adapter_config.json"
#define MERGE_ADAPTER                                                                                                  \
    "merge the adapter into its base model (PEFT: merge_and_unload, then save_pretrained) and name the merged model"
#define SAFETENSORS_FORM                                                                                               \
    "quire reads safetensors: download the model in that form, or save it so with transformers (save_pretrained)"

/* A form: how its files are called, what they are, and what to do. The first that matches counts. */
static const struct form {
    const char *pattern; /* of fnmatch */
    const char *what, *advice;
} forms[] = {
    {ADAPTER, "the description of an adapter (LoRA)", MERGE_ADAPTER},
    {"consolidated*.safetensors", "weights in Mistral's own layout", TRANSFORMERS_LAYOUT},
    {"consolidated*.pth", "weights in Meta's own layout", TRANSFORMERS_LAYOUT},
    {"original", "a folder for weights in Meta's own layout", TRANSFORMERS_LAYOUT},
    {"snapshots", "which marks a model in the Hugging Face cache",
     "name the model as org/name, or the folder of a snapshot in it: snapshots/COMMIT"},
    {"*.gguf", "a GGUF file",
     "quire reads the original checkpoint: name the folder with its config.json and *.safetensors"},
    {"pytorch_model*.bin", "weights as a PyTorch pickle", SAFETENSORS_FORM},
};
enum { NUM_FORMS = sizeof forms / sizeof *forms };

/* Other names of a file in place of a folder. */
static const struct form file_forms[] = {
    {"*.safetensors", "a file of weights", "name the folder that holds it and config.json"},
    {"*.bin", "a file of weights as a PyTorch pickle", SAFETENSORS_FORM},
    {"*.pt", "a file of weights as a PyTorch pickle", SAFETENSORS_FORM},
    {"*.pth", "a file of weights as a PyTorch pickle", SAFETENSORS_FORM},
    {"*", "a file", "name the folder that holds config.json and *.safetensors"},
};
enum { NUM_FILE_FORMS = sizeof file_forms / sizeof *file_forms };

static const struct form *match(const struct form *list, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (fnmatch(list[i].pattern, name, FNM_CASEFOLD) == 0) return &list[i];
    return NULL;
}

static const struct form *find_in_folder(const char *folder, char *name, size_t size)
{
    for (int i = 0; i < NUM_FORMS; i++)
        if (folder_find_entry(folder, forms[i].pattern, name, size)) return &forms[i];
    return NULL;
}

void foreign_checkpoint_warn(const char *folder, const struct log *log)
{
    char name[NAME_MAX + 1];
    if (folder_find_entry(folder, ADAPTER, name, sizeof name))
        log_write(log, LOG_WARNING,
                  "%s: " ADAPTER " describes an adapter (LoRA), which quire does not apply; " MERGE_ADAPTER, folder);
}

bool foreign_checkpoint_found(const char *folder)
{
    char name[NAME_MAX + 1];
    return find_in_folder(folder, name, sizeof name) != NULL;
}

static enum status refuse_file(const char *path, struct error *err)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    const struct form *form = match(forms, NUM_FORMS, name);
    if (!form) form = match(file_forms, NUM_FILE_FORMS, name);
    return error_set(err, STATUS_IO, "%s is %s; %s", path, form->what, form->advice);
}

static enum status refuse_incomplete(const char *folder, const char *missing, const char *weights, struct error *err)
{
    return error_set(err, STATUS_IO, "%s: there is no %s, but %s, a file of weights; was the download complete?",
                     folder, missing, show_string(weights).text);
}

/* Files called as transformers calls weights go before other forms, which hubs offer beside them. */
enum status foreign_checkpoint_refuse(const char *path, const char *missing, struct error *err)
{
    char name[NAME_MAX + 1];
    if (file_exists(path)) return refuse_file(path, err);
    if (folder_find_entry(path, "model*.safetensors", name, sizeof name))
        return refuse_incomplete(path, missing, name, err);
    const struct form *form = find_in_folder(path, name, sizeof name);
    if (form)
        return error_set(err, STATUS_UNSUPPORTED, "%s: there is no %s, but %s, %s; %s", path, missing,
                         show_string(name).text, form->what, form->advice);
    if (folder_find_entry(path, "*.safetensors", name, sizeof name)) return refuse_incomplete(path, missing, name, err);
    return error_set(err, STATUS_IO, "%s: there is no %s; a checkpoint folder holds config.json and *.safetensors",
                     path, missing);
}
