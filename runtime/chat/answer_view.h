/* An answer as a person sees it while it is written.
 *
 * On a terminal: words wrap to the window's width, which is read again for each piece (word_wrap.h). Control characters
 * are shown as symbols (base/visible.h). The reasoning that an answer begins with, between <think> and </think> or
 * another pair of answer_view.c, can be dimmed or folded into a line.
 *
 * Elsewhere, and with columns = 0, the stream gets the bytes as they come. */
#ifndef QUIRE_RUNTIME_ANSWER_VIEW_H
#define QUIRE_RUNTIME_ANSWER_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum think_display {
    THINK_SHOW, /* as any other text, with its tags */
    THINK_DIM,  /* dim, without the tags; without colours as THINK_SHOW */
    THINK_FOLD, /* one line: "(thinking: 214 tokens)" while it lasts, then "(thought for 3.2 s, 214 tokens)" */
};

struct answer_view_options {
    int columns;        /* the window's width; 0: raw bytes */
    bool follow_window; /* ask the stream's terminal for its width with each piece; `columns` if it has none */
    bool colours;       /* SGR sequences; false for TERM=dumb and NO_COLOR */
    bool cursor;        /* the cursor can be moved and lines erased; false for TERM=dumb */
    enum think_display think;
    const char *reasoning_end; /* the prompt has opened the reasoning already, and this tag ends it
                                  (answer_view_open_reasoning); NULL: it has not */
    FILE *notices;             /* a terminal for answer_view_reading; NULL: it writes nothing */
    double notice_seconds;     /* answer_view_reading is silent for so long */
};
/* What fits the stream, stderr and the environment (TERM, NO_COLOR): raw bytes if the stream is no terminal. */
struct answer_view_options answer_view_options_for(FILE *stream, enum think_display think);
/* Where a prompt's text ends with a tag that opens reasoning, as some chat templates have it: the tag that ends it.
 * Else NULL. */
const char *answer_view_open_reasoning(const char *prompt, size_t length);

struct answer_view;

/* An answer begins, at the start of a line. NULL if memory ran out. */
struct answer_view *answer_view_begin(FILE *stream, const struct answer_view_options *options);
/* While the prompt is read, before the first piece: "reading 1500 tokens... 40 %", rewritten in place. */
void answer_view_reading(struct answer_view *v, int32_t done, int32_t total);
/* Shows a piece of the answer, whole UTF-8 characters, at once; `tokens` of the answer are new since the last piece.
 * False, with errno, if the stream refused it, or with ENOMEM if memory ran out. */
bool answer_view_add(struct answer_view *v, const char *text, size_t length, int32_t tokens);
/* Shows what was held back, ends the line and frees the view. On a terminal a newline is added if something stands on
 * the line. Raw, it is added to every answer (a reader of lines gets one for each); `failed` says that there is none:
 * then only if bytes were written. False, with errno, as above. NULL is allowed. */
bool answer_view_end(struct answer_view *v, bool failed);

#endif
