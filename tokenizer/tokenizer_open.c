#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"
#include "tokenizer/tiktoken.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_config.h"
#include "tokenizer/tokenizer_parts.h"

/* What stands while a tokenizer is being opened. */
struct opening {
    const char *folder;
    char path[PATH_MAX];        /* of the file that has the vocabulary */
    struct tokenizer_json json; /* that file, if it is tokenizer.json or in tiktoken's form */
    struct tokenizer_config config;
};

static enum status no_vocabulary(const char *folder, struct error *err)
{
    return error_set(
        err, STATUS_IO,
        "%s: no tokenizer.json, no tokenizer.model (SentencePiece) and no tiktoken.model (Kimi) in this folder; "
        "copy the one that was published with the model there",
        folder);
}

/* The class that tokenizer_config.json names; "" if there is none. */
static enum status read_class(const struct opening *o, char *out, size_t size, struct error *err)
{
    char path[PATH_MAX];
    bool found = false;
    json_t *config = NULL;
    out[0] = '\0';
    if (!path_join(path, sizeof path, o->folder, "tokenizer_config.json")) return STATUS_OK;
    enum status status = file_find(path, &found, err);
    if (status == STATUS_OK && found) status = json_object_read(path, &config, err);
    if (status == STATUS_OK && found) {
        const json_t *name = json_object_get(config, "tokenizer_class");
        if (json_is_text(name)) snprintf(out, size, "%s", json_string_value(name));
    }
    json_decref(config);
    return status;
}

/* A vocabulary in tiktoken's form, which is read where the class of its tokenizer says how words are split. */
static enum status open_tiktoken(struct tokenizer *t, struct opening *o, struct error *err)
{
    char name[64];
    enum status status = read_class(o, name, sizeof name, err);
    if (status == STATUS_OK && strcmp(name, "TikTokenTokenizer") != 0)
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s: this is a vocabulary in tiktoken's form, which quire reads only for Kimi's "
                         "TikTokenTokenizer; copy the tokenizer.json that is published with the model in transformers' "
                         "form into the folder",
                         o->path);
    if (status == STATUS_OK) status = tiktoken_read(o->path, tiktoken_kimi_pattern, &o->json, err);
    return status == STATUS_OK ? pipeline_open(&o->json, o->path, &t->pipeline, &t->table, err) : status;
}

/* Where there is no tokenizer.model: the file of that form which has a name of its own. */
static bool find_tiktoken(struct opening *o)
{
    static const char *const names[] = {"tiktoken.model", "qwen.tiktoken"};
    for (int i = 0; i < 2; i++) {
        char path[PATH_MAX];
        if (!path_join(path, sizeof path, o->folder, names[i]) || !tiktoken_is(path)) continue;
        memcpy(o->path, path, sizeof path);
        return true;
    }
    return false;
}

static enum status open_model(struct tokenizer *t, struct opening *o, struct error *err)
{
    bool found;
    if (!path_join(o->path, sizeof o->path, o->folder, "tokenizer.model"))
        return error_set(err, STATUS_INVALID, "%s: the folder's name is too long", o->folder);
    enum status status = file_find(o->path, &found, err);
    if (status == STATUS_OK && !found && !find_tiktoken(o)) return no_vocabulary(o->folder, err);
    if (status == STATUS_OK && tiktoken_is(o->path)) return open_tiktoken(t, o, err);
    if (status == STATUS_OK) status = sentencepiece_open(o->path, &t->sp, err);
    return status == STATUS_OK ? token_table_build(&t->table, t->sp, err) : status;
}

static enum status open_vocabulary(struct tokenizer *t, struct opening *o, struct error *err)
{
    bool found;
    if (!folder_exists(o->folder)) return error_set(err, STATUS_IO, "%s: no such folder", o->folder);
    if (!path_join(o->path, sizeof o->path, o->folder, "tokenizer.json"))
        return error_set(err, STATUS_INVALID, "%s: the folder's name is too long", o->folder);
    enum status status = file_find(o->path, &found, err);
    if (status == STATUS_OK && !found) return open_model(t, o, err);
    if (status == STATUS_OK) status = tokenizer_json_read(o->path, &o->json, err);
    if (status == STATUS_OK) status = pipeline_open(&o->json, o->path, &t->pipeline, &t->table, err);
    return status;
}

/* The id of the vocabulary's piece with this text, or -1. */
static int32_t piece_id(const struct tokenizer *t, const char *text)
{
    size_t length = strlen(text);
    if (t->pipeline) return pipeline_piece_id(t->pipeline, text, length);
    int32_t id = sentencepiece_piece_to_id(t->sp, text);
    const char *piece = sentencepiece_piece(t->sp, id, &length);
    return length == strlen(text) && memcmp(piece, text, length) == 0 ? id : -1;
}

/* Whether the files may make this piece of the vocabulary special. A byte, the unknown piece or a single character
 * stands for ordinary text and may not. */
