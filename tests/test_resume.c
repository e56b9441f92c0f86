/* quire generate goes on where it ended: kills, torn lines, full disks, other inputs, models and parameters; --ordered,
 * --shard and quire merge; and the units below them.
 *
 *     test_resume                                    6 kills over 60 prompts; 3 with a sanitizer
 *     test_resume --kills 100 --prompts 2000         only the kills, and more of them */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/random.h"
#include "runtime/commands.h"
#include "runtime/generate/answer_line.h"
#include "runtime/generate/index_set.h"
#include "runtime/generate/shard.h"
#include "runtime/generate/spool.h"
#include "runtime/progress.h"
#include "tests/support/program.h"
#include "tests/support/pty.h"
#include "tests/support/toy_model.h"

enum { MAX_ARGS = 40 };

struct sizes {
    int kills, prompts;
};
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static struct sizes sizes = {3, 60};
#else
static struct sizes sizes = {6, 60};
#endif

struct fixture {
    struct temp_folder model, files;
    char in[512], whole[512]; /* the input, and the ordered answers of an undisturbed run */
};

/* ---- running ---- */

static const char *path_of(const struct fixture *f, const char *name, char *path)
{
    assert_true(path_join(path, 512, f->files.path, name));
    return path;
}

static void make_argv(const char **argv, const struct fixture *f, const char *const *more)
{
    const char *const first[] = {QUIRE_EXECUTABLE,  "generate", "--model",      f->model.path,      "--load-format",
                                 "dummy",           "--device", "cpu",          "--max-num-seqs",   "4",
                                 "--max-model-len", "512",      "--ignore-eos", "--kv-cache-space", "0.1",
                                 "--temperature",   "1"};
    int argc = 0;
    for (size_t i = 0; i < sizeof first / sizeof first[0]; i++) argv[argc++] = first[i];
    while (argc < MAX_ARGS && *more) argv[argc++] = *more++;
    argv[argc] = NULL;
}

/* Runs to the end, and expects that exit status and those words on stderr (NULL: any). */
static void run(const struct fixture *f, const char *input, const char *const *more, int exit_status, const char *said)
{
    const char *argv[MAX_ARGS + 1];
    struct program p;
    make_argv(argv, f, more);
    program_run(&p, argv, input);
    if (p.exit_status != exit_status) fail_msg("exit status %d: %s", p.exit_status, p.err.data);
    if (said && !strstr(p.err.data, said)) fail_msg("no '%s' in: %s", said, p.err.data);
    program_free(&p);
}

/* Starts the command with these as standard input and standard error. */
static pid_t start_with(const struct fixture *f, int in, int err, const char *const *more)
{
    const char *argv[MAX_ARGS + 1];
    make_argv(argv, f, more);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0) return pid;
    dup2(in, STDIN_FILENO);
    dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    execv(argv[0], (char *const *)argv);
    _exit(127);
}

static pid_t start(const struct fixture *f, const char *const *more)
{
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    const pid_t pid = start_with(f, nothing, nothing, more);
    close(nothing);
    return pid;
}

static void merge(const char *const *files, int exit_status, const char *said, const char *output)
{
    const char *argv[MAX_ARGS + 1] = {QUIRE_EXECUTABLE, "merge", "--overwrite", "--output", output};
    struct program p;
    for (int i = 0; files[i]; i++) argv[5 + i] = files[i];
    program_run(&p, argv, NULL);
    if (p.exit_status != exit_status) fail_msg("exit status %d: %s", p.exit_status, p.err.data);
    if (said && !strstr(p.err.data, said)) fail_msg("no '%s' in: %s", said, p.err.data);
    program_free(&p);
}

/* ---- files ---- */

/* The contents; empty if there is no such file. */
static void read_file(const char *path, struct text *out)
{
    struct error err;
    text_clear(out);
    if (file_exists(path) && file_read(path, out, &err) != STATUS_OK) fail_msg("%s", err.text);
    assert_true(text_append(out, "", 0));
}

static void write_file(const char *path, const char *bytes, size_t count)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

static void copy_file(const char *from, const char *to)
{
    struct text bytes = {0};
    read_file(from, &bytes);
    write_file(to, bytes.data, bytes.length);
    text_free(&bytes);
}

static int count_lines(const char *path)
{
    struct text t = {0};
    int lines = 0;
    read_file(path, &t);
    for (size_t i = 0; i < t.length; i++) lines += t.data[i] == '\n';
    text_free(&t);
    return lines;
}

static void expect_same(const char *a, const char *b)
{
    struct text first = {0}, second = {0};
    read_file(a, &first);
    read_file(b, &second);
    assert_string_equal(first.data, second.data);
    text_free(&first);
    text_free(&second);
}

/* The answers of an output that is in no order are those of the undisturbed run. */
static void expect_whole(const struct fixture *f, const char *output)
{
    char merged[512];
    merge((const char *[]){output, NULL}, 0, NULL, path_of(f, "merged.jsonl", merged));
    expect_same(merged, f->whole);
}

static void expect_gone(const char *output, const char *suffix)
{
    char path[600];
    snprintf(path, sizeof path, "%s%s", output, suffix);
    assert_false(file_exists(path));
}

static int set_up(void **state)
{
    static struct fixture f;
    struct text lines = {0};
    toy_model_make(&f.model, QUIRE_GUIDE, true);
    temp_folder_make(&f.files);
    for (int i = 0; i < sizes.prompts; i++) { /* short ones, which no block is shared by; and some blank lines */
        text_printf(&lines, "{\"prompt\": [%d, 5, 6], \"max_tokens\": %d}\n%s", 10 + i % 50, 1 + (i * 7) % 97,
                    i % 9 == 0 ? "\n" : "");
    }
    temp_folder_write_string(&f.files, "in.jsonl", lines.data);
    text_free(&lines);
    path_of(&f, "in.jsonl", f.in);
    path_of(&f, "whole.jsonl", f.whole);
    run(&f, NULL, (const char *[]){"-i", f.in, "-o", f.whole, "--ordered", NULL}, 0, NULL);
    assert_int_equal(count_lines(f.whole), sizes.prompts);
    expect_gone(f.whole, ".spool");
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    temp_folder_remove(&f->files);
    temp_folder_remove(&f->model);
    return 0;
}

/* ---- kills ---- */

/* Waits for so many lines more in the output and the spool than there were, or for the end of the process. */
static bool wait_for_lines(pid_t pid, const char *output, const char *spool, int more, int *status)
{
    const int before = count_lines(output) + count_lines(spool);
    const double until = clock_seconds() + 300;
    while (waitpid(pid, status, WNOHANG) == 0) {
        if (count_lines(output) + count_lines(spool) - before >= more) return true;
        if (clock_seconds() > until) fail_msg("no %d lines more in five minutes", more);
        usleep(500);
    }
    return false;
}

