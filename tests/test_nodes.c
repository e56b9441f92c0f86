/* Several processes that share a model (--nnodes): they answer as one, and when one of them ends or cannot go on, all
 * end with a sentence that says so. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/socket.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu.h"
#include "tests/support/must.h"
#include "tests/support/temp_folder.h"
#include "tests/support/toy_model.h"

enum { MAX_NODES = 4, MAX_ARGS = 64, NUM_PROMPTS = 60 };

struct fixture {
    struct temp_folder files, toy;
};

/* For models that have no tokenizer. */
#define IDS                                                                                                            \
    "{\"prompt_token_ids\": [7, 21, 3, 40, 12, 12, 9, 33, 5, 18, 26, 4, 11, 50, 31, 8, 29, 16, 44]}\n"                 \
    "{\"prompt_token_ids\": [5]}\n{\"prompt_token_ids\": [14, 39, 22, 6, 17]}\n"

static int set_up(void **state)
{
    static struct fixture f;
    char prompts[NUM_PROMPTS * 64] = "";
    temp_folder_make(&f.files);
    toy_model_make(&f.toy, QUIRE_GUIDE, true);
    for (int i = 0; i < NUM_PROMPTS; i++)
        snprintf(prompts + strlen(prompts), 64, "Page %d of the book is about paper. It\n", i);
    temp_folder_write_string(&f.files, "prompts.txt", prompts);
    temp_folder_write_string(&f.files, "ids.jsonl", IDS);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    temp_folder_remove(&f->files);
    temp_folder_remove(&f->toy);
    return 0;
}

/* ---- processes ---- */

/* Processes of one command. */
struct nodes {
    struct fixture *f;
    int count;
    bool gpus;         /* node i computes on cuda:i */
    const char *input; /* the name of its file; NULL: prompts.txt */
    const char *size;  /* not NULL: mpirun has started so many, and tells them who they are */
    int port;          /* of 127.0.0.1, at which nobody listened a moment ago */
    pid_t pids[MAX_NODES];
    struct program_end {
        int status; /* 128 + signal, if one has ended it */
        char said[4096];
    } ends[MAX_NODES];
};

static int free_port(void)
{
    struct error err;
    struct socket_name name;
    int fd;
    must(socket_listen("127.0.0.1", 0, &fd, &err), &err);
    assert_true(socket_own_name(fd, &name));
    socket_close(&fd);
    return name.port;
}

static void file_of(const struct nodes *n, int node, const char *suffix, char *out, size_t size)
{
    snprintf(out, size, "%s/%d.%s", n->f->files.path, node, suffix);
}

static const char *const none[] = {NULL};

/* Appends words up to a NULL. */
static int append(const char **argv, int argc, const char *const *words)
{
    while (*words) {
        assert_true(argc < MAX_ARGS - 1);
        argv[argc++] = *words++;
    }
    argv[argc] = NULL;
    return argc;
}

static const char *const common[] = {
    "--model",       QUIRE_GUIDE, "--kv-cache-space", "0.05",    "--threads",   "1", "--no-chat",
    "--temperature", "0",         "--ignore-eos",     "--quiet", "--overwrite", NULL};

