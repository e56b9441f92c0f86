/* quire merge: the outputs of several runs of `quire generate`, such as the shards of one input, into one file.
 *
 * The first pass reads every file and puts down where the line of each index lies, in a table of 8 bytes for each
 * prompt that lies in a file without a name. The second writes the lines in the order of their indices. So ten million
 * answers need little memory, however they are ordered. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/array.h"
#include "base/file.h"
#include "base/notice.h"
#include "runtime/options/command.h"
#include "runtime/generate/answer_line.h"
#include "runtime/generate/journal.h"
#include "runtime/generate/output.h"
#include "runtime/interrupt.h"
#include "runtime/options/options.h"

static const char COMMAND[] = "merge";
static const char SUMMARY[] =
    "Puts the outputs of several quire generate, such as those of --shard 1/4 to 4/4, into one file, in the order of "
    "the input. Each prompt must have its answer in exactly one of the files; the FILE.quire beside them say how many "
    "prompts there are, and that all of them answer the same input with the same model and parameters. Without these "
    "files the answers must be whole up to the largest index.";

/* An entry of the table: the file's number from 1 above, the offset of the line below. 0: there is no such line. */
enum { OFFSET_BITS = 44, MAX_FILES = 1 << 20, WRITE_BYTES = 1 << 20, TOUCHED_BYTES = 16 << 20 };

struct merge {
    struct option_words names;
    int count; /* of the names */
    const char *output_name;
    bool overwrite, unordered;
    struct mapped_file *files; /* [count] locked, so that no quire writes to them */
    uint64_t *whole;           /* [count] bytes with whole lines */
    int file;                  /* the one that is being read */
    uint64_t *table;           /* [capacity] mapped, by index */
    int64_t capacity;
    int table_fd;
    int64_t num_indices; /* the largest, and one */
    int64_t num_answers;
    int64_t num_prompts; /* of the journals; 0: there are none */
    int64_t num_failed;
    struct journal first; /* the journal of the first file that has one, named by first_name */
    const char *first_name;
    struct output output;
    struct text buffer; /* lines that are not written yet */
    size_t touched;     /* bytes written since release_pages */
};

/* ---- the table ---- */

static enum status open_table(struct merge *m, struct error *err)
{
    const char *folder = getenv("TMPDIR");
    char path[4096];
    snprintf(path, sizeof path, "%s/quire-merge-XXXXXX", folder && *folder ? folder : "/tmp");
    m->table_fd = mkostemp(path, O_CLOEXEC);
    if (m->table_fd < 0) return error_set(err, STATUS_IO, "cannot open %s: %s", path, strerror(errno));
    unlink(path);
    return STATUS_OK;
}

/* Makes room for an index. The new part of the file is zero. */
static enum status grow_table(struct merge *m, int64_t index, struct error *err)
{
    int64_t capacity = m->capacity > 0 ? m->capacity : 1 << 16;
    while (capacity <= index) capacity *= 2;
    if (capacity == m->capacity) return STATUS_OK;
    const size_t bytes = (size_t)capacity * sizeof *m->table;
    if (m->table) munmap(m->table, (size_t)m->capacity * sizeof *m->table);
    m->table = NULL;
    m->capacity = capacity;
    const int error = posix_fallocate(m->table_fd, 0, (off_t)bytes);
    void *at = error ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, m->table_fd, 0);
    if (at == MAP_FAILED)
        return error_set(err, STATUS_IO, "no room for a table of %lld answer%s: %s; set TMPDIR to a folder with more",
                         (long long)capacity, plural(capacity), strerror(error ? error : errno));
    m->table = at;
    return STATUS_OK;
}

/* ---- the first pass ---- */

static enum status note_answer(void *user, const struct answer_line *answer, uint64_t offset, size_t length,
                               struct error *err)
{
    struct merge *m = user;
    const int64_t limit = m->num_prompts > 0 ? m->num_prompts : INT64_C(1) << 40;
    (void)length;
    if (answer->index >= limit || offset >> OFFSET_BITS)
        return error_set(err, STATUS_INVALID, "%s holds an answer to prompt %lld, but the prompts are %lld",
                         m->names.list[m->file], (long long)answer->index, (long long)limit);
    const enum status status = grow_table(m, answer->index, err);
    if (status != STATUS_OK) return status;
    uint64_t *entry = &m->table[answer->index];
    if (*entry != 0)
        return error_set(err, STATUS_INVALID, "prompt %lld is answered twice: in %s and in %s",
                         (long long)answer->index, m->names.list[(*entry >> OFFSET_BITS) - 1], m->names.list[m->file]);
    *entry = (uint64_t)(m->file + 1) << OFFSET_BITS | offset;
    if (answer->index >= m->num_indices) m->num_indices = answer->index + 1;
    m->num_answers++;
    m->num_failed += answer->failed;
    return STATUS_OK;
}

