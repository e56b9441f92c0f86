#include "tokenizer/tiktoken.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "tokenizer/piece_table.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/tokenizer_config.h"

#define LETTERS_BEFORE "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define LETTERS_AFTER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"

const char tiktoken_kimi_pattern[] =
    "[\\p{Han}]+"
    "|[^\\r\\n\\p{L}\\p{N}]?" LETTERS_BEFORE "*" LETTERS_AFTER "+" CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?" LETTERS_BEFORE
    "+" LETTERS_AFTER "*" CONTRACTION "|\\p{N}{1,3}"
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
    "|\\s*[\\r\\n]+"
    "|\\s+(?!\\S)"
    "|\\s+";

bool tiktoken_is(const char *path)
{
    char line[256];
    int end = 0;
    FILE *file = fopen(path, "rb");
    const bool read = file && fgets(line, sizeof line, file);
    if (file) fclose(file);
    if (!read || sscanf(line, "%*200[A-Za-z0-9+/=] %*[0-9]%n", &end) < 0) return false;
    return end > 0 && (line[end] == '\n' || line[end] == '\r');
}

struct reading {
    struct tokenizer_json *out;
    size_t vocab_capacity, merges_capacity;
    struct text tokens; /* the bytes of all tokens, one after the other */
    size_t *starts;     /* [num_vocab + 1] where each begins there */
    size_t starts_capacity;
    const char *path;
    struct error *err;
};

static enum status no_memory(const struct reading *r)
{
    return error_set(r->err, STATUS_OUT_OF_MEMORY, "%s: out of memory reading the file", r->path);
}

static int base64_digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* Appends the bytes that base64[length] stands for; false if it is none. Memory is there. */
static bool decode(const char *base64, size_t length, struct text *out)
{
    uint32_t bits = 0;
    int count = 0;
    if (length == 0 || length % 4 != 0) return false;
    while (length > 0 && base64[length - 1] == '=' && count++ < 2) length--;
    if (length % 4 == 1) return false;
    for (size_t i = 0; i < length; i++) {
        const int digit = base64_digit(base64[i]);
        if (digit < 0) return false;
        bits = bits << 6 | (uint32_t)digit;
        if (i % 4 > 0) out->data[out->length++] = (char)(bits >> (6 - 2 * (i % 4)));
    }
    return true;
}

/* The bytes of a token and its id, of line[length]. */
static bool read_line(struct reading *r, const char *line, size_t length, int32_t *id)
{
    const char *space = memchr(line, ' ', length);
    char *end;
    if (!space || !decode(line, (size_t)(space - line), &r->tokens)) return false;
    const long number = strtol(space + 1, &end, 10);
    *id = (int32_t)number;
    return end > space + 1 && space[1] >= '0' && space[1] <= '9' && end == line + length && number >= 0 &&
           number < TOKENIZER_CONFIG_MAX_ID;
}

/* Adds a token, spelled in ByteLevel's characters. */
static enum status add_token(struct reading *r, int32_t id)
{
    struct tokenizer_json *out = r->out;
    const size_t from = r->starts[out->num_vocab], length = r->tokens.length - from, offset = out->strings.length;
    if (!array_reserve(&out->vocab, &r->vocab_capacity, out->num_vocab + 1, sizeof *out->vocab) ||
        !array_reserve(&r->starts, &r->starts_capacity, out->num_vocab + 2, sizeof *r->starts) ||
        !text_reserve(&out->strings, offset + 2 * length))
        return no_memory(r);
    for (size_t i = from; i < r->tokens.length; i++)
        out->strings.length +=
            byte_level_spell((unsigned char)r->tokens.data[i], out->strings.data + out->strings.length);
    out->vocab[out->num_vocab++] =
        (struct json_piece){(uint32_t)offset, (uint32_t)(out->strings.length - offset), id, 0};
    r->starts[out->num_vocab] = r->tokens.length;
    return STATUS_OK;
}

