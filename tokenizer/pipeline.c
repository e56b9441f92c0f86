#include "tokenizer/pipeline.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/bpe.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/piece_decoder.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/unigram.h"

struct pipeline {
    struct normalizer *normalizer;
    struct pre_tokenizer *pre_tokenizer;
    struct bpe *bpe;         /* the model is this or ... */
    struct unigram *unigram; /* ... this; the other is NULL */
    struct piece_decoder *decoder;
    const struct token_table *table;
    int32_t unk_id;    /* of the model's unknown piece, which stands for text though it may be special; -1: none */
    struct text bytes; /* for the decoder, while the tokenizer is opened */
    struct added_tokens added; /* those that are looked for in normalized text */
};

/* --- opening --- */

bool pipeline_set_piece(struct pipeline *p, struct token_table *table, int32_t id, const char *piece, size_t length,
                        uint32_t token_flags)
{
    bool is_byte;
    if ((token_flags & TOKEN_SPECIAL) && p->unigram && utf8_length(piece, length) != (int)length)
        unigram_hide(p->unigram, id);
    if (memchr(piece, ' ', length)) token_flags |= TOKEN_LITERAL_SPACE;
    return piece_decoder_apply(p->decoder, piece, length, &p->bytes, &is_byte) &&
           token_table_set(table, id, p->bytes.data, p->bytes.length, token_flags | (is_byte ? TOKEN_BYTE : 0));
}

/* The table of pieces, which a thread of its own builds: with the vocabulary of a large model that takes as long as the
 * encoder, and opening a tokenizer is most of what `inspect` or a short answer of a small model waits for. */
struct table_builder {
    struct pipeline *pipeline;
    const struct tokenizer_json *file;
    struct token_table *table;
    bool ok;
};

static void *build_table(void *user)
{
    struct table_builder *b = user;
    b->ok = text_reserve(&b->table->bytes, b->file->strings.length);
    for (size_t i = 0; i < b->file->num_vocab && b->ok; i++) {
        const struct json_piece *piece = &b->file->vocab[i];
        b->ok = pipeline_set_piece(b->pipeline, b->table, piece->id, b->file->strings.data + piece->offset,
                                   piece->length, 0);
    }
    return NULL;
}

static enum status open_encoder(struct pipeline *p, const struct tokenizer_json *file, const char *path,
                                struct token_table *table, struct error *err)
{
    struct table_builder builder = {p, file, table, false};
    pthread_t thread;
    const bool threaded = pthread_create(&thread, NULL, build_table, &builder) == 0;
    const json_t *unk =
        json_object_get(json_object_get(file->rest, "model"), file->is_unigram ? "unk_id" : "unk_token");
    const bool byte_level = pre_tokenizer_is_byte_level(p->pre_tokenizer);
    enum status status = file->is_unigram ? unigram_open(file, byte_level, path, &p->unigram, err)
                                          : bpe_open(file, byte_level, path, &p->bpe, err);
    if (threaded)
        pthread_join(thread, NULL);
    else
        build_table(&builder);
    p->unk_id = status                 ? -1
                : json_is_integer(unk) ? (int32_t)json_integer_value(unk)
                : json_is_string(unk)  ? bpe_piece_id(p->bpe, json_string_value(unk), json_string_length(unk))
                                       : -1;
    return status || builder.ok ? status : tokenizer_no_memory(err);
}

enum status pipeline_open(const struct tokenizer_json *file, const char *path, struct pipeline **out,
                          struct token_table *table, struct error *err)
{
    const json_t *rest = file->rest;
    struct pipeline *p = *out = calloc(1, sizeof *p);
    if (!p) return tokenizer_no_memory(err);
    p->table = table;
    enum status status = normalizer_open(json_object_get(rest, "normalizer"), path, &p->normalizer, err);
    if (!status) status = pre_tokenizer_open(json_object_get(rest, "pre_tokenizer"), path, &p->pre_tokenizer, err);
    if (!status) status = piece_decoder_open(json_object_get(rest, "decoder"), path, &p->decoder, &table->rules, err);
    return status ? status : open_encoder(p, file, path, table, err);
}

void pipeline_close(struct pipeline *p)
{
    if (!p) return;
    normalizer_close(p->normalizer);
    pre_tokenizer_close(p->pre_tokenizer);
    bpe_close(p->bpe);
    unigram_close(p->unigram);
    piece_decoder_close(p->decoder);
    text_free(&p->bytes);
    added_tokens_free(&p->added);
    free(p);
}

enum status pipeline_add_token(struct pipeline *p, struct token_table *table, int32_t id, const char *text,
                               size_t length, unsigned flags, uint32_t token_flags, struct error *err)
{
    struct marked_text n = {0};
    enum status status = normalizer_apply(p->normalizer, text, NULL, length, &n, err);
    bool ok = status || pipeline_set_piece(p, table, id, n.text.data, n.text.length, token_flags);
    if (ok && !status && n.text.length) ok = added_tokens_add(&p->added, n.text.data, n.text.length, id, flags);
    marked_text_free(&n);
    return ok ? status : tokenizer_no_memory(err);
}