static void start_anew(const struct fixture *f, const char *output)
{
    run(f, NULL, (const char *[]){"-i", "/dev/null", "-o", output, "--overwrite", NULL}, 0, NULL);
}

/* Starts a run, and kills it at a random moment. False: it had ended by then. */
static bool kill_one(const struct fixture *f, const char *output, const char *flag, struct random *random)
{
    char spool[600];
    int status = 0;
    snprintf(spool, sizeof spool, "%s.spool", output);
    const pid_t pid = start(f, (const char *[]){"-i", f->in, "-o", output, flag, NULL});
    const int more = (int)random_between(random, 0, sizes.prompts / sizes.kills);
    if (more == 0) usleep((useconds_t)random_between(random, 0, 200000)); /* while it starts */
    if (wait_for_lines(pid, output, spool, more, &status)) {
        usleep((useconds_t)random_between(random, 0, 3000));
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
    }
    if (!WIFSIGNALED(status)) assert_int_equal(status, 0);
    return WIFSIGNALED(status);
}

/* Kills one run after the other; returns how many were killed. On a fast machine the work is done before the last kill:
 * then it begins anew, a few times. */
static int kill_at_random(const struct fixture *f, const char *output, const char *flag, struct random *random)
{
    int kills = 0;
    for (int ended = 0; kills < sizes.kills && ended < 10;) {
        if (kill_one(f, output, flag, random)) {
            kills++;
        } else {
            ended++;
            if (kills < sizes.kills / 2) start_anew(f, output);
        }
    }
    return kills;
}

static void check_kills(const struct fixture *f, const char *flag, uint64_t seed)
{
    char out[512];
    struct random random = {seed};
    path_of(f, "killed.jsonl", out);
    start_anew(f, out);
    const double start_seconds = clock_seconds();
    const int kills = kill_at_random(f, out, flag, &random);
    const int found = count_lines(out);
    run(f, NULL, (const char *[]){"-i", f->in, "-o", out, flag, NULL}, 0, NULL);
    print_message("%d prompts%s%s: killed %d times in %.1f s, then %d answers were in the output\n", sizes.prompts,
                  flag ? ", " : "", flag ? flag : "", kills, clock_seconds() - start_seconds, found);
    assert_true(kills >= sizes.kills / 2);
    if (flag)
        expect_same(out, f->whole);
    else
        expect_whole(f, out);
    expect_gone(out, ".spool");
}

static void test_kills(void **state)
{
    check_kills(*state, NULL, 1);
}

static void test_kills_ordered(void **state)
{
    check_kills(*state, "--ordered", 2);
}

/* ---- torn and damaged files ---- */

/* An output of the first `lines` answers and `bytes` bytes of the next, with its journal. */
static void write_part(const struct fixture *f, const char *out, int lines, int bytes)
{
    struct text whole = {0};
    char from[600], to[600];
    size_t at = 0;
    read_file(f->whole, &whole);
    for (; lines > 0; at++) lines -= whole.data[at] == '\n';
    write_file(out, whole.data, at + (size_t)bytes);
    snprintf(from, sizeof from, "%s.quire", f->whole);
    snprintf(to, sizeof to, "%s.quire", out);
    copy_file(from, to);
    text_free(&whole);
}

static void test_torn_line(void **state)
{
    const struct fixture *f = *state;
    char out[512], said[64];
    path_of(f, "torn.jsonl", out);
    static const int torn[] = {0, 1, 9, 40};
    for (int i = 0; i < 4; i++) {
        write_part(f, out, 7, torn[i]);
        snprintf(said, sizeof said, "resuming: 7 of %d answers are in ", sizes.prompts);
        run(f, NULL, (const char *[]){"-i", f->in, "-o", out, "--ordered", NULL}, 0, said);
        expect_same(out, f->whole);
    }
    write_part(f, out, 0, 30); /* nothing but a torn line */
    run(f, NULL, (const char *[]){"-i", f->in, "-o", out, "--ordered", NULL}, 0, "a torn line at its end is dropped");
    expect_same(out, f->whole);
}

/* What a power failure leaves: a hole, and lines behind it that were on the disk before. */
static void test_hole(void **state)
{
    const struct fixture *f = *state;
    char out[512];
    struct text bytes = {0};
    path_of(f, "hole.jsonl", out);
    write_part(f, out, 20, 0);
    read_file(out, &bytes);
    memset(bytes.data + bytes.length / 2, 0, 50);
    write_file(out, bytes.data, bytes.length);
    text_free(&bytes);
    run(f, NULL, (const char *[]){"-i", f->in, "-o", out, "--ordered", NULL}, 0, "resuming: ");
    expect_same(out, f->whole);
}

static void refuse_damage(const struct fixture *f, const char *bytes, const char *said)
{
    char out[512];
    struct text before = {0};
    path_of(f, "damaged.jsonl", out);
    write_part(f, out, 3, 0);
    read_file(out, &before);
    assert_true(text_append_string(&before, bytes));
    write_file(out, before.data, before.length);
    run(f, NULL, (const char *[]){"-i", f->in, "-o", out, "--ordered", NULL}, 2, said);
    assert_int_equal(count_lines(out), 4); /* it is as it was */
    text_free(&before);
}

static void test_damaged_lines(void **state)
{
    const struct fixture *f = *state;
    refuse_damage(f, "no answer\n", "line 4 of ");
    refuse_damage(f, "{\"index\": 3, \"text\": \"\n", "is damaged, or is no answer");
    refuse_damage(f, "{\"index\": 1, \"text\": \"x\"}\n", "is not in order at prompt 1");
    refuse_damage(f, "{\"index\": 12, \"text\": \"x\"}\n", "is not in order at prompt 12");
    char out[512];
    path_of(f, "twice.jsonl", out);
    run(f, NULL, (const char *[]){"-i", f->in, "-o", out, NULL}, 0, NULL);
    struct text bytes = {0};
    read_file(out, &bytes);
    const size_t once = bytes.length;
    assert_true(text_append_string(&bytes, "{\"index\": 1, \"text\": \"x\"}\n"));
    write_file(out, bytes.data, bytes.length);
    run(f, NULL, (const char *[]){"-i", f->in, "-o", out, NULL}, 2, "holds two answers to prompt 1");
    bytes.length = once;
    assert_true(text_printf(&bytes, "{\"index\": %d, \"text\": \"x\"}\n", sizes.prompts));
    write_file(out, bytes.data, bytes.length);
    run(f, NULL, (const char *[]){"-i", f->in, "-o", out, NULL}, 2, "which is not among those of this run");
    text_free(&bytes);
}

/* Files may not grow beyond a size that is less than the answers': one sentence, whole lines, and once there is room
 * the same command finishes. */
