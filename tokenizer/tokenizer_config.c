#include "tokenizer/tokenizer_config.h"

#include <dirent.h>
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
    if (status == STATUS_OK && found) status = json_object_read(r->path, &r->root, err);
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

/* The text of a token written as "..." or as {"content": "..."}; NULL if it is neither, or no json_is_text. */
static const char *token_content(const json_t *value)
{
    if (json_is_object(value)) value = json_object_get(value, "content");
    return json_is_text(value) ? json_string_value(value) : NULL;
}

static bool check_id(struct json_reader *r, json_int_t id, const char *content)
{
    if (id >= 0 && id < TOKENIZER_CONFIG_MAX_ID) return true;
    json_reader_fail(r, STATUS_INVALID, "the added token \"%s\" has id %lld; expected 0 to %d",
                     show_string(content).text, (long long)id, TOKENIZER_CONFIG_MAX_ID - 1);
    return false;
}

static void add_token(struct reader *r, json_int_t id, const char *content, unsigned flags)
{
    struct tokenizer_config *config = r->config;
    if (!check_id(&r->json, id, content)) return;
    if (!array_reserve(&config->added, &config->added_capacity, config->num_added + 1, sizeof *config->added)) {
        out_of_memory(r);
        return;
    }
    char *copy = copy_string(r, content);
    if (copy) config->added[config->num_added++] = (struct config_token){(int32_t)id, copy, flags};
}

static void add_special_name(struct reader *r, const char *content)
{
    if (content && json_object_set_new(r->config->special_names, content, json_true()) != 0) out_of_memory(r);
}

bool config_token_read(struct json_reader *r, json_int_t id, const json_t *entry, const char **content, unsigned *flags)
{
    static const struct {
        const char *key;
        unsigned flag;
    } marks[] = {{"special", ADDED_TOKEN_SPECIAL},
                 {"lstrip", ADDED_TOKEN_LSTRIP},
                 {"rstrip", ADDED_TOKEN_RSTRIP},
                 {"single_word", ADDED_TOKEN_SINGLE_WORD},
                 {"normalized", ADDED_TOKEN_NORMALIZED}};
    *content = json_is_object(entry) ? token_content(entry) : NULL;
    *flags = 0;
    if (!*content || !**content) {
        json_reader_fail(r, STATUS_INVALID,
                         "the added token %lld must be an object with a \"content\" that is not empty", (long long)id);
        return false;
    }
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        const json_t *value = json_object_get(entry, marks[i].key);
        if (value && !json_is_boolean(value)) {
            char name[64];
            snprintf(name, sizeof name, "\"%s\" of an added token", marks[i].key);
            json_reader_expected(r, name, "true or false", value);
            return false;
        }
        if (json_is_true(value)) *flags |= marks[i].flag;
    }
    return check_id(r, id, *content);
}

static void read_added_entry(struct reader *r, json_int_t id, const json_t *entry)
{
    const char *content;
    unsigned flags;
    if (config_token_read(&r->json, id, entry, &content, &flags)) add_token(r, id, content, flags);
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
    if (decoder && !json_is_map(decoder)) json_reader_expected(&r->json, "added_tokens_decoder", "an object", decoder);
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

/* A template sees a token by its name; the first file that has it wins. */
static void add_variable(struct reader *r, const char *name, const json_t *value)
{
    json_t *variables = r->config->variables;
    const char *content = token_content(value);
    if (content && !json_object_get(variables, name) && json_object_set_new(variables, name, json_string(content)) != 0)
        out_of_memory(r);
}

static void read_special_names(struct reader *r)
{
    static const char *const single[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                         "pad_token", "cls_token", "mask_token"};
    for (size_t i = 0; i < sizeof single / sizeof *single; i++) {
        const json_t *value = json_object_get(r->root, single[i]);
        if (strcmp(single[i], "unk_token") != 0) add_special_name(r, token_content(value));
        add_variable(r, single[i], value);
    }
    const char *name;
    json_t *entry;
    json_object_foreach(json_object_get(r->root, "extra_special_tokens"), name, entry) add_variable(r, name, entry);
    read_special_list(r, "additional_special_tokens");
    read_special_list(r, "extra_special_tokens");
}

static void add_template(struct reader *r, const char *name, const char *source)
{
    struct tokenizer_config *config = r->config;
    if (!array_reserve(&config->templates, &config->templates_capacity, config->num_templates + 1,
                       sizeof *config->templates)) {
        out_of_memory(r);
        return;
    }
    struct named_template *added = &config->templates[config->num_templates++];
    added->name = copy_string(r, name);
    added->source = copy_string(r, source);
}

/* A string, or a list of {"name", "template"}. */
static void read_template(struct reader *r)
{
    const json_t *value = json_reader_get(&r->json, "chat_template"), *entry;
    if (json_is_text(value)) add_template(r, "default", json_string_value(value));
    if (value && !json_is_text(value) && !json_is_array(value))
        json_reader_expected(&r->json, "chat_template", "a string or a list of named templates", value);
    for (size_t i = 0; i < json_array_size(value); i++) {
        entry = json_array_get(value, i);
        const char *name = json_string_value(json_object_get(entry, "name"));
        const char *source = json_string_value(json_object_get(entry, "template"));
        if (!name || !source) {
            json_reader_fail(&r->json, STATUS_INVALID,
                             "entry %zu of chat_template must have a \"name\" and a \"template\"", i + 1);
            return;
        }
        add_template(r, name, source);
    }
}

static enum setting read_setting(struct reader *r, const char *key)
{
    if (!json_reader_get(&r->json, key)) return SETTING_NOT_GIVEN;
    return json_reader_bool(&r->json, key, false) ? SETTING_TRUE : SETTING_FALSE;
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
    config->add_bos_token = read_setting(&r, "add_bos_token");
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
        if (*content) add_token(&r, value, content, ADDED_TOKEN_NORMALIZED);
    }
    return reader_close(&r);
}

