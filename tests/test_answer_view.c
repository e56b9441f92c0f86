/* The display of an answer (runtime/chat/answer_view.h) on streams in memory: wrapping, widths, reasoning, control
 * characters; and that no byte of an answer drives the terminal, through quire chat on a pseudo-terminal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/array.h"
#include "base/utf8.h"
#include "runtime/chat/answer_view.h"
#include "base/columns.h"
#include "tests/support/pty.h"
#include "tests/support/toy_model.h"

/* ---- a terminal of which only the text counts: the rows that it shows ---- */

enum { ROWS = 40, ROW_BYTES = 400 };

struct screen {
    int columns, row, column;
    struct cell {
        char bytes[64]; /* of one cluster; "" in the second column of a wide one */
        bool dim;
    } cells[ROWS][101];
    bool dim, wraps; /* wraps: the cursor stands behind the last column */
};

static void screen_put(struct screen *s, const char *bytes, size_t length, int width)
{
    if (s->column + width > s->columns) s->row++, s->column = 0;
    assert_true(s->row < ROWS);
    struct cell *cell = &s->cells[s->row][s->column];
    *cell = (struct cell){.dim = s->dim};
    memcpy(cell->bytes, bytes, length);
    for (int i = 1; i < width; i++) cell[i] = (struct cell){.dim = s->dim};
    s->column += width;
}

/* The sequences that the view may send: cursor left, erase to the end of the line, dim and normal. */
static size_t screen_escape(struct screen *s, const char *text)
{
    char *end;
    assert_int_equal(text[1], '[');
    const long number = strtol(text + 2, &end, 10);
    if (*end == 'D')
        s->column -= (int)number;
    else if (*end == 'K')
        memset(&s->cells[s->row][s->column], 0, (size_t)(101 - s->column) * sizeof(struct cell));
    else if (*end == 'm' && (number == 2 || number == 0))
        s->dim = number == 2;
    else
        fail_msg("sequence %.*s", (int)(end - text + 1), text);
    assert_true(s->column >= 0);
    return (size_t)(end + 1 - text);
}

static void screen_show(struct screen *s, const char *text, size_t length)
{
    for (size_t i = 0; i < length;) {
        if (text[i] == '\033') {
            i += screen_escape(s, text + i);
        } else if (text[i] == '\n') {
            s->row++, s->column = 0, i++;
        } else if (text[i] == '\r') {
            s->column = 0, i++;
        } else if (text[i] == '\t') {
            s->column = (s->column / 8 + 1) * 8, i++;
        } else {
            /* A whole cluster: up to where columns_add says that the next begins. */
            struct columns c = {0};
            uint32_t character;
            bool begins;
            int width = 0;
            size_t end = i;
            while (end < length && (unsigned char)text[end] >= 0x20) {
                const size_t bytes = utf8_decode(text + end, length - end, &character);
                const int more = columns_add(&c, character, &begins);
                if (begins && end > i) break;
                width += more;
                end += bytes;
            }
            screen_put(s, text + i, end - i, width);
            i = end;
        }
    }
}

/* The rows, each with its newline, without spaces at their ends; dim text in braces. */
static const char *screen_text(const struct screen *s)
{
    static char text[ROWS * ROW_BYTES];
    size_t length = 0;
    for (int row = 0; row < s->row + (s->column > 0); row++) {
        bool dim = false;
        int last = 100;
        while (last >= 0 && (!s->cells[row][last].bytes[0] || strcmp(s->cells[row][last].bytes, " ") == 0)) last--;
        for (int column = 0; column <= last; column++) {
            const struct cell *cell = &s->cells[row][column];
            if (cell->bytes[0] && cell->dim != dim) text[length++] = (dim = cell->dim) ? '{' : '}';
            length += (size_t)sprintf(text + length, "%s", cell->bytes);
        }
        if (dim) text[length++] = '}';
        text[length++] = '\n';
    }
    text[length] = '\0';
    return text;
}

/* ---- views ---- */

