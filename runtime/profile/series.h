/* What a run looked like step by step: a row for each Nth step, kept until the run ends; as a table, CSV, JSON or
 * a plot. */
#ifndef QUIRE_RUNTIME_SERIES_H
#define QUIRE_RUNTIME_SERIES_H

#include <jansson.h>
#include <stdio.h>

#include "base/status.h"
#include "scheduler/scheduler.h"

struct series_row {
    int64_t step;                                  /* the last one of the row, from 1 */
    double seconds;                                /* after it, since the run began */
    int32_t num_running, num_waiting, num_swapped; /* requests after it */
    int32_t blocks_in_use, blocks_cached, blocks_free;
    int32_t slots_in_use, slots_cached;  /* state slots: held by sequences; snapshots that none of them holds */
    int64_t num_tokens, num_preemptions; /* of the row's steps */
    double hit_rate;                     /* of the prefix cache so far, 0 to 1 */
};

struct series {
    struct series_row *rows; /* [count] */
    size_t count, capacity;
    int32_t num_blocks;          /* of the KV cache */
    int32_t num_slots;           /* for states; 0: the model has none */
    int64_t tokens, preemptions; /* in all rows */
};

/* Appends the state after a step. The caller frees the series with series_free. */
enum status series_add(struct series *s, const struct scheduler_stats *stats, double seconds, struct error *err);
void series_free(struct series *s); /* safe on a zeroed struct */

/* At most `most` rows, which stand for equal numbers of rows each: out[most] gets of each part the row with the most
 * blocks in use, with the part's largest queues and the sum of its tokens and preemptions. Returns how many. */
size_t series_thin(const struct series *s, struct series_row *out, size_t most);

void series_print_head(FILE *out);
void series_print_row(const struct series_row *row, FILE *out);
/* A line of names, and a line a row. False if the stream refused. */
bool series_write_csv(const struct series *s, FILE *out);
json_t *series_json(const struct series *s); /* an array of objects; NULL if memory ran out */

/* Draws a plot of 72 columns for a terminal, of block characters or of ASCII: blocks in use and cached, preemptions,
 * state slots, requests running, waiting and swapped. False if the stream refused. */
bool plot_print(const struct series *s, bool utf8, FILE *out);

#endif