static void check_full_disk(const struct fixture *f, const char *flag)
{
    char out[512];
    const char *argv[MAX_ARGS + 1];
    struct text command = {0};
    struct program p;
    path_of(f, "full.jsonl", out);
    make_argv(argv, f, (const char *[]){"-i", f->in, "-o", out, "--overwrite", flag, NULL});
    assert_true(text_append_string(&command, "ulimit -f 6; exec")); /* of 512 bytes */
    for (int i = 0; argv[i]; i++) assert_true(text_printf(&command, " '%s'", argv[i]));
    program_run(&p, (const char *[]){"/bin/sh", "-c", command.data, NULL}, NULL);
    assert_int_equal(p.exit_status, 1);
    assert_non_null(strstr(p.err.data, "cannot write: File too large"));
    const char *end = strchr(p.err.data, '\n');
    if (!flag) assert_string_equal(end, "\n"); /* one sentence; ordered, another says what waits in the spool */
    program_free(&p);
    struct text written = {0};
    read_file(out, &written);
    assert_true(written.length <= 3072);
    assert_true(flag || written.length > 1000);
    assert_true(written.length == 0 || written.data[written.length - 1] == '\n');
    text_free(&written);
    run(f, NULL, (const char *[]){"-i", f->in, "-o", out, flag, NULL}, 0, "resuming: ");
    if (flag)
        expect_same(out, f->whole);
    else
        expect_whole(f, out);
    text_free(&command);
}

static void test_full_disk(void **state)
{
    check_full_disk(*state, NULL);
    check_full_disk(*state, "--ordered");
}

/* ---- files that another program takes away while they are written ---- */

static void shell(const struct fixture *f, const char *command)
{
    struct program p;
    struct text script = {0};
    assert_true(text_printf(&script, "cd '%s' && %s", f->files.path, command));
    program_run(&p, (const char *[]){"/bin/sh", "-c", script.data, NULL}, NULL);
    assert_int_equal(p.exit_status, 0);
    program_free(&p);
    text_free(&script);
}

static void feed(int fd, const char *lines)
{
    assert_int_equal(write(fd, lines, strlen(lines)), (ssize_t)strlen(lines));
}

/* The end of a run, its one sentence, and what it says. */
static void expect_end(pid_t pid, int err, const char *said)
{
    struct text text = {0};
    char bytes[4096];
    ssize_t count;
    int status;
    while ((count = read(err, bytes, sizeof bytes)) > 0) assert_true(text_append(&text, bytes, (size_t)count));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 1) fail_msg("status %x: %s", (unsigned)status, text.data);
    if (!strstr(text.data, said)) fail_msg("no '%s' in: %s", said, text.data);
    const char *more = strchr(text.data, '\n') + 1;
    if (*more && !strstr(more, " wait in ")) fail_msg("more than one sentence: %s", text.data); /* --ordered has two */
    text_free(&text);
    close(err);
}

struct taken {
    const char *flag, *first, *command, *said;
};

/* `first` and three quick prompts; when four answers (or three, with a slow first) are there, the command runs, and
 * then another prompt comes. */
static void take_away(const struct fixture *f, const struct taken *t)
{
    char out[512], spool[600];
    int in[2], err[2], status;
    shell(f, "rm -rf folder && mkdir folder");
    path_of(f, "folder/out", out);
    snprintf(spool, sizeof spool, "%s.spool", out);
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(err, O_CLOEXEC), 0);
    const pid_t pid =
        start_with(f, in[0], err[1], (const char *[]){"-o", out, "--quiet", "--max-model-len", "60000", t->flag, NULL});
    close(in[0]);
    close(err[1]);
    feed(in[1], t->first);
    for (int i = 0; i < 3; i++) feed(in[1], "{\"prompt\": [3], \"max_tokens\": 2}\n");
    assert_true(wait_for_lines(pid, out, spool, strstr(t->first, "50000") ? 3 : 4, &status));
    shell(f, t->command);
    feed(in[1], "{\"prompt\": [4], \"max_tokens\": 2}\n");
    close(in[1]);
    expect_end(pid, err[0], t->said);
}

#define QUICK "{\"prompt\": [2], \"max_tokens\": 2}\n"
#define SLOW "{\"prompt\": [2], \"max_tokens\": 50000}\n"

