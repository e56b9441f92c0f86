#include "tokenizer/bpe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/json.h"
#include "base/utf8.h"
#include "tokenizer/merges.h"
#include "tokenizer/piece_table.h"
#include "tokenizer/token_table.h"

/* Pieces are kept as the file spells them. With byte_level, the bytes of a word are looked up by the characters that
 * stand for them. So a piece with other characters, such as an added token, is never found in a text: tokenizers does
 * not find it either. */
struct bpe {
    struct piece_table pieces;
    struct merges merges;
    bool byte_level, byte_fallback, fuse_unk, ignore_merges, has_unk;
    struct text unk_token, prefix, suffix;
    int32_t unk_id;        /* -1: the vocabulary has no such piece */
    int32_t symbols[256];  /* of each byte (byte_level) or ASCII character, without prefix and suffix; or -1 */
    int32_t fallback[256]; /* the ids of <0x00> to <0xFF>, or -1 */
    /* A word is encoded in parts where no merge can join them: before each U+2581, unless a merge joins one to a
     * character that ends with the byte before it. */
    bool splits, joins_space[256];
};

/* --- spelling --- */

/* Appends bytes as the vocabulary spells them. */
static bool spell(const struct bpe *b, const char *bytes, size_t length, struct text *out)
{
    if (!b->byte_level) return text_append(out, bytes, length);
    if (!text_reserve(out, out->length + 2 * length)) return false;
    for (size_t i = 0; i < length; i++)
        out->length += byte_level_spell((unsigned char)bytes[i], out->data + out->length);
    return true;
}

/* The id of the piece that spells the bytes, or -1. `room` is overwritten; 2 * pieces.longest bytes are enough. */
static int32_t find_spelled(const struct bpe *b, const char *bytes, size_t length, struct text *room)
{
    if (!b->byte_level || length > b->pieces.longest) return piece_table_find(&b->pieces, bytes, length);
    text_clear(room);
    return spell(b, bytes, length, room) ? piece_table_find(&b->pieces, room->data, room->length) : -1;
}

int32_t bpe_piece_id(const struct bpe *b, const char *bytes, size_t length)
{
    struct text room = {0};
    int32_t id = find_spelled(b, bytes, length, &room);
    if (id < 0) id = piece_table_find(&b->pieces, bytes, length);
    text_free(&room);
    return id;
}

/* --- opening --- */

static struct shown show_piece(const char *text, size_t length)
{
    char copy[sizeof(struct shown)];
    snprintf(copy, sizeof copy, "%.*s", (int)(length < sizeof copy ? length : sizeof copy - 1), text);
    return show_string(copy);
}

static bool set_text(struct text *out, const char *string)
{
    return !string || text_append_string(out, string);
}

static enum status read_options(struct bpe *b, const json_t *model, const char *path, struct error *err)
{
    struct json_reader r = json_reader(model, path, err);
    r.prefix = "model.";
    b->byte_fallback = json_reader_bool(&r, "byte_fallback", false);
    b->fuse_unk = json_reader_bool(&r, "fuse_unk", false);
    b->ignore_merges = json_reader_bool(&r, "ignore_merges", false);
    const char *unk_token = json_reader_string(&r, "unk_token", NULL);
    const char *prefix = json_reader_string(&r, "continuing_subword_prefix", NULL);
    const char *suffix = json_reader_string(&r, "end_of_word_suffix", NULL);
    if (json_reader_number(&r, "dropout", 0, 0, 1) > 0)
        json_reader_fail(&r, STATUS_UNSUPPORTED,
                         "model.dropout makes encoding random, for training; set it to null to use the tokenizer");
    if (r.status) return r.status;
    b->has_unk = unk_token != NULL;
    if (!set_text(&b->unk_token, unk_token) || !set_text(&b->prefix, prefix) || !set_text(&b->suffix, suffix))
        return tokenizer_no_memory(err);
    return STATUS_OK;
}

/* The table of a large vocabulary is in no near cache: its slots are fetched so many pieces or merges ahead. */
enum { AHEAD = 8 };

