#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/tokenizer_parts.h"

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

const char *tokenizer_file(const struct tokenizer *t)
{
    return t->file;
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
        return token_list_append(out, &unknown, 1) ? STATUS_OK : tokenizer_no_memory(err);
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
        if (!token_list_append(out, ids + from, i - from)) return tokenizer_no_memory(err);
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
        if (!status && !token_list_append(out, &match.id, 1)) status = tokenizer_no_memory(err);
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
    return utf8_append_valid(out, text, length) ? STATUS_OK : tokenizer_no_memory(err);
}

static enum status check_length(size_t length, struct error *err)
{
    if (length <= TOKENIZER_MAX_TEXT) return STATUS_OK;
    return error_set(err, STATUS_INVALID, "a text of %zu bytes is too long; at most %d bytes can be encoded", length,
                     TOKENIZER_MAX_TEXT);
}

enum status tokenizer_encode(const struct tokenizer *t, const char *text, size_t length, unsigned flags,
                             struct token_list *out, struct error *err)
{
    const size_t before = out->count;
    const struct token_list none = {0}, *front = flags & TOKENIZER_ADD_SPECIAL ? &t->post.before : &none,
                            *back = flags & TOKENIZER_ADD_SPECIAL ? &t->post.after : &none;
    struct text valid = {0};
    enum status status = check_length(length, err);
    if (!status && !token_list_append(out, front->ids, front->count)) status = tokenizer_no_memory(err);
    if (!status && text) status = make_valid(t, text, length, &valid, err);
    const struct added_search search = {.text = valid.length ? valid.data : text,
                                        .length = !text          ? 0
                                                  : valid.length ? valid.length
                                                                 : length,
                                        .special = (flags & TOKENIZER_PARSE_SPECIAL) != 0};
    if (!status) status = encode(t, search, out, err);
    if (!status && !token_list_append(out, back->ids, back->count)) status = tokenizer_no_memory(err);
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
    enum status status = check_length(search.length, err);
    if (!status) status = encode(t, search, out, err);
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
    detokenizer_init(&d, &t->table, true, with_special);
    if (decode_into(&d, ids, count, detokenizer_max_bytes(&t->table), out)) return STATUS_OK;
    out->length = before;
    return tokenizer_no_memory(err);
}
