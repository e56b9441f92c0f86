/* The answers of a run of `quire generate`: those that an earlier run left, and those that this one writes. Three files
 * belong together: the output, OUTPUT.quire, which says what it answers (journal.h), and with --ordered OUTPUT.spool,
 * where early answers wait (spool.h). Whatever ends a run, each answer that was handed over is whole in one of them. If
 * another program takes one of them away, the run learns it within seconds, and the next one computes what is lost. */
#ifndef QUIRE_RUNTIME_ANSWERS_H
#define QUIRE_RUNTIME_ANSWERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/array.h"
#include "base/log.h"
#include "base/status.h"
#include "runtime/generate/disk_sync.h"
#include "runtime/generate/index_set.h"
#include "runtime/generate/journal.h"
#include "runtime/generate/output.h"
#include "runtime/generate/spool.h"

/* Zero-initialise it, and set `input`, `ordered`, `overwrite` and `log`. */
struct answers {
    const struct input_list *input; /* what is answered */
    bool ordered, overwrite;
    const struct log *log;
    struct output output;
    struct spool spool; /* open only if ordered */
    struct disk_sync *sync;
    bool resumable;              /* the output is a file, and what it answers is known: there is a journal */
    bool resumes;                /* ... and an earlier run left answers, which are kept */
    bool grown;                  /* ... though the input has had more lines since */
    bool begun;                  /* the files are ready to be written */
    struct journal now, before;  /* of this run: see answers_resume; of the earlier one, if this resumes */
    struct index_set set;        /* the indices whose answers were there */
    uint64_t keep, keep_spooled; /* bytes of the output and of the spool with whole lines of an earlier run */
    int64_t next;                /* ordered: the index whose answer comes next in the output */
    int64_t num_failed, num_cut; /* of the answers that were there: lines, and answers of any length */
    int64_t num_lines;           /* in the output: whole lines of both runs */
    double checked;              /* when answers_watch looked last */
    bool failed;                 /* no more answers can be taken: a write failed, or a file was taken away */
    struct text line;
};

/* Opens the output as output_open does. */
enum status answers_open(struct answers *a, const char *name, const struct inputs *inputs, struct error *err);

/* Looks for the answers of an earlier run of this input, or of a beginning of it. `comparable`: a->now, which is the
 * answers' then, says what this run is to answer, up to the engine's facts; false for an input that cannot be read
 * twice. INVALID: the output is not empty, and belongs to something else or is damaged. */
enum status answers_resume(struct answers *a, bool comparable, struct error *err);
/* Compares what only the engine knows, which a->now has got meanwhile. INVALID as above. */
enum status answers_check_engine(const struct answers *a, struct error *err);

/* Whether an earlier run has answered this prompt. */
bool answers_have(const struct answers *a, int64_t index);
/* Whether there is nothing to compute: an earlier run has answered all prompts. */
bool answers_complete(const struct answers *a);

/* Makes the files ready: empty with a new journal, or cut behind the last whole line. Later calls do nothing. */
enum status answers_begin(struct answers *a, struct error *err);

/* Takes an answer, (line)[length] with its newline. Ordered: it waits in the spool until those before it are there.
 * Begins if that has not been done. A failure sets a->failed. */
enum status answers_write(struct answers *a, int64_t index, const char *line, size_t length, struct error *err);

/* To be called often; every few seconds it looks whether the files still hold what was written to them, and fails as
 * answers_write does. A journal that is gone is written again, with a warning on the log. */
enum status answers_watch(struct answers *a, struct error *err);

/* The end of a run that has begun: what waits in the spool stays there if a run can go on from it, and is written to
 * the output, with gaps, if not. Everything is on the disk and in its files when it returns. *num_spooled: how many
 * answers stay in the spool. */
enum status answers_end(struct answers *a, int64_t *num_spooled, struct error *err);

void answers_close(struct answers *a); /* safe on a zeroed struct */

#endif