static enum status read_tokens(struct reading *r, const struct text *file)
{
    const struct tokenizer_json *out = r->out;
    const char *line = file->data, *end = file->data + file->length;
    if (!text_reserve(&r->tokens, file->length) ||
        !array_reserve(&r->starts, &r->starts_capacity, 1, sizeof *r->starts))
        return no_memory(r);
    r->starts[0] = 0;
    for (size_t number = 1; line < end; number++) {
        const char *next = memchr(line, '\n', (size_t)(end - line));
        size_t length = (size_t)((next ? next : end) - line);
        int32_t id = -1;
        if (length > 0 && line[length - 1] == '\r') length--;
        if (length > 0 && !read_line(r, line, length, &id))
            return error_set(r->err, STATUS_INVALID, "%s: line %zu is not a token in base64, a space and its id",
                             r->path, number);
        if (length > 0 && out->num_vocab > 0 && id <= out->vocab[out->num_vocab - 1].id)
            return error_set(r->err, STATUS_UNSUPPORTED,
                             "%s: line %zu has the id %d, which is not above that of the line before", r->path, number,
                             (int)id);
        const enum status status = length > 0 ? add_token(r, id) : STATUS_OK;
        if (status) return status;
        line = next ? next + 1 : end;
    }
    return STATUS_OK;
}

/* Adds the pairs of tokens that are token i together. */
static enum status add_merges(struct reading *r, const struct piece_table *table, size_t i)
{
    struct tokenizer_json *out = r->out;
    const struct json_piece *piece = &out->vocab[i];
    const char *bytes = r->tokens.data + r->starts[i];
    const size_t length = r->starts[i + 1] - r->starts[i];
    uint32_t left = 0;
    char room[2];
    for (size_t k = 1; k < length; k++) {
        left += (uint32_t)byte_level_spell((unsigned char)bytes[k - 1], room);
        if (piece_table_find(table, bytes, k) < 0 || piece_table_find(table, bytes + k, length - k) < 0) continue;
        if (!array_reserve(&out->merges, &r->merges_capacity, out->num_merges + 1, sizeof *out->merges))
            return no_memory(r);
        out->merges[out->num_merges++] =
            (struct json_merge){piece->offset, left, piece->offset + left, piece->length - left};
    }
    return STATUS_OK;
}

static enum status find_merges(struct reading *r)
{
    struct piece_table table = {0};
    const size_t count = r->out->num_vocab;
    enum status status = piece_table_init(&table, count, r->tokens.length) ? STATUS_OK : no_memory(r);
    for (size_t i = 0; i < count && !status; i++) {
        const char *bytes = r->tokens.data + r->starts[i];
        if (!piece_table_add(&table, bytes, r->starts[i + 1] - r->starts[i], r->out->vocab[i].id))
            status = error_set(r->err, STATUS_INVALID, "%s: the token with the id %d is there twice", r->path,
                               (int)r->out->vocab[i].id);
    }
    for (size_t i = 0; i < count && !status; i++) status = add_merges(r, &table, i);
    piece_table_free(&table);
    return status;
}

/* What tokenizer.json has beside the vocabulary. */
static json_t *describe(const char *pattern)
{
    return json_pack("{s:{s:s,s:b},s:{s:s,s:[{s:s,s:{s:s},s:s,s:b},{s:s,s:b,s:b,s:b}]},s:{s:s}}", "model", "type",
                     "BPE", "ignore_merges", 1, "pre_tokenizer", "type", "Sequence", "pretokenizers", "type", "Split",
                     "pattern", "Regex", pattern, "behavior", "Isolated", "invert", 0, "type", "ByteLevel",
                     "add_prefix_space", 0, "trim_offsets", 1, "use_regex", 0, "decoder", "type", "ByteLevel");
}

enum status tiktoken_read(const char *path, const char *pattern, struct tokenizer_json *out, struct error *err)
{
    struct text file = {0};
    struct reading r = {.out = out, .path = path, .err = err};
    *out = (struct tokenizer_json){.merges_by_result = true};
    enum status status = file_read(path, &file, err);
    if (!status) status = read_tokens(&r, &file);
    if (!status) status = find_merges(&r);
    if (!status && !(out->rest = describe(pattern))) status = no_memory(&r);
    text_free(&file);
    text_free(&r.tokens);
    free(r.starts);
    return status;
}
