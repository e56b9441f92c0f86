#include "tokenizer/tokenizer_config.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/file.h"

/* One JSON file being read: where it is, for the sentences, and where its facts go. */
struct reader {
    char path[PATH_MAX];
    json_t *root; /* an object, or NULL: there is no such file */
    struct tokenizer_config *config;
    struct error *err;
};

static enum status out_of_memory(struct reader *r)
{
    return error_set(r->err, STATUS_OUT_OF_MEMORY, "%s: out of memory", r->path);
}

static const char *type_name(const json_t *value)
{
    static const char *const names[] = {"an object", "an array", "a string", "an integer",
                                        "a number",  "true",     "false",    "null"};
    return value ? names[json_typeof(value)] : "nothing";
}

static enum status wrong_type(struct reader *r, const char *key, const char *expected, const json_t *found)
{
    return error_set(r->err, STATUS_INVALID, "%s: %s must be %s, not %s", r->path, key, expected, type_name(found));
}

static enum status parse(struct reader *r, const struct text *source)
{
    json_error_t error;
    r->root = json_loadb(source->data ? source->data : "", source->length, 0, &error);
    if (!r->root)
        return error_set(r->err, STATUS_INVALID, "%s: not valid JSON at line %d, column %d: %s", r->path, error.line,
                         error.column, error.text);
    if (!json_is_object(r->root)) return wrong_type(r, "the file", "a JSON object", r->root);
    return STATUS_OK;
}

/* Opens a file of the folder; r->root stays NULL if there is none. Close with reader_close, also after a failure. */
static enum status reader_open(struct reader *r, const char *folder, const char *name, struct tokenizer_config *config,
                               struct error *err)
{
    *r = (struct reader){.config = config, .err = err};
    if (!path_join(r->path, sizeof r->path, folder, name))
        return error_set(err, STATUS_INVALID, "%s: the folder's name is too long", folder);
    if (!file_exists(r->path)) return STATUS_OK;
    struct text source = {0};
    enum status status = file_read(r->path, &source, err);
    if (!status) status = parse(r, &source);
    text_free(&source);
    return status;
}

static void reader_close(struct reader *r)
{
    json_decref(r->root);
    r->root = NULL;
}

/* The text of a token written as "..." or as {"content": "..."}; NULL if it is neither. */
static const char *token_content(const json_t *value)
{
    if (json_is_object(value)) value = json_object_get(value, "content");
    return json_string_value(value);
}

static enum status add_token(struct reader *r, json_int_t id, const char *content, bool special)
{
    struct tokenizer_config *config = r->config;
    if (id < 0 || id >= TOKENIZER_CONFIG_MAX_ID)
        return error_set(r->err, STATUS_INVALID, "%s: the added token \"%s\" has id %lld; expected 0 to %d", r->path,
                         content, (long long)id, TOKENIZER_CONFIG_MAX_ID - 1);
    if (!array_reserve(&config->added, &config->added_capacity, config->num_added + 1, sizeof *config->added))
        return out_of_memory(r);
    char *copy = strdup(content);
    if (!copy) return out_of_memory(r);
    config->added[config->num_added++] = (struct added_token){(int32_t)id, copy, special};
    return STATUS_OK;
}

static enum status add_special_name(struct reader *r, const char *content)
{
    struct tokenizer_config *config = r->config;
    if (!array_reserve(&config->special_names, &config->special_names_capacity, config->num_special_names + 1,
                       sizeof *config->special_names))
        return out_of_memory(r);
    char *copy = strdup(content);
    if (!copy) return out_of_memory(r);
    config->special_names[config->num_special_names++] = copy;
    return STATUS_OK;
}

/* An entry of added_tokens_decoder, or of tokenizer.json's added_tokens: {"content": ..., "special": ...}. */
static enum status read_added_entry(struct reader *r, json_int_t id, const json_t *entry)
{
    const char *content = json_is_object(entry) ? token_content(entry) : NULL;
    if (!content || !*content)
        return error_set(r->err, STATUS_INVALID,
                         "%s: the added token %lld must be an object with a \"content\" that is not empty", r->path,
                         (long long)id);
    const json_t *special = json_object_get(entry, "special");
    if (special && !json_is_boolean(special))
        return wrong_type(r, "\"special\" of an added token", "true or false", special);
    return add_token(r, id, content, json_is_true(special));
}

