#include "tokenizer/tokenizer.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/sentencepiece.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/token_table.h"
#include "tokenizer/tokenizer_config.h"
#include "tokenizer/utf8.h"

struct tokenizer {
    struct sentencepiece_model *sp;
    struct token_table table;
    struct special_tokens specials;
    int32_t bos_id, eos_id;
    bool add_bos;
    char *chat_template;
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

static enum status open_model(struct tokenizer *t, const char *folder, struct error *err)
{
    char path[PATH_MAX], other[PATH_MAX];
    if (!folder_exists(folder)) return error_set(err, STATUS_IO, "%s: no such folder", folder);
    if (!path_join(path, sizeof path, folder, "tokenizer.model") ||
        !path_join(other, sizeof other, folder, "tokenizer.json"))
        return error_set(err, STATUS_INVALID, "%s: the folder's name is too long", folder);
    bool found;
    enum status status = file_find(path, &found, err);
    if (status != STATUS_OK) return status;
    if (!found && file_exists(other))
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s: the tokenizer is in tokenizer.json only, which quire does not read yet; use a checkpoint "
                         "that has a tokenizer.model (SentencePiece)",
                         folder);
    if (!found)
        return error_set(err, STATUS_IO, "%s: no tokenizer.model (SentencePiece) in this folder; copy it there",
                         folder);
    return sentencepiece_open(path, &t->sp, err);
}

/* The id of the model's piece with this text, or -1. */
static int32_t piece_id(const struct tokenizer *t, const char *text)
{
    size_t length;
    int32_t id = sentencepiece_piece_to_id(t->sp, text);
    const char *piece = sentencepiece_piece(t->sp, id, &length);
    return length == strlen(text) && memcmp(piece, text, length) == 0 ? id : -1;
}

/* Whether the files may make this piece of the model special. A byte, the unknown piece or a single character stands
 * for ordinary text and may not. */
static bool may_be_special(const struct tokenizer *t, int32_t id, const char *content)
{
    enum piece_type type = sentencepiece_type(t->sp, id);
    size_t length = strlen(content);
    return type == PIECE_CONTROL ||
           (type != PIECE_BYTE && type != PIECE_UNKNOWN && utf8_length(content, length) != (int)length);
}

static bool set_added(struct tokenizer *t, const struct added_token *added)
{
    size_t length = strlen(added->content);
    uint32_t flags = TOKEN_MATCHED | (added->special ? TOKEN_SPECIAL : 0);
    if (added->id >= sentencepiece_size(t->sp))
        return token_table_set(&t->table, added->id, added->content, length, flags);
    if (!added->special || !may_be_special(t, added->id, added->content)) return true;
    return token_table_set(&t->table, added->id, added->content, length, flags);
}

/* Marks a token that a file lists as special: an added token or a piece. */
static bool set_special_name(struct tokenizer *t, const struct tokenizer_config *config, const char *name)
{
    for (size_t i = 0; i < config->num_added; i++) {
        struct added_token added = config->added[i];
        if (strcmp(added.content, name) != 0) continue;
        added.special = true;
        return set_added(t, &added);
    }
    int32_t id = *name ? piece_id(t, name) : -1;
    if (id < 0 || !may_be_special(t, id, name)) return true;
    return token_table_set(&t->table, id, name, strlen(name), TOKEN_SPECIAL | TOKEN_MATCHED);
}

static bool set_specials(struct tokenizer *t, const struct tokenizer_config *config)
{
    for (size_t i = 0; i < config->num_added; i++)
        if (!set_added(t, &config->added[i])) return false;
    for (size_t i = 0; i < config->num_special_names; i++)
        if (!set_special_name(t, config, config->special_names[i])) return false;
    return special_tokens_build(&t->specials, &t->table);
}

/* bos_token or eos_token: from the files, otherwise from the model. */
static enum status resolve(const struct tokenizer *t, const struct named_token *named, const char *key,
                           int32_t model_id, const char *folder, int32_t *id, struct error *err)
{
    *id = named->given ? -1 : model_id;
    if (!named->content || !*named->content) return STATUS_OK;
    *id = tokenizer_special_id(t, named->content);
    if (*id < 0) *id = piece_id(t, named->content);
    if (*id < 0)
        return error_set(err, STATUS_INVALID,
                         "%s: %s is \"%s\", which is neither a piece of tokenizer.model nor an added token", folder,
                         key, named->content);
    return STATUS_OK;
}

