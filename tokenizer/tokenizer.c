#include "tokenizer/tokenizer.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/sentencepiece.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/token_table.h"
#include "tokenizer/tokenizer_config.h"
#include "base/utf8.h"

struct tokenizer {
    struct sentencepiece_model *sp; /* of tokenizer.model, or ... */
    struct pipeline *pipeline;      /* ... of tokenizer.json; the other is NULL */
    struct token_table table;
    struct added_tokens added;  /* those that are found in a text as it is given */
    struct added_tokens names;  /* all, by their own spelling */
    struct post_processor post; /* what TOKENIZER_ADD_SPECIAL adds */
    int32_t bos_id, eos_id;
    struct named_template *templates; /* [num_templates] */
    size_t num_templates;
    json_t *variables;
};

bool token_list_append(struct token_list *list, const int32_t *ids, size_t count)
{
    if (!array_reserve(&list->ids, &list->capacity, list->count + count, sizeof *list->ids)) return false;
    if (count) memcpy(list->ids + list->count, ids, count * sizeof *ids);
    list->count += count;
    return true;
}

void token_list_free(struct token_list *list)
{
    free(list->ids);
    *list = (struct token_list){0};
}

/* --- opening --- */

static enum status out_of_memory(struct error *err)
{
    return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory in the tokenizer");
}

/* What stands while a tokenizer is being opened. */
struct opening {
    const char *folder;
    char path[PATH_MAX];        /* of the file that has the vocabulary */
    struct tokenizer_json json; /* that file, if it is tokenizer.json */
    struct tokenizer_config config;
};

/* Whether a file is a vocabulary in tiktoken's form: lines of base64 and a number. */
static bool is_tiktoken(const char *path)
{
    char line[256];
    int end = 0;
    FILE *file = fopen(path, "rb");
    const bool read = file && fgets(line, sizeof line, file);
    if (file) fclose(file);
    if (!read || sscanf(line, "%*200[A-Za-z0-9+/=] %*[0-9]%n", &end) < 0) return false;
    return end > 0 && (line[end] == '\n' || line[end] == '\r');
}

static enum status no_vocabulary(const char *folder, struct error *err)
{
    return error_set(err, STATUS_IO,
                     "%s: no tokenizer.json and no tokenizer.model (SentencePiece) in this folder; copy the one that "
                     "was published with the model there",
                     folder);
}

static enum status open_model(struct tokenizer *t, struct opening *o, struct error *err)
{
    bool found;
    if (!path_join(o->path, sizeof o->path, o->folder, "tokenizer.model"))
        return error_set(err, STATUS_INVALID, "%s: the folder's name is too long", o->folder);
    enum status status = file_find(o->path, &found, err);
    if (status == STATUS_OK && !found) {
        char path[PATH_MAX];
        if (!path_join(path, sizeof path, o->folder, "qwen.tiktoken") || !is_tiktoken(path))
            return no_vocabulary(o->folder, err);
        memcpy(o->path, path, sizeof path);
    }
    if (status == STATUS_OK && is_tiktoken(o->path))
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s: this is a vocabulary in tiktoken's form, which quire does not read; copy the "
                         "tokenizer.json that is published with the model in transformers' form into the folder",
                         o->path);
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
    if (!added_tokens_add(&t->names, content, length, id, flags)) return out_of_memory(err);
    if (t->pipeline && (flags & ADDED_TOKEN_NORMALIZED))
        return pipeline_add_token(t->pipeline, &t->table, id, content, length, flags, token_flags, err);
    const bool set = t->pipeline ? pipeline_set_piece(t->pipeline, &t->table, id, content, length, token_flags)
                                 : token_table_set_text(&t->table, id, content, length, token_flags);
    return set && added_tokens_add(&t->added, content, length, id, flags) ? STATUS_OK : out_of_memory(err);
}

