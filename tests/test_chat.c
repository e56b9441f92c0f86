/* quire chat as people use it: on a pseudo-terminal, through a pipe, and once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/chat/conversation.h"
#include "tests/support/chat_program.h"

/* ---- on a terminal ---- */

static void test_two_turns(void **state)
{
    struct pty p;
    chat_start(&p, *state, (const char *[]){"--max-tokens", "20", "--temperature", "0", NULL});
    pty_expect(&p, "of context");
    pty_expect(&p, "> ");
    pty_type(&p, "What is a block, and why are there so many of them?\r"); /* a block of prompt */
    pty_expect(&p, "(cut at --max-tokens)");
    pty_expect(&p, "> ");
    pty_type(&p, "/stats\r");
    pty_expect(&p, "last answer: 20 tokens");
    pty_expect(&p, "conversation: 1 turn,");
    pty_expect(&p, "> ");
    pty_type(&p, "And a page?\r");
    pty_expect(&p, "(cut at --max-tokens)");
    pty_expect(&p, "> ");
    pty_type(&p, "/stats\r");
    pty_expect(&p,
               "tokens, 16 of them from the cache"); /* whole blocks of the first turn: only the rest was computed */
    pty_expect(&p, "conversation: 2 turns");
    pty_expect(&p, "> ");
    pty_type(&p, "\x04");
    assert_int_equal(pty_finish(&p), 0);
}

/* The banner says the last part of a folder's path, and all of a name in the Hugging Face cache. */
static void test_banner(void **state)
{
    static const char commit[] = "0123456789abcdef0123456789abcdef01234567";
    const struct chat_fixture *f = *state;
    struct temp_folder cache;
    struct pty p;
    char expected[512], snapshot[512];
    chat_start(&p, f, (const char *[]){NULL});
    snprintf(expected, sizeof expected, ": %s on cpu, %d tokens of context", strrchr(f->model.path, '/') + 1,
             TOY_MODEL_LENGTH);
    pty_expect(&p, expected);
    pty_expect(&p, "> ");
    pty_type(&p, "\x04");
    assert_int_equal(pty_finish(&p), 0);

    temp_folder_make(&cache);
    temp_folder_add_folder(&cache, "models--org--name/refs/pr");
    temp_folder_add_folder(&cache, "models--org--name/snapshots");
    temp_folder_write_string(&cache, "models--org--name/refs/pr/1", commit);
    snprintf(snapshot, sizeof snapshot, "%s/models--org--name/snapshots/%s", cache.path, commit);
    assert_int_equal(symlink(f->model.path, snapshot), 0);
    setenv("HF_HUB_CACHE", cache.path, 1);
    const char *argv[CHAT_MAX_ARGS + 1];
    chat_make_argv(argv, "org/name@pr/1", (const char *[]){NULL});
    pty_start(&p, argv);
    unsetenv("HF_HUB_CACHE");
    pty_expect(&p, ": org/name@pr/1 on cpu, ");
    pty_expect(&p, "> ");
    pty_type(&p, "\x04");
    assert_int_equal(pty_finish(&p), 0);
    assert_int_equal(unlink(snapshot), 0);
    temp_folder_remove(&cache);
}

static void test_interrupted_answer(void **state)
{
    struct pty p;
    chat_start(&p, *state, (const char *[]){NULL}); /* answers of up to TOY_MODEL_LENGTH tokens */
    pty_expect(&p, "> ");
    pty_type(&p, "Go on and on\r");
    pty_expect(&p, "Go on and on\r\n");
    pty_expect(&p, " "); /* it streams */
    pty_type(&p, "\x03");
    pty_expect(&p, "\r\n(stopped)\r\n");
    pty_expect(&p, "> ");
    pty_type(&p, "/stats\r");
    pty_expect(&p, "conversation: 1 turn,");
    pty_expect(&p, "> ");
    pty_type(&p, "Again\r"); /* the conversation goes on */
    pty_expect(&p, "Again\r\n");
    pty_expect(&p, " ");
    pty_type(&p, "\x03");
    pty_expect(&p, "\r\n(stopped)\r\n");
    pty_expect(&p, "> ");
    pty_type(&p, "\x04");
    assert_int_equal(pty_finish(&p), 0);
}

