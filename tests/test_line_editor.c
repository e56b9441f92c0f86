/* Messages typed at a terminal (runtime/chat/line_editor.h): this program runs itself on a pseudo-terminal, where it
 * reads messages with the editor and says what it got. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/chat/line_editor.h"
#include "runtime/chat/message.h"
#include "tests/support/pty.h"
#include "tests/support/temp_folder.h"

#define UP "\033[A"
#define DOWN "\033[B"
#define LEFT "\033[D"
#define CTRL_LEFT "\033[1;5D"
#define CTRL_RIGHT "\033[1;5C"
#define PAGE_UP "\033[5~"
#define PAGE_DOWN "\033[6~"
#define PASTE(text) "\033[200~" text "\033[201~"

/* ---- the program on the terminal ---- */

static size_t complete(void *user, const char *text, size_t length, struct line_candidates *c)
{
    static const char *const words[] = {"/save ", "/set", "/stats", "/system"};
    (void)user;
    if (length >= 6 && memcmp(text, "/load ", 6) == 0) {
        line_candidates_add_files(c, "", text + 6, length - 6);
        return 6;
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strncmp(words[i], text, length) == 0) line_candidates_add(c, words[i]);
    return 0;
}

/* Says what it got, with \n for a newline. "wait": takes no keys until SIGUSR1. "release": with the terminal as it was.
 */
static int run_child(void)
{
    sigset_t signals;
    int number;
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    const struct line_editor_options options = {
        .prompt = "> ", .interrupt_hint = "(dropped)", .history = "history", .complete = complete};
    struct line_editor *e = line_editor_open(&options);
    const char *message;
    size_t length;
    while (e && (message = line_editor_read(e, &length)) != NULL) {
        fputs("got [", stderr);
        for (size_t i = 0; i < length; i++) fputs(message[i] == '\n' ? "\\n" : (char[]){message[i], '\0'}, stderr);
        fputs("]\n", stderr);
        if (strcmp(message, "wait") == 0) sigwait(&signals, &number);
        if (strcmp(message, "release") == 0) line_editor_release(e), sigwait(&signals, &number);
    }
    fputs("end\n", stderr);
    line_editor_close(e);
    return e ? 0 : 1;
}

/* ---- the tests ---- */

static int set_up(void **state)
{
    static struct temp_folder folder;
    temp_folder_make(&folder);
    temp_folder_add_folder(&folder, "quire");
    setenv("XDG_STATE_HOME", folder.path, 1);
    setenv("HOME", folder.path, 1); /* no ~/.editrc */
    *state = &folder;
    return 0;
}

static int tear_down(void **state)
{
    struct temp_folder *folder = *state;
    char path[512];
    snprintf(path, sizeof path, "%s/quire/history", folder->path);
    unlink(path);
    temp_folder_remove(folder);
    return 0;
}

static void start(struct pty *p)
{
    pty_start(p, (const char *[]){"/proc/self/exe", "--child", NULL});
    pty_expect(p, "> ");
}

static void send(struct pty *p, const char *keys, const char *got)
{
    char expected[600];
    snprintf(expected, sizeof expected, "got [%s]", got);
    pty_type(p, keys);
    pty_expect(p, expected);
    pty_expect(p, "> ");
}

static void finish(struct pty *p)
{
    pty_type(p, "\x04");
    pty_expect(p, "end");
    assert_int_equal(pty_finish(p), 0);
}