static void test_taken_away(void **state)
{
    static const struct taken cases[] = {
        {NULL, QUICK, "rm folder/out", "was removed while quire was writing it, and 4 of 4 answers in it are lost"},
        {NULL, QUICK, "rm -r folder", "was removed while quire was writing it, and 4 of 4 answers in it are lost"},
        {NULL, QUICK, ": >folder/out", "was cut short while quire was writing it, and 4 of 4 answers in it are lost"},
        {NULL, QUICK, "head -n 3 folder/out >part && cat part >folder/out", "and 1 of 4 answers in it is lost"},
        {NULL, QUICK, "truncate -s 10 folder/out", "and 4 of 4 answers in it are lost; --overwrite begins anew"},
        {NULL, QUICK, "mv folder/out folder/other", "was moved or replaced while quire was writing it; put the file"},
        {"--ordered", QUICK, ": >folder/out", "and 4 of 4 answers in it are lost"},
        {"--ordered", SLOW, ": >folder/out.spool", "out.spool was cut short while quire was writing it, and 3 of 3"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[512];
        struct text left = {0};
        take_away(*state, &cases[i]);
        read_file(path_of(*state, "folder/out", out), &left);
        assert_null(memchr(left.data, '\0', left.length));
        text_free(&left);
    }
}

/* Waits for the answers of the quick lines. */
static void wait_for_quick(pid_t pid, const char *out, int quick)
{
    char spool[600];
    int status;
    snprintf(spool, sizeof spool, "%s.spool", out);
    const int there = count_lines(out) + count_lines(spool);
    assert_true(there == quick || wait_for_lines(pid, out, spool, quick - there, &status));
}

static void end_by(pid_t pid, int signal_number)
{
    int status;
    assert_int_equal(kill(pid, signal_number), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == signal_number);
}

/* No answer comes any more when the command runs: the run looks by itself. The next one computes what is lost. */
static void compute_again(const struct fixture *f, const struct taken *t)
{
    enum { QUICK_LINES = 20 };
    char in[512], out[512];
    int err[2];
    struct text lines = {0};
    assert_true(text_append_string(&lines, SLOW));
    for (int i = 0; i < QUICK_LINES; i++) assert_true(text_append_string(&lines, QUICK));
    write_file(path_of(f, "again.jsonl", in), lines.data, lines.length);
    path_of(f, "again.out", out);
    shell(f, "rm -f again.out*");
    const char *const flags[] = {"-i", in, "-o", out, "--quiet", "--max-model-len", "60000", t->flag, NULL};
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(pipe2(err, O_CLOEXEC), 0);
    pid_t pid = start_with(f, nothing, err[1], flags);
    close(err[1]);
    close(nothing);
    wait_for_quick(pid, out, QUICK_LINES);
    shell(f, t->command);
    expect_end(pid, err[0], t->said);
    pid = start(f, flags);
    wait_for_quick(pid, out, QUICK_LINES);
    end_by(pid, SIGTERM);
    shell(f, "cat again.out* | grep -c '^{\"index\": ' | grep -q '^20$'");
    shell(f, "cat again.out again.out.spool 2>/dev/null | sort -u | grep -c '^{.*}$' | grep -q '^20$'");
    text_free(&lines);
}

static void test_taken_away_is_computed_again(void **state)
{
    static const struct taken cases[] = {
        {NULL, "", "truncate -s 500 again.out", "answers in it are lost; the same command computes them again"},
        {"--ordered", "", "truncate -s 500 again.out.spool", "answers in it are lost; the same command computes them"},
        {NULL, "", "rm again.out", "and 20 of 20 answers in it are lost; the same command computes them again"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) compute_again(*state, &cases[i]);
}

/* A journal that is gone comes back. */
static void test_journal_taken_away(void **state)
{
    const struct fixture *f = *state;
    static const char *const commands[] = {"rm lasting.out.quire", ": >lasting.out.quire"};
    char in[512], out[512], journal[600];
    write_file(path_of(f, "lasting.jsonl", in), SLOW QUICK, strlen(SLOW QUICK));
    path_of(f, "lasting.out", out);
    snprintf(journal, sizeof journal, "%s.quire", out);
    const char *const flags[] = {"-i", in, "-o", out, "--max-model-len", "60000", NULL};
    for (int i = 0; i < 2; i++) {
        struct text before = {0}, now = {0};
        shell(f, "rm -f lasting.out*");
        const pid_t pid = start(f, flags);
        wait_for_quick(pid, out, 1);
        read_file(journal, &before);
        shell(f, commands[i]);
        const double until = clock_seconds() + 300;
        for (; now.length < before.length && clock_seconds() < until; usleep(10000)) read_file(journal, &now);
        assert_string_equal(now.data, before.data);
        end_by(pid, SIGTERM);
        text_free(&before);
        text_free(&now);
    }
}

/* ---- what may not differ ---- */

static void test_other_runs_refused(void **state)
{
    const struct fixture *f = *state;
    static const struct {
        const char *flags[4], *said;
    } cases[] = {
        {{"--top-p", "0.5"}, "was begun without --top-p; name another output, or start anew with --overwrite"},
        {{"--temperature", "0"}, "was begun with --temperature 1.0, and now it is 0.0"},
        {{"--seed", "5"}, "was begun with --seed 0, and now it is 5"},
        {{"--max-model-len", "256"}, "was begun with --max-model-len 512, and now it is 256"},
        {{"--dtype", "bfloat16"}, "was begun with --dtype \"auto\", and now it is \"bfloat16\""},
        {{"--quantization", "int8"}, "was begun with --quantization \"none\", and now it is \"int8\""},
        {{"--stop", "x"}, "was begun without --stop"},
        {{"--format", "jsonl"}, "was begun with --format"},
        {{"--return-token-ids"}, "was begun without --return-token-ids"},
        {{"--no-ordered"}, "was begun with --ordered"},
        {{"--shard", "1/2"}, "was begun without --shard"},
    };
    char out[512];
    path_of(f, "same.jsonl", out);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *more[10] = {"-i", f->in, "-o", out, "--ordered"};
        for (int k = 0; k < 4; k++) more[5 + k] = cases[i].flags[k];
        write_part(f, out, 5, 3);
        run(f, NULL, more, 2, cases[i].said);
        assert_int_equal(count_lines(out), 5);
    }
    /* What changes the speed only. */
    run(f, NULL,
        (const char *[]){"-i", f->in, "-o", out, "--ordered", "--max-num-seqs", "7", "--threads", "1", "--block-size",
                         "32", NULL},
        0, "resuming: 5 of ");
    expect_same(out, f->whole);
}

static void test_other_input_or_model_refused(void **state)
{
    const struct fixture *f = *state;
    char out[512], in[512], journal[600];
    struct text bytes = {0};
    path_of(f, "same.jsonl", out);
    write_part(f, out, 5, 0);
    read_file(f->in, &bytes);
    bytes.data[bytes.length / 2] ^= 1;
    write_file(path_of(f, "other.jsonl", in), bytes.data, bytes.length);
    run(f, NULL, (const char *[]){"-i", in, "-o", out, "--ordered", NULL}, 2, "holds answers to another input");
    bytes.data[bytes.length / 2] ^= 1;
    run(f, bytes.data, (const char *[]){"-o", out, "--ordered", NULL}, 0, "resuming: 5 of "); /* the same, as stdin */
    expect_same(out, f->whole);
    write_part(f, out, 5, 0);
    temp_folder_write_string(&f->model, "generation_config.json", "{\"top_k\": 5}");
    run(f, NULL, (const char *[]){"-i", f->in, "-o", out, "--ordered", NULL}, 2, "holds answers of another model");
    temp_folder_delete(&f->model, "generation_config.json");
    run(f, NULL, (const char *[]){"-i", f->in, "-o", out, "--ordered", "--generation-config", "vllm", NULL}, 2,
        "was begun with --generation-config \"auto\", and now it is \"vllm\"");
    snprintf(journal, sizeof journal, "%s.quire", out);
    write_file(journal, "{}", 2);
    run(f, NULL, (const char *[]){"-i", f->in, "-o", out, "--ordered", NULL}, 2, "not what quire generate writes");
    unlink(journal);
    run(f, NULL, (const char *[]){"-i", f->in, "-o", out, "--ordered", NULL}, 2, "replace it with --overwrite");
    assert_int_equal(count_lines(out), 5);
    run(f, NULL, (const char *[]){"-i", f->in, "-o", out, "--ordered", "--overwrite", NULL}, 0, NULL);
    expect_same(out, f->whole);
    text_free(&bytes);
}

/* Several inputs are one: their prompts are counted together, and their order matters. */
static void test_several_inputs(void **state)
{
    const struct fixture *f = *state;
    char first[512], second[512], out[512];
    struct text bytes = {0};
    read_file(f->in, &bytes);
    const size_t half = (size_t)(strchr(bytes.data + bytes.length / 2, '\n') - bytes.data) + 1;
    write_file(path_of(f, "first.jsonl", first), bytes.data, half);
    write_file(path_of(f, "second.jsonl", second), bytes.data + half, bytes.length - half);
    path_of(f, "both.jsonl", out);
    run(f, NULL, (const char *[]){"-i", first, "-i", second, "-o", out, "--ordered", NULL}, 0, NULL);
    expect_same(out, f->whole);
    read_file(out, &bytes);
    write_file(out, bytes.data, bytes.length / 2);
    run(f, NULL, (const char *[]){"-i", second, "-i", first, "-o", out, "--ordered", NULL}, 2, "to another input");
    run(f, NULL, (const char *[]){"-i", first, "-i", second, "-o", out, "--ordered", NULL}, 0, "resuming: ");
    expect_same(out, f->whole);
    text_free(&bytes);
}

/* A pipe cannot be read twice: its answers are written, but nothing goes on from them. */
static void test_pipe(void **state)
{
    const struct fixture *f = *state;
    char out[512], command[2048];
    struct program p;
    path_of(f, "piped.jsonl", out);
    snprintf(command, sizeof command,
             "cat %s | %s generate --model %s --load-format dummy --device cpu --max-num-seqs 4 --max-model-len 512 "
             "--ignore-eos --kv-cache-space 0.1 --temperature 1 --ordered -o %s",
             f->in, QUIRE_EXECUTABLE, f->model.path, out);
    program_run(&p, (const char *[]){"/bin/sh", "-c", command, NULL}, NULL);
    assert_int_equal(p.exit_status, 0);
    program_free(&p);
    expect_same(out, f->whole);
    expect_gone(out, ".spool");
    expect_gone(out, ".quire");
    program_run(&p, (const char *[]){"/bin/sh", "-c", command, NULL}, NULL);
    assert_int_equal(p.exit_status, 2);
    assert_non_null(strstr(p.err.data, "the input is no file"));
    program_free(&p);
    strncat(command, " --overwrite --shard 1/2", sizeof command - strlen(command) - 1);
    program_run(&p, (const char *[]){"/bin/sh", "-c", command, NULL}, NULL);
    assert_int_equal(p.exit_status, 2);
    assert_non_null(strstr(p.err.data, "--shard needs an input that is a file"));
    program_free(&p);
}

/* ---- ends ---- */

static void test_nothing_left(void **state)
{
    const struct fixture *f = *state;
    char in[512], out[512];
    struct text bytes = {0};
    run(f, NULL, (const char *[]){"-i", f->in, "-o", f->whole, "--ordered", NULL}, 0, "; nothing is left to do");
    static const char lines[] = "{\"prompt\": [1, 2]}\n\n{\"prompt\": 3, \"id\": \"bad\"}\n{\"prompt\": [3]}\n";
    write_file(path_of(f, "bad.jsonl", in), lines, sizeof lines - 1);
    path_of(f, "bad.out.jsonl", out);
    run(f, NULL, (const char *[]){"-i", in, "-o", out, NULL}, 1, "1 of 3 prompts failed");
    run(f, NULL, (const char *[]){"-i", in, "-o", out, NULL}, 1, "1 of 3 prompts failed"); /* as the first time */
    run(f, NULL, (const char *[]){"-i", in, "-o", out, "--quiet", NULL}, 1, "1 of 3 prompts failed");
    read_file(out, &bytes);
    assert_non_null(strstr(bytes.data, "{\"index\": 1, \"id\": \"bad\", \"line\": 3, \"error\": "));
    text_free(&bytes);
}

/* ---- an input that has grown ---- */

/* The first bytes of the input, up to a line's end, in the file "part.jsonl". */
static size_t write_beginning(const struct fixture *f, size_t about, const char *end, char *path)
{
    struct text lines = {0};
    read_file(f->in, &lines);
    const size_t length = (size_t)(strchr(lines.data + about, '\n') - lines.data);
    lines.length = length;
    assert_true(text_append_string(&lines, end));
    write_file(path_of(f, "part.jsonl", path), lines.data, lines.length);
    text_free(&lines);
    return length;
}

/* Answers a part of the input, all of it or as much as is in `keep` bytes of its output, and then the whole under the
 * part's name. */
static void check_growth(const struct fixture *f, const char *flag, const char *end, off_t keep)
{
    char part[512], out[512];
    write_beginning(f, 900, end, part);
    path_of(f, "part.out.jsonl", out);
    run(f, NULL, (const char *[]){"-i", part, "-o", out, "--overwrite", flag, NULL}, 0, NULL);
    if (keep) assert_int_equal(truncate(out, keep), 0);
    copy_file(f->in, part);
    run(f, NULL, (const char *[]){"-i", part, "-o", out, flag, NULL}, 0, "resuming: ");
    expect_whole(f, out);
    if (flag) expect_same(out, f->whole);
    run(f, NULL, (const char *[]){"-i", f->in, "-o", out, flag, NULL}, 0, "; nothing is left to do");
}

static void test_growth(void **state)
{
    const struct fixture *f = *state;
    check_growth(f, NULL, "\n", 0);
    check_growth(f, NULL, "", 0); /* the newline of its last line was not there yet */
    check_growth(f, NULL, "\n", 700);
    check_growth(f, "--ordered", "\n", 0);
    check_growth(f, "--ordered", "\n", 700);
}

/* Blank lines alone, and files that are added behind the others. */
static void test_growth_of_files(void **state)
{
    const struct fixture *f = *state;
    char part[512], rest[512], out[512];
    struct text lines = {0};
    const size_t length = write_beginning(f, 900, "", part);
    read_file(f->in, &lines);
    write_file(path_of(f, "rest.jsonl", rest), lines.data + length, lines.length - length);
    path_of(f, "part.out.jsonl", out);
    run(f, NULL, (const char *[]){"-i", part, "-o", out, "--overwrite", NULL}, 0, NULL);
    write_beginning(f, 900, "\n\n\n", part);
    run(f, NULL, (const char *[]){"-i", part, "-o", out, NULL}, 0, "; nothing is left to do");
    run(f, NULL, (const char *[]){"-i", part, "-i", rest, "-o", out, NULL}, 0, "resuming: ");
    expect_whole(f, out);
    run(f, NULL, (const char *[]){"-i", part, "-o", out, NULL}, 2, "holds answers to another input");
    text_free(&lines);
}

static void test_growth_refused(void **state)
{
    const struct fixture *f = *state;
    static const char *const ends[] = {" \n", "\r", "x\n", "\n\n{\"prompt\": [7]}\n"}; /* no beginnings of the input */
    char part[512], out[512];
    path_of(f, "part.out.jsonl", out);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        write_beginning(f, 900, ends[i], part);
        run(f, NULL, (const char *[]){"-i", part, "-o", out, "--overwrite", NULL}, i == 2, NULL);
        run(f, NULL, (const char *[]){"-i", f->in, "-o", out, NULL}, 2, "holds answers to another input");
    }
    write_file(part, "{\"prompt\": [1]", 14); /* a line that was not whole */
    run(f, NULL, (const char *[]){"-i", part, "-o", out, "--overwrite", NULL}, 1, NULL);
    write_file(part, "{\"prompt\": [1]}\n", 16);
    run(f, NULL, (const char *[]){"-i", part, "-o", out, NULL}, 2, "holds answers to another input");
    write_beginning(f, 900, "\n", part);
    run(f, NULL, (const char *[]){"-i", part, "-o", out, "--overwrite", "--shard", "1/2", NULL}, 0, NULL);
    copy_file(f->in, part);
    run(f, NULL, (const char *[]){"-i", part, "-o", out, "--shard", "1/2", NULL}, 2,
        "was begun with --shard 1/2, and the input has grown, so that its parts are others now");
}