static bool parse_id(const char *text, json_int_t *id)
{
    char *end;
    errno = 0;
    *id = strtoll(text, &end, 10);
    return end != text && *end == '\0' && errno == 0;
}

static enum status read_added_tokens_decoder(struct reader *r)
{
    json_t *decoder = json_object_get(r->root, "added_tokens_decoder");
    if (!decoder || json_is_null(decoder)) return STATUS_OK;
    if (!json_is_object(decoder)) return wrong_type(r, "added_tokens_decoder", "an object", decoder);
    const char *key;
    json_t *entry;
    json_object_foreach(decoder, key, entry)
    {
        json_int_t id;
        if (!parse_id(key, &id))
            return error_set(r->err, STATUS_INVALID, "%s: added_tokens_decoder has the key \"%s\"; expected a token id",
                             r->path, key);
        enum status status = read_added_entry(r, id, entry);
        if (status) return status;
    }
    return STATUS_OK;
}

/* bos_token and the like. The first file that speaks of it wins. */
static enum status read_named(struct reader *r, const char *key, struct named_token *named)
{
    const json_t *value = json_object_get(r->root, key);
    if (!value || named->given) return STATUS_OK;
    const char *content = token_content(value);
    if (!content && !json_is_null(value)) return wrong_type(r, key, "a string or {\"content\": a string}", value);
    named->given = true;
    if (!content) return STATUS_OK;
    named->content = strdup(content);
    return named->content ? STATUS_OK : out_of_memory(r);
}

/* additional_special_tokens: a list; extra_special_tokens: a list (transformers 5) or name -> token (4). What is not a
 * token here is of no consequence, so it is passed over. */
static enum status read_special_list(struct reader *r, const char *key)
{
    json_t *list = json_object_get(r->root, key), *entry;
    enum status status = STATUS_OK;
    size_t i;
    const char *name;
    json_array_foreach(list, i, entry)
    {
        if (!status && token_content(entry)) status = add_special_name(r, token_content(entry));
    }
    json_object_foreach(list, name, entry)
    {
        if (!status && token_content(entry)) status = add_special_name(r, token_content(entry));
    }
    return status;
}

static enum status read_special_names(struct reader *r)
{
    static const char *const single[] = {"bos_token", "eos_token", "pad_token", "sep_token", "cls_token", "mask_token"};
    enum status status = STATUS_OK;
    for (size_t i = 0; i < sizeof single / sizeof *single && !status; i++) {
        const char *content = token_content(json_object_get(r->root, single[i]));
        if (content) status = add_special_name(r, content);
    }
    if (!status) status = read_special_list(r, "additional_special_tokens");
    if (!status) status = read_special_list(r, "extra_special_tokens");
    return status;
}

static enum status set_template(struct reader *r, const char *source)
{
    free(r->config->chat_template);
    r->config->chat_template = strdup(source);
    return r->config->chat_template ? STATUS_OK : out_of_memory(r);
}

/* A string, or a list of {"name", "template"}, of which the one named "default" is taken. */
static enum status read_template(struct reader *r)
{
    json_t *value = json_object_get(r->root, "chat_template"), *entry;
    if (!value || json_is_null(value)) return STATUS_OK;
    if (json_is_string(value)) return set_template(r, json_string_value(value));
    if (!json_is_array(value)) return wrong_type(r, "chat_template", "a string or a list of named templates", value);
    size_t i;
    json_array_foreach(value, i, entry)
    {
        const char *name = json_string_value(json_object_get(entry, "name"));
        const char *source = json_string_value(json_object_get(entry, "template"));
        if (!name || !source)
            return error_set(r->err, STATUS_INVALID,
                             "%s: entry %zu of chat_template must have a \"name\" and a \"template\"", r->path, i + 1);
        if (strcmp(name, "default") == 0) return set_template(r, source);
    }
    return STATUS_OK;
}