/* All journals must be of one run but for the shards. */
static enum status check_journal(struct merge *m, const char *name, struct error *err)
{
    struct journal j;
    bool found;
    enum status status = journal_read(name, &j, &found, err);
    if (status != STATUS_OK || !found) return status;
    if (!m->first_name) {
        m->first = j;
        m->first_name = name;
        m->num_prompts = j.num_prompts;
        return STATUS_OK;
    }
    if (!journal_same_answers(&m->first, &j))
        status = error_set(
            err, STATUS_INVALID,
            "%s and %s do not answer the same input with the same model and parameters: compare %s%s and %s%s",
            m->first_name, name, m->first_name, JOURNAL_SUFFIX, name, JOURNAL_SUFFIX);
    journal_free(&j);
    return status;
}

static enum status open_files(struct merge *m, struct error *err)
{
    for (int i = 0; i < m->count; i++) {
        const char *name = m->names.list[i];
        enum status status = mapped_file_open(name, &m->files[i], err);
        if (status != STATUS_OK) return status;
        if (m->files[i].data && flock(m->files[i].fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK)
            return error_set(err, STATUS_IO, "another quire is writing %s; wait for it", name);
        status = check_journal(m, name, err);
        if (status != STATUS_OK) return status;
    }
    return STATUS_OK;
}

static enum status read_files(struct merge *m, struct error *err)
{
    enum status status = open_table(m, err);
    for (m->file = 0; status == STATUS_OK && m->file < m->count; m->file++)
        if (m->files[m->file].data) /* NULL: it is empty */
            status =
                answer_scan(m->files[m->file].fd, m->names.list[m->file], 0, note_answer, m, &m->whole[m->file], err);
    return status;
}

/* The first few missing indices, as "4, 7, 12, ...". */
static enum status check_missing(const struct merge *m, struct error *err)
{
    enum { SHOWN = 5 };
    const int64_t all = m->num_prompts > 0 ? m->num_prompts : m->num_indices, missing = all - m->num_answers;
    struct text list = {0};
    int shown = 0;
    if (missing == 0) return STATUS_OK;
    for (int64_t i = 0; i < all && shown < SHOWN; i++) {
        if (i < m->num_indices && m->table[i] != 0) continue;
        text_printf(&list, "%s%lld", shown++ ? ", " : "", (long long)i);
    }
    error_set(
        err, STATUS_INVALID,
        "%s of %s prompts have no answer in these files (%s%s): name all shards, and let quire generate finish them",
        grouped(missing).text, grouped(all).text, list.data ? list.data : "", missing > shown ? ", ..." : "");
    text_free(&list);
    return STATUS_INVALID;
}

/* ---- the second pass ---- */

/* Takes the pages that were touched out of this process; the system still has them, and may drop them when it likes. */
static void release_pages(struct merge *m)
{
    for (int i = 0; i < m->count; i++)
        if (m->files[i].data) madvise((void *)m->files[i].data, m->files[i].size, MADV_DONTNEED);
    if (m->table) madvise(m->table, (size_t)m->capacity * sizeof *m->table, MADV_DONTNEED);
    m->touched = 0;
}

static enum status flush(struct merge *m, struct error *err)
{
    const enum status status = output_write(&m->output, m->buffer.data, m->buffer.length, err);
    m->touched += m->buffer.length;
    text_clear(&m->buffer);
    if (m->touched >= TOUCHED_BYTES) release_pages(m);
    return status;
}

/* Appends the line of that entry to the buffer. */
static enum status copy_line(struct merge *m, uint64_t entry, struct error *err)
{
    const int file = (int)(entry >> OFFSET_BITS) - 1;
    const uint64_t offset = entry & ((UINT64_C(1) << OFFSET_BITS) - 1);
    const char *line = (const char *)m->files[file].data + offset;
    const char *newline = memchr(line, '\n', m->whole[file] - offset);
    if (!newline) return error_set(err, STATUS_IO, "%s has changed", m->names.list[file]);
    if (text_append(&m->buffer, line, (size_t)(newline - line) + 1)) return STATUS_OK;
    return error_set(err, STATUS_OUT_OF_MEMORY, "no memory for an answer");
}

static enum status interrupted(const struct merge *m, struct error *err)
{
    return error_set(err, STATUS_CANCELLED, "interrupted; %s has a part of the answers%s", m->output.name,
                     m->output.named ? ", which --overwrite replaces" : "");
}

static enum status write_ordered(struct merge *m, struct error *err)
{
    enum status status = STATUS_OK;
    for (int64_t i = 0; i < m->num_indices && status == STATUS_OK; i++) {
        status = copy_line(m, m->table[i], err);
        if (status == STATUS_OK && m->buffer.length >= WRITE_BYTES) status = flush(m, err);
        if (status == STATUS_OK && interrupt_pending()) status = interrupted(m, err);
    }
    return status == STATUS_OK ? flush(m, err) : status;
}

/* Bytes of whole lines from `at` on, about WRITE_BYTES. */
static uint64_t lines_from(const struct merge *m, int file, uint64_t at)
{
    const char *data = (const char *)m->files[file].data;
    const uint64_t left = m->whole[file] - at;
    if (left <= WRITE_BYTES) return left;
    const char *newline = memchr(data + at + WRITE_BYTES, '\n', left - WRITE_BYTES);
    return newline ? (uint64_t)(newline - data) + 1 - at : left;
}

static enum status write_unordered(struct merge *m, struct error *err)
{
    enum status status = STATUS_OK;
    for (int i = 0; i < m->count; i++) {
        for (uint64_t at = 0, count; at < m->whole[i] && status == STATUS_OK; at += count) {
            count = lines_from(m, i, at);
            status = text_append(&m->buffer, (const char *)m->files[i].data + at, count)
                         ? flush(m, err)
                         : error_set(err, STATUS_OUT_OF_MEMORY, "no memory for answers");
            if (status == STATUS_OK && interrupt_pending()) status = interrupted(m, err);
        }
    }
    return status;
}

/* The output is opened only once everything is known to be there. */
static enum status write_all(struct merge *m, struct error *err)
{
    enum status status = output_open(&m->output, m->output_name, NULL, err);
    if (status == STATUS_OK && !m->overwrite && output_size(&m->output) > 0)
        status = error_set(err, STATUS_INVALID,
                           "the output %s exists and is not empty; name another file, or replace it with --overwrite",
                           m->output_name);
    interrupt_catch_to_end();
    if (status == STATUS_OK && m->output.named) journal_remove(m->output_name);
    if (status == STATUS_OK) status = output_cut(&m->output, 0, err);
    release_pages(m);
    if (status == STATUS_OK) status = m->unordered ? write_unordered(m, err) : write_ordered(m, err);
    if (status == STATUS_OK) status = output_check(&m->output, err);
    return status == STATUS_OK ? output_close(&m->output, err) : status;
}

/* ---- the command ---- */

static enum status merge(struct merge *m, struct error *err)
{
    m->files = calloc((size_t)m->count, sizeof *m->files);
    m->whole = calloc((size_t)m->count, sizeof *m->whole);
    if (!m->files || !m->whole)
        return error_set(err, STATUS_OUT_OF_MEMORY, "no memory for %d name%s", m->count, plural(m->count));
    enum status status = open_files(m, err);
    if (status == STATUS_OK) status = read_files(m, err);
    if (status == STATUS_OK) status = check_missing(m, err);
    return status == STATUS_OK ? write_all(m, err) : status;
}

static void clean_up(void *options)
{
    struct merge *m = options;
    for (int i = 0; m->files && i < m->count; i++) mapped_file_close(&m->files[i]);
    if (m->table) munmap(m->table, (size_t)m->capacity * sizeof *m->table);
    if (m->table_fd >= 0) close(m->table_fd);
    output_close(&m->output, NULL);
    journal_free(&m->first);
    text_free(&m->buffer);
    free(m->files);
    free(m->whole);
    free(m->names.list);
}

static void add_flags(const struct command *c, struct option_table *table, void *options)
{
    (void)c;
    struct merge *m = options;
    *m = (struct merge){.output_name = "-", .table_fd = -1};
    table->words = &m->names;
    const struct option_spec specs[] = {
        {"output", OPTION_STRING, &m->output_name, "FILE",
         .help = "Where the answers go; -: standard output. Default: -.", .letter = 'o', .not_empty = true},
        {"unordered", OPTION_SWITCH, &m->unordered,
         .help = "Write one file behind the other as they are, which is faster. Default: off."},
        {"overwrite", OPTION_SWITCH, &m->overwrite, .help = "Replace an output file that is not empty. Default: off."},
    };
    option_table_add(table, specs, (int)(sizeof specs / sizeof specs[0]));
}

static int run_merge(void *options)
{
    struct merge *m = options;
    struct error err;
    m->count = m->names.count < MAX_FILES ? (int)m->names.count : MAX_FILES;
    if (m->count == 0 || m->count == MAX_FILES) {
        error_set(&err, STATUS_INVALID, "name the files to merge: quire %s", command_merge.usage);
        return command_fail(COMMAND, &err, EXIT_STATUS_USAGE);
    }
    const enum status status = merge(m, &err);
    if (status != STATUS_OK && m->output.reader_ended) return EXIT_STATUS_FAILURE;
    if (status != STATUS_OK) return command_fail(COMMAND, &err, EXIT_STATUS_FAILURE);
    if (m->num_failed > 0)
        notice_printf(stderr, "quire merge: %s of %s prompt%s failed: see \"error\" in the output\n",
                      grouped(m->num_failed).text, grouped(m->num_answers).text, plural(m->num_answers));
    return m->num_failed > 0 ? EXIT_STATUS_FAILURE : EXIT_STATUS_OK;
}

const struct command command_merge = {
    .name = COMMAND,
    .summary = "put the outputs of several quire generate into one",
    .usage = "merge FILE... [--output FILE] [flags]",
    .help = SUMMARY,
    .options_size = sizeof(struct merge),
    .add = add_flags,
    .run = run_merge,
    .free = clean_up,
};
