/* The commands of quire chat, typed at a pseudo-terminal; and leaving by Ctrl-C. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/edit_distance.h"
#include "base/file.h"
#include "runtime/chat/chat_commands.h"
#include "runtime/chat/completion.h"
#include "runtime/interrupt.h"
#include "tests/support/chat_program.h"

/* A chat whose answers have 20 tokens. */
static void start_short(struct pty *p, const struct chat_fixture *f)
{
    chat_start(p, f, (const char *[]){"--max-tokens", "20", "--min-tokens", "20", "--stats", NULL});
    pty_expect(p, "> ");
}

/* Types a line, waits for each text in turn, and for the prompt. */
static void enter(struct pty *p, const char *line, const char *const *texts)
{
    pty_type(p, line);
    pty_type(p, "\r");
    for (; *texts; texts++) pty_expect(p, *texts);
    pty_expect(p, "> ");
}
#define ENTER(p, line, ...) enter(p, line, (const char *[]){__VA_ARGS__, NULL})

static void leave(struct pty *p)
{
    pty_type(p, "/exit\r");
    assert_int_equal(pty_finish(p), 0);
}

/* Asks, and reads the line of statistics. */
static void ask(struct pty *p, const char *question, int *cached, int *computed)
{
    pty_type(p, question);
    pty_type(p, "\r");
    pty_expect(p, "(prompt: ");
    const size_t numbers = p->seen;
    pty_expect(p, " computed; first token: ");
    assert_int_equal(sscanf(p->screen.data + numbers, "%d cached + %d", cached, computed), 2);
    pty_expect(p, "> ");
}

static void test_help(void **state)
{
    struct pty p;
    start_short(&p, *state);
    pty_type(&p, "/help\r");
    for (size_t i = 0; i < num_chat_commands; i++)
        if (chat_commands[i].help) pty_expect(&p, chat_commands[i].help);
    pty_expect(&p, "A question that begins with / is asked with //.");
    pty_expect(&p, "> ");
    ENTER(&p, "/help me", "/clear", "begin a new conversation");
    ENTER(&p, "/swich", "(there is no command /swich; did you mean /switch? /help lists them");
    ENTER(&p, "/sw main", "(there is no command /sw; did you mean /switch? /help lists them");
    ENTER(&p, "/nonsense at all", "(there is no command /nonsense; /help lists them, and // begins a question");
    ENTER(&p, "//nonsense at all", "(prompt: ");
    ENTER(&p, " /nonsense at all", "(prompt: ");
    ENTER(&p, "/stats", "conversation: 2 turns, ");
    ENTER(&p, "/edit it", "(/edit is for the last question");
    pty_type(&p, "/bye\r");
    assert_int_equal(pty_finish(&p), 0);
}

static void test_turns(void **state)
{
    struct pty p;
    start_short(&p, *state);
    ENTER(&p, "/retry", "(there is no question yet)");
    ENTER(&p, "/undo", "(there is no question yet)");
    ENTER(&p, "one", "(prompt: ");
    ENTER(&p, "two", "(prompt: ");
    ENTER(&p, "/retry", "(cut at --max-tokens)", "(prompt: ");
    ENTER(&p, "/stats", "last answer: 20 tokens", "its prompt: ", "its blocks: ", "conversation: 2 turns, ");
    ENTER(&p, "/undo", "(taken back: two; 1 turn, ");
    ENTER(&p, "/clear", "(a new conversation)");
    ENTER(&p, "/stats", "conversation: 0 turns, 0 of 65536 tokens");
    ENTER(&p, "/stats off", "(no statistics follow the answers)");
    ENTER(&p, "/stats on", "(a line of statistics follows each answer)");
    ENTER(&p, "/stats maybe", "(/stats on, /stats off, or /stats alone)");
    leave(&p);
}

static void test_drafts(void **state)
{
    struct pty p;
    chat_start(&p, *state, (const char *[]){"--max-tokens", "20", "--speculative-model", "suffix", NULL});
    pty_expect(&p, "> ");
    ENTER(&p, "/stats", "speculation: no drafts (suffix)");
    leave(&p);
}