static const struct answer_view_options TERMINAL = {.columns = 20, .colours = true, .cursor = true};

/* What the stream gets for an answer that comes in pieces of `step` bytes, made longer to whole characters. */
static char *view(const char *answer, size_t step, const struct answer_view_options *options)
{
    char *bytes;
    size_t length, total = strlen(answer);
    FILE *stream = open_memstream(&bytes, &length);
    struct answer_view *v = answer_view_begin(stream, options);
    assert_non_null(v);
    for (size_t i = 0, next; i < total; i = next) {
        next = i + step < total ? i + step : total;
        while (next < total && ((unsigned char)answer[next] & 0xC0) == 0x80) next++;
        assert_true(answer_view_add(v, answer + i, next - i, 1));
    }
    assert_true(answer_view_end(v, false));
    fclose(stream);
    return bytes;
}

/* The answer on a screen is `expected`, whatever pieces it comes in, and with and without a cursor that can be moved.
 */
static void expect(const char *answer, const char *expected, const struct answer_view_options *options)
{
    for (size_t step = 1; step <= 7; step++)
        for (int cursor = 0; cursor < 2; cursor++) {
            struct answer_view_options o = *options;
            struct screen screen = {.columns = options->columns};
            o.cursor = cursor;
            char *bytes = view(answer, step, &o);
            screen_show(&screen, bytes, strlen(bytes));
            assert_string_equal(screen_text(&screen), expected);
            free(bytes);
        }
}

static void test_words_wrap(void **state)
{
    (void)state;
    /*      12345678901234567890 */
    expect("The blocks of a sequence lie anywhere in memory.", "The blocks of a\nsequence lie\nanywhere in memory.\n",
           &TERMINAL);
    expect("A word that ends in the last but one:\n1234567890 12345678 x\n1234567890 123456789 x",
           "A word that ends in\nthe last but one:\n1234567890 12345678\nx\n1234567890\n123456789 x\n", &TERMINAL);
    expect("one\n\ntwo\n", "one\n\ntwo\n", &TERMINAL);
    expect("", "", &TERMINAL);
    expect("spaces at the end   \nof   a line", "spaces at the end\nof   a line\n", &TERMINAL);
    /* A word that is longer than a line is left to the terminal, from a line's start. */
    expect("see https://example.org/a/long/path now", "see\nhttps://example.org/\na/long/path now\n", &TERMINAL);
}

static void test_code_stays(void **state)
{
    (void)state;
    expect("Run this:\n```sh\nquire chat --model some/model\n```\nand then look at what it says.",
           "Run this:\n```sh\nquire chat --model s\nome/model\n```\nand then look at\nwhat it says.\n", &TERMINAL);
    expect("~~~~\na line of code, ``` in it\n~~~\nstill a line of it all\n~~~~\nand here the text wraps",
           "~~~~\na line of code, ```\nin it\n~~~\nstill a line of it a\nll\n~~~~\nand here the text\nwraps\n",
           &TERMINAL);
    expect("    indented = code + stays\nbut text wraps, as it did",
           "    indented = code\n+ stays\nbut text wraps, as\nit did\n", &TERMINAL);
    expect("```inline``` code is no block of it\nso this wraps, as it did",
           "```inline``` code is\nno block of it\nso this wraps, as it\ndid\n",
           &(struct answer_view_options){.columns = 21});
}

static void test_lists_hang(void **state)
{
    (void)state;
    expect("- An item of a list that is long\n  12. and one that is in it, too\n- b",
           "- An item of a list\n  that is long\n  12. and one that\n      is in it, too\n- b\n", &TERMINAL);
}

