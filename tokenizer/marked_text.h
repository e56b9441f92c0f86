/* Text whose bytes may be marked: 1 for text that a person wrote, in which special tokens are not looked for. */
#ifndef QUIRE_TOKENIZER_MARKED_TEXT_H
#define QUIRE_TOKENIZER_MARKED_TEXT_H

#include <string.h>

#include "base/array.h"

struct marked_text {
    struct text text;
    struct text marks; /* [text.length], or empty: no byte is marked */
};

/* Appends bytes[count], and with_marks the mark of each, which is `mark`. False if memory ran out. */
static inline bool marked_text_append(struct marked_text *t, const char *bytes, size_t count, bool with_marks,
                                      bool mark)
{
    if (!text_append(&t->text, bytes, count)) return false;
    if (!with_marks) return true;
    if (!text_reserve(&t->marks, t->marks.length + count)) return false;
    memset(t->marks.data + t->marks.length, mark, count);
    t->marks.length += count;
    return true;
}

static inline void marked_text_free(struct marked_text *t)
{
    text_free(&t->text);
    text_free(&t->marks);
}

#endif