static void test_keys_at_the_prompt(void **state)
{
    struct pty p;
    chat_start(&p, *state, (const char *[]){"--max-tokens", "3", NULL});
    pty_expect(&p, "> ");
    pty_type(&p, "a line to be dropped");
    pty_expect(&p, "dropped");
    pty_type(&p, "\x03");
    pty_expect(&p, "(Ctrl-D leaves)");
    pty_expect(&p, "> ");
    pty_type(&p, "/sta\x01\x06\x05ts\r"); /* Ctrl-A, Ctrl-F, Ctrl-E: editing */
    pty_expect(&p, "conversation: 0 turns");
    pty_expect(&p, "> ");
    pty_type(&p, "\r  \r"); /* blank lines are no turns */
    pty_expect(&p, "> ");
    pty_type(&p, "Gr\xc3\xbc\xc3\x9f Gott\r");
    pty_expect(&p, "Gr\xc3\xbc\xc3\x9f Gott\r\n");
    pty_expect(&p, "(cut at --max-tokens)");
    pty_expect(&p, "> ");
    pty_type(&p, "\x1b[A"); /* up: the line before */
    pty_expect(&p, "Gr\xc3\xbc\xc3\x9f Gott");
    pty_type(&p, "\x1b[A");
    pty_expect(&p, "/stats");
    pty_type(&p, "\r");
    pty_expect(&p, "conversation: 1 turn,");
    pty_expect(&p, "> ");
    pty_type(&p, "\x04");
    assert_int_equal(pty_finish(&p), 0);
}

static void test_history_file(void **state)
{
    const struct chat_fixture *f = *state;
    struct pty p;
    chat_start(&p, f, (const char *[]){"--max-tokens", "2", NULL});
    pty_expect(&p, "> ");
    pty_type(&p, "remember this line\r");
    pty_expect(&p, "(cut at --max-tokens)");
    pty_expect(&p, "> ");
    pty_type(&p, "/quit\r");
    assert_int_equal(pty_finish(&p), 0);
    char path[512];
    struct stat info;
    snprintf(path, sizeof path, "%s/quire/history", f->state.path);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 077, 0); /* nobody else's business */
    chat_start(&p, f, (const char *[]){NULL});
    pty_expect(&p, "> ");
    pty_type(&p, "\x1b[A\x1b[A");
    pty_expect(&p, "remember this line");
    pty_type(&p, "\x03");
    pty_expect(&p, "(Ctrl-D leaves)");
    pty_expect(&p, "> ");
    pty_type(&p, "\x04");
    assert_int_equal(pty_finish(&p), 0);
}

static void test_full_conversation(void **state)
{
    struct pty p;
    chat_start(&p, *state, (const char *[]){"--max-model-len", "24", NULL});
    pty_expect(&p, "> ");
    pty_type(&p, "hello\r");
    pty_expect(&p, "(cut: the conversation has reached --max-model-len, 24 tokens; ");
    pty_expect(&p, "> ");
    pty_type(&p, "and now?\r");
    pty_expect(&p, "leaves room for 23.");
    pty_expect(&p, "Drop the oldest 1 of 1 earlier turn (only the question remains, ");
    pty_expect(&p, "[Y/n] ");
    pty_type(&p, "n\r");
    pty_expect(&p, "(not asked; ");
    pty_expect(&p, "> ");
    pty_type(&p, "/stats\r");
    pty_expect(&p, "conversation: 1 turn,"); /* as it was */
    pty_expect(&p, "> ");
    pty_type(&p, "and now?\r");
    pty_expect(&p, "[Y/n] ");
    pty_type(&p, "\x03");
    pty_expect(&p, "(not asked; ");
    pty_expect(&p, "> ");
    pty_type(&p, "and now?\r");
    pty_expect(&p, "[Y/n] ");
    pty_type(&p, "y\r");
    pty_expect(&p, "(dropped the oldest 1 turn: only the question remains, ");
    pty_expect(&p, "(cut: the conversation has reached");
    pty_expect(&p, "> ");
    pty_type(&p,
             "a question which alone is longer than all that there is room for here, whatever was asked before: who, "
             "what, when, where, why, how, how much, how many, and for how long?\r");
    pty_expect(&p, "leaves room for 23; ask less");
    pty_expect(&p, "> ");
    pty_type(&p, "/clear\r");
    pty_expect(&p, "> ");
    pty_type(&p, "hello\r");
    pty_expect(&p, "(cut: the conversation has reached");
    pty_expect(&p, "> ");
    pty_type(&p, "\x04");
    assert_int_equal(pty_finish(&p), 0);
}