void named_templates_free(struct named_template *templates, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(templates[i].name);
        free(templates[i].source);
    }
    free(templates);
}

static void free_templates(struct tokenizer_config *config)
{
    named_templates_free(config->templates, config->num_templates);
    config->templates = NULL;
    config->num_templates = config->templates_capacity = 0;
}

/* Reads a file of the folder as the template `name`, unless it is missing or empty. Files replace all templates of
 * tokenizer_config.json: *replaced says that they have. */
static enum status read_template_file(const char *folder, const char *file, const char *name, bool *replaced,
                                      struct tokenizer_config *config, struct error *err)
{
    struct reader r = {.config = config};
    struct text source = {0};
    bool found;
    if (!path_join(r.path, sizeof r.path, folder, file))
        return error_set(err, STATUS_INVALID, "%s: the folder's name is too long", folder);
    r.json = json_reader(NULL, r.path, err);
    enum status status = file_find(r.path, &found, err);
    if (status == STATUS_OK && found) status = file_read(r.path, &source, err);
    if (status == STATUS_OK && source.length > 0 && strlen(source.data) < source.length)
        status = error_set(err, STATUS_INVALID, "%s: there is a NUL byte in it; a chat template is text", r.path);
    if (status == STATUS_OK && source.length > 0) {
        if (!*replaced) free_templates(config);
        *replaced = true;
        add_template(&r, name, source.data);
        status = r.json.status;
    }
    text_free(&source);
    return status;
}

static enum status read_template_files(const char *folder, struct tokenizer_config *config, struct error *err)
{
    static const char suffix[] = ".jinja", subfolder[] = "additional_chat_templates";
    char path[PATH_MAX], file[PATH_MAX];
    bool replaced = false;
    enum status status = read_template_file(folder, "chat_template.jinja", "default", &replaced, config, err);
    if (status != STATUS_OK || !path_join(path, sizeof path, folder, subfolder)) return status;
    struct dirent **entries;
    const int count = scandir(path, &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        char *name = entries[i]->d_name;
        const size_t length = strlen(name), end = length - (sizeof suffix - 1);
        if (status == STATUS_OK && length >= sizeof suffix && strcmp(name + end, suffix) == 0 &&
            path_join(file, sizeof file, subfolder, name)) {
            name[end] = '\0';
            status = read_template_file(folder, file, name, &replaced, config, err);
        }
        free(entries[i]);
    }
    if (count >= 0) free(entries);
    return status;
}

/* Where a checkpoint of several modalities keeps the template of its processor, which counts, as in transformers. */
static enum status read_processor_files(const char *folder, struct tokenizer_config *config, struct error *err)
{
    static const char *const files[] = {"chat_template.json", "processor_config.json"};
    enum status status = STATUS_OK;
    for (size_t i = 0; i < sizeof files / sizeof *files && status == STATUS_OK; i++) {
        struct reader r;
        status = reader_open(&r, folder, files[i], config, err);
        if (status != STATUS_OK) return status;
        if (json_reader_get(&r.json, "chat_template")) {
            free_templates(config);
            read_template(&r);
        }
        status = reader_close(&r);
    }
    return status;
}

enum status tokenizer_config_read(const char *folder, struct tokenizer_config *config, struct error *err)
{
    *config = (struct tokenizer_config){.special_names = json_object(), .variables = json_object()};
    if (!config->special_names || !config->variables)
        return error_set(err, STATUS_OUT_OF_MEMORY, "%s: out of memory", folder);
    enum status status = read_main(folder, config, err);
    if (!status) status = read_map(folder, config, err);
    if (!status && !config->num_added) status = read_added_file(folder, config, err);
    if (!status) status = read_template_files(folder, config, err);
    if (!status) status = read_processor_files(folder, config, err);
    return status;
}

void tokenizer_config_free(struct tokenizer_config *config)
{
    for (size_t i = 0; i < config->num_added; i++) free(config->added[i].content);
    free_templates(config);
    free(config->added);
    free(config->bos.content);
    free(config->eos.content);
    json_decref(config->special_names);
    json_decref(config->variables);
    *config = (struct tokenizer_config){0};
}
