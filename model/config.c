#include "model/config.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>

#include "base/file.h"
#include "base/json.h"
#include "model/families/families.h"
#include "model/foreign_checkpoint.h"
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

static void read_config(struct json_reader *r, struct model_config *config)
{
    const struct family *family = family_find(r);
    snprintf(config->model_type, sizeof config->model_type, "%s", family->model_type);
    snprintf(config->architecture, sizeof config->architecture, "%s", family->architecture);
    family_read_spec(r, family, &config->spec);
    quantization_read(r, &config->spec);
    config->bos_token_id = json_reader_int(r, "bos_token_id", -1, -1, INT32_MAX);
    read_eos(r, config);
}

static void read_generation(struct json_reader *r, struct model_config *config)
{
    config->generation = (struct generation_config){
        .present = true,
        .do_sample_given = json_reader_get(r, "do_sample") != NULL,
        .do_sample = json_reader_bool(r, "do_sample", false),
        .temperature = json_reader_number(r, "temperature", NAN, 0, 1e6),
        .top_p = json_reader_number(r, "top_p", NAN, 1e-9, 1),
        .min_p = json_reader_number(r, "min_p", NAN, 0, 1),
        .repetition_penalty = json_reader_number(r, "repetition_penalty", NAN, 1e-9, 1e6),
        .top_k = json_reader_int(r, "top_k", -1, -1, INT32_MAX),
        .max_new_tokens = json_reader_int(r, "max_new_tokens", -1, 1, INT32_MAX),
    };
    read_eos(r, config);
}

/* Reads one file through `read`. */
static enum status load(const char *path, struct model_config *config,
                        void (*read)(struct json_reader *, struct model_config *), struct error *err)
{
    json_t *root;
    enum status status = json_object_read(path, &root, err);
    if (status != STATUS_OK) return status;
    struct json_reader reader = json_reader(root, path, err);
    read(&reader, config);
    json_decref(root);
    return reader.status;
}

enum status model_config_load(const char *folder, struct model_config *config, struct error *err)
{
    char path[PATH_MAX];
    const struct generation_config none = {
        .temperature = NAN, .top_p = NAN, .min_p = NAN, .repetition_penalty = NAN, .top_k = -1, .max_new_tokens = -1};
    *config = (struct model_config){.bos_token_id = -1, .generation = none};
    if (file_exists(folder)) return foreign_checkpoint_refuse(folder, "config.json", err);
    if (!folder_exists(folder))
        return error_set(err, STATUS_IO, "%s: no such folder; name one with config.json and *.safetensors", folder);
    if (!path_join(path, sizeof path, folder, "generation_config.json"))
        return error_set(err, STATUS_INVALID, "%s: the path is too long", folder);
    bool found, has_generation;
    enum status status = file_find(path, &has_generation, err);
    if (status != STATUS_OK) return status;
    path_join(path, sizeof path, folder, "config.json"); /* shorter than the name before */
    status = file_find(path, &found, err);
    if (status != STATUS_OK) return status;
    if (!found) return foreign_checkpoint_refuse(folder, "config.json", err);
    status = load(path, config, read_config, err);
    if (status != STATUS_OK || !has_generation) return status;
    path_join(path, sizeof path, folder, "generation_config.json");
    return load(path, config, read_generation, err);
}
