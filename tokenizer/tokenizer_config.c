#include "tokenizer/tokenizer_config.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/file.h"
#include "base/json.h"

/* One JSON file being read: where it is, its object (NULL: there is no such file), and where its facts go. */
struct reader {
    char path[PATH_MAX];
    json_t *root;
    struct json_reader json;
    struct tokenizer_config *config;
};

static void out_of_memory(struct reader *r)
{
    json_reader_fail(&r->json, STATUS_OUT_OF_MEMORY, "out of memory");
}

/* Opens a file of the folder, which need not be there. Close with reader_close, also after a failure. */
static enum status reader_open(struct reader *r, const char *folder, const char *name, struct tokenizer_config *config,
                               struct error *err)
{
    bool found;
    *r = (struct reader){.config = config};
    if (!path_join(r->path, sizeof r->path, folder, name))
        return error_set(err, STATUS_INVALID, "%s: the folder's name is too long", folder);
    enum status status = file_find(r->path, &found, err);
    if (status == STATUS_OK && found) status = json_object_read(r->path, 0, &r->root, err);
    r->json = json_reader(r->root, r->path, err);
    return status;
}

static enum status reader_close(struct reader *r)
{
    json_decref(r->root);
    r->root = NULL;
    return r->json.status;
}

static char *copy_string(struct reader *r, const char *string)
{
    char *copy = strdup(string);
    if (!copy) out_of_memory(r);
    return copy;
}

/* The text of a token written as "..." or as {"content": "..."}; NULL if it is neither. */
static const char *token_content(const json_t *value)
{
    if (json_is_object(value)) value = json_object_get(value, "content");
    return json_string_value(value);
}

static void add_token(struct reader *r, json_int_t id, const char *content, bool special)
{
    struct tokenizer_config *config = r->config;
    if (id < 0 || id >= TOKENIZER_CONFIG_MAX_ID) {
        json_reader_fail(&r->json, STATUS_INVALID, "the added token \"%s\" has id %lld; expected 0 to %d",
                         show_string(content).text, (long long)id, TOKENIZER_CONFIG_MAX_ID - 1);
        return;
    }
    if (!array_reserve(&config->added, &config->added_capacity, config->num_added + 1, sizeof *config->added)) {
        out_of_memory(r);
        return;
    }
    char *copy = copy_string(r, content);
    if (copy) config->added[config->num_added++] = (struct added_token){(int32_t)id, copy, special};
}

static void add_special_name(struct reader *r, const char *content)
{
    struct tokenizer_config *config = r->config;
    if (!content) return;
    if (!array_reserve(&config->special_names, &config->special_names_capacity, config->num_special_names + 1,
                       sizeof *config->special_names)) {
        out_of_memory(r);
        return;
    }
    char *copy = copy_string(r, content);
    if (copy) config->special_names[config->num_special_names++] = copy;
}

/* An entry of added_tokens_decoder, or of tokenizer.json's added_tokens: {"content": ..., "special": ...}. */
static void read_added_entry(struct reader *r, json_int_t id, const json_t *entry)
{
    const char *content = json_is_object(entry) ? token_content(entry) : NULL;
    const json_t *special = json_object_get(entry, "special");
    if (!content || !*content)
        json_reader_fail(&r->json, STATUS_INVALID,
                         "the added token %lld must be an object with a \"content\" that is not empty", (long long)id);
    else if (special && !json_is_boolean(special))
        json_reader_expected(&r->json, "\"special\" of an added token", "true or false", special);
    else
        add_token(r, id, content, json_is_true(special));
}

static bool parse_id(const char *text, json_int_t *id)
{
    char *end;
    errno = 0;
    *id = strtoll(text, &end, 10);
    return end != text && *end == '\0' && errno == 0;
}

static void read_added_tokens_decoder(struct reader *r)
{
    const json_t *decoder = json_reader_get(&r->json, "added_tokens_decoder");
    if (decoder && !json_is_object(decoder))
        json_reader_expected(&r->json, "added_tokens_decoder", "an object", decoder);
    const char *key;
    json_t *entry;
    json_object_foreach((json_t *)decoder, key, entry)
    {
        json_int_t id;
        if (parse_id(key, &id))
            read_added_entry(r, id, entry);
        else
            json_reader_fail(&r->json, STATUS_INVALID, "added_tokens_decoder has the key \"%s\"; expected a token id",
                             show_string(key).text);
        if (r->json.status != STATUS_OK) return;
    }
}

/* bos_token and the like. The first file that has the key wins, also with null: there is no such token. */
static void read_named(struct reader *r, const char *key, struct named_token *named)
{
    if (!json_reader_has(&r->json, key) || named->given) return;
    const json_t *value = json_reader_get(&r->json, key);
    const char *content = token_content(value);
    named->given = true;
    if (content)
        named->content = copy_string(r, content);
    else if (value)
        json_reader_expected(&r->json, key, "a string or {\"content\": a string}", value);
}

