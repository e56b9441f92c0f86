#include "tokenizer/detokenizer.h"

#include <string.h>

#include "tokenizer/token_table.h"
#include "tokenizer/utf8.h"

enum { REPLACEMENT_LENGTH = sizeof UTF8_REPLACEMENT - 1 };

void detokenizer_init(struct detokenizer *d, const struct tokenizer *t, bool at_start, bool with_special)
{
    *d = (struct detokenizer){.tokenizer = t,
                              .strip_space = at_start && tokenizer_tokens(t)->strips_first_space,
                              .with_special = with_special};
}

size_t detokenizer_max_bytes(const struct tokenizer *t)
{
    /* Every pending byte as U+FFFD, and a token. */
    return tokenizer_tokens(t)->longest + sizeof((struct detokenizer *)0)->pending * REPLACEMENT_LENGTH;
}

static void drop_pending(struct detokenizer *d, int count)
{
    d->pending_length -= count;
    memmove(d->pending, d->pending + count, (size_t)d->pending_length);
}

/* Writes the pending bytes as far as they are decided: whole characters, and U+FFFD for a byte with which no character
 * can begin (for that byte alone, as in SentencePiece). `at_end`: no further byte will complete a character. */
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
        drop_pending(d, length > 0 ? length : 1);
    }
    return written;
}

static size_t add_byte(struct detokenizer *d, char byte, char *out)
{
    d->strip_space = false;
    d->pending[d->pending_length++] = byte;
    return emit_pending(d, false, out);
}

/* How many bytes at the start of the token are the space that encoding added. As in SentencePiece, one space is dropped
 * once; but if the model removes extra whitespace, all spaces before the first text are dropped. */
static size_t strip(struct detokenizer *d, const struct token_table *table, struct token token)
{
    bool stripped = d->strip_space && (token.flags & TOKEN_LEADING_SPACE);
    if (stripped && table->strips_every_space && token.length == 1) return 1;
    if (stripped || token.length > 0) d->strip_space = false;
    return stripped ? 1 : 0;
}

size_t detokenizer_add(struct detokenizer *d, int32_t id, char *out)
{
    const struct token_table *table = tokenizer_tokens(d->tokenizer);
    struct token token = token_table_get(table, id);
    if (token.flags & TOKEN_BYTE) return add_byte(d, table->bytes.data[token.offset], out);
    size_t written = emit_pending(d, true, out);
    if ((token.flags & TOKEN_SPECIAL) && !d->with_special) return written;
    size_t skip = strip(d, table, token);
    if (token.length > skip) memcpy(out + written, table->bytes.data + token.offset + skip, token.length - skip);
    if (token.flags & TOKEN_MATCHED) d->strip_space = table->strips_first_space;
    return written + token.length - skip;
}

size_t detokenizer_finish(struct detokenizer *d, char *out)
{
    return emit_pending(d, true, out);
}