static void test_system(void **state)
{
    const struct chat_fixture *f = *state;
    struct pty p;
    char line[512];
    temp_folder_write_string(&f->state, "kind", "Be very kind.\n");
    snprintf(line, sizeof line, "/system @%s/kind", f->state.path);
    start_short(&p, f);
    ENTER(&p, "/system", "(there is no system message; ");
    ENTER(&p, "/system Be brief.", "(the system message is set)");
    ENTER(&p, "/system", "\nBe brief.\r\n");
    ENTER(&p, "one", "(prompt: ");
    ENTER(&p, "/clear", "(a new conversation with the same system message)");
    ENTER(&p, "one", "(prompt: ");
    ENTER(&p, line, "(the system message is set; with the next question the conversation is computed again)");
    ENTER(&p, "/system", "\nBe very kind.\r\n");
    ENTER(&p, "/show", "model:    ", "branch:   main (one of 1), 1 turn, ", "system:   Be very kind.",
          "settings:", "max_tokens = 20 (default -1)");
    ENTER(&p, "/system \"\"", "(the system message is removed; ");
    ENTER(&p, "/system @/no-such-file", "quire chat: /no-such-file: cannot open: No such file or directory");
    ENTER(&p, "/system", "(there is no system message; ");
    leave(&p);
}

/* What two branches share is computed once. */
static void test_branches(void **state)
{
    struct pty p;
    int cached, computed;
    start_short(&p, *state);
    ask(&p, "What is a block, and why are there so many of them, and who has counted them?", &cached, &computed);
    assert_int_equal(cached, 0);
    /* Whole blocks of question and answer, of which the last token has no K and V; questions begin alike. */
    const int shared = (computed + 19) / 16 * 16 + 16;
    ENTER(&p, "/branch", "* main: 1 turn, the last: What is a block");
    ENTER(&p, "/branch other", "(branch other; /switch main goes back)");
    ask(&p, "And a page?", &cached, &computed);
    assert_in_range(cached, 16, shared);
    ENTER(&p, "/branch", "  main: 1 turn", "* other: 2 turns, the last: And a page?");
    ENTER(&p, "/branch main", "(there is a branch main already; /switch main goes to it)");
    ENTER(&p, "/branch two words", "(the name of a branch is one word)");
    ENTER(&p, "/switch third", "(there is no branch third)", "* other: 2 turns");
    ENTER(&p, "/switch main", "(branch main: 1 turn, ");
    ask(&p, "And a book?", &cached, &computed);
    assert_in_range(cached, 16, shared);
    ENTER(&p, "/undo", "(taken back: And a book?; 1 turn, ");
    ENTER(&p, "/switch other", "(branch other: 2 turns, ");
    leave(&p);
}

static void test_settings(void **state)
{
    struct pty p;
    start_short(&p, *state);
    ENTER(&p, "/set", "max_tokens = 20 (default -1)", "min_tokens = 20 (default 0)", "(all others are the model's; ");
    ENTER(&p, "/set temperature", "temperature = ", "; at least 0)", "0: always the most probable token");
    ENTER(&p, "/set temperature .25", "temperature = 0.25 (default ");
    ENTER(&p, "/set top-k 5", "top_k = 5 (default ");
    ENTER(&p, "/set top_k 0.5", "quire chat: top_k must be an integer, found 0.5");
    ENTER(&p, "/set top_p 7", "quire chat: top_p is 7; it must be above 0 and at most 1");
    ENTER(&p, "/set top_p much", "quire chat: top_p must be a number, found \"much\"");
    ENTER(&p, "/set ignore_eos off", "ignore_eos = off (default off)");
    ENTER(&p, "/set ignore_eos perhaps", "quire chat: ignore_eos must be ");
    ENTER(&p, "/set stop 5", "stop = [\"5\"] (default [])");
    ENTER(&p, "/set stop [\"a\\n\", \"b\"]", "stop = [\"a\\n\", \"b\"] (default [])");
    ENTER(&p, "/set stop default", "stop = [] (default [])");
    ENTER(&p, "/set stop_token_ids 2,13", "stop_token_ids = [2, 13] (default [])");
    ENTER(&p, "/set logit_bias 300:-5,4:2.5", "logit_bias = {\"300\": -5.0, \"4\": 2.5} (default {})");
    ENTER(&p, "/set logit_bias 99999999:1", "quire chat: logit_bias names token 99999999; this model's tokens are ");
    ENTER(&p, "/set seed", "seed = random (default random)");
    ENTER(&p, "/set seed 7", "seed = 7 (default random)");
    ENTER(&p, "/set early_stopping never", "early_stopping = never (default false)");
    ENTER(&p, "/set early_stopping true", "early_stopping = true (default false)");
    ENTER(&p, "/set n 2", "quire chat: n is 2; a chat has one answer");
    ENTER(&p, "/set logprobs 2", "quire chat: logprobs is 2; a chat does not show them");
    ENTER(&p, "/set max_tokens 3", "quire chat: min_tokens is 20; it must be at most max_tokens, which is 3");
    ENTER(&p, "/set min_tokens 1", "min_tokens = 1 (default 0");
    ENTER(&p, "/set max_tokens=3", "max_tokens = 3 (default -1; at least 1, or -1 (no limit))");
    ENTER(&p, "one", "; 3 tokens, ");
    ENTER(&p, "/set temprature 1", "quire chat: there is no setting temprature; did you mean temperature?");
    ENTER(&p, "/set temp 1", "quire chat: there is no setting temp; did you mean temperature?");
    ENTER(&p, "/set num_predict 9", "quire chat: there is no setting num_predict; did you mean max_tokens?");
    ENTER(&p, "/set num-ctx 9", "quire chat: there is no setting num-ctx; Tab after /set lists the names");
    leave(&p);
}