/* Starts a node. `flags` are those of all nodes, `own` its own; both end with NULL. */
static void start_again(struct nodes *n, int node, const char *const *flags, const char *const *own)
{
    char out[512], said[512], input[512], count[16], rank[16], port[16], device[16];
    const char *argv[MAX_ARGS];
    file_of(n, node, "jsonl", out, sizeof out);
    file_of(n, node, "txt", said, sizeof said);
    snprintf(input, sizeof input, "%s/%s", n->f->files.path, n->input ? n->input : "prompts.txt");
    snprintf(count, sizeof count, "%d", n->count);
    snprintf(rank, sizeof rank, "%d", node);
    snprintf(port, sizeof port, "%d", n->port);
    snprintf(device, sizeof device, n->gpus ? "cuda:%d" : "cpu", node);
    const char *const first[] = {QUIRE_EXECUTABLE, "generate", "--input", input, "--output", out,
                                 "--device",       device,     NULL};
    const char *const nodes[] = {"--nnodes", count, "--master-port", port, n->size ? NULL : "--node-rank", rank, NULL};
    int argc = append(argv, append(argv, append(argv, 0, first), common), nodes);
    append(argv, append(argv, argc, flags), own);
    n->pids[node] = fork();
    assert_true(n->pids[node] >= 0);
    if (n->pids[node] == 0) {
        if (n->size) setenv("OMPI_COMM_WORLD_SIZE", n->size, 1);
        if (n->size) setenv("OMPI_COMM_WORLD_RANK", rank, 1);
        dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
        dup2(open(said, O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
        execv(argv[0], (char *const *)argv);
        _exit(127);
    }
}

/* The same without what an earlier run has written. */
static void start(struct nodes *n, int node, const char *const *flags, const char *const *own)
{
    char path[512];
    file_of(n, node, "jsonl", path, sizeof path);
    unlink(path);
    start_again(n, node, flags, own);
}

/* Waits for the end of a node. */
static void wait_for(struct nodes *n, int node)
{
    struct program_end *end = &n->ends[node];
    char said[512];
    int status;
    assert_int_equal(waitpid(n->pids[node], &status, 0), n->pids[node]);
    n->pids[node] = 0;
    end->status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    file_of(n, node, "txt", said, sizeof said);
    FILE *file = fopen(said, "r");
    assert_non_null(file);
    end->said[fread(end->said, 1, sizeof end->said - 1, file)] = '\0';
    fclose(file);
    print_message("node %d of %d: exit %d: %s\n", node, n->count, end->status, end->said);
}

static void assert_end(const struct nodes *n, int node, int status, const char *sentence)
{
    assert_int_equal(n->ends[node].status, status);
    if (!strstr(n->ends[node].said, sentence)) fail_msg("node %d does not say \"%s\"", node, sentence);
}

static struct nodes begin(struct fixture *f, int count)
{
    return (struct nodes){.f = f, .count = count, .port = free_port()};
}

/* The file that node 0 has written; to be freed. */
static char *answers(const struct nodes *n)
{
    char path[512], part[4096];
    struct text text = {0};
    file_of(n, 0, "jsonl", path, sizeof path);
    FILE *file = fopen(path, "r");
    for (size_t count; file && (count = fread(part, 1, sizeof part, file)) > 0;) text_append(&text, part, count);
    if (file) fclose(file);
    return text.data ? text.data : strdup("");
}

static int count_lines(const char *text)
{
    int count = 0;
    for (; *text; text++) count += *text == '\n';
    return count;
}

/* Runs the command to its end. */
static char *run(struct fixture *f, int count, const char *const *flags)
{
    struct nodes n = begin(f, count);
    for (int i = 0; i < count; i++) start(&n, i, flags, none);
    for (int i = 0; i < count; i++) wait_for(&n, i);
    for (int i = 0; i < count; i++) assert_int_equal(n.ends[i].status, 0);
    return answers(&n);
}

/* ---- right answers ---- */

static void test_lines_are_those_of_one_process(void **state)
{
    static const char *const plain[] = {"-tp", "2", "--max-tokens", "8", "--ordered", NULL};
    static const char *const four[] = {"-tp", "4", "--max-tokens", "8", "--ordered", NULL};
    /* few blocks, so that requests are swapped; several answers, and log-probabilities */
    static const char *const scarce[] = {"-tp",
                                         "2",
                                         "--max-tokens",
                                         "24",
                                         "--ordered",
                                         "--num-gpu-blocks-override",
                                         "12",
                                         "--preemption-mode",
                                         "swap",
                                         "--max-model-len",
                                         "96",
                                         "--n",
                                         "2",
                                         "--temperature",
                                         "0.8",
                                         "--logprobs",
                                         "2",
                                         NULL};
    static const char *const drafts[] = {"-tp",   "2", "--max-tokens", "24", "--ordered", "--speculative-model",
                                         "ngram", NULL};
    static const char *const draft_model[] = {
        "-tp", "2", "--max-tokens", "12", "--ordered", "--speculative-model", QUIRE_GUIDE, NULL};
    static const char *const *const flags[] = {plain, scarce, drafts, draft_model, four};
    for (int i = 0; i < 5; i++) {
        char *one = run(*state, 1, flags[i]);
        assert_int_equal(count_lines(one), NUM_PROMPTS);
        for (int nodes = 2; nodes <= (flags[i] == four ? 4 : 2); nodes += 2) {
            char *several = run(*state, nodes, flags[i]);
            assert_string_equal(several, one);
            free(several);
        }
        free(one);
    }
}

/* Experts, whole or in parts; latents; recurrent layers; norms over all heads. */
static void test_families(void **state)
{
    static const struct {
        const char *folder, *flag;
    } rows[] = {{"qwen3_moe", "-ep"},  {"qwen3_moe", "--no-chat"}, {"deepseek_v3", "-ep"},
                {"qwen3_next", "-ep"}, {"bamba", "--no-chat"},     {"olmo2", "--no-chat"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char folder[512], *texts[2];
        snprintf(folder, sizeof folder, QUIRE_TEST_DATA "/golden/%s", rows[i].folder);
        const char *const flags[] = {"-tp",          "2",  "--model",   folder,
                                     "--max-tokens", "12", "--ordered", "--skip-tokenizer-init",
                                     rows[i].flag,   NULL};
        for (int count = 1; count <= 2; count++) {
            struct nodes n = begin(*state, count);
            n.input = "ids.jsonl";
            for (int k = 0; k < count; k++) start(&n, k, flags, none);
            for (int k = 0; k < count; k++) wait_for(&n, k);
            for (int k = 0; k < count; k++) assert_int_equal(n.ends[k].status, 0);
            texts[count - 1] = answers(&n);
        }
        assert_int_equal(count_lines(texts[0]), 3);
        assert_string_equal(texts[1], texts[0]);
        free(texts[0]);
        free(texts[1]);
    }
}

/* ---- nodes that end ---- */

static const char *const long_two[] = {"-tp", "2", "--max-tokens", "40", "--max-num-seqs", "2", NULL};
static const char *const long_four[] = {"-tp", "4", "--max-tokens", "40", "--max-num-seqs", "2", NULL};

/* Ends a node of `count` by a signal when an answer is there. Returns the lines there were. */
static int end_node(struct nodes *n, const char *const *flags, int victim, int signal)
{
    int lines = 0;
    for (int i = 0; i < n->count; i++) start(n, i, flags, none);
    while (lines == 0) {
        char *text = answers(n);
        lines = count_lines(text);
        free(text);
        siginfo_t ended = {0};
        waitid(P_PID, (id_t)n->pids[0], &ended, WEXITED | WNOHANG | WNOWAIT);
        if (ended.si_pid != 0) fail_msg("node 0 has ended without an answer");
        usleep(2000);
    }
    kill(n->pids[victim], signal);
    for (int i = 0; i < n->count; i++) {
        if (i == victim && signal == SIGSTOP) continue;
        wait_for(n, i);
    }
    return lines;
}

/* Answers that were finished are there, each in a whole line. */
static void assert_answers_kept(const struct nodes *n, int lines)
{
    char *text = answers(n);
    assert_true(count_lines(text) >= lines && count_lines(text) < NUM_PROMPTS);
    assert_int_equal(text[strlen(text) - 1], '\n');
    free(text);
}

static void test_killed(void **state)
{
    struct nodes n = begin(*state, 2);
    assert_answers_kept(&n, end_node(&n, long_two, 1, SIGKILL));
    assert_end(&n, 0, 1, "quire generate: node 1 (rank 1) has ended: its connection was closed");
    assert_end(&n, 1, 128 + SIGKILL, "");

    n = begin(*state, 2);
    assert_answers_kept(&n, end_node(&n, long_four, 1, SIGKILL));
    assert_end(&n, 0, 1, "quire generate: node 1 (ranks 2 and 3) has ended: its connection was closed");

    n = begin(*state, 2);
    end_node(&n, long_two, 0, SIGKILL);
    assert_end(&n, 1, 1, "quire generate: node 0 (rank 0) has ended: its connection was closed");

    n = begin(*state, 4);
    assert_answers_kept(&n, end_node(&n, long_four, 2, SIGKILL));
    for (int i = 0; i < 4; i++)
        if (i != 2) assert_end(&n, i, 1, "node 2 (rank 2) has ended: its connection was closed");
}

/* Ctrl-C is node 0's. */
static void test_interrupted(void **state)
{
    struct nodes n = begin(*state, 2);
    assert_answers_kept(&n, end_node(&n, long_two, 0, SIGINT));
    assert_int_equal(n.ends[0].status, 128 + SIGINT);
    assert_end(&n, 1, 0, "");
}

/* The same command, started again, goes on; and where nothing is left to do, all nodes end. */
static void test_resumed(void **state)
{
    static const char *const flags[] = {"-tp", "2", "--max-tokens", "20", "--max-num-seqs", "2", "--no-overwrite",
                                        NULL};
    struct nodes n = begin(*state, 2);
    const int lines = end_node(&n, flags, 1, SIGKILL);
    for (int again = 0; again < 2; again++) {
        for (int i = 0; i < 2; i++) start_again(&n, i, flags, none);
        for (int i = 0; i < 2; i++) wait_for(&n, i);
        for (int i = 0; i < 2; i++) assert_int_equal(n.ends[i].status, 0);
        char *text = answers(&n);
        assert_int_equal(count_lines(text), NUM_PROMPTS);
        free(text);
    }
    assert_true(lines < NUM_PROMPTS);
}

/* A node that does not go on, and has not ended either. */
static void test_stopped(void **state)
{
    static const char *const flags[] = {
        "-tp", "2", "--max-tokens", "40", "--max-num-seqs", "2", "--distributed-timeout-seconds", "6", NULL};
    struct nodes n = begin(*state, 2);
    end_node(&n, flags, 1, SIGSTOP);
    assert_end(&n, 0, 1, "node 1 (rank 1) has sent nothing for 6 seconds");
    kill(n.pids[1], SIGCONT);
    wait_for(&n, 1);
    assert_int_equal(n.ends[1].status, 1);
}

/* ---- nodes that do not meet ---- */

static void test_not_there(void **state)
{
    static const char *const flags[] = {"-tp", "2", "--distributed-timeout-seconds", "1", NULL};
    struct nodes n = begin(*state, 2);
    char port[16], sentence[128];
    const int wrong = free_port();
    snprintf(port, sizeof port, "%d", wrong);
    const char *const own[] = {"--master-port", port, NULL};
    start(&n, 0, flags, none);
    start(&n, 1, flags, own);
    for (int i = 0; i < 2; i++) wait_for(&n, i);
    snprintf(sentence, sizeof sentence, "node 1 did not connect to port %d of 127.0.0.1 in 1 seconds", n.port);
    assert_end(&n, 0, 1, sentence);
    snprintf(sentence, sizeof sentence, "node 1 cannot reach node 0 in 1 seconds: cannot connect to port %d", wrong);
    assert_end(&n, 1, 1, sentence);
}

/* Both nodes are refused with the sentence. */
static void assert_do_not_fit(struct fixture *f, const char *const *own, const char *sentence)
{
    static const char *const flags[] = {"-tp", "2", NULL};
    struct nodes n = begin(f, 2);
    start(&n, 0, flags, none);
    start(&n, 1, flags, own);
    for (int i = 0; i < 2; i++) {
        wait_for(&n, i);
        assert_end(&n, i, 1, sentence);
    }
}

static void test_do_not_fit(void **state)
{
    struct fixture *f = *state;
    const char *const model[] = {"--model", f->toy.path, "--load-format", "dummy", NULL};
    static const char *const quantized[] = {"--quantization", "int8", NULL};
    static const char *const ranks[] = {"-tp", "4", NULL};
    static const char *const count[] = {"--nnodes", "4", "-tp", "4", NULL};
    static const char *const device[] = {"--device", "cuda:99", NULL};
    static const char *const isa[] = {"--cpu-isa", "scalar", NULL};
    assert_do_not_fit(f, model, "all nodes need the same model, but node 0 has");
    assert_do_not_fit(f, quantized,
                      "all nodes need the same quantization, but node 0 has \"none\", and node 1 \"int8\"");
    assert_do_not_fit(f, ranks, "all nodes need the same tensor_parallel_size, but node 0 has 2, and node 1 4");
    assert_do_not_fit(f, count, "node 0 was told of 2 nodes, but node 1 of 4");
    /* found out when they have met */
    assert_do_not_fit(f, device, "cuda:99");
    if (cpu_isa_supported(CPU_AVX2))
        assert_do_not_fit(f, isa, "node 1: the CPU computes with scalar, but that of node 0");
}

/* mpirun tells a process which of them it is. */
static void test_launcher(void **state)
{
    static const char *const flags[] = {"-tp", "2", "--max-tokens", "4", NULL};
    struct nodes n = begin(*state, 2);
    n.size = "2";
    for (int i = 0; i < 2; i++) start(&n, i, flags, none);
    for (int i = 0; i < 2; i++) wait_for(&n, i);
    for (int i = 0; i < 2; i++) assert_end(&n, i, 0, "");
    n.size = "3";
    start(&n, 1, flags, none);
    wait_for(&n, 1);
    assert_end(&n, 1, 1, "nnodes is 2, but OMPI_COMM_WORLD_SIZE says that 3 processes were started");
}

/* What is refused before anybody is asked. */
static void test_refused(void **state)
{
    static const char *const ranks[] = {"-tp", "3", NULL};
    struct nodes n = begin(*state, 2);
    start(&n, 0, ranks, none);
    wait_for(&n, 0);
    assert_end(&n, 0, 1, "tensor_parallel_size is 3, which 2 nodes cannot share equally");
}

/* Somebody else connects, and says nothing that a node says. */
static void test_stranger(void **state)
{
    static const char *const flags[] = {"-tp", "2", "--max-tokens", "4", NULL};
    struct nodes n = begin(*state, 2);
    struct error err;
    int fd;
    start(&n, 0, flags, none);
    must(socket_connect("127.0.0.1", n.port, clock_seconds() + 600, &fd, &err), &err);
    assert_int_equal(socket_send(fd, "GET / HTTP/1.1\r\n\r\n", 18, clock_seconds() + 600), SOCKET_OK);
    socket_close(&fd);
    start(&n, 1, flags, none);
    for (int i = 0; i < 2; i++) wait_for(&n, i);
    for (int i = 0; i < 2; i++) assert_end(&n, i, 0, "");
}

/* ---- GPUs ---- */

/* Each process has a GPU: they answer as one process that has both, and end when one of them is killed. */
static void test_gpus(void **state)
{
    static const char *const flags[] = {"-tp", "2", "--max-tokens", "24", "--ordered", "--device", "cuda:0,1", NULL};
    static const char *const of_nodes[] = {"-tp", "2", "--max-tokens", "24", "--ordered", NULL};
    if (backend_num_gpus() < 2) {
        print_message("skipped: fewer than two CUDA devices\n");
        skip();
    }
    char *one = run(*state, 1, flags);
    struct nodes n = begin(*state, 2);
    n.gpus = true;
    for (int i = 0; i < 2; i++) start(&n, i, of_nodes, none);
    for (int i = 0; i < 2; i++) wait_for(&n, i);
    for (int i = 0; i < 2; i++) assert_int_equal(n.ends[i].status, 0);
    char *several = answers(&n);
    assert_string_equal(several, one);
    free(several);
    free(one);

    n = begin(*state, 2);
    n.gpus = true;
    assert_answers_kept(&n, end_node(&n, long_two, 1, SIGKILL));
    assert_end(&n, 0, 1, "quire generate: node 1 (rank 1) has ended: its connection was closed");
    n = begin(*state, 2);
    n.gpus = true;
    end_node(&n, long_two, 0, SIGKILL);
    assert_end(&n, 1, 1, "quire generate: node 0 (rank 0) has ended: its connection was closed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_are_those_of_one_process),
        cmocka_unit_test(test_families),
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_interrupted),
        cmocka_unit_test(test_resumed),
        cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_not_there),
        cmocka_unit_test(test_do_not_fit),
        cmocka_unit_test(test_launcher),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_stranger),
        cmocka_unit_test(test_gpus),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
