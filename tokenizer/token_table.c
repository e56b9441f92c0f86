#include "tokenizer/token_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/plural.h"
#include "base/utf8.h"

struct token token_table_get(const struct token_table *table, int32_t id)
{
    if (id < 0 || id >= table->count) return (struct token){0};
    return table->tokens[id];
}

static bool grow(struct token_table *table, int32_t count)
{
    if (count <= table->count) return true;
    if (!array_reserve(&table->tokens, &table->capacity, (size_t)count, sizeof *table->tokens)) return false;
    memset(table->tokens + table->count, 0, (size_t)(count - table->count) * sizeof *table->tokens);
    table->count = count;
    return true;
}

/* Makes the bytes appended to table->bytes since `offset` the text of `id`. */
static void put(struct token_table *table, int32_t id, size_t offset, uint32_t flags)
{
    size_t length = table->bytes.length - offset;
    table->tokens[id] = (struct token){(uint32_t)offset, (uint32_t)length, flags};
    if (length > table->longest) table->longest = length;
}

bool token_table_set(struct token_table *table, int32_t id, const char *bytes, size_t length, uint32_t flags)
{
    size_t offset = table->bytes.length;
    if (!grow(table, id + 1) || !text_append(&table->bytes, bytes, length)) return false;
    put(table, id, offset, flags);
    return true;
}

bool token_table_set_text(struct token_table *table, int32_t id, const char *text, size_t length, uint32_t flags)
{
    size_t offset = table->bytes.length;
    if (!grow(table, id + 1) || !utf8_append_valid(&table->bytes, text, length)) return false;
    put(table, id, offset, flags);
    return true;
}

static bool set_byte(struct token_table *table, int32_t id, const char *piece)
{
    unsigned value = 0;
    sscanf(piece, "<0x%2X>", &value); /* the library refuses a byte piece in another form */
    char byte = (char)value;
    return token_table_set(table, id, &byte, 1, TOKEN_BYTE);
}

/* A piece with each U+2581 as a space. */
static bool set_piece(struct token_table *table, int32_t id, const char *piece, size_t length)
{
    size_t offset = table->bytes.length;
    const char *end = piece + length;
    bool leading = length >= SPACE_SYMBOL_LENGTH && memcmp(piece, SPACE_SYMBOL, SPACE_SYMBOL_LENGTH) == 0;
    bool ok = true;
    while (piece < end && ok) {
        const char *space = memmem(piece, (size_t)(end - piece), SPACE_SYMBOL, SPACE_SYMBOL_LENGTH);
        ok = utf8_append_valid(&table->bytes, piece, (size_t)((space ? space : end) - piece));
        if (space && ok) ok = text_append(&table->bytes, " ", 1);
        piece = space ? space + SPACE_SYMBOL_LENGTH : end;
    }
    if (ok) put(table, id, offset, leading ? TOKEN_LEADING_SPACE : 0);
    return ok;
}

/* The model decides how the unknown piece is decoded. */
static enum status set_unknown(struct token_table *table, const struct sentencepiece_model *sp, int32_t id,
                               struct error *err)
{
    char *surface;
    size_t length;
    enum status status = sentencepiece_decode(sp, &id, 1, &surface, &length, err);
    if (status) return status;
    if (!token_table_set_text(table, id, surface, length, 0))
        status = error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for the table of tokens");
    free(surface);
    return status;
}

static enum status set_from_model(struct token_table *table, const struct sentencepiece_model *sp, int32_t id,
                                  struct error *err)
{
    size_t length;
    const char *piece = sentencepiece_piece(sp, id, &length);
    enum piece_type type = sentencepiece_type(sp, id);
    bool ok;
    if (type == PIECE_UNKNOWN)
        return set_unknown(table, sp, id, err);
    else if (type == PIECE_CONTROL)
        ok = token_table_set_text(table, id, piece, length, TOKEN_SPECIAL | TOKEN_ADDED);
    else if (type == PIECE_BYTE)
        ok = set_byte(table, id, piece);
    else
        ok = set_piece(table, id, piece, length);
    return ok ? STATUS_OK : error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for the table of tokens");
}

enum status token_table_build(struct token_table *table, const struct sentencepiece_model *sp, struct error *err)
{
    *table = (struct token_table){0};
    const bool every = sentencepiece_removes_extra_whitespaces(sp);
    table->rules = (struct decoding_rules){.decoding = DECODE_SENTENCEPIECE,
                                           .strips_first_space = sentencepiece_adds_dummy_prefix(sp) || every,
                                           .strips_every_space = every};
    int32_t size = sentencepiece_size(sp);
    if (!grow(table, size))
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for %d token%s", (int)size, plural(size));
    for (int32_t id = 0; id < size; id++) {
        enum status status = set_from_model(table, sp, id, err);
        if (status) return status;
    }
    return STATUS_OK;
}

void token_table_free(struct token_table *table)
{
    free(table->tokens);
    text_free(&table->bytes);
    *table = (struct token_table){0};
}