static enum status add_pieces(struct bpe *b, const struct tokenizer_json *file, const char *path, struct error *err)
{
    size_t bytes = 0;
    for (size_t i = 0; i < file->num_vocab; i++) bytes += file->vocab[i].length;
    if (!piece_table_init(&b->pieces, file->num_vocab, bytes)) return tokenizer_no_memory(err);
    for (size_t i = 0; i < file->num_vocab; i++) {
        const struct json_piece *piece = &file->vocab[i];
        const char *text = file->strings.data + piece->offset;
        if (i + AHEAD < file->num_vocab)
            piece_table_prefetch(&b->pieces, file->strings.data + piece[AHEAD].offset, piece[AHEAD].length);
        if (!piece_table_add(&b->pieces, text, piece->length, piece->id))
            return error_set(err, STATUS_INVALID, "%s: the piece \"%s\" is in the vocabulary twice", path,
                             show_piece(text, piece->length).text);
    }
    return STATUS_OK;
}

static void find_symbols(struct bpe *b)
{
    for (int byte = 0; byte < 256; byte++) {
        char spelled[8] = {(char)byte};
        const size_t length = b->byte_level ? byte_level_spell((unsigned char)byte, spelled) : 1;
        b->symbols[byte] = piece_table_find(&b->pieces, spelled, length);
        snprintf(spelled, sizeof spelled, "<0x%02X>", (unsigned)byte);
        b->fallback[byte] = piece_table_find(&b->pieces, spelled, strlen(spelled));
    }
    b->unk_id = b->has_unk ? piece_table_find(&b->pieces, b->unk_token.data, b->unk_token.length) : -1;
}

static bool begins_with_space(const char *text, size_t length)
{
    return length >= SPACE_SYMBOL_LENGTH && memcmp(text, SPACE_SYMBOL, SPACE_SYMBOL_LENGTH) == 0;
}

static enum status missing(const char *path, size_t rank, const char *text, size_t length, struct error *err)
{
    return error_set(err, STATUS_INVALID, "%s: merge %zu needs the piece \"%s\", which is not in the vocabulary", path,
                     rank, show_piece(text, length).text);
}

/* The id of the piece that a merge makes, or -1. In most files the pieces of the merges stand in the merges' order, so
 * the one after the piece of the merge before is tried first. */
static int32_t find_result(const struct bpe *b, const struct tokenizer_json *file, size_t guess,
                           const struct text *joined)
{
    if (guess < file->num_vocab) {
        const struct json_piece *piece = &file->vocab[guess];
        if (piece->length == joined->length &&
            memcmp(file->strings.data + piece->offset, joined->data, joined->length) == 0)
            return piece->id;
    }
    return piece_table_find(&b->pieces, joined->data, joined->length);
}

/* out[-1] is the merge before; `joined` is overwritten. */
static enum status read_merge(struct bpe *b, const struct tokenizer_json *file, size_t rank, struct merge *out,
                              struct text *joined, const char *path, struct error *err)
{
    const struct json_merge *m = &file->merges[rank];
    const char *left = file->strings.data + m->left, *right = file->strings.data + m->right;
    out->left = piece_table_find(&b->pieces, left, m->left_length);
    if (out->left < 0) return missing(path, rank, left, m->left_length, err);
    out->right = piece_table_find(&b->pieces, right, m->right_length);
    if (out->right < 0 || m->right_length < b->prefix.length) return missing(path, rank, right, m->right_length, err);
    text_clear(joined);
    if (!text_append(joined, left, m->left_length) ||
        !text_append(joined, right + b->prefix.length, m->right_length - b->prefix.length))
        return tokenizer_no_memory(err);
    out->result = find_result(b, file, rank ? (size_t)out[-1].result + 1 : 0, joined);
    if (out->result < 0) return missing(path, rank, joined->data, joined->length, err);
    if (m->left_length && begins_with_space(right, m->right_length))
        b->joins_space[(unsigned char)left[m->left_length - 1]] = true;
    return STATUS_OK;
}