/* Adds a token of the configuration files, unless the vocabulary has it as text. */
static enum status add_config_token(struct tokenizer *t, const struct config_token *token, struct error *err)
{
    const bool special = token->flags & ADDED_TOKEN_SPECIAL;
    if (t->sp && token->id < sentencepiece_size(t->sp) && (!special || !may_be_special(t, token->id, token->content)))
        return STATUS_OK;
    return add_token(t, token->id, token->content, token->flags, err);
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
        enum status status = add_token(t, (int32_t)id, content, flags, err);
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
            return out_of_memory(err);
    }
    return STATUS_OK;
}

/* The added tokens of the configuration files: tokenizer.json has its own, which come first. */
static enum status add_config_tokens(struct tokenizer *t, const struct opening *o, struct error *err)
{
    const struct tokenizer_config *config = &o->config;
    enum status status = STATUS_OK;
    for (size_t i = 0; i < config->num_added && !status; i++) {
        const struct config_token *token = &config->added[i];
        const struct token there = token_table_get(&t->table, token->id);
        if (t->pipeline && (there.flags & TOKEN_ADDED)) continue;
        if (t->pipeline && there.length > 0 && piece_id(t, token->content) != token->id)
            return error_set(err, STATUS_INVALID,
                             "%s: the added token \"%s\" has the id %d, but in %s that is another piece", o->folder,
                             show_string(token->content).text, (int)token->id, tokenizer_file(t));
        status = add_config_token(t, token, err);
    }
    return status;
}

/* Makes a token that a file lists as special so: an added token, or a piece of the vocabulary. */
static enum status set_special_name(struct tokenizer *t, const struct opening *o, const char *name, struct error *err)
{
    const size_t length = strlen(name);
    for (size_t i = 0; i < o->config.num_added && !t->pipeline; i++) {
        struct config_token token = o->config.added[i];
        token.flags |= ADDED_TOKEN_SPECIAL;
        if (strcmp(token.content, name) == 0) return add_config_token(t, &token, err);
    }
    for (size_t i = 0; i < t->names.count && t->pipeline; i++) {
        const struct added_token added = t->names.items[i];
        if (added.length != length || memcmp(t->names.text.data + added.offset, name, length) != 0) continue;
        const bool special = added.flags & ADDED_TOKEN_SPECIAL;
        return special ? STATUS_OK : add_token(t, added.id, name, added.flags | ADDED_TOKEN_SPECIAL, err);
    }
    const int32_t id = *name ? piece_id(t, name) : -1;
    if (id < 0 || !may_be_special(t, id, name)) return STATUS_OK;
    return add_token(t, id, name, ADDED_TOKEN_SPECIAL, err);
}

static enum status add_tokens(struct tokenizer *t, const struct opening *o, struct error *err)
{
    enum status status = add_json_tokens(t, o, err);
    if (!status) status = add_control_pieces(t, err);
    if (!status) status = add_config_tokens(t, o, err);
    for (size_t i = 0; i < o->config.num_special_names && !status; i++)
        status = set_special_name(t, o, o->config.special_names[i], err);
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
                         o->folder, key, named->content, tokenizer_file(t));
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
    return token_list_append(&t->post.before, &t->bos_id, 1) ? STATUS_OK : out_of_memory(err);
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
    if (!t) return out_of_memory(err);
    struct opening o = {.folder = folder};
    enum status status = open_vocabulary(t, &o, err);
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

/* --- what there is --- */

int32_t tokenizer_size(const struct tokenizer *t)
{
    return t->table.count;
}

int32_t tokenizer_bos_id(const struct tokenizer *t)
{
    return t->bos_id;
}

int32_t tokenizer_eos_id(const struct tokenizer *t)
{
    return t->eos_id;
}

bool tokenizer_adds_bos(const struct tokenizer *t)
{
    return t->bos_id >= 0 && t->post.before.count > 0 && t->post.before.ids[0] == t->bos_id;
}