static enum status read_add_bos(struct reader *r)
{
    const json_t *value = json_object_get(r->root, "add_bos_token");
    if (!value || json_is_null(value)) return STATUS_OK;
    if (!json_is_boolean(value)) return wrong_type(r, "add_bos_token", "true or false", value);
    r->config->add_bos_token = json_is_true(value);
    return STATUS_OK;
}

static enum status read_main(const char *folder, struct tokenizer_config *config, struct error *err)
{
    struct reader r;
    enum status status = reader_open(&r, folder, "tokenizer_config.json", config, err);
    if (!status && r.root) {
        status = read_added_tokens_decoder(&r);
        if (!status) status = read_named(&r, "bos_token", &config->bos);
        if (!status) status = read_named(&r, "eos_token", &config->eos);
        if (!status) status = read_special_names(&r);
        if (!status) status = read_add_bos(&r);
        if (!status) status = read_template(&r);
    }
    reader_close(&r);
    return status;
}

static enum status read_map(const char *folder, struct tokenizer_config *config, struct error *err)
{
    struct reader r;
    enum status status = reader_open(&r, folder, "special_tokens_map.json", config, err);
    if (!status && r.root) {
        status = read_named(&r, "bos_token", &config->bos);
        if (!status) status = read_named(&r, "eos_token", &config->eos);
        if (!status) status = read_special_names(&r);
    }
    reader_close(&r);
    return status;
}

/* added_tokens.json: text -> id. Which of them are special, the lists of the other files say. */
static enum status read_added_file(const char *folder, struct tokenizer_config *config, struct error *err)
{
    struct reader r;
    enum status status = reader_open(&r, folder, "added_tokens.json", config, err);
    const char *content;
    json_t *id;
    json_object_foreach(status ? NULL : r.root, content, id)
    {
        if (status) break;
        if (!json_is_integer(id))
            status = wrong_type(&r, "the id of an added token", "an integer", id);
        else if (*content)
            status = add_token(&r, json_integer_value(id), content, false);
    }
    reader_close(&r);
    return status;
}

/* transformers 5 keeps the ids of added tokens in tokenizer.json alone. */
static enum status read_tokenizer_json(const char *folder, struct tokenizer_config *config, struct error *err)
{
    struct reader r;
    enum status status = reader_open(&r, folder, "tokenizer.json", config, err);
    size_t i;
    json_t *entry;
    json_array_foreach(status ? NULL : json_object_get(r.root, "added_tokens"), i, entry)
    {
        const json_t *id = json_object_get(entry, "id");
        if (status) break;
        status = json_is_integer(id) ? read_added_entry(&r, json_integer_value(id), entry)
                                     : wrong_type(&r, "the id of an added token", "an integer", id);
    }
    reader_close(&r);
    return status;
}

static enum status read_template_file(const char *folder, struct tokenizer_config *config, struct error *err)
{
    char path[PATH_MAX];
    struct text source = {0};
    if (!path_join(path, sizeof path, folder, "chat_template.jinja") || !file_exists(path)) return STATUS_OK;
    enum status status = file_read(path, &source, err);
    if (!status && source.length) { /* an empty file leaves text.data with no terminator to rely on */
        free(config->chat_template);
        config->chat_template = strdup(source.data);
        if (!config->chat_template) status = error_set(err, STATUS_OUT_OF_MEMORY, "%s: out of memory", path);
    }
    text_free(&source);
    return status;
}

enum status tokenizer_config_read(const char *folder, struct tokenizer_config *config, struct error *err)
{
    *config = (struct tokenizer_config){.add_bos_token = true};
    enum status status = read_main(folder, config, err);
    if (!status) status = read_map(folder, config, err);
    if (!status && !config->num_added) status = read_added_file(folder, config, err);
    if (!status && !config->num_added) status = read_tokenizer_json(folder, config, err);
    if (!status) status = read_template_file(folder, config, err);
    return status;
}

void tokenizer_config_free(struct tokenizer_config *config)
{
    for (size_t i = 0; i < config->num_added; i++) free(config->added[i].content);
    for (size_t i = 0; i < config->num_special_names; i++) free(config->special_names[i]);
    free(config->added);
    free(config->special_names);
    free(config->bos.content);
    free(config->eos.content);
    free(config->chat_template);
    *config = (struct tokenizer_config){0};
}