/* One warning, when 90 % of the context are used. */
static void test_nearly_full(void **state)
{
    struct pty p;
    chat_start(&p, *state,
               (const char *[]){"--max-model-len", "100", "--max-tokens", "80", "--min-tokens", "80", NULL});
    pty_expect(&p, "> ");
    pty_type(&p, "hello, how are you today?\r");
    pty_expect(&p, "of 100 tokens; when it is full, quire asks whether to drop the oldest turns)");
    pty_expect(&p, "> ");
    pty_type(&p, "/undo\r");
    pty_expect(&p, "(taken back: hello, how are you today?; 0 turns, 0 of 100 tokens)");
    pty_expect(&p, "> ");
    pty_type(&p, "\x04");
    assert_int_equal(pty_finish(&p), 0);
}

/* ---- on a pipe: answers are random text, so tests that count lines end answers at a newline ---- */

static void test_pipe(void **state)
{
    const struct chat_fixture *f = *state;
    struct program p;
    chat_run(&p, f->model.path, "one\n\n  \ntwo\r\nthree", (const char *[]){"--max-tokens", "5", "--stop", "\n", NULL});
    assert_int_equal(p.exit_status, 0);
    assert_int_equal(chat_count_lines(&p.out), 3);
    program_free(&p);
    /* No line on stderr about answers that end by themselves. */
    chat_run(&p, f->model.path, "one\ntwo\n",
             (const char *[]){"--temperature", "0", "--logit-bias", "300:100", "--stop-token-ids", "300", NULL});
    assert_int_equal(p.exit_status, 0);
    assert_int_equal(p.err.length, 0);
    program_free(&p);
    chat_run(&p, f->model.path, "", (const char *[]){NULL});
    assert_int_equal(p.exit_status, 0);
    assert_int_equal(p.out.length + p.err.length, 0);
    program_free(&p);
}

/* A line on stderr tells which answers a limit cut, because standard output does not show it. */
static void test_pipe_cut(void **state)
{
    const struct chat_fixture *f = *state;
    struct program p;
    chat_run(&p, f->model.path, "one\n\ntwo\n", (const char *[]){"--max-tokens", "5", NULL});
    assert_int_equal(p.exit_status, 0);
    assert_string_equal(p.err.data, "quire chat: line 1: the answer is cut at --max-tokens, 5 tokens\n"
                                    "quire chat: line 3: the answer is cut at --max-tokens, 5 tokens\n");
    program_free(&p);
    chat_run(&p, f->model.path, "one\n", (const char *[]){"--max-model-len", "24", NULL});
    assert_int_equal(p.exit_status, 0);
    assert_string_equal(p.err.data, "quire chat: line 1: the answer is cut: the conversation has reached "
                                    "--max-model-len, 24 tokens\n");
    program_free(&p);
    chat_run(&p, f->model.path, NULL, (const char *[]){"--max-tokens", "5", "--prompt", "one", NULL});
    assert_int_equal(p.exit_status, 0);
    assert_string_equal(p.err.data, "quire chat: the answer is cut at --max-tokens, 5 tokens\n");
    program_free(&p);
}