static enum status open_config(struct tokenizer *t, const char *folder, struct tokenizer_config *config,
                               struct error *err)
{
    enum status status = tokenizer_config_read(folder, config, err);
    if (!status && !set_specials(t, config)) status = out_of_memory(err);
    if (!status) status = resolve(t, &config->bos, "bos_token", sentencepiece_bos_id(t->sp), folder, &t->bos_id, err);
    if (!status) status = resolve(t, &config->eos, "eos_token", sentencepiece_eos_id(t->sp), folder, &t->eos_id, err);
    if (status) return status;
    t->add_bos = config->add_bos_token;
    t->chat_template = config->chat_template;
    config->chat_template = NULL;
    return STATUS_OK;
}

enum status tokenizer_open(const char *folder, struct tokenizer **out, struct error *err)
{
    *out = NULL;
    struct tokenizer *t = calloc(1, sizeof *t);
    if (!t) return out_of_memory(err);
    struct tokenizer_config config = {0};
    enum status status = open_model(t, folder, err);
    if (!status) status = token_table_build(&t->table, t->sp, err);
    if (!status) status = open_config(t, folder, &config, err);
    tokenizer_config_free(&config);
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
    special_tokens_free(&t->specials);
    token_table_free(&t->table);
    free(t->chat_template);
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
    return t->add_bos;
}

bool tokenizer_is_special(const struct tokenizer *t, int32_t id)
{
    return (token_table_get(&t->table, id).flags & TOKEN_SPECIAL) != 0;
}

int32_t tokenizer_special_id(const struct tokenizer *t, const char *text)
{
    const struct special_token *special = special_tokens_find(&t->specials, text, strlen(text));
    return special ? special->id : -1;
}

const char *tokenizer_chat_template(const struct tokenizer *t)
{
    return t->chat_template;
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

static enum status encode_plain(const struct tokenizer *t, const char *text, size_t length, bool continues,
                                struct token_list *out, struct error *err);

/* A text that may not name special tokens spells a user-defined piece that is special. Its spelling is encoded in two
 * parts, so that the library cannot match the piece. */
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
    enum status status = encode_plain(t, text, (size_t)first, true, out, err);
    if (!status) status = encode_plain(t, text + first, length - (size_t)first, true, out, err);
    return status;
}

static enum status append_unnamed(const struct tokenizer *t, const int32_t *ids, size_t count, struct token_list *out,
                                  struct error *err)
{
    for (size_t i = 0, from = 0; i <= count; i++) {
        bool special = i < count && (t->table.tokens[ids[i]].flags & TOKEN_MATCHED);
        if (i < count && !special) continue;
        if (!token_list_append(out, ids + from, i - from)) return out_of_memory(err);
        from = i + 1;
        enum status status = special ? encode_spelling(t, ids[i], out, err) : STATUS_OK;
        if (status) return status;
    }
    return STATUS_OK;
}

/* Encodes text without matching special tokens. */
static enum status encode_plain(const struct tokenizer *t, const char *text, size_t length, bool continues,
                                struct token_list *out, struct error *err)
{
    int32_t *ids, count;
    enum status status = sentencepiece_encode(t->sp, text, length, continues, &ids, &count, err);
    if (!status) status = append_unnamed(t, ids, (size_t)count, out, err);
    free(ids);
    return status;
}

static enum status encode_marked(const struct tokenizer *t, const char *text, size_t length, bool continues,
                                 struct token_list *out, struct error *err)
{
    size_t from = 0, at;
    const struct special_token *special;
    while ((special = special_tokens_search(&t->specials, text, length, from, &at))) {
        enum status status = encode_plain(t, text + from, at - from, continues && from == 0, out, err);
        if (status) return status;
        if (!token_list_append(out, &special->id, 1)) return out_of_memory(err);
        from = at + special->length;
    }
    return encode_plain(t, text + from, length - from, continues && from == 0, out, err);
}

enum status tokenizer_encode(const struct tokenizer *t, const char *text, size_t length, unsigned flags,
                             struct token_list *out, struct error *err)
{
    size_t before = out->count;
    bool continues = (flags & TOKENIZER_CONTINUES) != 0;
    if ((flags & TOKENIZER_ADD_BOS) && t->add_bos && t->bos_id >= 0 && !token_list_append(out, &t->bos_id, 1))
        return out_of_memory(err);
    if (!text) length = 0;
    enum status status = flags & TOKENIZER_PARSE_SPECIAL ? encode_marked(t, text, length, continues, out, err)
                                                         : encode_plain(t, text, length, continues, out, err);
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