/* Lines as they are typed, separated by \r, and the message; "..." if a further line is wanted. */
static void test_rules(void **state)
{
    (void)state;
    static const struct {
        const char *typed, *message;
    } cases[] = {
        {"one", "one"},
        {"one\\\rtwo", "one\ntwo"},
        {"one\\", "..."},
        {"one\\\\", "one\\\\"},
        {"one\\\\\\\rtwo", "one\\\\\ntwo"},
        {"\"\"\"", "..."},
        {"\"\"\"\rone\r\rtwo\r\"\"\"", "one\n\ntwo"},
        {"\"\"\"one\rtwo\"\"\"  ", "one\ntwo"},
        {"\"\"\"one\"\"\"", "one"},
        {"\"\"\"one\\\rtwo\"\"\"", "one\\\ntwo"}, /* in quotes a backslash is itself */
        {"\"\"\"\"\"\"", ""},
        {"  \"\"\"one\"\"\"", "  one"},
        {"say \"\"\"one", "say \"\"\"one"},
        {"/system \"\"\"one\rtwo\r\"\"\"", "/system one\ntwo"},
        {"/system \"\"\"", "..."},
        {"\"\"\"Doc.\"\"\"\ndef f(): pass", "\"\"\"Doc.\"\"\"\ndef f(): pass"}, /* pasted */
        {"#define A \\\n  b", "#define A \\\n  b"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct message m = {0};
        bool open = true;
        for (const char *line = cases[i].typed; line; line = strchr(line, '\r') ? strchr(line, '\r') + 1 : NULL) {
            assert_true(open);
            assert_true(message_add(&m, line, strcspn(line, "\r"), &open));
        }
        assert_string_equal(open ? "..." : m.text.data, cases[i].message);
        text_free(&m.text);
    }
}

static void test_several_lines(void **state)
{
    (void)state;
    struct pty p;
    start(&p);
    pty_type(&p, "one\\\r");
    pty_expect(&p, "... ");
    send(&p, "two\r", "one\\ntwo");
    pty_type(&p, "\"\"\"\r");
    pty_expect(&p, "... ");
    pty_type(&p, "a\\\r");
    pty_expect(&p, "... ");
    send(&p, "b\"\"\"\r", "a\\\\nb");
    send(&p, "one\033\rtwo\r", "one\\ntwo"); /* Alt-Return */
    pty_type(&p, "to be dropped\\\r");
    pty_expect(&p, "... ");
    pty_type(&p, "and this\x03");
    pty_expect(&p, "(dropped)");
    pty_expect(&p, "> ");
    send(&p, "three\r", "three");
    pty_type(&p, "four\\\r");
    pty_expect(&p, "... ");
    send(&p, "\x04", "four\\n"); /* Ctrl-D ends the message */
    finish(&p);
}

static void test_paste(void **state)
{
    (void)state;
    struct pty p;
    start(&p);
    send(&p, PASTE("def f(x):\r\n\treturn x\r\n\r\nf(1)\r\n") "\r", "def f(x):\\n\treturn x\\n\\nf(1)");
    send(&p, "see " PASTE("one\rtwo") ", and go\r", "see one\\ntwo, and go");
    send(&p, PASTE("\x15\x1b[A\x04") "\r", "\x15\x1b[A\x04"); /* keys that are pasted do nothing */
    send(&p, PASTE("") "x\r", "x");
    send(&p, "\033[200~not ended\x03 by the terminal\r", "not ended by the terminal");
    send(&p, "Gr" PASTE("\xc3\xbc\xc3\x9f \xe4\xbd\xa0") "\r", "Gr\xc3\xbc\xc3\x9f \xe4\xbd\xa0");
    finish(&p);
}

static void test_keys(void **state)
{
    (void)state;
    struct pty p;
    start(&p);
    send(&p, "one two three" CTRL_LEFT CTRL_LEFT "X" CTRL_RIGHT "Y\r", "one XtwoY three");
    send(&p, "abc\033[H1\033[F2\033[1~3\033[4~4\r", "31abc24");
    send(&p,
         "\xc3\xa4\xe4\xbd\xa0"
         "b" LEFT LEFT "\x7f\033[3~\r",
         "b");
    send(&p,
         "ab\x1a"
         "cd\r",
         "abcd"); /* a process that cannot be stopped here goes on with its line */
    finish(&p);
}

static void test_history(void **state)
{
    (void)state;
    struct pty p;
    start(&p);
    send(&p, "alpha\\\rbeta\r", "alpha\\nbeta");
    send(&p, "other one\r", "other one");
    send(&p, "alpha two\r", "alpha two");
    send(&p, UP UP UP "!\r", "alpha\\nbeta!"); /* a message of several lines comes back whole */
    send(&p, UP UP UP "\r", "alpha two");      /* up within it, then to the one before */
    send(&p, "draft" UP DOWN "s\r", "drafts"); /* what was typed is kept */
    send(&p, "alpha" PAGE_UP "\r", "alpha two");
    send(&p, "alpha" PAGE_UP PAGE_UP "\r", "alpha\\nbeta!");
    send(&p, "oth" PAGE_UP "?\r", "other one?");
    send(&p, "alpha" PAGE_UP PAGE_DOWN " new\r", "alpha new");
    send(&p,
         "\x12"
         "rafts\r",
         "drafts"); /* Ctrl-R */
    finish(&p);
}

static size_t count(const char *path, const char *line)
{
    char read[1024];
    size_t found = 0;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(read, sizeof read, file)) found += strncmp(read, line, strlen(line)) == 0;
    fclose(file);
    return found;
}