static void test_pipe_too_long(void **state)
{
    const struct chat_fixture *f = *state;
    struct program p;
    chat_run(&p, f->model.path,
             "a line that is by far too long for what the model has room for, whatever it says\nhi\n",
             (const char *[]){"--max-model-len", "16", "--stop", "\n", "--seed", "1", NULL});
    assert_int_equal(p.exit_status, 1);
    assert_int_equal(chat_count_lines(&p.out), 1); /* the second is answered all the same */
    assert_int_equal(chat_count_lines(&p.err), 2);
    assert_non_null(strstr(p.err.data, "line 1: "));
    assert_non_null(strstr(p.err.data, "leaves room for 15"));
    assert_non_null(strstr(p.err.data, "line 2: the answer is cut: "));
    program_free(&p);
}

static void test_pipe_of_bytes(void **state)
{
    const struct chat_fixture *f = *state;
    struct program p;
    chat_run(&p, f->model.path, "\xEF\xBB\xBF\n one \xff\r\n", (const char *[]){"--max-tokens", "5", NULL});
    assert_int_equal(p.exit_status, 1);
    assert_int_equal(p.out.length, 0); /* a byte order mark is no question */
    assert_non_null(strstr(p.err.data, "line 2: the question: byte 6 is not UTF-8"));
    program_free(&p);
    char words[512];
    temp_folder_write(&f->state, "utf16", "h\0i\0\n", 5);
    snprintf(words, sizeof words, "<%s/utf16", f->state.path);
    chat_run_shell(&p, f->model.path, words);
    assert_int_equal(p.exit_status, 1);
    assert_int_equal(p.out.length, 0);
    assert_non_null(strstr(p.err.data, "line 1: the question: byte 2 is NUL; is this text UTF-8?"));
    program_free(&p);
    chat_run_shell(&p, f->model.path, "</tmp");
    assert_int_equal(p.exit_status, 1);
    assert_string_equal(p.err.data, "quire chat: standard input: cannot read: Is a directory\n");
    program_free(&p);
    chat_run(&p, f->model.path, "", (const char *[]){"--system", "\xff", NULL});
    assert_int_equal(p.exit_status, 2);
    assert_non_null(strstr(p.err.data, "--system: byte 1 is not UTF-8"));
    program_free(&p);
}

/* Answers that have a form, and the tokens of nothing else. */
static void test_form(void **state)
{
    const struct chat_fixture *f = *state;
    struct program p;
    chat_run(&p, f->model.path, NULL,
             (const char *[]){"hello", "--choice", "first one", "--choice", "second", "--temperature", "1", NULL});
    assert_int_equal(p.exit_status, 0);
    if (strcmp(p.out.data, "first one\n") != 0) assert_string_equal(p.out.data, "second\n");
    program_free(&p);
    chat_run(&p, f->model.path, "one\ntwo\n", (const char *[]){"--regex", "[0-9]{4}x", NULL});
    assert_int_equal(p.exit_status, 0);
    assert_int_equal(chat_count_lines(&p.out), 2);
    for (const char *at = p.out.data; *at; at += 6) assert_true(at[4] == 'x' && at[5] == '\n');
    program_free(&p);
}

static void test_once(void **state)
{
    const struct chat_fixture *f = *state;
    struct program first, again;
    const char *const args[] = {"--prompt", "hello", "--max-tokens", "8", "--seed", "5", "--stop", "\n", NULL};
    chat_run(&first, f->model.path, NULL, args);
    assert_int_equal(first.exit_status, 0);
    assert_int_equal(chat_count_lines(&first.out), 1);
    assert_true(first.out.length > 8);
    assert_string_equal(first.err.data, "quire chat: the answer is cut at --max-tokens, 8 tokens\n");
    chat_run(&again, f->model.path, NULL, args);
    assert_string_equal(first.out.data, again.out.data); /* the same seed */
    program_free(&again);
    const char *const word[] = {"hello", "--max-tokens", "8", "--seed", "5", "--stop", "\n", NULL};
    chat_run(&again, f->model.path, "\n", word); /* a word is the prompt; an empty line is no material */
    assert_string_equal(first.out.data, again.out.data);
    program_free(&again);
    program_free(&first);
}

