#include "tokenizer/unigram.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "tokenizer/piece_table.h"

struct unigram {
    struct piece_table pieces;
    double *scores; /* [count] by id; -INFINITY: hidden */
    int32_t count;
    double unk_score;
    int32_t unk_id;            /* -1: none */
    int32_t fallback[256];     /* byte_fallback: the ids of <0x00> to <0xFF>; otherwise, or where there is none, -1 */
    uint32_t longest[1 << 16]; /* bytes of the longest piece that begins with two bytes */
};

int32_t unigram_piece_id(const struct unigram *u, const char *bytes, size_t length)
{
    return piece_table_find(&u->pieces, bytes, length);
}

/* The number of the first two bytes. */
static unsigned prefix(const char *text)
{
    return (unsigned)(unsigned char)text[0] << 8 | (unsigned char)text[1];
}

void unigram_hide(struct unigram *u, int32_t id)
{
    if (id < u->count && id != u->unk_id) u->scores[id] = -INFINITY;
}

static bool add_pieces(struct unigram *u, const struct tokenizer_json *file)
{
    size_t bytes = 0;
    u->count = (int32_t)file->num_vocab;
    u->unk_score = INFINITY;
    u->scores = malloc((file->num_vocab + 1) * sizeof *u->scores);
    for (size_t i = 0; i < file->num_vocab; i++) bytes += file->vocab[i].length;
    if (!u->scores || !piece_table_init(&u->pieces, file->num_vocab, bytes)) return false;
    for (size_t i = file->num_vocab; i-- > 0;) { /* the last of equal ones stays */
        const struct json_piece *piece = &file->vocab[i];
        const char *text = file->strings.data + piece->offset;
        uint32_t *longest = piece->length > 1 ? &u->longest[prefix(text)] : NULL;
        piece_table_add(&u->pieces, text, piece->length, piece->id);
        u->scores[i] = piece->score;
        u->unk_score = fmin(u->unk_score, piece->score - 10);
        if (longest && piece->length > *longest) *longest = piece->length;
    }
    return true;
}

enum status unigram_open(const struct tokenizer_json *file, bool byte_level, const char *path, struct unigram **out,
                         struct error *err)
{
    struct json_reader r = json_reader(json_object_get(file->rest, "model"), path, err);
    r.prefix = "model.";
    struct unigram *u = *out = calloc(1, sizeof *u);
    if (!u) return tokenizer_no_memory(err);
    const bool byte_fallback = json_reader_bool(&r, "byte_fallback", false);
    u->unk_id = json_reader_int(&r, "unk_id", -1, 0, INT32_MAX);
    if (u->unk_id >= 0 && (size_t)u->unk_id >= file->num_vocab)
        json_reader_fail(&r, STATUS_INVALID, "model.unk_id is %d, but there are %zu pieces", (int)u->unk_id,
                         file->num_vocab);
    if (byte_level) json_reader_fail(&r, STATUS_UNSUPPORTED, "quire has no ByteLevel pre_tokenizer for Unigram");
    if (r.status) return r.status;
    if (!add_pieces(u, file)) return tokenizer_no_memory(err);
    for (unsigned byte = 0; byte < 256; byte++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", byte);
        u->fallback[byte] = byte_fallback ? unigram_piece_id(u, name, strlen(name)) : -1;
    }
    return STATUS_OK;
}

void unigram_close(struct unigram *u)
{
    if (!u) return;
    piece_table_free(&u->pieces);
    free(u->scores);
    free(u);
}

/* A place between two bytes of a word, and the best way to it. */
struct place {
    double score;
    uint32_t from; /* where the last piece begins */
    int32_t id;    /* of the last piece; -1: no way is known */
};

static enum status find_ways(const struct unigram *u, const char *text, size_t length, struct place *places,
                             struct error *err)
{
    memset(places, 0xFF, (length + 1) * sizeof *places); /* ids are -1 */
    places[0].score = 0;
    for (size_t at = 0, first; at < length; at += first) { /* first: bytes of the first character */
        uint32_t character;
        const size_t left = length - at, longest = left > 1 ? u->longest[prefix(text + at)] : 1;
        first = utf8_decode(text + at, left, &character);
        for (size_t n = first; n == first || (n <= longest && n <= left); n++) {
            if (n < left && (text[at + n] & 0xC0) == 0x80) continue; /* inside a character */
            const int32_t piece = unigram_piece_id(u, text + at, n);
            if (piece < 0 && n > first) continue;
            const double score = places[at].score + (piece < 0 ? u->unk_score : u->scores[piece]);
            struct place *to = &places[at + n];
            if (to->id < 0 || score > to->score)
                *to = (struct place){score, (uint32_t)at, piece < 0 ? u->unk_id : piece};
        }
        char shown[8] = "";
        if (places[at + first].id < 0)
            return error_set(err, STATUS_INVALID, "\"%s\" is no piece of the vocabulary, and the model has no unk_id",
                             show_string(memcpy(shown, text + at, first)).text);
    }
    return STATUS_OK;
}

/* Appends what stands for unknown text; bytes in reverse. */
static bool append_unknown(const struct unigram *u, const char *text, size_t length, struct token_list *out)
{
    const int32_t piece = unigram_piece_id(u, text, length);
    if (piece >= 0 && u->scores[piece] > -INFINITY) return token_list_append(out, &piece, 1);
    size_t i = 0;
    while (i < length && u->fallback[(unsigned char)text[i]] >= 0) i++;
    if (i < length) return token_list_append(out, &u->unk_id, 1);
    while (i > 0)
        if (!token_list_append(out, &u->fallback[(unsigned char)text[--i]], 1)) return false;
    return true;
}

static enum status encode_word(const struct unigram *u, const char *text, size_t length, struct place *places,
                               struct token_list *out, struct error *err)
{
    const size_t begin = out->count;
    const enum status status = find_ways(u, text, length, places, err);
    if (status) return status;
    for (size_t to = length, from; to > 0; to = from) {
        const int32_t id = places[to].id;
        from = places[to].from;
        while (id == u->unk_id && from > 0 && places[from].id == id) from = places[from].from;
        if (!(id == u->unk_id ? append_unknown(u, text + from, to - from, out) : token_list_append(out, &id, 1)))
            return tokenizer_no_memory(err);
    }
    for (size_t i = begin, k = out->count; i + 1 < k; i++) {
        const int32_t id = out->ids[i];
        out->ids[i] = out->ids[--k];
        out->ids[k] = id;
    }
    return STATUS_OK;
}

enum status unigram_encode(const struct unigram *u, const struct words *words, struct token_list *out,
                           struct error *err)
{
    struct place *places = malloc((words->text.length + 1) * sizeof *places);
    const size_t before = out->count;
    enum status status = places ? STATUS_OK : tokenizer_no_memory(err);
    for (size_t i = 0; i < words->count && !status; i++)
        status = encode_word(u, words->text.data + words->items[i].offset, words->items[i].length, places, out, err);
    if (status) out->count = before;
    free(places);
    return status;
}