static void test_shared_history(void **state)
{
    const struct temp_folder *folder = *state;
    struct pty a, b;
    struct stat info;
    char path[512];
    start(&a);
    start(&b);
    send(&a, "from-a\r", "from-a");
    send(&b, "from-b\r", "from-b");
    send(&a, "again-a\r", "again-a");
    send(&b, "from-a\r", "from-a");  /* it is there already: once, and as the newest */
    send(&b, UP UP "\r", "again-a"); /* the other's */
    finish(&a);
    finish(&b);
    snprintf(path, sizeof path, "%s/quire/history", folder->path);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_int_equal(count(path, "from-a"), 1);
    assert_int_equal(count(path, "from-b"), 1);
    assert_int_equal(count(path, "again-a"), 1);
}

static void test_completion(void **state)
{
    const struct temp_folder *folder = *state;
    struct pty p;
    char keys[512], got[512];
    temp_folder_write_string(folder, "first file.json", "");
    temp_folder_write_string(folder, "second.json", "");
    temp_folder_write_string(folder, "evil\033.json", "");
    start(&p);
    send(&p, "/sy\tMe\r", "/system Me");
    pty_type(&p, "/s\t");
    pty_expect(&p, "/set"); /* the list */
    pty_expect(&p, "/system");
    send(&p, "t\t\r", "/stats ");
    snprintf(keys, sizeof keys, "/load %s/fi\t\r", folder->path);
    snprintf(got, sizeof got, "/load %s/first file.json ", folder->path);
    send(&p, keys, got);
    send(&p, "/load ~/qui\tx\r", "/load ~/quire/x");
    send(&p, "/load ~/ev\tx\r", "/load ~/evx"); /* no name with a control character */
    finish(&p);
}

/* Keys that are typed between two reads are not shown, and wait; a terminal that was released shows them. */
static void test_between_reads(void **state)
{
    (void)state;
    struct pty p;
    start(&p);
    pty_type(&p, "wait\r");
    pty_expect(&p, "got [wait]");
    pty_type(&p, "unseen\r");
    usleep(50000);
    const size_t begin = p.seen;
    kill(p.pid, SIGUSR1);
    pty_expect(&p, "> ");
    pty_expect(&p, "got [unseen]");
    const char *prompt = strstr(p.screen.data + begin, "> ");
    assert_true(strstr(p.screen.data + begin, "unseen") > prompt);
    pty_expect(&p, "> ");
    pty_type(&p, "release\r");
    pty_expect(&p, "got [release]");
    pty_expect(&p, "\033[?2004l");
    pty_type(&p, "shown");
    pty_expect(&p, "shown");
    pty_type(&p, "\r");
    kill(p.pid, SIGUSR1);
    pty_expect(&p, "\033[?2004h");
    pty_expect(&p, "got [shown]");
    finish(&p);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--child") == 0) return run_child();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules),      cmocka_unit_test(test_several_lines), cmocka_unit_test(test_paste),
        cmocka_unit_test(test_keys),       cmocka_unit_test(test_history),       cmocka_unit_test(test_shared_history),
        cmocka_unit_test(test_completion), cmocka_unit_test(test_between_reads),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