/* The answer of the model that ships with quire, always the same. */
static char *answer_to(const char *input, const char *flag, const char *question)
{
    struct program p;
    program_run(&p,
                (const char *[]){QUIRE_EXECUTABLE, "chat", "--device", "cpu", "--max-num-seqs", "4", "--kv-cache-space",
                                 "0.1", "--temperature", "0", flag, question, NULL},
                input);
    assert_int_equal(p.exit_status, 0);
    assert_true(p.out.length > 1);
    char *answer = strdup(p.out.data);
    program_free(&p);
    return answer;
}

static void assert_same_answer(char *a, char *b)
{
    assert_string_equal(a, b);
    free(a);
    free(b);
}

/* Text, then material. */
static void test_once_with_material(void **state)
{
    const struct chat_fixture *f = *state;
    char file[512];
    temp_folder_write_string(&f->state, "question", "\xEF\xBB\xBFWhat is this?\n\n");
    snprintf(file, sizeof file, "@%s/question", f->state.path);
    char *plain = answer_to(NULL, "--prompt", "What is this?"),
         *more = answer_to(NULL, "--prompt", "What is this?\n\na block\nand one more");
    assert_string_not_equal(plain, more);
    assert_same_answer(answer_to(NULL, "--prompt", file), strdup(plain));
    assert_same_answer(answer_to("a block\nand one more\n\n", "--prompt", file), strdup(more));
    assert_same_answer(answer_to("a block\nand one more", "--no-each", "What is this?"), strdup(more));
    assert_same_answer(answer_to(NULL, "--prompt", "@@home"), answer_to("@home\n", "--each", "--no-stats"));
    free(plain);
    free(more);
}

/* Lines that know nothing of each other, below a question. */
static void test_each(void **state)
{
    (void)state;
    struct text expected = {0};
    char *one = answer_to(NULL, "--prompt", "Please:\n\nWhat is a block?"),
         *other = answer_to(NULL, "--prompt", "Please:\n\nWhat is a quire?"),
         *all = answer_to("What is a block?\n\nWhat is a quire?\nWhat is a block?\n", "--each", "-pPlease:");
    assert_string_not_equal(one, other);
    assert_true(text_printf(&expected, "%s%s%s", one, other, one));
    assert_string_equal(all, expected.data);
    free(one);
    free(other);
    free(all);
    text_free(&expected);
}

