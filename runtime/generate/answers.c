#include "runtime/generate/answers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/plural.h"
#include "runtime/generate/answer_line.h"
#include "runtime/generate/input_facts.h"

enum { SYNC_OUTPUT, SYNC_SPOOL };
static const double WATCH_SECONDS = 5;

static void spool_name(const struct answers *a, char *name, size_t size)
{
    snprintf(name, size, "%s.spool", a->output.name);
}

enum status answers_open(struct answers *a, const char *name, const struct inputs *inputs, struct error *err)
{
    if (strlen(name) > JOURNAL_MAX_NAME)
        return error_set(err, STATUS_INVALID, "the name of the output is longer than %d bytes", JOURNAL_MAX_NAME);
    return output_open(&a->output, name, inputs, err);
}

/* ---- what an earlier run left ---- */

static bool has_spool(const struct answers *a)
{
    char name[4096];
    struct stat info;
    spool_name(a, name, sizeof name);
    return stat(name, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0;
}

static enum status note(struct answers *a, const struct answer_line *answer, const char *where, struct error *err)
{
    if (answer->index < a->now.begin || answer->index >= a->now.end)
        return error_set(err, STATUS_INVALID, "%s holds an answer to prompt %lld, which is not among those of this run",
                         where, (long long)answer->index);
    if (index_set_has(&a->set, answer->index))
        return error_set(err, STATUS_INVALID, "%s holds two answers to prompt %lld", where, (long long)answer->index);
    if (!index_set_add(&a->set, answer->index))
        return error_set(err, STATUS_OUT_OF_MEMORY, "no memory for the indices of %s", where);
    a->num_failed += answer->failed;
    a->num_cut += answer->num_cut;
    return STATUS_OK;
}

static enum status note_written(void *user, const struct answer_line *answer, uint64_t offset, size_t length,
                                struct error *err)
{
    struct answers *a = user;
    (void)offset, (void)length;
    if (a->ordered && answer->index != a->next)
        return error_set(err, STATUS_INVALID, "%s is not in order at prompt %lld", a->output.name,
                         (long long)answer->index);
    a->next++;
    a->num_lines++;
    return note(a, answer, a->output.name, err);
}

/* An answer that is in the output already was copied by a run that ended before it could give back its bytes. */
static enum status note_spooled(void *user, const struct answer_line *answer, uint64_t offset, size_t length,
                                struct error *err)
{
    struct answers *a = user;
    if (index_set_has(&a->set, answer->index) && answer->index < a->next) return STATUS_OK;
    const enum status status = note(a, answer, a->spool.name, err);
    return status == STATUS_OK ? spool_note(&a->spool, answer->index, offset, length, err) : status;
}

static enum status scan_output(struct answers *a, struct error *err)
{
    const int fd = open(a->output.name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return error_set(err, STATUS_IO, "cannot read the output %s: %s", a->output.name, strerror(errno));
    const enum status status = answer_scan(fd, a->output.name, 0, note_written, a, &a->keep, err);
    close(fd);
    return status;
}

static enum status scan_spool(struct answers *a, struct error *err)
{
    char name[4096];
    spool_name(a, name, sizeof name);
    if (!a->ordered || !file_exists(name)) return STATUS_OK;
    enum status status = spool_open(&a->spool, name, err);
    if (status != STATUS_OK) return status;
    return answer_scan(a->spool.fd, name, spool_skip_given_back(&a->spool), note_spooled, a, &a->keep_spooled, err);
}

static enum status refuse(const struct answers *a, bool comparable, struct error *err)
{
    const char *name = a->output.name;
    if (comparable)
        return error_set(err, STATUS_INVALID,
                         "the output %s exists and is not empty; name another file, or replace it with --overwrite "
                         "(there is no %s" JOURNAL_SUFFIX ", which would say what it answers)",
                         name, name);
    return error_set(err, STATUS_INVALID,
                     "the output %s exists and is not empty; name another file, or replace it with --overwrite (the "
                     "input is no file, and cannot be compared with the one that it answers)",
                     name);
}

/* An input that has grown at its end has the prompts that it had, with the same indices. */
static enum status accept_growth(struct answers *a, struct error *err)
{
    struct journal *before = &a->before;
    if (strcmp(before->input.text, a->now.input.text) == 0) return STATUS_OK;
    const enum status status = input_facts_grown(a->input, &before->input, before->input_sizes, &a->grown, err);
    if (status != STATUS_OK || !a->grown) return status;
    if (before->shard[0])
        return error_set(err, STATUS_INVALID,
                         "%s was begun with --shard %s, and the input has grown, so that its parts are others now; put "
                         "the new lines into a file of their own, or start anew with --overwrite",
                         a->output.name, before->shard);
    before->input = a->now.input;
    return STATUS_OK;
}

enum status answers_resume(struct answers *a, bool comparable, struct error *err)
{
    const struct output *o = &a->output;
    bool found;
    a->resumable = o->named && comparable;
    a->next = a->now.begin;
    if (!o->named || o->created || a->overwrite || (output_size(o) == 0 && !has_spool(a))) return STATUS_OK;
    if (!comparable) return refuse(a, comparable, err);
    enum status status = journal_read(o->name, &a->before, &found, err);
    if (status == STATUS_OK && !found) return refuse(a, comparable, err);
    if (status == STATUS_OK) status = accept_growth(a, err);
    if (status == STATUS_OK) status = journal_compare(&a->before, &a->now, o->name, err);
    if (status == STATUS_OK) status = scan_output(a, err);
    if (status == STATUS_OK) status = scan_spool(a, err);
    if (status == STATUS_INVALID && a->set.count > 0) error_prefix(err, status, "cannot go on");
    a->resumes = status == STATUS_OK;
    return status;
}

enum status answers_check_engine(const struct answers *a, struct error *err)
{
    return a->resumes ? journal_compare(&a->before, &a->now, a->output.name, err) : STATUS_OK;
}

bool answers_have(const struct answers *a, int64_t index)
{
    return index_set_has(&a->set, index);
}

bool answers_complete(const struct answers *a)
{
    return a->resumes && a->set.count == a->now.end - a->now.begin;
}

/* ---- beginning ---- */

static enum status open_spool(struct answers *a, struct error *err)
{
    char name[4096];
    if (!a->ordered || a->spool.open) return STATUS_OK;
    spool_name(a, name, sizeof name);
    return spool_open(&a->spool, a->output.named ? name : NULL, err);
}

/* First the journal goes and last it comes: it never stands beside answers to something else. */
static enum status begin_anew(struct answers *a, struct error *err)
{
    char name[4096];
    spool_name(a, name, sizeof name);
    if (a->output.named) journal_remove(a->output.name);
    enum status status = output_cut(&a->output, 0, err);
    if (status == STATUS_OK && a->output.named && !a->ordered && file_exists(name)) unlink(name);
    if (status == STATUS_OK) status = open_spool(a, err);
    if (status == STATUS_OK && a->ordered) status = spool_clear(&a->spool, err);
    if (status == STATUS_OK && a->resumable) status = journal_write(&a->now, a->output.name, err);
    return status;
}

/* The journal of an input that has grown says so before there are answers to its new lines. Without new prompts there
 * is no engine. */
static enum status note_growth(struct answers *a, struct error *err)
{
    if (!a->grown) return STATUS_OK;
    if (a->now.max_model_len == 0) {
        a->now.max_model_len = a->before.max_model_len;
        memcpy(a->now.dtype, a->before.dtype, sizeof a->now.dtype);
    }
    return journal_write(&a->now, a->output.name, err);
}

static enum status begin_again(struct answers *a, struct error *err)
{
    enum status status = note_growth(a, err);
    if (status == STATUS_OK) status = output_cut(&a->output, a->keep, err);
    const bool spooled = a->spool.open;
    if (status == STATUS_OK) status = open_spool(a, err);
    if (status == STATUS_OK && spooled) status = spool_cut(&a->spool, a->keep_spooled, err);
    return status;
}

static enum status start_sync(struct answers *a, struct error *err)
{
    struct stat info;
    const bool regular = fstat(a->output.fd, &info) == 0 && S_ISREG(info.st_mode);
    const int fds[DISK_SYNC_FILES] = {[SYNC_OUTPUT] = regular ? a->output.fd : -1,
                                      [SYNC_SPOOL] = a->spool.open && a->spool.name[0] ? a->spool.fd : -1};
    return disk_sync_start(fds, &a->sync, err);
}

/* ---- files that another program takes away ---- */

static enum status count_line(void *user, const struct answer_line *answer, uint64_t offset, size_t length,
                              struct error *err)
{
    (void)answer, (void)offset, (void)length, (void)err;
    ++*(int64_t *)user;
    return STATUS_OK;
}

static int64_t lines_left(const struct answers *a)
{
    int64_t count = 0;
    uint64_t whole;
    struct error ignored;
    const int fd = open(a->output.name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    answer_scan(fd, a->output.name, 0, count_line, &count, &whole, &ignored);
    close(fd);
    return count;
}

/* Adds to the sentence of a file that was taken away how many answers are lost, and what brings them back. */
static enum status explain_loss(const struct answers *a, int64_t lost, int64_t all, struct error *err)
{
    const struct error what = *err;
    const char *again = a->resumable      ? "the same command computes them again"
                        : a->output.named ? "--overwrite begins anew"
                                          : "run it again";
    return error_set(err, STATUS_IO, "%s, and %lld of %lld answer%s in it %s lost; %s", what.text, (long long)lost,
                     (long long)all, plural(all), lost == 1 ? "is" : "are", again);
}

static enum status explain_output(struct answers *a, struct error *err)
{
    const struct error what = *err;
    const int64_t all = a->num_lines;
    if (a->output.loss == OUTPUT_KEPT || all == 0) return STATUS_IO;
    if (a->output.loss == OUTPUT_MOVED)
        return error_set(err, STATUS_IO, "%s; put the file back with its %lld answer%s%s", what.text, (long long)all,
                         plural(all), a->resumable ? ", and the same command goes on" : "");
    const bool cut = a->output.loss == OUTPUT_CUT && a->output.named;
    return explain_loss(a, cut ? all - lines_left(a) : all, all, err);
}

static enum status explain_spool(const struct answers *a, struct error *err)
{
    const size_t lost = spool_num_lost(&a->spool);
    const struct error what = *err;
    if (lost > 0) return explain_loss(a, (int64_t)lost, (int64_t)a->spool.count, err);
    if (!a->resumable || spool_check(&a->spool, NULL) != STATUS_OK) return STATUS_IO;
    return error_set(err, STATUS_IO, "%s; remove it, and the same command computes again what it held", what.text);
}

/* Whatever stands in its place is no journal of this run. */
static enum status keep_journal(const struct answers *a, struct error *err)
{
    struct journal found;
    struct error ignored;
    bool exists;
    if (!a->resumable || a->now.max_model_len == 0) return STATUS_OK; /* 0: the engine was not needed */
    const bool same = journal_read(a->output.name, &found, &exists, &ignored) == STATUS_OK && exists &&
                      journal_compare(&found, &a->now, a->output.name, &ignored) == STATUS_OK;
    journal_free(&found);
    if (same) return STATUS_OK;
    log_write(a->log, LOG_WARNING,
              "%s" JOURNAL_SUFFIX " was removed or changed while quire was running; it is written again",
              a->output.name);
    return journal_write(&a->now, a->output.name, err);
}

static enum status check_files(struct answers *a, struct error *err)
{
    a->checked = clock_seconds();
    enum status status = disk_sync_check(a->sync, err);
    if (status != STATUS_OK) return status;
    if (output_check(&a->output, err) != STATUS_OK) return explain_output(a, err);
    if (spool_check(&a->spool, err) != STATUS_OK) return explain_spool(a, err);
    return keep_journal(a, err);
}

enum status answers_watch(struct answers *a, struct error *err)
{
    if (!a->begun || clock_seconds() - a->checked < WATCH_SECONDS) return STATUS_OK;
    const enum status status = check_files(a, err);
    a->failed = status != STATUS_OK;
    return status;
}

/* ---- writing ---- */

static enum status write_line(struct answers *a, const char *line, size_t length, struct error *err)
{
    if (output_write(&a->output, line, length, err) != STATUS_OK) return explain_output(a, err);
    a->num_lines++;
    return STATUS_OK;
}

/* Copies to the output what the spool has of the answers that come next, or of all if `with_gaps`; what cannot be read
 * is a gap, too. */
static enum status drain_spool(struct answers *a, bool with_gaps, struct error *err)
{
    enum status status = STATUS_OK;
    while (a->spool.count > 0 && (with_gaps || spool_first(&a->spool) == a->next)) {
        if (spool_read(&a->spool, &a->line, status == STATUS_OK ? err : NULL) == STATUS_OK) {
            const enum status written = write_line(a, a->line.data, a->line.length, err);
            if (written != STATUS_OK) return written;
        } else if (status == STATUS_OK) {
            status = explain_spool(a, err);
        }
        if (status != STATUS_OK && !with_gaps) return status;
        a->next = spool_first(&a->spool) + 1;
        spool_drop(&a->spool);
    }
    disk_sync_note(a->sync, SYNC_OUTPUT, a->output.written);
    spool_reclaim(&a->spool, a->output.written, disk_sync_done(a->sync, SYNC_OUTPUT));
    return status;
}

enum status answers_begin(struct answers *a, struct error *err)
{
    if (a->begun) return STATUS_OK;
    enum status status = output_check(&a->output, err);
    if (status == STATUS_OK) status = a->resumes ? begin_again(a, err) : begin_anew(a, err);
    if (status == STATUS_OK) status = start_sync(a, err);
    a->begun = status == STATUS_OK;
    a->checked = clock_seconds();
    if (status == STATUS_OK && a->ordered) status = drain_spool(a, false, err);
    a->failed = status != STATUS_OK;
    return status;
}

static enum status write_spooled(struct answers *a, int64_t index, const char *line, size_t length, struct error *err)
{
    const enum status status = spool_write(&a->spool, index, line, length, err);
    disk_sync_note(a->sync, SYNC_SPOOL, a->spool.written);
    return status == STATUS_OK || spool_check(&a->spool, NULL) == STATUS_OK ? status : explain_spool(a, err);
}

static enum status write_answer(struct answers *a, int64_t index, const char *line, size_t length, struct error *err)
{
    enum status status = answers_begin(a, err);
    if (status == STATUS_OK) status = disk_sync_check(a->sync, err);
    if (status != STATUS_OK) return status;
    if (a->ordered && index != a->next) return write_spooled(a, index, line, length, err);
    status = write_line(a, line, length, err);
    if (status != STATUS_OK) return status;
    a->next = index + 1;
    if (a->ordered) return drain_spool(a, false, err);
    disk_sync_note(a->sync, SYNC_OUTPUT, a->output.written);
    return status;
}

enum status answers_write(struct answers *a, int64_t index, const char *line, size_t length, struct error *err)
{
    const enum status status = write_answer(a, index, line, length, err);
    a->failed = status != STATUS_OK;
    return status;
}

/* What waits in a spool that has no name any more goes when it is closed. */
static enum status check_spooled(const struct answers *a, struct error *err)
{
    if (a->spool.count == 0 || !spool_is_removed(&a->spool)) return STATUS_OK;
    error_set(err, STATUS_IO, "%s was removed while quire was writing it", a->spool.name);
    return explain_loss(a, (int64_t)a->spool.count, (int64_t)a->spool.count, err);
}

enum status answers_end(struct answers *a, int64_t *num_spooled, struct error *err)
{
    *num_spooled = 0;
    if (!a->begun) return STATUS_OK;
    enum status status = STATUS_OK, synced;
    if (a->ordered && !a->resumable && !a->output.failed) status = drain_spool(a, true, err);
    if (status == STATUS_OK && !a->failed) status = check_files(a, err);
    if (status == STATUS_OK) status = check_spooled(a, err);
    a->failed = a->failed || status != STATUS_OK;
    if (a->output.loss != OUTPUT_REMOVED && !spool_is_removed(&a->spool))
        *num_spooled = (int64_t)(a->spool.count - spool_num_lost(&a->spool));
    synced = disk_sync_end(a->sync, status == STATUS_OK ? err : NULL);
    a->sync = NULL;
    if (status == STATUS_OK) status = synced;
    if (status == STATUS_OK) spool_close(&a->spool, true);
    a->begun = false;
    return status;
}

void answers_close(struct answers *a)
{
    disk_sync_end(a->sync, NULL);
    a->sync = NULL;
    spool_close(&a->spool, false); /* before answers_end: what is in it stays */
    output_close(&a->output, NULL);
    journal_free(&a->now);
    journal_free(&a->before);
    index_set_free(&a->set);
    text_free(&a->line);
}