/* Members of gzip are not lines: the last of one may go on in the next. */
static void test_growth_of_packed(void **state)
{
    static const char first[] = "{\"prompt\": [1]}\n", second[] = "{\"prompt\": [2]}\n";
    const struct fixture *f = *state;
    char in[512], out[512];
    path_of(f, "packed.jsonl.gz", in);
    path_of(f, "packed.out.jsonl", out);
    for (int i = 0; i < 2; i++) {
        gzFile file = gzopen(in, i == 0 ? "w" : "a");
        assert_int_equal(gzputs(file, i == 0 ? first : second), (int)sizeof first - 1);
        assert_int_equal(gzclose(file), Z_OK);
        run(f, NULL, (const char *[]){"-i", in, "-o", out, NULL}, i == 0 ? 0 : 2,
            i == 0 ? NULL : "holds answers to another input");
    }
}

static void test_max_errors(void **state)
{
    const struct fixture *f = *state;
    char in[512], out[512];
    struct text lines = {0};
    for (int i = 0; i < 100; i++)
        assert_true(text_append_string(&lines, i % 4 == 0 ? "{\"prompt\": 3}\n" : "{\"prompt\": [7]}\n"));
    write_file(path_of(f, "errors.jsonl", in), lines.data, lines.length);
    path_of(f, "errors.out.jsonl", out);
    run(f, NULL, (const char *[]){"-i", in, "-o", out, "--max-errors", "3", NULL}, 1,
        "prompts failed, which ended the run (--max-errors)");
    assert_int_equal(count_lines(out), 13); /* up to the fourth error, and every line before it has its answer */
    run(f, NULL, (const char *[]){"-i", in, "-o", out, "--overwrite", "--ordered", "--max-errors", "3", NULL}, 1,
        "4 of 13 prompts failed, which ended the run (--max-errors)");
    assert_int_equal(count_lines(out), 13);
    run(f, NULL, (const char *[]){"-i", in, "-o", out, "--overwrite", "--max-errors", "3", NULL}, 1,
        "4 of 13 prompts failed, which ended the run (--max-errors)");
    run(f, NULL, (const char *[]){"-i", in, "-o", out, "--max-errors", "25", NULL}, 1, "25 of 100 prompts failed: see");
    assert_int_equal(count_lines(out), 100);
    text_free(&lines);
}

