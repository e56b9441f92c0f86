/* The progress of a run: on a terminal one line that is redrawn a few times a second, elsewhere a line every ten
 * seconds. Both go to stderr.
 *
 *   [=======>            ] 1,204/3,000  0:02:31 left  812 + 340 tokens/s  64 running, 128 waiting  KV 43 %, 12 % hits
 *   quire generate: 1,204 of 3,000, 0:02:31 left, 812 + 340 tokens/s, 64 running, 128 waiting, KV 43 %, 12 % hits
 *
 * Until the first token of an answer, "reading 12 %" behind the count says how much of the prompts is computed. Tokens
 * per second are those of prompts and of answers, of late. Where something else than requests is counted, the line ends
 * with the time that is left. A line that is wider than the terminal loses what stands last. */
#ifndef QUIRE_RUNTIME_PROGRESS_H
#define QUIRE_RUNTIME_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/array.h"

/* How things stand. */
struct progress_facts {
    int64_t done, total;         /* requests; total 0: not known */
    const char *unit;            /* "MB": they count this in place of requests, and nothing below done_before is set */
    bool total_estimated;        /* ... and only about so many */
    int64_t done_before;         /* of done: by an earlier run, so that they say nothing of the speed */
    int64_t prompt_tokens;       /* computed, or found in the cache */
    int64_t prompt_tokens_known; /* of all prompts that are read */
    int64_t output_tokens;       /* of finished and unfinished answers */
    int32_t running, waiting;    /* requests */
    double cache_used, hit_rate; /* 0 to 1; of blocks, and of the prompts' tokens */
};

struct progress {
    const char *command; /* its name, or NULL: nothing is shown */
    bool terminal;       /* stderr is one */
    bool drawn;          /* the line is on the screen */
    double start, last_drawn;
    int64_t last_prompt_tokens, last_output_tokens; /* when it was drawn last */
    double prompt_rate, output_rate;                /* tokens/s of late */
};

/* `command`: "generate"; NULL: show nothing. It is referred to. */
void progress_start(struct progress *p, const char *command);
bool progress_due(const struct progress *p); /* time to draw again */
void progress_update(struct progress *p, const struct progress_facts *facts);
/* Takes the line off the screen, so that something else may be written. */
void progress_clear(struct progress *p);
double progress_seconds(const struct progress *p); /* since the start */

/* The line as above, `seconds` after the start: of at most `width` columns, or, with width 0, the one for a log, as
 * long as it is. Appended to *out. False: memory ran out. */
bool progress_line(const struct progress *p, const struct progress_facts *facts, double seconds, int width,
                   struct text *out);

#endif
