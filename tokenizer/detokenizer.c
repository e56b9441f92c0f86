#include "tokenizer/detokenizer.h"

#include <string.h>

#include "base/utf8.h"

enum { REPLACEMENT_LENGTH = sizeof UTF8_REPLACEMENT - 1 };

static const struct decoding_rules *rules(const struct detokenizer *d)
{
    return &d->table->rules;
}

void detokenizer_init(struct detokenizer *d, const struct token_table *table, bool at_start, bool with_special)
{
    const struct decoding_rules *r = &table->rules;
    *d = (struct detokenizer){.table = table,
                              .with_special = with_special,
                              .strip_space = at_start && r->strips_first_space,
                              .first = at_start,
                              .strip_spaces = at_start ? r->strip_spaces : 0};
}

size_t detokenizer_max_bytes(const struct token_table *table)
{
    /* A space, and each byte as U+FFFD. */
    return 1 + (table->longest + DETOKENIZER_MAX_PENDING) * REPLACEMENT_LENGTH;
}

/* --- bytes that may form characters with those after them --- */

static void drop_pending(struct detokenizer *d, int count)
{
    d->pending_length -= count;
    memmove(d->pending, d->pending + count, (size_t)d->pending_length);
}

/* How many of the pending bytes, which begin no character, one U+FFFD replaces. */
static int replaced_bytes(const struct detokenizer *d)
{
    int count = 1;
    if (rules(d)->decoding != DECODE_BYTE_LEVEL) return 1;
    while (count < d->pending_length && utf8_length(d->pending, (size_t)count + 1) == 0) count++;
    return count;
}

/* Writes the pending bytes as far as they are decided: whole characters, and U+FFFD for what begins none. `at_end`: no
 * further byte will complete a character. */
static size_t emit_pending(struct detokenizer *d, bool at_end, char *out)
{
    size_t written = 0;
    while (d->pending_length > 0) {
        int length = utf8_length(d->pending, (size_t)d->pending_length);
        if (length == 0 && !at_end) break;
        const char *from = length > 0 ? d->pending : UTF8_REPLACEMENT;
        size_t count = length > 0 ? (size_t)length : REPLACEMENT_LENGTH;
        memcpy(out + written, from, count);
        written += count;
        drop_pending(d, length > 0 ? length : replaced_bytes(d));
    }
    return written;
}

/* Each of the pending bytes becomes U+FFFD. */
static size_t replace_pending(struct detokenizer *d, char *out)
{
    const size_t count = (size_t)d->pending_length;
    for (size_t i = 0; i < count; i++) memcpy(out + i * REPLACEMENT_LENGTH, UTF8_REPLACEMENT, REPLACEMENT_LENGTH);
    d->pending_length = 0;
    return count * REPLACEMENT_LENGTH;
}

/* Whether the pending bytes are characters, of which the last may be incomplete if `begun`. */
static bool are_characters(const struct detokenizer *d, bool begun)
{
    for (int i = 0, n; i < d->pending_length; i += n) {
        n = utf8_length(d->pending + i, (size_t)(d->pending_length - i));
        if (n <= 0) return n == 0 && begun;
    }
    return true;
}

/* Ends a run of byte tokens. */
static size_t end_run(struct detokenizer *d, char *out)
{
    d->broken_run = false;
    return are_characters(d, false) ? emit_pending(d, true, out) : replace_pending(d, out);
}

static size_t end_pending(struct detokenizer *d, char *out)
{
    return rules(d)->decoding == DECODE_BYTE_FALLBACK ? end_run(d, out) : emit_pending(d, true, out);
}

/* --- SentencePiece --- */

static size_t add_byte(struct detokenizer *d, char byte, char *out)
{
    d->strip_space = false;
    d->pending[d->pending_length++] = byte;
    return emit_pending(d, false, out);
}

/* How many bytes at the start of the token are the space that encoding added. As in SentencePiece, one space is dropped
 * once; but if the model removes extra whitespace, all spaces before the first text are dropped. */
static size_t strip(struct detokenizer *d, struct token token)
{
    bool stripped = d->strip_space && (token.flags & TOKEN_LEADING_SPACE);
    if (stripped && rules(d)->strips_every_space && token.length == 1) return 1;
    if (stripped || token.length > 0) d->strip_space = false;
    return stripped ? 1 : 0;
}

static size_t add_piece(struct detokenizer *d, struct token token, const char *bytes, char *out)
{
    if (token.flags & TOKEN_BYTE) return add_byte(d, *bytes, out);
    size_t written = emit_pending(d, true, out);
    if ((token.flags & TOKEN_SPECIAL) && !d->with_special) return written;
    size_t skip = strip(d, token);
    if (token.length > skip) memcpy(out + written, bytes + skip, token.length - skip);
    if (token.flags & TOKEN_ADDED) d->strip_space = rules(d)->strips_first_space;
    return written + token.length - skip;
}

/* --- tokenizers --- */

static size_t add_to_run(struct detokenizer *d, char byte, char *out)
{
    d->pending[d->pending_length++] = byte;
    if (!are_characters(d, true)) d->broken_run = true;
    if (d->broken_run) return replace_pending(d, out);
    return d->pending_length == DETOKENIZER_MAX_PENDING ? emit_pending(d, false, out) : 0;
}

static size_t add_bytes(struct detokenizer *d, const char *bytes, size_t length, char *out)
{
    size_t written = 0;
    for (size_t i = 0; i < length; i++) {
        d->pending[d->pending_length++] = bytes[i];
        written += emit_pending(d, false, out + written);
    }
    return written;
}

static size_t add_text(struct detokenizer *d, struct token token, const char *bytes, char *out)
{
    size_t written = end_run(d, out);
    const bool spaceless = d->first && rules(d)->spaceless_first_token && !(token.flags & TOKEN_LITERAL_SPACE);
    if (!d->first && rules(d)->space_between) out[written++] = ' ';
    for (size_t i = 0; i < token.length; i++)
        if (!spaceless || bytes[i] != ' ') out[written++] = bytes[i];
    return written;
}

/* Drops spaces of out[length] at the start of the text. */
static size_t strip_start(struct detokenizer *d, char *out, size_t length)
{
    size_t spaces = 0;
    while (spaces < length && spaces < d->strip_spaces && out[spaces] == ' ') spaces++;
    d->strip_spaces = spaces < length ? 0 : d->strip_spaces - (uint32_t)spaces;
    if (spaces) memmove(out, out + spaces, length - spaces);
    return length - spaces;
}

static size_t add_decoded(struct detokenizer *d, struct token token, const char *bytes, char *out)
{
    size_t written;
    if ((token.flags & TOKEN_SPECIAL) && !d->with_special) return 0;
    if (token.flags & TOKEN_BYTE)
        written = add_to_run(d, *bytes, out);
    else if (rules(d)->decoding == DECODE_BYTE_LEVEL)
        written = add_bytes(d, bytes, token.length, out);
    else
        written = add_text(d, token, bytes, out);
    d->first = false;
    return strip_start(d, out, written);
}

size_t detokenizer_add(struct detokenizer *d, int32_t id, char *out)
{
    const struct token_table *table = d->table;
    const struct token token = token_table_get(table, id);
    if (id < 0 || id >= table->count) return 0;
    const char *bytes = token.length ? table->bytes.data + token.offset : "";
    return table->rules.decoding == DECODE_SENTENCEPIECE ? add_piece(d, token, bytes, out)
                                                         : add_decoded(d, token, bytes, out);
}

size_t detokenizer_finish(struct detokenizer *d, char *out)
{
    return strip_start(d, out, end_pending(d, out));
}
