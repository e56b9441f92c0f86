#include "model/config.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "model/checkpoint/foreign_checkpoint.h"
#include "model/families/families.h"
#include "model/head.h"
#include "model/quantization.h"

static void add_eos(struct json_reader *r, const json_t *value, struct model_config *config)
{
    const json_int_t id = json_integer_value(value);
    if (!json_is_integer(value) || id < -1 || id > INT32_MAX) {
        json_reader_fail(r, STATUS_INVALID, "eos_token_id must be a token id or an array of them, found %s",
                         show_value(value).text);
        return;
    }
    if (id < 0) return; /* -1 is how some files say none */
    for (int i = 0; i < config->num_eos; i++)
        if (config->eos_token_ids[i] == id) return;
    if (config->num_eos == CONFIG_MAX_EOS) {
        json_reader_fail(r, STATUS_UNSUPPORTED,
                         "eos_token_id: config.json and generation_config.json name more than %d tokens",
                         CONFIG_MAX_EOS);
        return;
    }
    config->eos_token_ids[config->num_eos++] = (int32_t)id;
}

static void read_eos(struct json_reader *r, struct model_config *config)
{
    const json_t *value = json_reader_get(r, "eos_token_id");
    if (!value) return;
    if (!json_is_array(value)) {
        add_eos(r, value, config);
        return;
    }
    for (size_t i = 0; i < json_array_size(value); i++) add_eos(r, json_array_get(value, i), config);
}

/* family_read_spec, or family_read_mtp. */
typedef void read_spec_function(struct json_reader *r, const struct family *family, struct model_spec *spec);

static void read_text(struct json_reader *r, const struct multimodal *multimodal, read_spec_function *read_spec,
                      struct model_config *config)
{
    const struct family *family = family_find(r);
    snprintf(config->model_type, sizeof config->model_type, "%s", family->model_type);
    snprintf(config->architecture, sizeof config->architecture, "%s", family->architecture);
    if (multimodal->is_nested) multimodal_add_sizes(family, multimodal->text);
    read_spec(r, family, &config->spec);
    config->spec.has_vision = multimodal->has_vision;
    config->spec.has_audio = multimodal->has_audio;
    quantization_read(r, &config->spec);
    config->bos_token_id = json_reader_int(r, "bos_token_id", -1, -1, INT32_MAX);
    read_eos(r, config);
}

static void read_model(struct json_reader *r, read_spec_function *read_spec, struct model_config *config)
{
    const struct multimodal multimodal = multimodal_read(r);
    struct json_reader text = *r;
    if (multimodal.text) text.object = multimodal.text;
    if (multimodal.is_nested) text.prefix = "text_config.";
    read_text(&text, &multimodal, read_spec, config);
    r->status = text.status;
    json_decref(multimodal.text);
}

static void read_config(struct json_reader *r, struct model_config *config)
{
    read_model(r, family_read_spec, config);
}

static void read_mtp_config(struct json_reader *r, struct model_config *config)
{
    read_model(r, family_read_mtp, config);
}

/* The end-of-sequence ids of generation_config.json, which add to config.json's. */
static void read_generation_eos(struct json_reader *r, struct model_config *config)
{
    read_eos(r, config);
    generation_config_forgive(r);
}

static void read_generation(struct json_reader *r, struct model_config *config)
{
    read_generation_eos(r, config);
    generation_config_read(r, model_spec_max_length(&config->spec), &config->generation);
}

static void read_modelopt(struct json_reader *r, struct model_config *config)
{
    quantization_read_modelopt(r, &config->spec);
}

/* A file of a folder, and what reads it. */
struct file {
    const char *folder, *name;
    void (*read)(struct json_reader *, struct model_config *);
};

/* Reads a file, if it is there. */
static enum status load(const struct file *file, const struct log *log, struct model_config *config, bool *found,
                        struct error *err)
{
    char path[PATH_MAX];
    json_t *root;
    *found = false;
    if (!path_join(path, sizeof path, file->folder, file->name))
        return error_set(err, STATUS_INVALID, "%s: the path is too long", file->folder);
    enum status status = file_find(path, found, err);
    if (status != STATUS_OK || !*found) return status;
    status = json_object_read(path, &root, err);
    if (status != STATUS_OK) return status;
    struct json_reader reader = json_reader(root, path, err);
    reader.log = log;
    file->read(&reader, config);
    json_decref(root);
    return reader.status;
}

/* Older versions of ModelOpt leave config.json without a quantization_config. */
static enum status load_config(const char *folder, bool mtp, const struct log *log, struct model_config *config,
                               struct error *err)
{
    const struct file file = {folder, "config.json", mtp ? read_mtp_config : read_config};
    const struct file modelopt = {folder, "hf_quant_config.json", read_modelopt};
    bool found;
    enum status status = load(&file, log, config, &found, err);
    if (status != STATUS_OK) return status;
    if (!found) return foreign_checkpoint_refuse(folder, "config.json", err);
    return config->spec.num_schemes == 1 ? load(&modelopt, log, config, &found, err) : STATUS_OK;
}

static enum status load_generation(const char *folder, const char *generation, const struct log *log,
                                   struct model_config *config, struct error *err)
{
    const bool is_auto = strcmp(generation, "auto") == 0, is_vllm = strcmp(generation, "vllm") == 0;
    const struct file file = {is_auto || is_vllm ? folder : generation, "generation_config.json",
                              is_vllm ? read_generation_eos : read_generation};
    bool found;
    enum status status = load(&file, log, config, &found, err);
    if (status != STATUS_OK || found || is_auto || is_vllm) return status;
    return error_set(err, STATUS_IO, "%s: there is no generation_config.json, which generation_config asks for",
                     generation);
}

/* Of a model, or with mtp of the head in its files. */
static enum status load_folder(const char *folder, bool mtp, const struct log *log, struct model_config *config,
                               struct error *err)
{
    *config = (struct model_config){.bos_token_id = -1, .generation = generation_config_none()};
    if (file_exists(folder)) return foreign_checkpoint_refuse(folder, "config.json", err);
    if (!folder_exists(folder))
        return error_set(err, STATUS_IO, "%s: no such folder; name one with config.json and *.safetensors", folder);
    return load_config(folder, mtp, log, config, err);
}

enum status model_config_load(const char *folder, const char *generation, const struct log *log,
                              struct model_config *config, struct error *err)
{
    enum status status = load_folder(folder, false, log, config, err);
    if (status == STATUS_OK && config->spec.head.kind != HEAD_NONE)
        return error_set(err, STATUS_INVALID,
                         "%s: architectures names \"%s\", a head that drafts for another model and computes nothing "
                         "alone; name that model, and this folder as what drafts for it",
                         folder, config->architecture);
    return status == STATUS_OK ? load_generation(folder, generation ? generation : "auto", log, config, err) : status;
}

enum status model_config_load_drafter(const char *folder, const struct log *log, struct model_config *config,
                                      struct error *err)
{
    enum status status = load_folder(folder, false, log, config, err);
    if (status == STATUS_OK && config->spec.head.kind != HEAD_NONE) head_read_files(folder, &config->spec);
    return status;
}

enum status model_config_load_mtp(const char *folder, const struct log *log, struct model_config *config,
                                  struct error *err)
{
    const enum status status = load_folder(folder, true, log, config, err);
    if (status == STATUS_OK) head_read_files(folder, &config->spec);
    return status;
}
