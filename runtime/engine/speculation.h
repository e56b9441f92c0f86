/* Between the engine and its drafter: which sequences get drafts in a step, and how many.
 *
 * The number adapts to what is accepted, sequence by sequence, and to the step: a draft must be likely enough to be
 * worth what another entry of the step costs. Entries cost little while a step waits for memory, and as much as plain
 * ones once it is bound by compute: then there are no drafts. A sequence whose drafts are rejected is tried again after
 * a wait that grows with each failure, and with the failures of all sequences. Nothing here looks at a clock: the same
 * requests get the same drafts.
 *
 * Drafts follow from all tokens before them, so they are proposed when no step is in flight. While no sequence wants
 * any, two steps may be. */
#ifndef QUIRE_RUNTIME_ENGINE_SPECULATION_H
#define QUIRE_RUNTIME_ENGINE_SPECULATION_H

#include <stdbool.h>

#include "runtime/engine/draft.h"
#include "scheduler/scheduler.h"

struct speculation;

/* What the device computes at little more than the cost of one: entries of a step, at most. */
struct speculation_limits {
    int32_t max_num_tokens, max_num_seqs, max_num_drafts; /* those of batch_limits */
    int32_t free_entries;                                 /* a step of more entries than this gets no drafts */
    int32_t num_speculative_tokens;
    bool fixed; /* each sequence gets num_speculative_tokens drafts, or as many as it has room for, in every step */
};
int32_t speculation_free_entries(bool discrete); /* of a GPU, or of a CPU */
/* What max_num_drafts should be, by the other fields. */
int32_t speculation_most_drafts(const struct speculation_limits *limits);

/* The drafter is the caller's, and must outlive it. */
enum status speculation_create(const struct speculation_limits *limits, struct drafter *drafter,
                               struct speculation **out, struct error *err);
void speculation_destroy(struct speculation *s); /* NULL is allowed */

/* Gives sequences drafts for the next step. Call it right before each scheduler_schedule. While a step is in flight it
 * gives none, and counts the step. Requests have ids, which are never 0. */
void speculation_propose(struct speculation *s, struct scheduler *scheduler);
/* Notes which of the drafts the step has: call it right after scheduler_schedule. */
void speculation_scheduled(struct speculation *s, const struct schedule *schedule);
/* Whether the steps in flight must be collected before the next one is scheduled: they have drafts, whose sequences
 * would be missing there, or a sequence would be asked for drafts there. */
bool speculation_wants_drafts(struct speculation *s, const struct scheduler *scheduler);

#endif