int32_t pipeline_piece_id(const struct pipeline *p, const char *text, size_t length)
{
    return p->bpe ? bpe_piece_id(p->bpe, text, length) : unigram_piece_id(p->unigram, text, length);
}

void pipeline_sort_added(struct pipeline *p)
{
    added_tokens_sort(&p->added);
}

void pipeline_scratch_free(struct pipeline_scratch *s)
{
    marked_text_free(&s->normalized);
    words_free(&s->words);
}

/* --- encoding --- */

static enum status encode_words(const struct pipeline *p, const struct words *words, size_t longest,
                                struct token_list *out, struct error *err);

/* Appends the ids of the spelling of a special token, in two parts, so that they do not give the token again. A single
 * character stands for text, special or not. The spellings of spellings grow shorter, unless a decoder adds text. */
static enum status encode_spelling(const struct pipeline *p, int32_t id, size_t longest, struct token_list *out,
                                   struct error *err)
{
    const struct token token = token_table_get(p->table, id);
    const char *text = p->table->bytes.data + token.offset;
    if (token.length > longest)
        return error_set(err, STATUS_UNSUPPORTED, "the tokenizer decodes special token %d to more text than it encodes",
                         id);
    const int first = token.length ? utf8_length(text, token.length) : 0;
    if (first <= 0 || (uint32_t)first == token.length)
        return token_list_append(out, &id, 1) ? STATUS_OK : tokenizer_no_memory(err);
    struct word parts[] = {{0, (uint32_t)first}, {(uint32_t)first, token.length - (uint32_t)first}};
    struct words words = {.items = parts, .count = 2};
    enum status status = text_append(&words.text, text, token.length) ? STATUS_OK : tokenizer_no_memory(err);
    if (!status) status = encode_words(p, &words, token.length - 1, out, err);
    text_free(&words.text);
    return status;
}

static bool is_special(const struct pipeline *p, int32_t id)
{
    return id != p->unk_id && (p->table->tokens[id].flags & TOKEN_SPECIAL);
}

/* A vocabulary may hold its special tokens too, and a word may be one. The text of a word never names it: replaces each
 * special token among the ids from `from` on. */
static enum status spell_special(const struct pipeline *p, size_t from, size_t longest, struct token_list *out,
                                 struct error *err)
{
    size_t i = from;
    while (i < out->count && !is_special(p, out->ids[i])) i++;
    if (i == out->count) return STATUS_OK;
    struct token_list rest = {0};
    enum status status = token_list_append(&rest, out->ids + i, out->count - i) ? STATUS_OK : tokenizer_no_memory(err);
    out->count = i;
    for (size_t k = 0; k < rest.count && !status; k++) {
        if (is_special(p, rest.ids[k]))
            status = encode_spelling(p, rest.ids[k], longest, out, err);
        else if (!token_list_append(out, &rest.ids[k], 1))
            status = tokenizer_no_memory(err);
    }
    token_list_free(&rest);
    return status;
}

/* longest: bytes that a special token may have which the words name. */
static enum status encode_words(const struct pipeline *p, const struct words *words, size_t longest,
                                struct token_list *out, struct error *err)
{
    const size_t from = out->count;
    enum status status = p->bpe ? bpe_encode(p->bpe, words, out, err) : unigram_encode(p->unigram, words, out, err);
    return status ? status : spell_special(p, from, longest, out, err);
}

/* Encodes normalized text without added tokens. */
static enum status encode_text(const struct pipeline *p, const char *text, size_t length, bool first,
                               struct pipeline_scratch *s, struct token_list *out, struct error *err)
{
    if (length == 0) return STATUS_OK;
    enum status status = pre_tokenizer_split(p->pre_tokenizer, text, length, first, &s->words, err);
    return status ? status : encode_words(p, &s->words, SIZE_MAX, out, err);
}

/* Encodes normalized text: its added tokens, and the text between them. */
static enum status encode_normalized(const struct pipeline *p, struct added_search *search, bool first,
                                     struct pipeline_scratch *s, struct token_list *out, struct error *err)
{
    size_t from = 0;
    struct added_match match;
    while (added_tokens_next(&p->added, search, &match)) {
        if (match.from > from) {
            enum status status =
                encode_text(p, search->text + from, match.from - from, first && from == 0, s, out, err);
            if (status) return status;
        }
        if (!token_list_append(out, &match.id, 1)) return tokenizer_no_memory(err);
        from = match.to;
    }
    if (from >= search->length) return STATUS_OK;
    return encode_text(p, search->text + from, search->length - from, first && from == 0, s, out, err);
}

enum status pipeline_encode(const struct pipeline *p, const struct added_search *text, bool first,
                            struct pipeline_scratch *s, struct token_list *out, struct error *err)
{
    struct added_search search = *text;
    if (normalizer_is_identity(p->normalizer)) return encode_normalized(p, &search, first, s, out, err);
    enum status status = normalizer_apply(p->normalizer, text->text, text->marks, text->length, &s->normalized, err);
    if (status) return status;
    search.text = s->normalized.text.data;
    search.length = s->normalized.text.length;
    search.marks = s->normalized.marks.length ? s->normalized.marks.data : NULL;
    return search.length ? encode_normalized(p, &search, first, s, out, err) : STATUS_OK;
}