static void prefetch_merge(const struct bpe *b, const struct tokenizer_json *file, const struct json_merge *m)
{
    piece_table_prefetch(&b->pieces, file->strings.data + m->left, m->left_length);
    piece_table_prefetch(&b->pieces, file->strings.data + m->right, m->right_length);
}

static enum status read_merges(struct bpe *b, const struct tokenizer_json *file, const char *path, struct error *err)
{
    struct text joined = {0};
    struct merge *items = malloc((file->num_merges + 1) * sizeof *items);
    enum status status = items ? STATUS_OK : tokenizer_no_memory(err);
    for (size_t rank = 0; rank < file->num_merges && !status; rank++) {
        if (rank + AHEAD < file->num_merges) prefetch_merge(b, file, &file->merges[rank + AHEAD]);
        status = read_merge(b, file, rank, &items[rank], &joined, path, err);
    }
    text_free(&joined);
    if (status) {
        free(items);
        return status;
    }
    return merges_init(&b->merges, items, file->num_merges, file->merges_by_result) ? STATUS_OK
                                                                                    : tokenizer_no_memory(err);
}

/* What stands before a U+2581 may also be a symbol that is no character (<0x0A>, <unk>), which a merge of a piece that
 * ends as it does may join. Without an unk_token it may be any symbol, because unknown characters are left out. */
static bool can_split(const struct bpe *b)
{
    if (b->byte_level || b->ignore_merges || b->prefix.length || b->suffix.length) return false;
    if (b->byte_fallback && b->joins_space['>']) return false;
    if (b->unk_id < 0 || b->unk_token.length == 0) return false;
    if (b->joins_space[(unsigned char)b->unk_token.data[b->unk_token.length - 1]]) return false;
    return piece_table_find(&b->pieces, SPACE_SYMBOL, SPACE_SYMBOL_LENGTH) >= 0;
}

enum status bpe_open(const struct tokenizer_json *file, bool byte_level, const char *path, struct bpe **out,
                     struct error *err)
{
    *out = NULL;
    struct bpe *b = calloc(1, sizeof *b);
    if (!b) return tokenizer_no_memory(err);
    b->byte_level = byte_level;
    enum status status = read_options(b, json_object_get(file->rest, "model"), path, err);
    if (!status) status = add_pieces(b, file, path, err);
    if (!status) status = read_merges(b, file, path, err);
    if (status) {
        bpe_close(b);
        return status;
    }
    find_symbols(b);
    b->splits = can_split(b);
    *out = b;
    return STATUS_OK;
}

void bpe_close(struct bpe *b)
{
    if (!b) return;
    piece_table_free(&b->pieces);
    merges_free(&b->merges);
    text_free(&b->unk_token);
    text_free(&b->prefix);
    text_free(&b->suffix);
    free(b);
}

/* --- encoding --- */

/* The last part of a word that had some hash: most words of a text come again soon. */
struct seen {
    uint32_t hash;
    uint32_t offset, length; /* bytes of the words' text; length 0: none */
    uint32_t first, count;   /* ids since the beginning of the call */
};
enum { LONGEST_SEEN = 64, MAX_SEEN = 1 << 16 };

/* One call of bpe_encode. */
struct encoder {
    const struct bpe *bpe;
    const char *text; /* of all words */
    struct token_list *out;
    size_t first_id;   /* out->count at the beginning */
    struct seen *seen; /* [seen_mask + 1], a power of two */
    size_t seen_mask;
    struct merge_scratch *scratch;
    struct text spelled;
    struct error *err;
};

/* A character of a word, as it is looked up: with continuing_subword_prefix and end_of_word_suffix. */
static bool spell_symbol(struct encoder *e, const char *character, size_t length, bool is_first, bool is_last)
{
    const struct bpe *b = e->bpe;
    text_clear(&e->spelled);
    return (is_first || text_append(&e->spelled, b->prefix.data, b->prefix.length)) &&
           spell(b, character, length, &e->spelled) &&
           (!is_last || text_append(&e->spelled, b->suffix.data, b->suffix.length));
}