const char *tokenizer_file(const struct tokenizer *t)
{
    return t->pipeline ? "tokenizer.json" : "tokenizer.model";
}

bool tokenizer_is_special(const struct tokenizer *t, int32_t id)
{
    return (token_table_get(&t->table, id).flags & TOKEN_SPECIAL) != 0;
}

int32_t tokenizer_special_id(const struct tokenizer *t, const char *text)
{
    const struct added_token *token = added_tokens_find(&t->names, text, strlen(text));
    return token ? token->id : -1;
}

const struct named_template *tokenizer_chat_templates(const struct tokenizer *t, size_t *count)
{
    *count = t->num_templates;
    return t->templates;
}

const json_t *tokenizer_template_variables(const struct tokenizer *t)
{
    return t->variables;
}

const struct token_table *tokenizer_tokens(const struct tokenizer *t)
{
    return &t->table;
}

const char *tokenizer_token_bytes(const struct tokenizer *t, int32_t id, bool with_special, size_t *length)
{
    struct token token = token_table_get(&t->table, id);
    *length = (token.flags & TOKEN_SPECIAL) && !with_special ? 0 : token.length;
    return *length ? t->table.bytes.data + token.offset : "";
}

/* --- text to ids --- */

static enum status encode_pieces(const struct tokenizer *t, const char *text, size_t length, bool continues,
                                 struct token_list *out, struct error *err);

/* A text spells a user-defined piece of tokenizer.model that is special, and that it may not name. Its spelling is
 * encoded in two parts, so that the library cannot match the piece. */
static enum status encode_spelling(const struct tokenizer *t, int32_t id, struct token_list *out, struct error *err)
{
    size_t length;
    const char *text = sentencepiece_piece(t->sp, id, &length);
    int first = utf8_length(text, length);
    if (first < 1) first = 1;
    if ((size_t)first >= length) {
        int32_t unknown = sentencepiece_unk_id(t->sp);
        return token_list_append(out, &unknown, 1) ? STATUS_OK : out_of_memory(err);
    }
    enum status status = encode_pieces(t, text, (size_t)first, true, out, err);
    if (!status) status = encode_pieces(t, text + first, length - (size_t)first, true, out, err);
    return status;
}

static enum status append_unnamed(const struct tokenizer *t, const int32_t *ids, size_t count, struct token_list *out,
                                  struct error *err)
{
    for (size_t i = 0, from = 0; i <= count; i++) {
        bool special = i < count && (t->table.tokens[ids[i]].flags & TOKEN_ADDED);
        if (i < count && !special) continue;
        if (!token_list_append(out, ids + from, i - from)) return out_of_memory(err);
        from = i + 1;
        enum status status = special ? encode_spelling(t, ids[i], out, err) : STATUS_OK;
        if (status) return status;
    }
    return STATUS_OK;
}

/* Encodes text without added tokens by tokenizer.model. */
static enum status encode_pieces(const struct tokenizer *t, const char *text, size_t length, bool continues,
                                 struct token_list *out, struct error *err)
{
    int32_t *ids, count;
    enum status status = sentencepiece_encode(t->sp, text, length, continues, &ids, &count, err);
    if (!status) status = append_unnamed(t, ids, (size_t)count, out, err);
    free(ids);
    return status;
}

/* Bytes from .. to of the text, between two added tokens. */
static enum status encode_between(const struct tokenizer *t, const struct added_search *text, size_t from, size_t to,
                                  struct pipeline_scratch *scratch, struct token_list *out, struct error *err)
{
    if (from >= to) return STATUS_OK;
    if (t->sp) return encode_pieces(t, text->text + from, to - from, false, out, err);
    const struct added_search part = {.text = text->text + from,
                                      .length = to - from,
                                      .marks = text->marks ? text->marks + from : NULL,
                                      .special = text->special};
    return pipeline_encode(t->pipeline, &part, from == 0, scratch, out, err);
}