/* Rows of Unicode's East Asian Width and of emoji sequences, with the columns that they take. */
static void test_columns(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int columns;
    } cases[] = {
        {"abc", 3},
        {"\xc3\xa9", 1},                                                                 /* U+00E9 */
        {"e\xcc\x81", 1},                                                                /* e, U+0301 */
        {"\xe4\xbd\xa0\xe5\xa5\xbd", 4},                                                 /* two Han characters */
        {"\xed\x95\x9c", 2},                                                             /* Hangul syllable */
        {"\xef\xbc\x81", 2},                                                             /* U+FF01, fullwidth */
        {"\xef\xbd\xb1", 1},                                                             /* U+FF71, halfwidth */
        {"\xe3\x80\x82", 2},                                                             /* U+3002 */
        {"\xf0\x9f\x98\x80", 2},                                                         /* U+1F600 */
        {"\xf0\x9f\x91\x8d\xf0\x9f\x8f\xbd", 2},                                         /* thumbs up, skin tone */
        {"\xf0\x9f\x91\xa8\xe2\x80\x8d\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7", 2}, /* family, joined */
        {"\xf0\x9f\x87\xa9\xf0\x9f\x87\xaa", 2},                                         /* flag */
        {"\xf0\x9f\x87\xa9\xf0\x9f\x87\xaa\xf0\x9f\x87\xab\xf0\x9f\x87\xb7", 4},         /* two flags */
        {"\xe2\x9d\xa4", 1},                                                             /* U+2764 as text */
        {"\xe2\x9d\xa4\xef\xb8\x8f", 2},                                                 /* as emoji */
        {"\xe0\xb8\x97\xe0\xb8\xb5\xe0\xb9\x88", 1}, /* Thai: consonant, vowel and tone above it */
        {"\xe2\x80\x8b", 0},                         /* U+200B */
        {"\xe2\x90\x9b", 1},                         /* U+241B, the symbol for ESC */
        {"\xef\xbf\xbd", 1},                         /* U+FFFD */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(columns_of(cases[i].text, strlen(cases[i].text)), cases[i].columns);
}

#define HAN "\xe4\xbd\xa0"
#define STOP "\xe3\x80\x82"

static void test_wide_text(void **state)
{
    (void)state;
    const struct answer_view_options ten = {.columns = 10, .colours = true};
    expect(HAN HAN HAN HAN HAN HAN, HAN HAN HAN HAN "\n" HAN HAN "\n", &ten);
    expect(HAN HAN HAN HAN STOP HAN, HAN HAN HAN "\n" HAN STOP HAN "\n", &ten); /* no line begins with a full stop */
    expect("abc " HAN HAN HAN, "abc " HAN HAN "\n" HAN "\n", &ten);
    expect("cafe\xcc\x81 cafe\xcc\x81", "cafe\xcc\x81 cafe\xcc\x81\n", &ten);
    expect("abcd \xf0\x9f\x91\xa8\xe2\x80\x8d\xf0\x9f\x91\xa9 ef",
           "abcd \xf0\x9f\x91\xa8\xe2\x80\x8d\xf0\x9f\x91\xa9\nef\n", &ten);
    expect("\xed\x95\x9c\xea\xb5\xad\xec\x96\xb4 \xed\x95\x9c\xea\xb5\xad", /* Korean wraps at spaces */
           "\xed\x95\x9c\xea\xb5\xad\xec\x96\xb4\n\xed\x95\x9c\xea\xb5\xad\n", &ten);
}

/* ---- reasoning ---- */