/* An interrupted run keeps what is finished: ordered, in the spool. */
static void test_interrupt_ordered(void **state)
{
    const struct fixture *f = *state;
    char in[512], out[512], spool[600];
    int status;
    struct text lines = {0};
    assert_true(text_append_string(&lines, "{\"prompt\": [7], \"max_tokens\": 50000}\n")); /* longer than any test */
    for (int i = 0; i < 30; i++) assert_true(text_printf(&lines, "{\"prompt\": [%d], \"max_tokens\": 2}\n", i + 1));
    write_file(path_of(f, "slow.jsonl", in), lines.data, lines.length);
    path_of(f, "slow.out.jsonl", out);
    snprintf(spool, sizeof spool, "%s.spool", out);
    const char *const flags[] = {"-i", in, "-o", out, "--ordered", "--max-model-len", "60000", NULL};
    const pid_t pid = start(f, flags);
    wait_for_lines(pid, out, spool, 30, &status);
    end_by(pid, SIGTERM);
    assert_int_equal(count_lines(out), 0);
    assert_int_equal(count_lines(spool), 30);
    /* Another run of other parameters takes nothing away. */
    run(f, NULL, (const char *[]){"-i", in, "-o", out, "--ordered", NULL}, 2, "was begun with --max-model-len 60000");
    const pid_t again = start(f, flags);
    usleep(300000);
    end_by(again, SIGTERM);
    assert_int_equal(count_lines(spool), 30);
    text_free(&lines);
}

/* ---- shards ---- */

static void test_shards(void **state)
{
    const struct fixture *f = *state;
    enum { SHARDS = 3 };
    char names[SHARDS][512], out[512], shard[16];
    struct text all = {0}, part = {0};
    path_of(f, "merged.jsonl", out);
    for (int ordered = 0; ordered < 2; ordered++) {
        text_clear(&all);
        for (int i = 0; i < SHARDS; i++) {
            char name[32];
            snprintf(name, sizeof name, "shard%d.jsonl", i);
            snprintf(shard, sizeof shard, "%d/%d", i + 1, SHARDS);
            run(f, NULL,
                (const char *[]){"-i", f->in, "-o", path_of(f, name, names[i]), "--shard", shard, "--overwrite",
                                 ordered ? "--ordered" : NULL, NULL},
                0, NULL);
            assert_int_equal(count_lines(names[i]), sizes.prompts / SHARDS);
            read_file(names[i], &part);
            assert_true(text_append(&all, part.data, part.length));
        }
        merge((const char *[]){names[2], names[0], names[1], NULL}, 0, NULL, out);
        expect_same(out, f->whole);
        merge((const char *[]){names[0], names[2], NULL}, 1, "prompts have no answer in these files (20, 21, ", out);
        merge((const char *[]){names[0], names[1], names[2], names[1], NULL}, 1, "is answered twice: in ", out);
    }
    read_file(f->whole, &part);
    assert_string_equal(all.data, part.data); /* one behind the other */
    merge((const char *[]){names[0], names[1], names[2], "--unordered", NULL}, 0, NULL, out);
    expect_same(out, f->whole);
    run(f, NULL, (const char *[]){"-i", f->in, "-o", names[1], "--shard", "2/3", "--overwrite", "--seed", "9", NULL}, 0,
        NULL);
    merge((const char *[]){names[0], names[1], names[2], NULL}, 1, "do not answer the same input with the same model",
          out);
    text_free(&all);
    text_free(&part);
}

/* More shards than prompts: some are empty. */
static void test_empty_shards(void **state)
{
    const struct fixture *f = *state;
    char in[512], out[512], a[512], b[512], c[512];
    write_file(path_of(f, "two.jsonl", in), "{\"prompt\": [1]}\n{\"prompt\": [2]}\n", 32);
    static const char *const shards[] = {"1/3", "2/3", "3/3"};
    const char *const names[] = {path_of(f, "a.jsonl", a), path_of(f, "b.jsonl", b), path_of(f, "c.jsonl", c)};
    for (int i = 0; i < 3; i++)
        run(f, NULL, (const char *[]){"-i", in, "-o", names[i], "--shard", shards[i], NULL}, 0, NULL);
    assert_int_equal(count_lines(a) + count_lines(b) + count_lines(c), 2);
    merge((const char *[]){a, b, c, NULL}, 0, NULL, path_of(f, "merged.jsonl", out));
    assert_int_equal(count_lines(out), 2);
    run(f, "x\n", (const char *[]){"--shard", "4/3", NULL}, 2, "expected I/N with I from 1 to N, as in 1/4, got '4/3'");
}