static bool append_id(struct encoder *e, int32_t id)
{
    return token_list_append(e->out, &id, 1);
}

/* Appends the pieces of all bytes of e->spelled; *done is false if one of them is missing. */
static bool append_bytes(struct encoder *e, bool *done)
{
    const size_t count = e->out->count;
    *done = false;
    for (size_t i = 0; i < e->spelled.length; i++) {
        const int32_t id = e->bpe->fallback[(unsigned char)e->spelled.data[i]];
        if (id < 0) {
            e->out->count = count;
            return true;
        }
        if (!append_id(e, id)) return false;
    }
    *done = true;
    return true;
}

static enum status unk_missing(const struct encoder *e)
{
    return error_set(e->err, STATUS_INVALID,
                     "\"%s\" has no token in the vocabulary, nor has the unk_token \"%s\" that would stand for it",
                     show_piece(e->spelled.data, e->spelled.length).text,
                     show_piece(e->bpe->unk_token.data, e->bpe->unk_token.length).text);
}

/* Appends what stands for a character that is not in the vocabulary. An unk_token waits in *unk for the next character
 * that has a piece, or for the end of the word, so that fuse_unk can make one of several. Without an unk_token the
 * character is left out. */
static enum status append_unknown(struct encoder *e, const char *character, size_t length, bool is_first, bool is_last,
                                  bool *unk)
{
    const struct bpe *b = e->bpe;
    bool done = false;
    if (!spell_symbol(e, character, length, is_first, is_last)) return tokenizer_no_memory(e->err);
    if (b->byte_fallback && !append_bytes(e, &done)) return tokenizer_no_memory(e->err);
    if (done || !b->has_unk) return STATUS_OK;
    if (b->unk_id < 0) return unk_missing(e);
    if (*unk && !b->fuse_unk && !append_id(e, b->unk_id)) return tokenizer_no_memory(e->err);
    *unk = true;
    return STATUS_OK;
}

static int32_t find_symbol(struct encoder *e, const char *character, size_t length, bool is_first, bool is_last)
{
    const struct bpe *b = e->bpe;
    if ((!is_first && b->prefix.length) || (is_last && b->suffix.length)) {
        if (!spell_symbol(e, character, length, is_first, is_last)) return -1; /* append_unknown fails, too */
        return piece_table_find(&b->pieces, e->spelled.data, e->spelled.length);
    }
    if (length == 1) return b->symbols[(unsigned char)character[0]];
    return piece_table_find(&b->pieces, character, length);
}

/* Appends the symbols of a word before any merge: its bytes or characters. */
static enum status append_symbols(struct encoder *e, const char *word, size_t length)
{
    bool unk = false;
    for (size_t i = 0; i < length;) {
        const int n = e->bpe->byte_level ? 1 : utf8_length(word + i, length - i);
        const size_t step = n > 0 ? (size_t)n : 1;
        const bool is_first = i == 0, is_last = i + step == length;
        const int32_t id = find_symbol(e, word + i, step, is_first, is_last);
        if (id < 0) {
            const enum status status = append_unknown(e, word + i, step, is_first, is_last, &unk);
            if (status) return status;
        } else {
            if (unk && !append_id(e, e->bpe->unk_id)) return tokenizer_no_memory(e->err);
            if (!append_id(e, id)) return tokenizer_no_memory(e->err);
            unk = false;
        }
        i += step;
    }
    if (unk && !append_id(e, e->bpe->unk_id)) return tokenizer_no_memory(e->err);
    return STATUS_OK;
}