/* Every field can be shown, and set to what it is by default. */
static void test_all_settings(void **state)
{
    struct pty p;
    char line[128], expected[128];
    chat_start(&p, *state, (const char *[]){NULL});
    pty_expect(&p, "> ");
    for (int i = 0; i < NUM_SAMPLING_FIELDS; i++) {
        snprintf(line, sizeof line, "/set %s default", sampling_fields[i].name);
        snprintf(expected, sizeof expected, "\n%s = ", sampling_fields[i].name);
        ENTER(&p, line, expected, "(default ");
    }
    ENTER(&p, "/set", "(all settings are the model's; ");
    leave(&p);
}

/* A seed gives the same answer whenever a question is asked, but another one when it is retried. */
static void test_retry_with_seed(void **state)
{
    struct pty p;
    chat_start(&p, *state, (const char *[]){"--max-tokens", "8", "--temperature", "1", NULL});
    pty_expect(&p, "> ");
    size_t starts[3], ends[3];
    ENTER(&p, "/set seed 7", "seed = 7");
    for (int i = 0; i < 3; i++) {
        const char *line = i == 0 ? "/retry" : i == 1 ? "one" : "one";
        if (i == 0) ENTER(&p, "one", "(cut at --max-tokens)");
        if (i == 1 || i == 2) ENTER(&p, "/clear", "(a new conversation)");
        pty_type(&p, line);
        pty_type(&p, "\r");
        pty_expect(&p, line);
        pty_expect(&p, "\r\n");
        starts[i] = p.seen;
        pty_expect(&p, "(cut at --max-tokens)");
        ends[i] = p.seen;
        pty_expect(&p, "> ");
    }
    const char *screen = p.screen.data;
    assert_int_equal(ends[1] - starts[1], ends[2] - starts[2]);
    assert_memory_equal(screen + starts[1], screen + starts[2], ends[1] - starts[1]);
    assert_false(ends[0] - starts[0] == ends[1] - starts[1] &&
                 memcmp(screen + starts[0], screen + starts[1], ends[0] - starts[0]) == 0);
    leave(&p);
}

/* An editor that writes `script` in the place of sed's program. */
static void test_edit(void **state)
{
    struct pty p;
    unsetenv("VISUAL");
    setenv("EDITOR", "sed -i s/one/two/", 1);
    start_short(&p, *state);
    ENTER(&p, "one", "(prompt: ");
    ENTER(&p, "/edit", "> two\r\n", "(prompt: ");
    ENTER(&p, "/edit", "(unchanged: nothing is asked; /retry answers the question again)");
    ENTER(&p, "/edit new", "(empty: nothing is asked)");
    ENTER(&p, "/undo", "(taken back: two; 0 turns, ");
    leave(&p);
    setenv("VISUAL", "false", 1); /* it goes before EDITOR */
    start_short(&p, *state);
    ENTER(&p, "/edit", "quire chat: the editor 'false' failed, so nothing is asked");
    leave(&p);
    setenv("VISUAL", "no-such-editor", 1);
    start_short(&p, *state);
    ENTER(&p, "/edit", "quire chat: there is no editor 'no-such-editor'; set EDITOR or VISUAL");
    leave(&p);
    setenv("VISUAL", "printf 'first line\\nsecond line\\n' >", 1);
    start_short(&p, *state);
    ENTER(&p, "/edit", "> first line\r\nsecond line\r\n", "(prompt: ");
    ENTER(&p, "/undo", "(taken back: first line...; ");
    leave(&p);
    unsetenv("VISUAL");
    unsetenv("EDITOR");
}