static void test_exit_statuses(void **state)
{
    const struct chat_fixture *f = *state;
    const struct {
        const char *const more[5];
        int exit_status;
        const char *sentence;
    } cases[] = {
        {{"-p", "hi", "--max-tokens", "3", NULL}, 0, "cut at --max-tokens, 3 tokens"},
        {{"-p", "hi", "--max-tokens=3", "--fail-on-length", NULL}, 1, "cut at --max-tokens, 3 tokens"},
        {{"--max-tokens", "3", "--fail-on-length", NULL}, 1, "line 1: the answer is cut"},
        {{"--max-tokens", "3", "--stats", NULL}, 0, "line 1: prompt: 0 cached + "},
        {{"-p", "@/no-such-file", NULL},
         1,
         "--prompt: /no-such-file: cannot open: No such file or directory (@ begins"},
        {{"--system", "@/no-such-file", NULL}, 1, "--system: /no-such-file: cannot open"},
        {{"-p", "", NULL}, 2, "--prompt is empty"},
        {{"", NULL}, 2, "the question is empty"},
        {{"-p", "hi", "there", NULL}, 2, "the question is given twice: 'there', and --prompt"},
        {{"hi", "there", NULL}, 2, "'there' is a word too many"},
        {{"-p", "\xff", NULL}, 2, "--prompt: byte 1 is not UTF-8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct program p;
        chat_run(&p, f->model.path, "hello\n", cases[i].more);
        if (p.exit_status != cases[i].exit_status || !strstr(p.err.data, cases[i].sentence))
            fail_msg("case %zu: exit status %d: %s", i, p.exit_status, p.err.data);
        program_free(&p);
    }
    struct pty terminal;
    chat_start(&terminal, f, (const char *[]){"--each", NULL});
    pty_expect(&terminal, "--each answers the lines of a pipe or file");
    assert_int_equal(pty_finish(&terminal), 2);
}

/* --context-shift drops the oldest turns, says so, and keeps the system message. */
static void test_context_shift(void **state)
{
    const struct chat_fixture *f = *state;
    struct program p;
    const char *const flags[] = {
        "--max-model-len", "96",       "--max-tokens",    "20",      "--stop", "\n", "--seed", "1",
        "--system",        "Be kind.", "--context-shift", "--stats", NULL};
    chat_run(&p, f->model.path, "one\ntwo\nthree\nfour\nfive\nsix\n", flags);
    assert_int_equal(p.exit_status, 0);
    assert_int_equal(chat_count_lines(&p.out), 6);
    assert_non_null(strstr(p.err.data, ": dropped the oldest "));
    program_free(&p);
    chat_run(
        &p, f->model.path, "one\ntwo\nthree\nfour\nfive\nsix\n",
        (const char *[]){"--max-model-len", "96", "--max-tokens", "20", "--min-tokens", "20", "--seed", "1", NULL});
    assert_int_equal(p.exit_status, 1);
    assert_non_null(strstr(p.err.data, "leaves room for 95; --context-shift drops the oldest turns, or ask less"));
    program_free(&p);
}

static void test_no_template(void **state)
{
    const struct chat_fixture *f = *state;
    struct program p;
    chat_run(&p, f->plain.path, "hello\n", (const char *[]){NULL});
    assert_int_equal(p.exit_status, 1);
    assert_int_equal(p.out.length, 0);
    assert_int_equal(chat_count_lines(&p.err), 1);
    assert_non_null(strstr(p.err.data, "has no chat template"));
    assert_non_null(strstr(p.err.data, "quire generate"));
    program_free(&p);
}

static void test_unwritable(void **state)
{
    const struct chat_fixture *f = *state;
    struct program p;
    chat_run_shell(&p, f->model.path, "--prompt hi >/dev/full"); /* an endless answer, ended by the first write */
    assert_int_equal(p.exit_status, 1);
    assert_non_null(strstr(p.err.data, "cannot write the answer: No space left on device"));
    program_free(&p);
}

/* ---- conversations as ids ---- */

static void test_conversation_ids(void **state)
{
    const struct chat_fixture *f = *state;
    struct tokenizer *t = NULL;
    struct chat_setup setup;
    struct error err = {""};
    if (tokenizer_open(f->model.path, &t, &err) != STATUS_OK) fail_msg("%s", err.text);
    if (chat_setup_open(t, &(struct chat_setup_options){0}, &setup, &err) != STATUS_OK) fail_msg("%s", err.text);
    struct conversation c;
    assert_true(conversation_init(&c, t, &setup, "Be kind."));
    assert_int_equal(conversation_ask(&c, "one", 3, &err), STATUS_OK);
    const struct chat_input input = {.messages = c.messages, .add_generation_prompt = true};
    struct token_list whole = {0};
    assert_int_equal(chat_template_encode(setup.template, &input, &whole, &err), STATUS_OK);
    assert_int_equal(whole.count, c.ids.count);
    assert_memory_equal(whole.ids, c.ids.ids, whole.count * sizeof *whole.ids);
    const size_t asked = c.ids.count;
    /* The answer's own tokens are those of its text, so the next turn begins with them. */
    struct token_list answer = {0};
    assert_int_equal(tokenizer_encode(t, "a block", 7, 0, &answer, &err), STATUS_OK);
    const int32_t end = tokenizer_eos_id(t);
    assert_true(conversation_add_tokens(&c, answer.ids, answer.count) && conversation_add_tokens(&c, &end, 1));
    assert_true(conversation_add_text(&c, "a block", 7) && conversation_end(&c));
    assert_int_equal(conversation_ask(&c, "two", 3, &err), STATUS_OK);
    assert_int_equal(c.rewritten, 0);
    assert_memory_equal(c.ids.ids + asked, answer.ids, answer.count * sizeof *answer.ids);
    const size_t two = c.ids.count;
    conversation_undo(&c);
    assert_int_equal(json_array_size(c.messages), 3);
    assert_int_equal(conversation_ask(&c, "two", 3, &err), STATUS_OK);
    assert_int_equal(c.ids.count, two);
    /* Tokens other than those of the text are computed again. */
    assert_true(conversation_add_tokens(&c, (int32_t[]){77, 78}, 2) && conversation_add_text(&c, "no", 2));
    assert_true(conversation_end(&c));
    assert_int_equal(conversation_ask(&c, "three", 5, &err), STATUS_OK);
    assert_int_equal(c.rewritten, 2);
    conversation_clear(&c);
    assert_int_equal(conversation_ask(&c, "one", 3, &err), STATUS_OK);
    assert_int_equal(c.ids.count, asked);
    token_list_free(&answer);
    token_list_free(&whole);
    conversation_free(&c);
    chat_setup_close(&setup);
    tokenizer_close(t);
}

/* Adds a turn: a question, and the answer "a block". */
static void add_turn(struct conversation *c, const char *question)
{
    struct error err;
    assert_int_equal(conversation_ask(c, question, strlen(question), &err), STATUS_OK);
    assert_true(conversation_add_text(c, "a block", 7) && conversation_end(c));
}

static const char *content(const struct conversation *c, size_t message)
{
    return json_string_value(json_object_get(json_array_get(c->messages, message), "content"));
}

static void test_conversation_room(void **state)
{
    const struct chat_fixture *f = *state;
    struct tokenizer *t = NULL;
    struct chat_setup setup;
    struct error err = {""};
    struct conversation c, copy;
    struct conversation_room room;
    size_t length;
    if (tokenizer_open(f->model.path, &t, &err) != STATUS_OK) fail_msg("%s", err.text);
    if (chat_setup_open(t, &(struct chat_setup_options){0}, &setup, &err) != STATUS_OK) fail_msg("%s", err.text);
    assert_true(conversation_init(&c, t, &setup, "Be kind."));
    for (int i = 0; i < 5; i++) add_turn(&c, (const char *[]){"one", "two", "three", "four", "five"}[i]);
    assert_int_equal(conversation_turns(&c), 5);
    assert_true(conversation_copy(&c, &copy));
    assert_int_equal(conversation_ask(&c, "six", 3, &err), STATUS_OK);
    const size_t whole = c.ids.count;
    assert_int_equal(conversation_find_room(&c, whole, &room, &err), STATUS_OK);
    assert_int_equal(room.dropped, 0);
    assert_int_equal(room.kept, 5);
    assert_int_equal(room.tokens, whole);
    assert_int_equal(conversation_find_room(&c, whole - 1, &room, &err), STATUS_OK);
    assert_int_equal(room.dropped, 1);
    assert_int_equal(conversation_find_room(&c, 1, &room, &err), STATUS_OK); /* only the question is left */
    assert_int_equal(room.dropped, 5);
    assert_int_equal(conversation_find_room(&c, whole / 2, &room, &err), STATUS_OK);
    assert_true(room.dropped > 1 && room.kept > 0 && room.tokens <= whole / 2);
    assert_int_equal(conversation_drop(&c, room.dropped, &err), STATUS_OK);
    assert_int_equal(c.ids.count, room.tokens);
    assert_int_equal(conversation_turns(&c), room.kept + 1);
    assert_string_equal(conversation_system(&c, &length), "Be kind.");
    assert_string_equal(conversation_last_question(&c, &length), "six");
    /* The copy knows nothing of it. */
    assert_int_equal(conversation_turns(&copy), 5);
    assert_string_equal(content(&copy, 1), "one");
    conversation_undo(&copy);
    assert_string_equal(conversation_last_question(&copy, &length), "four");
    assert_int_equal(conversation_ask_again(&copy, &err), STATUS_OK);
    assert_true(conversation_asks(&copy));
    assert_int_equal(conversation_set_system(&copy, "", 0, &err), STATUS_OK);
    assert_null(conversation_system(&copy, &length));
    assert_int_equal(conversation_set_system(&copy, "Be brief.", 9, &err), STATUS_OK);
    assert_string_equal(content(&copy, 0), "Be brief.");
    assert_string_equal(content(&copy, 1), "one");
    conversation_free(&copy);
    conversation_free(&c);
    chat_setup_close(&setup);
    tokenizer_close(t);
}

/* ---- the shipped model ---- */

static void test_shipped_model(void **state)
{
    (void)state;
    struct program p;
    program_run(&p,
                (const char *[]){QUIRE_EXECUTABLE, "chat", "--device", "cpu", "--temperature", "0", "--prompt",
                                 "What is a quire?", NULL},
                NULL);
    assert_int_equal(p.exit_status, 0);
    assert_int_equal(p.err.length, 0);
    assert_true(p.out.length > 10);
    assert_true(p.out.data[p.out.length - 1] == '\n');
    program_free(&p);
    /* A later turn computes only what is new: most of its prompt lies in the cache. */
    struct pty terminal;
    pty_start(&terminal, (const char *[]){QUIRE_EXECUTABLE, "chat", "--device", "cpu", "--block-size", "8", NULL});
    pty_expect(&terminal, "> ");
    pty_type(&terminal, "What is a block table?\r");
    pty_expect(&terminal, "table?\r\n");
    pty_expect(&terminal, "\r\n> ");
    pty_type(&terminal, "/stats\r");
    pty_expect(&terminal, "tokens, 0 of them from the cache");
    pty_expect(&terminal, "> ");
    pty_type(&terminal, "And why?\r");
    pty_expect(&terminal, "why?\r\n");
    pty_expect(&terminal, "\r\n> ");
    pty_type(&terminal, "/stats\r");
    pty_expect(&terminal, "its prompt: ");
    size_t numbers = terminal.seen;
    pty_expect(&terminal, " of them from the cache");
    int total = 0, cached = 0;
    assert_int_equal(sscanf(terminal.screen.data + numbers, "%d tokens, %d of", &total, &cached), 2);
    assert_true(cached > total / 2);
    pty_expect(&terminal, "> ");
    pty_type(&terminal, "\x04");
    assert_int_equal(pty_finish(&terminal), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_banner),
        cmocka_unit_test(test_two_turns),
        cmocka_unit_test(test_interrupted_answer),
        cmocka_unit_test(test_keys_at_the_prompt),
        cmocka_unit_test(test_history_file),
        cmocka_unit_test(test_full_conversation),
        cmocka_unit_test(test_nearly_full),
        cmocka_unit_test(test_pipe),
        cmocka_unit_test(test_pipe_cut),
        cmocka_unit_test(test_pipe_too_long),
        cmocka_unit_test(test_pipe_of_bytes),
        cmocka_unit_test(test_form),
        cmocka_unit_test(test_once),
        cmocka_unit_test(test_once_with_material),
        cmocka_unit_test(test_each),
        cmocka_unit_test(test_exit_statuses),
        cmocka_unit_test(test_context_shift),
        cmocka_unit_test(test_no_template),
        cmocka_unit_test(test_unwritable),
        cmocka_unit_test(test_conversation_ids),
        cmocka_unit_test(test_conversation_room),
        cmocka_unit_test(test_shipped_model),
    };
    return cmocka_run_group_tests(tests, chat_set_up, chat_tear_down);
}