static void test_dim_reasoning(void **state)
{
    (void)state;
    struct answer_view_options o = TERMINAL;
    o.think = THINK_DIM;
    expect("<think>\nLet me see.\n</think>\n\nIt is 4.", "{Let me see.}\n\nIt is 4.\n", &o);
    expect("\n[THINK]Hm.[/THINK]4", "{Hm.}\n\n4\n", &o);
    expect("<think>\n\n</think>\n\n4", "4\n", &o); /* Qwen's for no reasoning */
    expect("<think>1 < 2, </thin is no tag, <</think>4", "{1 < 2, </thin is no}\n{tag, <}\n\n4\n", &o);
    expect("<think>it was cut", "{it was cut}\n", &o);
    expect("<think", "<think\n", &o);
    expect("<thought>no tag</thought>", "<thought>no\ntag</thought>\n", &o);
    expect("Say <think> to it.", "Say <think> to it.\n", &o); /* an answer may speak of it */
    o.reasoning_end = answer_view_open_reasoning("<|im_start|>assistant\n<think>\n", 30);
    assert_string_equal(o.reasoning_end, "</think>");
    expect("Hm.\n</think>\n4", "{Hm.}\n\n4\n", &o);
    assert_null(answer_view_open_reasoning("<think>\n\n</think>\n", 18));
    assert_null(answer_view_open_reasoning("", 0));
    o.reasoning_end = NULL;
    o.colours = false;
    expect("<think>Hm.</think>4", "<think>Hm.</think>4\n", &o);
    o.think = THINK_SHOW;
    o.colours = true;
    expect("<think>Hm.</think>4", "<think>Hm.</think>4\n", &o);
}

static void test_folded_reasoning(void **state)
{
    (void)state;
    struct answer_view_options o = TERMINAL;
    o.columns = 60;
    o.think = THINK_FOLD;
    for (int cursor = 0; cursor < 2; cursor++) {
        struct screen screen = {.columns = o.columns};
        int tokens, end;
        double seconds;
        o.cursor = cursor;
        char *bytes = view("<think>\nSomething long\nof many lines</think>\n\nIt is 4.", 5, &o);
        screen_show(&screen, bytes, strlen(bytes));
        assert_int_equal(
            sscanf(screen_text(&screen), "{(thought for %lf s, %d tokens)}\nIt is 4.%n", &seconds, &tokens, &end), 2);
        assert_in_range(tokens, 8, 10); /* pieces, of 5 bytes, up to that with the tag's end */
        assert_string_equal(screen_text(&screen) + end, "\n");
        assert_null(strstr(bytes, "Something"));
        free(bytes);
    }
    expect("<think>\n\n</think>\n\n4", "4\n", &o);
    expect("4", "4\n", &o);
}

/* ---- bytes ---- */

static void test_control_characters(void **state)
{
    (void)state;
    char *bytes = view("a\033]52;c;eA==\a\tb\r\xc2\x9b"
                       "31m\xe2\x80\xae"
                       "c\x7f",
                       1, &TERMINAL);
    for (const char *c = bytes; *c; c++)
        if ((unsigned char)*c < 0x20 && *c != '\n') assert_int_equal(*c, '\033'); /* the view's own, checked below */
    struct screen screen = {.columns = 20};
    screen_show(&screen, bytes, strlen(bytes));
    assert_non_null(strstr(screen_text(&screen), "a\xe2\x90\x9b]52;c;eA==\xe2\x90\x87"));
    assert_null(strstr(bytes, "\033]"));
    free(bytes);
}

static void test_raw(void **state)
{
    (void)state;
    const struct answer_view_options raw = {.columns = 0, .think = THINK_FOLD};
    const char *answer = "<think>a\033[31m\n</think>  b \n";
    char *bytes = view(answer, 3, &raw), expected[64];
    sprintf(expected, "%s\n", answer);
    assert_string_equal(bytes, expected);
    free(bytes);
}

/* A failed answer has no line of its own; one that had begun ends its line. */
static void test_failed(void **state)
{
    (void)state;
    for (int begun = 0; begun < 2; begun++) {
        char *bytes;
        size_t length;
        FILE *stream = open_memstream(&bytes, &length);
        struct answer_view *v = answer_view_begin(stream, &(struct answer_view_options){0});
        assert_true(answer_view_add(v, "x", (size_t)begun, 1));
        assert_true(answer_view_end(v, true));
        fclose(stream);
        assert_string_equal(bytes, begun ? "x\n" : "");
        free(bytes);
    }
    FILE *full = fopen("/dev/full", "w");
    struct answer_view *v = answer_view_begin(full, &TERMINAL);
    assert_false(answer_view_add(v, "word ", 5, 1));
    answer_view_end(v, true);
    fclose(full);
}