static bool may_be_special(const struct tokenizer *t, int32_t id, const char *content)
{
    size_t length = strlen(content);
    if (t->sp && sentencepiece_type(t->sp, id) == PIECE_CONTROL) return true;
    if (t->sp && (sentencepiece_type(t->sp, id) == PIECE_BYTE || sentencepiece_type(t->sp, id) == PIECE_UNKNOWN))
        return false;
    return utf8_length(content, length) != (int)length;
}

/* Makes `id` an added token with this text. */
static enum status add_token(struct tokenizer *t, int32_t id, const char *content, unsigned flags, struct error *err)
{
    const size_t length = strlen(content);
    const uint32_t token_flags = TOKEN_ADDED | (flags & ADDED_TOKEN_SPECIAL ? TOKEN_SPECIAL : 0);
    if (!added_tokens_add(&t->names, content, length, id, flags)) return tokenizer_no_memory(err);
    if (t->pipeline && (flags & ADDED_TOKEN_NORMALIZED))
        return pipeline_add_token(t->pipeline, &t->table, id, content, length, flags, token_flags, err);
    const bool set = t->pipeline ? pipeline_set_piece(t->pipeline, &t->table, id, content, length, token_flags)
                                 : token_table_set_text(&t->table, id, content, length, token_flags);
    return set && added_tokens_add(&t->added, content, length, id, flags) ? STATUS_OK : tokenizer_no_memory(err);
}

/* Adds a token of the configuration files, unless the vocabulary has it as text. */
static enum status add_config_token(struct tokenizer *t, const struct config_token *token, struct error *err)
{
    const bool special = token->flags & ADDED_TOKEN_SPECIAL;
    if (t->sp && token->id < sentencepiece_size(t->sp) && (!special || !may_be_special(t, token->id, token->content)))
        return STATUS_OK;
    return add_token(t, token->id, token->content, token->flags, err);
}

/* ADDED_TOKEN_SPECIAL, if a file lists this text as a special token. */
static unsigned listed(const struct opening *o, const char *content)
{
    return json_object_get(o->config.special_names, content) ? ADDED_TOKEN_SPECIAL : 0;
}

/* The added tokens of tokenizer.json, which has them in the order of their ids. */
static enum status add_json_tokens(struct tokenizer *t, const struct opening *o, struct error *err)
{
    struct json_reader r = json_reader(o->json.rest, o->path, err);
    json_t *entry;
    size_t i;
    json_array_foreach(json_object_get(o->json.rest, "added_tokens"), i, entry)
    {
        const char *content;
        unsigned flags;
        const int64_t id =
            json_reader_to_int64(&r, "the id of an added token", json_object_get(entry, "id"), INT64_MIN, INT64_MAX);
        if (r.status || !config_token_read(&r, id, entry, &content, &flags)) return r.status;
        enum status status = add_token(t, (int32_t)id, content, flags | listed(o, content), err);
        if (status) return status;
    }
    return STATUS_OK;
}

/* The control pieces of tokenizer.model. */
static enum status add_control_pieces(struct tokenizer *t, struct error *err)
{
    for (int32_t id = 0; t->sp && id < sentencepiece_size(t->sp); id++) {
        size_t length;
        if (sentencepiece_type(t->sp, id) != PIECE_CONTROL) continue;
        const char *piece = sentencepiece_piece(t->sp, id, &length);
        if (!added_tokens_add(&t->added, piece, length, id, ADDED_TOKEN_SPECIAL) ||
            !added_tokens_add(&t->names, piece, length, id, ADDED_TOKEN_SPECIAL))
            return tokenizer_no_memory(err);
    }
    return STATUS_OK;
}

/* The added tokens of the configuration files: tokenizer.json has its own, which come first. */
static enum status add_config_tokens(struct tokenizer *t, const struct opening *o, struct error *err)
{
    enum status status = STATUS_OK;
    for (size_t i = 0; i < o->config.num_added && !status; i++) {
        struct config_token token = o->config.added[i];
        const struct token there = token_table_get(&t->table, token.id);
        if (t->pipeline && (there.flags & TOKEN_ADDED)) continue;
        if (t->pipeline && there.length > 0 && piece_id(t, token.content) != token.id)
            return error_set(err, STATUS_INVALID,
                             "%s: the added token \"%s\" has the id %d, but in %s that is another piece", o->folder,
                             show_string(token.content).text, (int)token.id, tokenizer_file(t));
        token.flags |= listed(o, token.content);
        status = add_config_token(t, &token, err);
    }
    return status;
}

/* The pieces of the vocabulary that a file lists as special tokens, unless they are added tokens already. */
static enum status add_special_pieces(struct tokenizer *t, const struct opening *o, struct error *err)
{
    enum status status = STATUS_OK;
    const char *name;
    json_t *value;
    void *next;
    added_tokens_sort(&t->names); /* for tokenizer_special_id */
    json_object_foreach_safe(o->config.special_names, next, name, value)
    {
        if (tokenizer_special_id(t, name) >= 0) json_object_del(o->config.special_names, name);
    }
    json_object_foreach(o->config.special_names, name, value)
    {
        const int32_t id = *name ? piece_id(t, name) : -1;
        if (id >= 0 && may_be_special(t, id, name)) status = add_token(t, id, name, ADDED_TOKEN_SPECIAL, err);
        if (status) break;
    }
    return status;
}

