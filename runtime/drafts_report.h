/* What became of drafts, for reports and in words. */
#ifndef QUIRE_RUNTIME_DRAFTS_REPORT_H
#define QUIRE_RUNTIME_DRAFTS_REPORT_H

#include "runtime/engine/engine.h"
#include "runtime/report.h"

/* Adds the numbers to a report, under the names of vLLM's metrics. Of `stats`, the counts of runs and drafts are read.
 */
void drafts_report(struct report *r, const struct scheduler_stats *stats);

/* "1,200 drafts (ngram), 812 of them accepted, 2.7 tokens a run". */
struct drafts_words {
    char text[160]; /* "" where nothing drafts: `drafter` is NULL */
};
struct drafts_words drafts_words(const char *drafter, const struct scheduler_stats *stats);

#endif