/* additional_special_tokens: a list; extra_special_tokens: a list (transformers 5) or name -> token (4). An entry that
 * is no token is ignored. */
static void read_special_list(struct reader *r, const char *key)
{
    json_t *list = json_object_get(r->root, key), *entry;
    size_t i;
    const char *name;
    json_array_foreach(list, i, entry) add_special_name(r, token_content(entry));
    json_object_foreach(list, name, entry) add_special_name(r, token_content(entry));
}

static void read_special_names(struct reader *r)
{
    static const char *const single[] = {"bos_token", "eos_token", "pad_token", "sep_token", "cls_token", "mask_token"};
    for (size_t i = 0; i < sizeof single / sizeof *single; i++)
        add_special_name(r, token_content(json_object_get(r->root, single[i])));
    read_special_list(r, "additional_special_tokens");
    read_special_list(r, "extra_special_tokens");
}

/* A string, or a list of {"name", "template"}, of which the one named "default" is taken. */
static void read_template(struct reader *r)
{
    const json_t *value = json_reader_get(&r->json, "chat_template"), *entry;
    if (json_is_string(value)) r->config->chat_template = copy_string(r, json_string_value(value));
    if (value && !json_is_string(value) && !json_is_array(value))
        json_reader_expected(&r->json, "chat_template", "a string or a list of named templates", value);
    for (size_t i = 0; i < json_array_size(value) && !r->config->chat_template; i++) {
        entry = json_array_get(value, i);
        const char *name = json_string_value(json_object_get(entry, "name"));
        const char *source = json_string_value(json_object_get(entry, "template"));
        if (!name || !source) {
            json_reader_fail(&r->json, STATUS_INVALID,
                             "entry %zu of chat_template must have a \"name\" and a \"template\"", i + 1);
            return;
        }
        if (strcmp(name, "default") == 0) r->config->chat_template = copy_string(r, source);
    }
}

static enum status read_main(const char *folder, struct tokenizer_config *config, struct error *err)
{
    struct reader r;
    enum status status = reader_open(&r, folder, "tokenizer_config.json", config, err);
    if (status != STATUS_OK) return status;
    read_added_tokens_decoder(&r);
    read_named(&r, "bos_token", &config->bos);
    read_named(&r, "eos_token", &config->eos);
    read_special_names(&r);
    config->add_bos_token = json_reader_bool(&r.json, "add_bos_token", config->add_bos_token);
    read_template(&r);
    return reader_close(&r);
}

static enum status read_map(const char *folder, struct tokenizer_config *config, struct error *err)
{
    struct reader r;
    enum status status = reader_open(&r, folder, "special_tokens_map.json", config, err);
    if (status != STATUS_OK) return status;
    read_named(&r, "bos_token", &config->bos);
    read_named(&r, "eos_token", &config->eos);
    read_special_names(&r);
    return reader_close(&r);
}

/* added_tokens.json: text -> id. The lists in the other files say which of them are special. */
static enum status read_added_file(const char *folder, struct tokenizer_config *config, struct error *err)
{
    struct reader r;
    enum status status = reader_open(&r, folder, "added_tokens.json", config, err);
    if (status != STATUS_OK) return status;
    const char *content;
    json_t *id;
    json_object_foreach(r.root, content, id)
    {
        const int64_t value = json_reader_to_int64(&r.json, "the id of an added token", id, INT64_MIN, INT64_MAX);
        if (r.json.status != STATUS_OK) break;
        if (*content) add_token(&r, value, content, false);
    }
    return reader_close(&r);
}

/* transformers 5 keeps the ids of added tokens in tokenizer.json alone. */
static enum status read_tokenizer_json(const char *folder, struct tokenizer_config *config, struct error *err)
{
    struct reader r;
    enum status status = reader_open(&r, folder, "tokenizer.json", config, err);
    if (status != STATUS_OK) return status;
    size_t i;
    json_t *entry;
    json_array_foreach(json_object_get(r.root, "added_tokens"), i, entry)
    {
        const int64_t id = json_reader_to_int64(&r.json, "the id of an added token", json_object_get(entry, "id"),
                                                INT64_MIN, INT64_MAX);
        if (r.json.status != STATUS_OK) break;
        read_added_entry(&r, id, entry);
    }
    return reader_close(&r);
}

/* A template file wins over the one in tokenizer_config.json, unless it is empty. */
static enum status read_template_file(const char *folder, struct tokenizer_config *config, struct error *err)
{
    char path[PATH_MAX];
    struct text source = {0};
    bool found;
    if (!path_join(path, sizeof path, folder, "chat_template.jinja"))
        return error_set(err, STATUS_INVALID, "%s: the folder's name is too long", folder);
    enum status status = file_find(path, &found, err);
    if (status == STATUS_OK && found) status = file_read(path, &source, err);
    if (status == STATUS_OK && source.length > 0) {
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