/* ---- files ---- */

static json_t *read_json(const struct chat_fixture *f, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", f->state.path, name);
    json_t *value = json_load_file(path, 0, NULL);
    assert_non_null(value);
    return value;
}

static void test_save_and_load(void **state)
{
    const struct chat_fixture *f = *state;
    struct pty p;
    setenv("HOME", f->state.path, 1);
    temp_folder_write_string(&f->state, "taken", "mine");
    temp_folder_write_string(&f->state, "object",
                             "{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\"},"
                             "{\"role\": \"user\", \"content\": \"What now?\"}], \"model\": \"m\"}");
    temp_folder_write_string(&f->state, "wrong", "{\"a\": 1}");
    temp_folder_write_string(&f->state, "roles", "[{\"content\": \"text\"}]");
    temp_folder_write_string(&f->state, "broken", "[{");
    start_short(&p, f);
    ENTER(&p, "/save", "(name the file: /save FILE)");
    ENTER(&p, "/load", "(name the file: /load FILE)");
    ENTER(&p, "one", "(prompt: ");
    ENTER(&p, "/save ~/a file.json", "(saved 2 messages in ");
    ENTER(&p, "two", "(prompt: ");
    ENTER(&p, "/save", "(saved 4 messages in "); /* its own file */
    ENTER(&p, "/save ~/taken", " exists; /save! ~/taken overwrites it)");
    ENTER(&p, "/save! ~/taken", "(saved 4 messages in ");
    ENTER(&p, "/save ~/no/folder", "quire chat: cannot write ", "No such file or directory");
    ENTER(&p, "/load ~/object", "(loaded ", "1 turn, ", "it ends with a question, which /retry answers)");
    ENTER(&p, "/system", "\nBe brief.\r\n");
    ENTER(&p, "/retry", "(prompt: ");
    ENTER(&p, "/load ~/wrong", "/wrong: expected a list of messages, or an object with such a list as \"messages\"");
    ENTER(&p, "/load ~/roles", "/roles: ", "role");
    ENTER(&p, "/load ~/broken", "/broken: not valid JSON");
    ENTER(&p, "/load ~/nothing", "/nothing: cannot open");
    ENTER(&p, "/stats", "conversation: 1 turn,"); /* as it was */
    ENTER(&p, "/load ~/a file.json", "(loaded ", "2 turns, ");
    ENTER(&p, "/undo", "(taken back: two; 1 turn, ");
    leave(&p);
    json_t *first = read_json(f, "a file.json"), *second = read_json(f, "taken");
    assert_true(json_equal(first, second));
    assert_int_equal(json_array_size(first), 4);
    assert_string_equal(json_string_value(json_object_get(json_array_get(first, 2), "content")), "two");
    assert_string_equal(json_string_value(json_object_get(json_array_get(first, 3), "role")), "assistant");
    json_decref(first);
    json_decref(second);
}

/* ---- completion ---- */

static void test_completion(void **state)
{
    const struct chat_fixture *f = *state;
    char main_name[] = "main", idea[] = "idea", line[512], word[512];
    struct branch list[] = {{.name = main_name}, {.name = idea}};
    struct session s = {.branches = {.list = list, .count = 2}};
    temp_folder_write_string(&f->state, "completed.json", "[]");
    snprintf(line, sizeof line, "/system @%s/compl", f->state.path);
    snprintf(word, sizeof word, " @%s/completed.json", f->state.path);
    const struct {
        const char *line, *words;
        size_t start;
    } cases[] = {
        {"/st", " /stats", 0},
        {"/s", " /system /switch /set /show /stats /save", 0},
        {"/switch ", " main idea", 8},
        {"/switch i", " idea", 8},
        {"/set top", " top_p top_k", 5},
        {"/stats o", " on off", 7},
        {line + 0, word, 8},
        {"/system a", "", 8},
        {"/edit ", " new", 6},
        {"what", "", 4},
        {"/nonsense a", "", 10},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct text words = {0};
        struct line_candidates candidates = {0};
        const size_t length = strlen(cases[i].line);
        assert_int_equal(chat_commands_complete(&s, cases[i].line, length, &candidates), cases[i].start);
        for (size_t j = 0; j < candidates.count; j++) assert_true(text_printf(&words, " %s", candidates.words[j]));
        assert_string_equal(words.data ? words.data : "", cases[i].words);
        line_candidates_free(&candidates);
        text_free(&words);
    }
}