static enum status encode(struct encoder *e, const char *word, size_t length)
{
    const size_t begin = e->out->count;
    if (e->bpe->ignore_merges) {
        const int32_t id = find_spelled(e->bpe, word, length, &e->spelled);
        if (id >= 0) return append_id(e, id) ? STATUS_OK : tokenizer_no_memory(e->err);
    }
    const enum status status = append_symbols(e, word, length);
    if (status || e->out->count == begin) return status; /* no id: ids may be NULL */
    const size_t left = merges_apply(&e->bpe->merges, e->scratch, e->out->ids + begin, e->out->count - begin);
    if (left == SIZE_MAX) return tokenizer_no_memory(e->err);
    e->out->count = begin + left;
    return STATUS_OK;
}

static bool append_again(struct encoder *e, const struct seen *seen)
{
    struct token_list *out = e->out;
    if (seen->count == 0) return true; /* ids may be NULL */
    if (!array_reserve(&out->ids, &out->capacity, out->count + seen->count, sizeof *out->ids)) return false;
    return token_list_append(out, out->ids + e->first_id + seen->first, seen->count);
}

static enum status encode_part(struct encoder *e, uint32_t offset, uint32_t length)
{
    const char *part = e->text + offset;
    if (length > LONGEST_SEEN) return encode(e, part, length);
    const uint32_t hash = (uint32_t)XXH3_64bits(part, length);
    struct seen *seen = &e->seen[hash & e->seen_mask];
    const size_t begin = e->out->count;
    if (seen->hash == hash && seen->length == length && memcmp(e->text + seen->offset, part, length) == 0) {
        if (!append_again(e, seen)) return tokenizer_no_memory(e->err);
    } else {
        const enum status status = encode(e, part, length);
        if (status) return status;
    }
    /* The latest occurrence, because it is likely in the processor's cache when the next one comes. */
    *seen = (struct seen){hash, offset, length, (uint32_t)(begin - e->first_id), (uint32_t)(e->out->count - begin)};
    return STATUS_OK;
}

/* Where the next U+2581 stands, or NULL. In a run of them each stands where the last one ends. */
static const char *next_space(const char *from, const char *end)
{
    const size_t length = (size_t)(end - from), after = SPACE_SYMBOL_LENGTH - 1; /* from: the last one, and a byte */
    if (length >= after + SPACE_SYMBOL_LENGTH && memcmp(from + after, SPACE_SYMBOL, SPACE_SYMBOL_LENGTH) == 0 &&
        memchr(from, *SPACE_SYMBOL, after) == NULL)
        return from + after;
    return memmem(from, length, SPACE_SYMBOL, SPACE_SYMBOL_LENGTH);
}

/* The length of the first part of a word (struct bpe). */
static uint32_t part_length(const struct bpe *b, const char *word, uint32_t length)
{
    if (!b->splits) return length;
    const char *end = word + length, *space = word;
    while (space + 1 < end && (space = next_space(space + 1, end)))
        if (!b->joins_space[(unsigned char)space[-1]]) return (uint32_t)(space - word);
    return length;
}

static enum status encode_words(struct encoder *e, const struct words *words)
{
    for (size_t i = 0; i < words->count; i++) {
        uint32_t offset = words->items[i].offset, length = words->items[i].length;
        while (length > 0) {
            const uint32_t part = part_length(e->bpe, e->text + offset, length);
            const enum status status = encode_part(e, offset, part);
            if (status) return status;
            offset += part;
            length -= part;
        }
    }
    return STATUS_OK;
}

enum status bpe_encode(const struct bpe *b, const struct words *words, struct token_list *out, struct error *err)
{
    struct encoder e = {.bpe = b, .text = words->text.data, .out = out, .first_id = out->count, .err = err};
    size_t seen = 16;
    while (seen < words->text.length / 4 && seen < MAX_SEEN) seen *= 2;
    e.seen_mask = seen - 1;
    e.seen = calloc(seen, sizeof *e.seen);
    e.scratch = merge_scratch_new();
    const bool ready = e.seen && e.scratch && text_reserve(&e.spelled, 2 * b->pieces.longest);
    const enum status status = ready ? encode_words(&e, words) : tokenizer_no_memory(err);
    if (status) out->count = e.first_id;
    free(e.seen);
    merge_scratch_free(e.scratch);
    text_free(&e.spelled);
    return status;
}