static void test_reading_notice(void **state)
{
    (void)state;
    char *said, *bytes;
    size_t length;
    FILE *notices = open_memstream(&said, &length), *stream = open_memstream(&bytes, &length);
    struct answer_view_options o = TERMINAL;
    o.notices = notices;
    struct answer_view *v = answer_view_begin(stream, &o);
    answer_view_reading(v, 600, 1500);
    answer_view_reading(v, 601, 1500); /* the same per cent: nothing to say */
    fflush(notices);
    assert_string_equal(said, "\r\033[Kreading 1500 tokens... 40 %");
    answer_view_reading(v, 1500, 1500);
    assert_true(answer_view_add(v, "Yes", 3, 1));
    assert_true(answer_view_end(v, false));
    fclose(notices);
    fclose(stream);
    assert_string_equal(said, "\r\033[Kreading 1500 tokens... 40 %\r\033[Kreading 1500 tokens... 100 %\r\033[K");
    assert_string_equal(bytes, "Yes\n");
    free(said);
    free(bytes);
}

/* ---- quire chat ---- */

/* A model that emits every byte: 256 byte tokens, each as likely as the others. */
static void test_every_byte(void **state)
{
    (void)state;
    enum { FIRST_BYTE_ID = 7 };
    struct temp_folder model;
    struct text bias = {0};
    struct pty p;
    toy_model_make(&model, QUIRE_GUIDE, true);
    for (int byte = 0; byte < 256; byte++)
        assert_true(text_printf(&bias, "%s%d:100", byte ? "," : "", FIRST_BYTE_ID + byte));
    const char *const argv[] = {QUIRE_EXECUTABLE, "chat",     "--max-tokens", "3000", "--seed",           "3",
                                "--model",        model.path, "--device",     "cpu",  "--logit-bias",     bias.data,
                                "--load-format",  "dummy",    "--threads",    "1",    "--kv-cache-space", "0.1",
                                "--ignore-eos",   NULL};
    setenv("XDG_STATE_HOME", "/dev/null", 1); /* no history */
    pty_start(&p, argv);
    pty_expect(&p, "> ");
    pty_type(&p, "say\r");
    pty_expect(&p, "say\r\n");
    const size_t begin = p.seen;
    pty_expect(&p, "(cut at --max-tokens)");
    const size_t end = p.seen;
    int symbols = 0;
    for (size_t i = begin; i < end; i++) {
        const unsigned char *c = (const unsigned char *)p.screen.data + i;
        if (c[0] == 0x1B) { /* the view's own: cursor left, erase */
            assert_int_equal(c[1], '[');
            const size_t digits = strspn((const char *)c + 2, "0123456789");
            assert_true(digits ? c[2 + digits] == 'D' : c[2] == 'K');
        } else if (c[0] < 0x20) {
            assert_true(c[0] == '\n' || c[0] == '\r' || c[0] == '\t');
            if (c[0] == '\r') assert_int_equal(c[1], '\n');
        }
        assert_int_not_equal(c[0], 0x7F);
        assert_false(c[0] == 0xC2 && c[1] >= 0x80 && c[1] < 0xA0);
        symbols += c[0] == 0xE2 && c[1] == 0x90 && c[2] == 0x9B; /* U+241B */
    }
    assert_true(symbols > 0);
    pty_expect(&p, "> ");
    pty_type(&p, "\x04");
    assert_int_equal(pty_finish(&p), 0);
    text_free(&bias);
    temp_folder_remove(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words_wrap),
        cmocka_unit_test(test_code_stays),
        cmocka_unit_test(test_lists_hang),
        cmocka_unit_test(test_columns),
        cmocka_unit_test(test_wide_text),
        cmocka_unit_test(test_dim_reasoning),
        cmocka_unit_test(test_folded_reasoning),
        cmocka_unit_test(test_control_characters),
        cmocka_unit_test(test_raw),
        cmocka_unit_test(test_failed),
        cmocka_unit_test(test_reading_notice),
        cmocka_unit_test(test_every_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