static void test_shard_ranges(void **state)
{
    (void)state;
    static const int64_t totals[] = {0, 1, 7, 100, 10000000, INT64_C(1) << 50};
    for (size_t t = 0; t < sizeof totals / sizeof *totals; t++) {
        for (int32_t count = 1; count < 1000; count += 7) {
            int64_t expected = 0, begin, end;
            for (int32_t i = 1; i <= count; i++) {
                shard_range(&(struct shard){i, count}, totals[t], &begin, &end);
                assert_int_equal(begin, expected);
                assert_in_range(end - begin, totals[t] / count, totals[t] / count + 1);
                expected = end;
            }
            assert_int_equal(expected, totals[t]);
        }
    }
    struct shard s;
    struct error err;
    static const char *const bad[] = {"", "1", "/3", "0/3", "1/", "1/0", "-1/3", "1/3x", "4/3", "1/ 3", "1/9999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(shard_parse(&s, bad[i], &err), STATUS_INVALID);
}

/* ---- units ---- */

static bool read_answer(const char *line, struct answer_line *a)
{
    return answer_line_read(line, strlen(line), a);
}

static void test_answer_lines(void **state)
{
    (void)state;
    struct answer_line a;
    assert_true(read_answer("{\"index\": 7}", &a) && a.index == 7 && !a.failed && a.num_cut == 0);
    assert_true(read_answer("{\"index\": 0, \"text\": \"}\\\"{\", \"finish_reason\": \"length\"}", &a) &&
                a.num_cut == 1);
    assert_true(read_answer("{\"index\": 1, \"finish_reasons\": [\"length\", \"stop\", \"length\"]}", &a));
    assert_int_equal(a.num_cut, 2);
    assert_true(read_answer("{\"index\": 1, \"text\": \"length\", \"finish_reason\": \"stop\"}", &a) && a.num_cut == 0);
    assert_true(read_answer("{\"index\": 1, \"error\": \"why\"}", &a) && a.failed);
    assert_true(read_answer("{\"index\": 1, \"error\": {\"code\": 3}}", &a) && a.failed);
    assert_true(read_answer("{\"index\": 1, \"response\": {\"error\": 1}, \"error\": null}", &a) && !a.failed);
    assert_true(
        read_answer("{\"index\": 1, \"response\": {\"body\": {\"choices\": [{\"finish_reason\": \"length\"}]}}}", &a));
    assert_int_equal(a.num_cut, 1);
    static const char *const bad[] = {"",
                                      "{",
                                      "{\"index\": }",
                                      "{\"index\": -1}",
                                      "{\"index\": 1",
                                      "{\"id\": 1, \"index\": 1}",
                                      "{\"index\": 12345678901234567890}",
                                      "{\"index\": 1, \"text\": \"x}",
                                      "{\"index\": 1}}",
                                      "{\"index\": 1} ",
                                      "{\"index\": 1, \"text\": \"a\tb\"}",
                                      "{\"index\": 1, \"a\": [}",
                                      "{\"index\": 1, \"text\": \"x\\"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (read_answer(bad[i], &a)) fail_msg("accepted: %s", bad[i]);
}

static void test_index_set(void **state)
{
    (void)state;
    struct index_set set = {0};
    assert_false(index_set_has(&set, 0));
    for (int64_t i = 0; i < 100000; i += 3) assert_true(index_set_add(&set, i));
    assert_true(index_set_add(&set, 3));
    assert_int_equal(set.count, 33334);
    for (int64_t i = 0; i < 200000; i++) assert_int_equal(index_set_has(&set, i), i < 100000 && i % 3 == 0);
    index_set_free(&set);
}

/* {"index": 7, "text": "xxx"} of `length` bytes with its newline. */
static void make_answer_line(char *line, int length, int64_t index)
{
    const int head = sprintf(line, "{\"index\": %lld, \"text\": \"", (long long)index);
    memset(line + head, 'x', (size_t)(length - head));
    strcpy(line + length - 3, "\"}\n");
}

/* A line that is not what was written is not handed out. */
static void test_spool_that_is_changed(void **state)
{
    const struct fixture *f = *state;
    static const char *const changed[] = {"{\"index\": 8, \"text\": \"xxxxxx\"}\n",
                                          "{\"index\": 7, \"text\": \"xxxxxx }\n",
                                          "{\"index\": 7, \"text\": \"xxxxxx\"} "};
    enum { LENGTH = 31 };
    char name[512], line[LENGTH + 1];
    struct spool s;
    struct error err;
    struct text text = {0};
    make_answer_line(line, LENGTH, 7);
    assert_int_equal(spool_open(&s, path_of(f, "spool", name), &err), STATUS_OK);
    assert_int_equal(spool_write(&s, 7, line, LENGTH, &err), STATUS_OK);
    for (size_t i = 0; i < sizeof changed / sizeof *changed; i++) {
        assert_int_equal(strlen(changed[i]), LENGTH);
        write_file(name, changed[i], LENGTH);
        assert_int_equal(spool_read(&s, &text, &err), STATUS_IO);
        assert_non_null(strstr(err.text, "spool was changed while quire was writing it"));
    }
    write_file(name, line, LENGTH);
    assert_int_equal(spool_read(&s, &text, &err), STATUS_OK);
    assert_int_equal(spool_num_lost(&s), 0);
    assert_int_equal(truncate(name, 5), 0);
    assert_int_equal(spool_write(&s, 8, line, LENGTH, &err), STATUS_IO);
    assert_int_equal(spool_num_lost(&s), 1);
    assert_false(spool_is_removed(&s));
    unlink(name);
    assert_true(spool_is_removed(&s));
    spool_close(&s, false);
    text_free(&text);
}

/* Lines come out by index; what was taken goes back to the disk once the output is safe there. */
static void test_spool(void **state)
{
    const struct fixture *f = *state;
    char name[512];
    struct spool s;
    struct error err;
    struct text line = {0};
    enum { LINES = 1000, LENGTH = 40000 };
    static char long_line[LENGTH + 1];
    assert_int_equal(spool_open(&s, path_of(f, "spool", name), &err), STATUS_OK);
    assert_int_equal(spool_first(&s), -1);
    for (int i = 0; i < LINES; i++) {
        const int64_t index = (i * 37) % LINES;
        make_answer_line(long_line, LENGTH, index);
        assert_int_equal(spool_write(&s, index, long_line, LENGTH, &err), STATUS_OK);
    }
    for (int64_t i = 0; i < LINES; i++) {
        assert_int_equal(spool_first(&s), i);
        assert_int_equal(spool_read(&s, &line, &err), STATUS_OK);
        assert_int_equal(line.length, LENGTH);
        make_answer_line(long_line, LENGTH, i);
        assert_memory_equal(line.data, long_line, LENGTH);
        spool_drop(&s);
        spool_reclaim(&s, (uint64_t)i + 1, 0); /* nothing is safe yet */
        assert_int_equal(s.end, LINES * LENGTH);
    }
    spool_reclaim(&s, LINES, LINES);
    spool_reclaim(&s, LINES, LINES);
    assert_int_equal(s.end, 0);
    spool_close(&s, true);
    assert_false(file_exists(name));
    text_free(&line);
}

/* The beginning of a spool goes back to the disk while the rest is needed; the next run finds where the rest begins. */
static void test_spool_gives_back(void **state)
{
    const struct fixture *f = *state;
    char name[512];
    struct spool s;
    struct error err;
    struct stat info;
    enum { LINES = 600, LENGTH = 65536 };
    static char line[LENGTH];
    memset(line, 'x', LENGTH);
    assert_int_equal(spool_open(&s, path_of(f, "spool", name), &err), STATUS_OK);
    for (int i = 0; i < LINES; i++) assert_int_equal(spool_write(&s, i, line, LENGTH, &err), STATUS_OK);
    for (int i = 0; i < LINES / 2; i++) {
        spool_drop(&s);
        spool_reclaim(&s, 1, 1);
    }
    assert_int_equal(fstat(s.fd, &info), 0);
    assert_true(s.given_back >= (16 << 20) && s.given_back <= (uint64_t)LINES / 2 * LENGTH);
    if ((uint64_t)info.st_blocks * 512 < (uint64_t)info.st_size) { /* the file system can do it */
        struct spool again;
        assert_int_equal(spool_open(&again, name, &err), STATUS_OK);
        assert_int_equal(spool_skip_given_back(&again), s.given_back);
        spool_close(&again, false);
    }
    while (s.count > 0) spool_drop(&s);
    spool_close(&s, true);
}

static void expect_progress(const struct progress_facts *facts, int width, const char *expected)
{
    const struct progress p = {.prompt_rate = 812, .output_rate = 340.4};
    struct text line = {0};
    assert_true(progress_line(&p, facts, 60, width, &line));
    assert_string_equal(line.data, expected);
    text_free(&line);
}

static void test_progress_line(void **state)
{
    (void)state;
    struct progress_facts facts = {.done = 1204,
                                   .total = 3000,
                                   .done_before = 204,
                                   .running = 64,
                                   .waiting = 128,
                                   .cache_used = 0.43,
                                   .hit_rate = 0.12};
    expect_progress(&facts, 0,
                    "1,204 of 3,000, 0:01:48 left, 812 + 340 tokens/s, 64 running, 128 waiting, KV 43 %, 12 % hits");
    expect_progress(&facts, 200,
                    "[========>           ] 1,204/3,000  0:01:48 left  812 + 340 tokens/s  64 running, 128 waiting  "
                    "KV 43 %, 12 % hits");
    expect_progress(&facts, 79, "[========>           ] 1,204/3,000  0:01:48 left  812 + 340 tokens/s");
    expect_progress(&facts, 40, "[========>           ] 1,204/3,000");
    facts.total_estimated = true;
    expect_progress(&facts, 40, "[========>           ] 1,204/~3,000");
    facts.done = 3000;
    expect_progress(&facts, 55, "[====================] 3,000/~3,000  0:00:00 left");
    facts.total = 0;
    expect_progress(&facts, 40, "3,000 done  812 + 340 tokens/s");
    facts.prompt_tokens = 129;
    facts.prompt_tokens_known = 1000;
    expect_progress(&facts, 30, "3,000 done  reading 12 %");
    expect_progress(&facts, 0,
                    "3,000 done, reading 12 %, 812 + 340 tokens/s, 64 running, 128 waiting, KV 43 %, 12 % hits");
    facts.output_tokens = 1;
    expect_progress(&facts, 25, "3,000 done");
    facts = (struct progress_facts){.done = 1204, .total = 3000, .done_before = 204, .unit = "MB"};
    expect_progress(&facts, 0, "1,204 of 3,000 MB, 0:01:48 left");
    expect_progress(&facts, 200, "[========>           ] 1,204/3,000 MB  0:01:48 left");
}

/* A bar while it runs, and nothing of it afterwards. */
static void test_progress_on_terminal(void **state)
{
    const struct fixture *f = *state;
    char out[512];
    const char *argv[MAX_ARGS + 1];
    struct pty p;
    path_of(f, "shown.jsonl", out);
    make_argv(argv, f, (const char *[]){"-i", f->in, "-o", out, NULL});
    pty_start(&p, argv);
    pty_expect(&p, "] ");
    pty_expect(&p, "tokens/s");
    pty_expect(&p, "\r\033[K");
    assert_int_equal(pty_finish(&p), 0);
}

/* The option and its value are taken off argv. */
static void take_option(int argc, char **argv, const char *name, int *value)
{
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0) *value = atoi(argv[i + 1]);
}

int main(int argc, char **argv)
{
    take_option(argc, argv, "--kills", &sizes.kills);
    take_option(argc, argv, "--prompts", &sizes.prompts);
    const struct CMUnitTest kills[] = {
        cmocka_unit_test(test_kills),
        cmocka_unit_test(test_kills_ordered),
    };
    if (argc > 1) return cmocka_run_group_tests(kills, set_up, tear_down);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kills),
        cmocka_unit_test(test_kills_ordered),
        cmocka_unit_test(test_torn_line),
        cmocka_unit_test(test_hole),
        cmocka_unit_test(test_damaged_lines),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_taken_away),
        cmocka_unit_test(test_taken_away_is_computed_again),
        cmocka_unit_test(test_journal_taken_away),
        cmocka_unit_test(test_other_runs_refused),
        cmocka_unit_test(test_other_input_or_model_refused),
        cmocka_unit_test(test_several_inputs),
        cmocka_unit_test(test_pipe),
        cmocka_unit_test(test_nothing_left),
        cmocka_unit_test(test_growth),
        cmocka_unit_test(test_growth_of_files),
        cmocka_unit_test(test_growth_refused),
        cmocka_unit_test(test_growth_of_packed),
        cmocka_unit_test(test_max_errors),
        cmocka_unit_test(test_interrupt_ordered),
        cmocka_unit_test(test_shards),
        cmocka_unit_test(test_empty_shards),
        cmocka_unit_test(test_shard_ranges),
        cmocka_unit_test(test_answer_lines),
        cmocka_unit_test(test_index_set),
        cmocka_unit_test(test_spool),
        cmocka_unit_test(test_spool_gives_back),
        cmocka_unit_test(test_spool_that_is_changed),
        cmocka_unit_test(test_progress_line),
        cmocka_unit_test(test_progress_on_terminal),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