static enum status encode(const struct tokenizer *t, struct added_search search, struct token_list *out,
                          struct error *err)
{
    struct pipeline_scratch scratch = {0};
    struct added_match match;
    size_t from = 0;
    enum status status = STATUS_OK;
    while (!status && added_tokens_next(&t->added, &search, &match)) {
        status = encode_between(t, &search, from, match.from, &scratch, out, err);
        if (!status && !token_list_append(out, &match.id, 1)) status = out_of_memory(err);
        from = match.to;
    }
    if (!status) status = encode_between(t, &search, from, search.length, &scratch, out, err);
    pipeline_scratch_free(&scratch);
    return status;
}

/* tokenizer.json is for valid UTF-8: *out gets the text with U+FFFD for each byte that is not, if there is one. */
static enum status make_valid(const struct tokenizer *t, const char *text, size_t length, struct text *out,
                              struct error *err)
{
    if (t->sp || utf8_valid_prefix(text, length) == length) return STATUS_OK;
    return utf8_append_valid(out, text, length) ? STATUS_OK : out_of_memory(err);
}

enum status tokenizer_encode(const struct tokenizer *t, const char *text, size_t length, unsigned flags,
                             struct token_list *out, struct error *err)
{
    const size_t before = out->count;
    const struct token_list none = {0}, *front = flags & TOKENIZER_ADD_SPECIAL ? &t->post.before : &none,
                            *back = flags & TOKENIZER_ADD_SPECIAL ? &t->post.after : &none;
    struct text valid = {0};
    if (length > TOKENIZER_MAX_TEXT)
        return error_set(err, STATUS_INVALID, "a text of %zu bytes is too long; at most %d bytes can be encoded",
                         length, TOKENIZER_MAX_TEXT);
    enum status status = token_list_append(out, front->ids, front->count) ? STATUS_OK : out_of_memory(err);
    if (!status && text) status = make_valid(t, text, length, &valid, err);
    const struct added_search search = {.text = valid.length ? valid.data : text,
                                        .length = !text          ? 0
                                                  : valid.length ? valid.length
                                                                 : length,
                                        .special = (flags & TOKENIZER_PARSE_SPECIAL) != 0};
    if (!status) status = encode(t, search, out, err);
    if (!status && !token_list_append(out, back->ids, back->count)) status = out_of_memory(err);
    if (status) out->count = before;
    text_free(&valid);
    return status;
}

enum status tokenizer_encode_marked(const struct tokenizer *t, const struct marked_text *text, struct token_list *out,
                                    struct error *err)
{
    const size_t before = out->count;
    const struct added_search search = {.text = text->text.data,
                                        .length = text->text.length,
                                        .marks = text->marks.length ? text->marks.data : NULL,
                                        .special = true};
    enum status status = encode(t, search, out, err);
    if (status) out->count = before;
    return status;
}

/* --- ids to text --- */

static bool decode_into(struct detokenizer *d, const int32_t *ids, size_t count, size_t max_bytes, struct text *out)
{
    for (size_t i = 0; i <= count; i++) {
        if (!text_reserve(out, out->length + max_bytes)) return false;
        char *end = out->data + out->length;
        out->length += i < count ? detokenizer_add(d, ids[i], end) : detokenizer_finish(d, end);
        out->data[out->length] = '\0';
    }
    return true;
}

enum status tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t count, bool with_special,
                             struct text *out, struct error *err)
{
    for (size_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= t->table.count)
            return error_set(err, STATUS_INVALID, "token id %d is not in the vocabulary, which has ids 0 to %d",
                             (int)ids[i], (int)t->table.count - 1);
    size_t before = out->length;
    struct detokenizer d;
    detokenizer_init(&d, t, true, with_special);
    if (decode_into(&d, ids, count, detokenizer_max_bytes(t), out)) return STATUS_OK;
    out->length = before;
    return out_of_memory(err);
}