/* ---- leaving ---- */

/* A second SIGINT before the first is served kills the process. */
static void test_second_interrupt(void **state)
{
    (void)state;
    int status = 0;
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGINT, SIG_DFL);
        interrupt_catch();
        raise(SIGINT);
        if (!interrupt_pending()) _exit(1);
        interrupt_catch(); /* served: the next one is the first again */
        raise(SIGINT);
        if (!interrupt_pending()) _exit(2);
        raise(SIGINT);
        _exit(3);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
}

static int stop_and_leave(const struct chat_fixture *f)
{
    struct pty p;
    chat_start(&p, f, (const char *[]){NULL}); /* an endless answer */
    pty_expect(&p, "> ");
    pty_type(&p, "\x03");
    pty_expect(&p, "(Ctrl-D leaves)"); /* no answer was stopped */
    pty_expect(&p, "> ");
    pty_type(&p, "Go on and on\r");
    pty_expect(&p, "Go on and on\r\n");
    pty_expect(&p, " ");
    pty_type(&p, "\x03");
    pty_expect(&p, "(stopped)");
    pty_expect(&p, "> ");
    pty_type(&p, "\x03\x04");
    return pty_finish(&p);
}

/* A second Ctrl-C ends the program at the prompt, too, within a second of the one that stopped an answer; a slow
 * machine may need more than one try. */
static void test_second_interrupt_at_prompt(void **state)
{
    int status = 0;
    for (int i = 0; i < 20 && status == 0; i++) status = stop_and_leave(*state);
    assert_int_equal(status, 128 + SIGINT);
}

static void test_edit_distance(void **state)
{
    (void)state;
    assert_int_equal(edit_distance("", "abc"), 3);
    assert_int_equal(edit_distance("kitten", "sitting"), 3);
    assert_int_equal(edit_distance("same", "same"), 0);
    assert_int_equal(edit_distance_near("abc"), 2);
    assert_int_equal(edit_distance_near("abcdefghijkl"), 4);
    char longer[EDIT_DISTANCE_MAX_LENGTH + 2];
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    assert_int_equal(edit_distance(longer, longer), EDIT_DISTANCE_MAX_LENGTH);
}

static void test_nearest(void **state)
{
    (void)state;
    static const char *const words[] = {"chat", "generate", "merge", "chart"};
    static const struct {
        const char *typed, *word;
    } cases[] = {{"chatt", "chat"}, {"gen", "generate"}, {"marge", "merge"}, {"zzzzz", NULL}, {"charts", "chart"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct nearest n = nearest_begin(cases[i].typed);
        for (size_t w = 0; w < sizeof words / sizeof *words; w++) nearest_consider(&n, words[w]);
        if (!n.word != !cases[i].word || (n.word && strcmp(n.word, cases[i].word) != 0))
            fail_msg("%s: %s", cases[i].typed, n.word ? n.word : "none");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_help),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_drafts),
        cmocka_unit_test(test_system),
        cmocka_unit_test(test_branches),
        cmocka_unit_test(test_settings),
        cmocka_unit_test(test_all_settings),
        cmocka_unit_test(test_retry_with_seed),
        cmocka_unit_test(test_edit),
        cmocka_unit_test(test_save_and_load),
        cmocka_unit_test(test_completion),
        cmocka_unit_test(test_second_interrupt),
        cmocka_unit_test(test_second_interrupt_at_prompt),
        cmocka_unit_test(test_edit_distance),
        cmocka_unit_test(test_nearest),
    };
    return cmocka_run_group_tests(tests, chat_set_up, chat_tear_down);
}