static enum status add_tokens(struct tokenizer *t, const struct opening *o, struct error *err)
{
    enum status status = add_json_tokens(t, o, err);
    if (!status) status = add_control_pieces(t, err);
    if (!status) status = add_config_tokens(t, o, err);
    if (!status) status = add_special_pieces(t, o, err);
    if (status) return status;
    added_tokens_sort(&t->added);
    added_tokens_sort(&t->names);
    if (t->pipeline) pipeline_sort_added(t->pipeline);
    return STATUS_OK;
}

/* bos_token or eos_token: from the files, otherwise from the model. */
static enum status resolve(const struct tokenizer *t, const struct opening *o, const struct named_token *named,
                           const char *key, int32_t model_id, int32_t *id, struct error *err)
{
    *id = named->given ? -1 : model_id;
    if (!named->content || !*named->content) return STATUS_OK;
    *id = tokenizer_special_id(t, named->content);
    if (*id < 0) *id = piece_id(t, named->content);
    if (*id < 0)
        return error_set(err, STATUS_INVALID, "%s: %s is \"%s\", which is neither a piece of %s nor an added token",
                         o->folder, key, show_string(named->content).text, tokenizer_file(t));
    return STATUS_OK;
}

static enum status check_ids(const struct tokenizer *t, const struct token_list *ids, const char *path,
                             struct error *err)
{
    for (size_t i = 0; i < ids->count; i++)
        if (ids->ids[i] >= t->table.count)
            return error_set(err, STATUS_INVALID,
                             "%s: post_processor: token id %d is not in the vocabulary, which has ids 0 to %d", path,
                             (int)ids->ids[i], (int)t->table.count - 1);
    return STATUS_OK;
}

/* What TOKENIZER_ADD_SPECIAL adds: add_bos_token wins over tokenizer.json's post_processor; without either, a
 * tokenizer.model has bos first. */
static enum status read_post_processor(struct tokenizer *t, const struct opening *o, struct error *err)
{
    const enum setting add_bos = o->config.add_bos_token;
    const json_t *value = json_object_get(o->json.rest, "post_processor");
    enum status status = post_processor_read(value, o->path, &t->post, err);
    if (!status) status = check_ids(t, &t->post.before, o->path, err);
    if (!status) status = check_ids(t, &t->post.after, o->path, err);
    if (status != STATUS_OK || (t->pipeline && add_bos == SETTING_NOT_GIVEN)) return status;
    t->post.before.count = t->post.after.count = 0;
    if (add_bos == SETTING_FALSE || t->bos_id < 0) return STATUS_OK;
    return token_list_append(&t->post.before, &t->bos_id, 1) ? STATUS_OK : tokenizer_no_memory(err);
}

static enum status open_config(struct tokenizer *t, struct opening *o, struct error *err)
{
    const int32_t bos = t->sp ? sentencepiece_bos_id(t->sp) : -1, eos = t->sp ? sentencepiece_eos_id(t->sp) : -1;
    struct tokenizer_config *config = &o->config;
    enum status status = tokenizer_config_read(o->folder, config, err);
    if (!status) status = add_tokens(t, o, err);
    if (!status) status = resolve(t, o, &config->bos, "bos_token", bos, &t->bos_id, err);
    if (!status) status = resolve(t, o, &config->eos, "eos_token", eos, &t->eos_id, err);
    if (!status) status = read_post_processor(t, o, err);
    if (status) return status;
    t->templates = config->templates;
    t->num_templates = config->num_templates;
    t->variables = config->variables;
    config->templates = NULL;
    config->num_templates = 0;
    config->variables = NULL;
    return STATUS_OK;
}

enum status tokenizer_open(const char *folder, struct tokenizer **out, struct error *err)
{
    *out = NULL;
    struct tokenizer *t = calloc(1, sizeof *t);
    if (!t) return tokenizer_no_memory(err);
    struct opening o = {.folder = folder};
    enum status status = open_vocabulary(t, &o, err);
    if (!status) snprintf(t->file, sizeof t->file, "%s", strrchr(o.path, '/') + 1);
    if (!status) status = open_config(t, &o, err);
    tokenizer_config_free(&o.config);
    tokenizer_json_free(&o.json);
    if (status)
        tokenizer_close(t);
    else
        *out = t;
    return status;
}

void tokenizer_close(struct tokenizer *t)
{
    if (!t) return;
    sentencepiece_close(t->sp);
    pipeline_close(t->pipeline);
    added_tokens_free(&t->added);
    added_tokens_free(&t->names);
    post_processor_free(&t->post);
    token_table_free(&t->table);
    named_templates_free(t->templates, t->num_templates);
    json_decref(t->variables);
    free(t);
}
