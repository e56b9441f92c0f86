/* Lays out text for a window while it arrives. Words wrap at spaces, and Chinese and Japanese between characters; what
 * is there of a word is shown at once, and moves to the next line when it turns out not to fit. The further lines of an
 * item of a list begin below its text. Left as they are, for the terminal to break: code between ``` or ~~~
 * (CommonMark, 4.5), other lines that begin with a space or a tab, and words longer than a line.
 *
 *   |- An item of a list  |
 *   |  that is longer     |          The last column stays empty: whether the cursor has then moved to the next line
 *   |  than a line        |          differs among terminals. */
#ifndef QUIRE_RUNTIME_WORD_WRAP_H
#define QUIRE_RUNTIME_WORD_WRAP_H

#include "base/array.h"
#include "base/columns.h"

struct word_wrap { /* zero-initialise it but for these two */
    int columns;   /* the window's width, at least 1; may change between characters */
    bool can_move; /* the cursor can be moved, and lines erased; else a word is shown when it is complete */

    struct columns text; /* all that was read */
    int column;          /* of the cursor */
    int spaces;          /* columns of spaces that were read and not shown */
    struct text word;
    int word_columns;
    bool is_simple; /* every terminal agrees about word_columns */
    bool is_first;  /* the word begins its line of the window */
    /* The line of the text has these: */
    char head[16]; /* [head_length] its first word, or the beginning of that */
    size_t head_length;
    bool is_indented, is_begun, head_ended;
    int hang; /* columns before what is wrapped */
    /* The code block: */
    char fence;          /* '`' or '~'; 0: there is none */
    size_t fence_length; /* of that character */
};

/* Adds a character, which is none that drives the terminal, and appends what shows it. False if memory ran out. */
bool word_wrap_add(struct word_wrap *w, uint32_t character, struct text *out);
/* Appends what was held back: a word ends here, and the line goes on. */
bool word_wrap_flush(struct word_wrap *w, struct text *out);

#endif
