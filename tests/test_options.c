/* Flags: every kind, every refusal, and the tables that commands share. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "runtime/commands.h"
#include "runtime/options/flag_lines.h"
#include "runtime/options/foreign_flags.h"
#include "runtime/options/model_folder.h"
#include "runtime/options/engine_flags.h"
#include "runtime/options/sampling_flags.h"

struct values {
    bool on, off;
    int32_t number;
    uint64_t big;
    double real;
    const char *text, *choice, *file;
    int calls;
    uint64_t given;
    int32_t plain;
    int three;
    int32_t brief;
    int32_t size;
};

static enum status count_call(void *target, const char *text, struct error *err)
{
    assert_null(text);
    assert_non_null(err);
    ++*(int *)target;
    return STATUS_OK;
}

static struct values defaults(void)
{
    return (struct values){.on = true, .number = 5, .big = 7, .real = 0.5, .text = "t", .choice = "a", .three = -1};
}

static void make_table(struct option_table *table, struct values *v)
{
    static const int32_t sizes[] = {8, 16, 128};
    const struct option_spec specs[] = {
        {.name = "switch-on", .kind = OPTION_SWITCH, .target = &v->on, .help = "A switch.", .heading = "First:"},
        {.name = "switch-off", .kind = OPTION_SWITCH, .target = &v->off, .help = "Another.", .letter = 's'},
        {.name = "number",
         .kind = OPTION_INT32,
         .target = &v->number,
         .minimum = -1,
         .maximum = 10,
         .argument = "N",
         .letter = 'n',
         .help = "A number.",
         .given = &v->given,
         .given_bit = 4},
        {.name = "big", .kind = OPTION_UINT64, .target = &v->big, .argument = "N", .help = "A big number."},
        {.name = "real",
         .kind = OPTION_DOUBLE,
         .target = &v->real,
         .minimum = 0,
         .maximum = INFINITY,
         .argument = "F",
         .help = "A real number."},
        {.name = "text", .kind = OPTION_STRING, .target = &v->text, .argument = "TEXT", .help = "A text."},
        {"choice", OPTION_CHOICE, &v->choice, "a|bee", .help = "A choice."},
        {.name = "file",
         .kind = OPTION_STRING,
         .target = &v->file,
         .argument = "FILE",
         .not_empty = true,
         .help = "A file."},
        {.name = "call",
         .kind = OPTION_CUSTOM,
         .target = &v->calls,
         .parse = count_call,
         .help = "Counts.",
         .heading = "Second:"},
        {.name = "three", .kind = OPTION_TRISTATE, .target = &v->three, .help = "On, off or neither."},
        {.name = "short-name",
         .letters = "sn",
         .kind = OPTION_INT32,
         .target = &v->brief,
         .argument = "N",
         .help = "Has a short name."},
        {"size", OPTION_ENUM, &v->size, "8|16|128", .help = "A size.", .values = sizes},
        {.name = "plain", .kind = OPTION_INT32, .target = &v->plain, .argument = "N", .help = "Without bounds."},
    };
    *table = (struct option_table){0};
    option_table_add(table, specs, sizeof specs / sizeof specs[0]);
}

enum { MAX_WORDS = 40 };

/* Splits `line` at blanks into argv; argv[0] is the command. */
static int split(char *line, char **argv)
{
    int argc = 0;
    argv[argc++] = "command";
    for (char *word = strtok(line, " "); word && argc < MAX_WORDS; word = strtok(NULL, " ")) argv[argc++] = word;
    argv[argc] = NULL;
    return argc;
}

/* `line` outlives the values, which may point into it. */
static enum status parse(struct values *v, char *line, bool *help, struct error *err)
{
    struct option_table table;
    make_table(&table, v);
    char *argv[MAX_WORDS + 1];
    int argc = split(line, argv);
    return options_parse(&table, argc, argv, help, err);
}

static void accepted(struct values *v, char *line)
{
    struct error err = {""};
    bool help;
    *v = defaults();
    if (parse(v, line, &help, &err) != STATUS_OK) fail_msg("refused: %s", err.text);
    assert_false(help);
}

static void test_each_kind(void **state)
{
    (void)state;
    struct values v;
    char a[] = "--no-switch-on --switch-off --number 10 --big 18446744073709551615 --real 2.5e3 --text= --choice bee";
    accepted(&v, a);
    assert_false(v.on);
    assert_true(v.off);
    assert_int_equal(v.number, 10);
    assert_true(v.big == UINT64_MAX);
    assert_true(v.real == 2500);
    assert_string_equal(v.text, "");
    assert_string_equal(v.choice, "bee");
    char b[] = "--number=-1 -s --text=a=b --call --call --real .5";
    accepted(&v, b);
    assert_int_equal(v.number, -1);
    assert_int_equal(v.given, 4);
    assert_true(v.off && v.on);
    assert_string_equal(v.text, "a=b");
    assert_int_equal(v.calls, 2);
    char c[] = "-n3 --switch-on --no-switch-on --switch-on --text --odd --te last";
    accepted(&v, c);
    assert_int_equal(v.number, 3);
    assert_int_equal(v.three, -1);
    assert_true(v.on);
    assert_string_equal(v.text, "last"); /* an abbreviation; a value may look like a flag */
    char e[] = "--three";
    accepted(&v, e);
    assert_int_equal(v.three, 1);
    char f[] = "--no-three";
    accepted(&v, f);
    assert_int_equal(v.three, 0);
    char g[] = "--size 16";
    accepted(&v, g);
    assert_int_equal(v.size, 16);
    char d[] = "";
    accepted(&v, d);
    assert_int_equal(v.given, 0);
    assert_int_equal(v.number, 5);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *line, *sentence;
    } cases[] = {
        {"--number 11", "--number: expected a whole number from -1 to 10, got '11'"},
        {"--number -2", "--number: expected a whole number from -1 to 10, got '-2'"},
        {"--number 1.5", "--number: expected a whole number from -1 to 10, got '1.5'"},
        {"--number 99999999999", "got '99999999999'"},
        {"--plain 1x", "--plain: expected a whole number that fits in 32 bits, got '1x'"},
        {"--plain 2147483648", "--plain: expected a whole number that fits in 32 bits, got '2147483648'"},
        {"--number 5x", "got '5x'"},
        {"--number=", "got ''"},
        {"--big -1", "--big: expected a whole number from 0 to 18446744073709551615, got '-1'"},
        {"--big 18446744073709551616", "--big: expected"},
        {"--real -0.1", "--real: expected a number of at least 0, got '-0.1'"},
        {"--real nan", "got 'nan'"},
        {"--real inf", "got 'inf'"},
        {"--real 1e999", "got '1e999'"},
        {"--real 1,5", "got '1,5'"},
        {"--choice c", "--choice: expected a|bee, got 'c'"},
        {"--choice be", "got 'be'"},
        {"--choice", "--choice needs a value: --choice a|bee"},
        {"--size 12", "--size: expected 8|16|128, got '12'"},
        {"--size 1", "--size: expected 8|16|128, got '1'"},
        {"--size=", "--size: expected 8|16|128, got ''"},
        {"--size", "--size needs a value: --size 8|16|128"},
        {"--file=", "--file needs a value: --file FILE"},
        {"--number", "--number needs a value: --number N"},
        {"-n", "--number needs a value: --number N"},
        {"--switch-on=3", "--switch-on: expected true or false, got '3'"},
        {"--three=maybe", "--three: expected true or false, got 'maybe'"},
        {"--call=x", "--call: expected true or false, got 'x'"},
        {"-sn", "--short-name needs a value: --short-name N"},
        {"-sn=x", "--short-name: expected a whole number that fits in 32 bits, got 'x'"},
        {"-sx", "there is no flag -x"},
        {"--switch-on maybe", "'maybe' is not a flag"},
        {"--no-switch-on true", "'true' is not a flag"},
        {"--no-switch-on=3", "--no-switch-on takes no value"},
        {"--help=3", "--help takes no value"},
        {"--nunber 3", "there is no flag --nunber; did you mean --number?"},
        {"--swich-off", "did you mean --switch-off?"},
        {"--no-swich-off", "did you mean --no-switch-off?"},
        {"--swich_on", "there is no flag --swich_on; did you mean --switch-on?"},
        {"--no", "--no could mean --no-switch-on or --no-switch-off; write the whole name"},
        /* other programs' */
        {"--uvicorn-log-level x", "there is no flag --uvicorn-log-level: quire serve logs requests with "},
        {"--no-disable-log-requests", "there is no flag --no-disable-log-requests: quire serve logs requests"},
        {"-ngl 99", "there is no flag -ngl: a model lies whole on one device"},
        {"--ctx-size 5", "there is no flag --ctx-size; --help-all lists the flags"}, /* nor is --max-model-len one */
        {"--zzzzzzzzzz=3", "there is no flag --zzzzzzzzzz; --help-all lists the flags"},
        {"--switch", "--switch could mean --switch-on or --switch-off; write the whole name"},
        {"-x", "there is no flag -x"},
        {"word", "'word' is not a flag"},
        {"-- word", "'word' is not a flag"},
        {"-", "'-' is not a flag"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[256];
        snprintf(line, sizeof line, "%s", cases[i].line);
        struct values v = defaults();
        struct error err = {""};
        bool help;
        if (parse(&v, line, &help, &err) == STATUS_OK) fail_msg("accepted: %s", cases[i].line);
        if (!strstr(err.text, cases[i].sentence)) fail_msg("%s: %s", cases[i].line, err.text);
    }
}

/* The one word of a command that takes one, wherever it stands. */
static void test_word(void **state)
{
    (void)state;
    static const struct {
        const char *line, *word; /* NULL: refused */
    } cases[] = {{"word --number 3", "word"}, {"--number 3 word", "word"}, {"-- --word", "--word"}, {"-", "-"},
                 {"one two", NULL},           {"one -- two", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[256], *argv[MAX_WORDS + 1];
        const char *word = NULL;
        struct values v = defaults();
        struct option_table table;
        struct error err = {""};
        bool help;
        snprintf(line, sizeof line, "%s", cases[i].line);
        make_table(&table, &v);
        table.word = &word;
        const enum status status = options_parse(&table, split(line, argv), argv, &help, &err);
        if (cases[i].word) {
            assert_int_equal(status, STATUS_OK);
            assert_string_equal(word, cases[i].word);
        } else {
            assert_int_equal(status, STATUS_INVALID);
            assert_non_null(strstr(err.text, "'two' is a word too many"));
        }
    }
}

/* '_' for '-', values of switches, and short names of several letters. */
static void test_vllms_ways(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        bool on, off;
        int three, calls;
        int32_t number, brief;
    } cases[] = {
        {"--switch_on=false --switch_off --number=6", false, true, -1, 0, 6, 0},
        {"--no_switch_on --no_three --num 6", false, false, 0, 0, 6, 0},
        {"--switch-on false --switch-off True --three FALSE --call=2", false, true, 0, 2, 5, 0},
        {"--switch-on=0 --switch-off=yes --three=on -s false", false, false, 1, 0, 5, 0},
        {"-sn 7 -n6 -s", true, true, -1, 0, 6, 7},
        {"-sn=7 -sn6", true, true, -1, 0, 6, 7}, /* -s -n 6 */
        {"-sn6 --switch-on false", false, true, -1, 0, 6, 0},
        {"-n=6 -s=false", true, false, -1, 0, 6, 0},
        {"--short_name 7", true, false, -1, 0, 5, 7},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[256];
        struct values v;
        snprintf(line, sizeof line, "%s", cases[i].line);
        accepted(&v, line);
        if (v.on != cases[i].on || v.off != cases[i].off || v.three != cases[i].three || v.calls != cases[i].calls ||
            v.number != cases[i].number || v.brief != cases[i].brief)
            fail_msg("%s: %d %d %d %d %d %d", cases[i].line, v.on, v.off, v.three, v.calls, v.number, v.brief);
    }
}

/* A flag is looked for by its whole name, and the page before it is the command's. */
static void test_flag_lines(void **state)
{
    (void)state;
    static const char lines[] = "page\tchat\nusage\tflag\nflag\tthink\t\t\tHOW\tHelp.\npage\tbench cache\nheading\tx:\n"
                                "flag\tn\t\t\t\tHelp.\nflag\tthink-more\t\t\t\tHelp.\n";
    char page[32] = "";
    assert_true(flag_lines_find(lines, "think", page, sizeof page));
    assert_string_equal(page, "chat");
    assert_true(flag_lines_find(lines, "n", page, sizeof page));
    assert_string_equal(page, "bench cache");
    assert_true(flag_lines_find(lines, "think-more", NULL, 0));
    assert_false(flag_lines_find(lines, "thin", page, sizeof page));
    assert_false(flag_lines_find(lines, "x:", page, sizeof page));
    assert_false(flag_lines_find(lines, "", page, sizeof page));
    assert_false(flag_lines_find(NULL, "think", page, sizeof page));
}

/* What is recommended in place of another program's flag is there, and no name stands twice. */
static void test_foreign_flags(void **state)
{
    (void)state;
    struct text flags = {0};
    assert_true(command_append_flags(&flags));
    for (const struct foreign_flag *f = foreign_flags; f->names; f++) {
        for (const char *at = f->names; *at; at += strcspn(at, "|") + (at[strcspn(at, "|")] == '|')) {
            char name[64];
            snprintf(name, sizeof name, "%.*s", (int)strcspn(at, "|"), at);
            if (foreign_flag_find(name) != f) fail_msg("%s stands twice", name);
        }
        if (!f->flag == !f->sentence) fail_msg("%s: a flag or a sentence", f->names);
        if (f->flag && !flag_lines_find(flags.data, f->flag, NULL, 0))
            fail_msg("%s: no command has --%s", f->names, f->flag);
    }
    assert_null(foreign_flag_find("host|port"));
    assert_null(foreign_flag_find("hos"));
    assert_null(foreign_flag_find(""));
    assert_string_equal(foreign_flag_find("no-n_predict")->flag, "max-tokens");
    assert_null(foreign_flag_find("max-model-len"));
    text_free(&flags);
}

static void test_long_unknown_flag(void **state)
{
    (void)state;
    char line[4000] = "--";
    memset(line + 2, 'x', sizeof line - 3);
    line[sizeof line - 1] = '\0';
    struct values v = defaults();
    struct error err = {""};
    bool help;
    assert_int_equal(parse(&v, line, &help, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "there is no flag --xxx"));
}

static void test_help(void **state)
{
    (void)state;
    struct values v = defaults();
    struct option_table table;
    make_table(&table, &v);
    struct error err;
    bool help;
    char *with_help[] = {"command", "--help", "--nonsense", NULL};
    assert_int_equal(options_parse(&table, 3, with_help, &help, &err), STATUS_OK);
    assert_true(help);
    char *const letters[] = {"-h", "-hs", "-sh"};
    for (int i = 0; i < 3; i++) {
        char *with_h[] = {"command", letters[i], "true", NULL};
        assert_int_equal(options_parse(&table, 3, with_h, &help, &err), STATUS_OK);
        assert_true(help);
    }
}

static char *help_text(const struct option_table *table)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    options_print_help(table, "command [flags]", "What it does.", out);
    fclose(out);
    return text;
}

/* --help shows what is marked, each group under its heading; --help-all shows all. */
static void test_common_flags(void **state)
{
    (void)state;
    struct values v = defaults();
    struct option_table table;
    struct error err;
    bool help;
    make_table(&table, &v);
    table.specs[2].common = true;               /* number */
    table.specs[table.count - 1].common = true; /* plain, not the first of its group */
    char *common[] = {"command", "-h", NULL}, *all[] = {"command", "--help-all", NULL};
    assert_int_equal(options_parse(&table, 2, common, &help, &err), STATUS_OK);
    char *text = help_text(&table);
    assert_non_null(strstr(text, "\nFirst:\n  -n, --number N "));
    assert_non_null(strstr(text, "\nSecond:\n      --plain N "));
    assert_null(strstr(text, "--switch-on"));
    assert_non_null(strstr(text, "These are 2 of 16 flags; --help-all shows them all."));
    free(text);
    assert_int_equal(options_parse(&table, 2, all, &help, &err), STATUS_OK);
    assert_true(help);
    text = help_text(&table);
    assert_non_null(strstr(text, "\nFirst:\n      --[no-]switch-on "));
    assert_non_null(strstr(text, "--config FILE"));
    free(text);
}

static void test_help_text(void **state)
{
    (void)state;
    struct values v = defaults();
    struct option_table table;
    make_table(&table, &v);
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    options_print_help(&table, "command [flags]", "What it does.", out);
    fclose(out);
    assert_non_null(strstr(text, "usage: quire command [flags]\n\nWhat it does.\n\nFirst:\n"));
    assert_non_null(strstr(text, "      --[no-]switch-on "));
    assert_non_null(strstr(text, "  -n, --number N "));
    assert_non_null(strstr(text, "--choice a|bee "));
    assert_non_null(strstr(text, "\nSecond:\n      --call "));
    assert_non_null(strstr(text, "-h, --help "));
    assert_non_null(strstr(text, "\n  -sn, --short-name N "));
    free(text);
}

static enum status parse_engine(struct engine_options *options, struct log *log, struct sampling_flags *flags,
                                char *line, struct error *err)
{
    static struct option_table table; /* sampling_flags_check looks into it */
    table = (struct option_table){.count = 0};
    engine_flags_add(&table, options, log);
    sampling_flags_add(&table, flags);
    char *argv[MAX_WORDS + 1];
    int argc = split(line, argv);
    bool help;
    return options_parse(&table, argc, argv, &help, err);
}

static void test_engine_flags(void **state)
{
    (void)state;
    struct engine_options o = {.device = "auto", .enable_prefix_caching = true};
    struct log log = {LOG_WARNING};
    struct sampling_flags flags = {0};
    struct error err = {""};
    char line[] = "-m folder --device cuda:1 --dtype bfloat16 --quantization int4 --load-format=dummy --block-size 32 "
                  "-vv --seed 9 -t 2 "
                  "--no-enable-prefix-caching --swap-space 2.5 --preemption-mode swap --scheduling-policy priority";
    if (parse_engine(&o, &log, &flags, line, &err) != STATUS_OK) fail_msg("%s", err.text);
    assert_string_equal(o.model, "folder");
    assert_string_equal(o.device, "cuda:1");
    assert_string_equal(o.dtype, "bfloat16");
    assert_string_equal(o.quantization, "int4");
    assert_int_equal(o.load_format, LOAD_FORMAT_DUMMY);
    assert_int_equal(o.block_size, 32);
    assert_int_equal(o.threads, 2);
    assert_false(o.enable_prefix_caching);
    assert_true(o.swap_space == 2.5);
    assert_int_equal(o.preemption_mode, PREEMPTION_SWAP);
    assert_int_equal(o.scheduling_policy, SCHEDULING_PRIORITY);
    assert_int_equal(log.level, LOG_DEBUG);
    assert_true(o.seed == 9);
    assert_true(flags.given == 0); /* --seed is the engine's alone */
    static const char *const types[][2] = {{"half", "float16"}, {"float", "float32"}, {"auto", "auto"}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        char copy[128];
        snprintf(copy, sizeof copy,
                 "--dtype %s -tp 1 -pp=1 --data_parallel_size=2 --load-format safetensors --revision r", types[i][0]);
        assert_int_equal(parse_engine(&o, &log, &flags, copy, &err), STATUS_OK);
        assert_string_equal(o.dtype, types[i][1]);
        assert_string_equal(o.revision, "r");
        assert_int_equal(o.data_parallel_size, 2);
        assert_int_equal(o.load_format, LOAD_FORMAT_AUTO);
    }
    static const char *const bad[] = {
        "--tensor-parallel-size 0",
        "--pipeline-parallel-size 0",
        "--data-parallel-size 0",
        "--data-parallel-size 65",
        "--device cuda:0,",
        "--device cuda:0,,1",
        "--device gpu",
        "--device cuda:",
        "--device cuda:x",
        "--dtype int8",
        "--quantization nf4",
        "--block-size 17",
        "--block-size 0",
        "--max-num-seqs 0",
        "--load-format x",
        "--threads -1",
        "--kv-cache-space -1",
        "--max-model-len",
        "--max-model-len 0",
        "--seed -1",
        "--seed 1.5",
        "--gpu-memory-utilization 1.1",
        "--kv-cache-dtype fp9",
        "--swap-space -1",
        "--preemption-mode later",
        "--scheduling-policy lifo",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char copy[64];
        snprintf(copy, sizeof copy, "%s", bad[i]);
        err.text[0] = '\0';
        assert_int_equal(parse_engine(&o, &log, &flags, copy, &err), STATUS_INVALID);
        assert_true(strncmp(err.text, bad[i], strcspn(bad[i], " ")) == 0);
    }
}

/* What --speculative-config and its short forms make of the defaults, and what they refuse. */
static void test_speculation_flags(void **state)
{
    (void)state;
    static const struct {
        const char *line, *sentence; /* sentence NULL: accepted */
        enum draft_method method;
        int32_t tokens, lookup_min, lookup_max;
        const char *model; /* of draft_model; NULL: none */
    } cases[] = {
        {"", NULL, DRAFT_NONE, 7, 5, 5},
        {"--speculative-config {\"method\":\"ngram\",\"num_speculative_tokens\":4,\"prompt_lookup_min\":2,"
         "\"prompt_lookup_max\":5}",
         NULL, DRAFT_NGRAM, 4, 2, 5},
        /* one that is alone is both, as in vLLM */
        {"-sc {\"method\":\"ngram\",\"prompt_lookup_max\":3}", NULL, DRAFT_NGRAM, 7, 3, 3},
        {"-sc={\"model\":\"[ngram]\",\"prompt_lookup_min\":9,\"prompt_lookup_max\":null}", NULL, DRAFT_NGRAM, 7, 9, 9},
        {"--speculative_config {\"method\":\"suffix\",\"model\":\"suffix\",\"num_speculative_tokens\":1}", NULL,
         DRAFT_SUFFIX, 1, 5, 5},
        {"--speculative-model [ngram]", NULL, DRAFT_NGRAM, 7, 5, 5},
        {"--speculative-model suffix --num-speculative-tokens 3", NULL, DRAFT_SUFFIX, 3, 5, 5},
        {"--num-speculative-tokens 3", NULL, DRAFT_NONE, 3, 5, 5},
        {"-sc {\"model\":\"org/name\",\"method\":\"draft_model\"}", NULL, DRAFT_MODEL, 7, 5, 5, "org/name"},
        {"-sc {\"model\":\"org/name\"} --num-speculative-tokens 2", NULL, DRAFT_MODEL, 2, 5, 5, "org/name"},
        {"--speculative-model []", NULL, DRAFT_MODEL, 7, 5, 5, "[]"},
        {"--speculative-model ./folder -sc {\"method\":\"ngram\"}", NULL, DRAFT_MODEL, 7, 5, 5, "./folder"},
        {"-sc {\"model\":\"org/name\"} --speculative-model suffix", NULL, DRAFT_SUFFIX, 7, 5, 5, ""},
        /* the short forms come first, the last JSON counts whole */
        {"--speculative-model none --num-speculative-tokens 2 -sc {\"method\":\"ngram\",\"num_speculative_tokens\":4}",
         NULL, DRAFT_NONE, 2, 5, 5},
        {"-sc {\"method\":\"ngram\",\"num_speculative_tokens\":4,\"prompt_lookup_min\":2} --num-speculative-tokens 2 "
         "-sc {\"method\":\"suffix\"}",
         NULL, DRAFT_SUFFIX, 2, 5, 5},
        {"-sc {", "--speculative-config: "},
        {"-sc [1]", "--speculative-config: expected a JSON object {...}, found an array"},
        {"-sc=", "--speculative-config needs a value: --speculative-config JSON"},
        {"-sc {}", "--speculative-config: method or model must be given: ngram|suffix|grammar|mtp|none"},
        {"-sc {\"num_speculative_tokens\":3} --speculative-model ngram",
         "--speculative-config: method or model must be"},
        {"-sc {\"method\":\"ngram\",\"method\":\"ngram\"}", "--speculative-config: "},
        {"-sc {\"method\":\"ngram\",\"prompt_lookup_mn\":3}",
         "--speculative-config: there is no field 'prompt_lookup_mn'; did you mean prompt_lookup_min?"},
        {"-sc {\"method\":\"ngram\",\"zzzzz\":3}", "there is no field 'zzzzz'; --help-all lists them"},
        {"-sc {\"method\":\"ngram\",\"quantization\":null}",
         "quantization does not apply: quire loads a draft model as its checkpoint is"},
        {"-sc {\"method\":7}", "--speculative-config: method must be a string"},
        {"-sc {\"method\":\"medusa\"}",
         "--speculative-config: method: expected ngram|suffix|grammar|draft_model|mtp|none, got "
         "'medusa': quire does not have this "
         "method yet"},
        {"-sc {\"method\":\"ngran\"}", "method: expected ngram|suffix|grammar|draft_model|mtp|none, got 'ngran'"},
        {"-sc {\"method\":\"draft_model\"}", "model must be given: the folder of the draft model"},
        {"-sc {\"method\":\"ngram\",\"model\":\"org/name\"}",
         "method is ngram, but model is 'org/name'; leave out one"},
        {"-sc {\"model\":\"suffix\",\"method\":\"ngram\"}",
         "method is ngram, but model is 'suffix'; leave out one of the two"},
        {"-sc {\"method\":\"ngram\",\"num_speculative_tokens\":\"4\"}",
         "--speculative-config: num_speculative_tokens must be an integer, found \"4\""},
        {"-sc {\"method\":\"ngram\",\"num_speculative_tokens\":4.5}", "num_speculative_tokens must be an integer"},
        {"-sc {\"method\":\"ngram\",\"num_speculative_tokens\":3000000000}",
         "num_speculative_tokens must be an integer"},
        {"-sc {\"method\":\"ngram\",\"num_speculative_tokens\":8}",
         "num_speculative_tokens is 8, but must be from 1 to 7"},
        {"-sc {\"method\":\"ngram\",\"prompt_lookup_max\":0}",
         "prompt_lookup_min is 0 and prompt_lookup_max 0, but both must be at least 1"},
        {"-sc {\"method\":\"ngram\",\"prompt_lookup_min\":4,\"prompt_lookup_max\":3}", "prompt_lookup_max is 3, but"},
        {"-sc {\"method\":\"suffix\",\"suffix_decoding_min_token_prob\":true}",
         "suffix_decoding_min_token_prob must be a number, found true"},
        {"-sc {\"method\":\"suffix\",\"suffix_decoding_min_token_prob\":1.5}",
         "--speculative-config: suffix_decoding_min_token_prob is 1.5, but must be from 0 to 1"},
        {"--speculative-model=",
         "--speculative-model needs a value: --speculative-model PATH|ngram|suffix|grammar|mtp|none"},
        {"--num-speculative-tokens 0", "--num-speculative-tokens: expected a whole number from 1 to 7, got '0'"},
        {"--num-speculative-tokens 8", "--num-speculative-tokens: expected a whole number from 1 to 7, got '8'"},
        {"-md x", "there is no flag -md; did you mean --speculative-model?"},
        {"--draft-max 3", "there is no flag --draft-max; did you mean --num-speculative-tokens?"},
        {"--ngram-prompt-lookup-max 3", "it is a field of the JSON of --speculative-config"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct engine_options o = engine_options_default();
        struct log log = {LOG_WARNING};
        struct sampling_flags flags = {0};
        struct error err = {""};
        char line[256];
        snprintf(line, sizeof line, "%s", cases[i].line);
        const enum status status = parse_engine(&o, &log, &flags, line, &err);
        if ((status == STATUS_OK) != !cases[i].sentence) fail_msg("%s: %s", cases[i].line, err.text);
        if (cases[i].sentence && !strstr(err.text, cases[i].sentence)) fail_msg("%s: %s", cases[i].line, err.text);
        if (cases[i].sentence) continue;
        const struct speculative_config *c = &o.speculative;
        assert_string_equal(c->model, cases[i].model ? cases[i].model : "");
        if (c->method != cases[i].method || c->num_speculative_tokens != cases[i].tokens ||
            c->prompt_lookup_min != cases[i].lookup_min || c->prompt_lookup_max != cases[i].lookup_max)
            fail_msg("%s: method %d, %d, %d, %d", cases[i].line, c->method, c->num_speculative_tokens,
                     c->prompt_lookup_min, c->prompt_lookup_max);
    }
}

/* Each field of the suffix drafter is read; those that are absent keep their defaults. */
static void test_suffix_fields(void **state)
{
    (void)state;
    struct engine_options o = engine_options_default();
    struct log log = {LOG_WARNING};
    struct sampling_flags flags = {0};
    struct error err = {""};
    char line[] = "-sc {\"method\":\"suffix\",\"suffix_decoding_max_tree_depth\":12,"
                  "\"suffix_decoding_max_cached_requests\":0,\"suffix_decoding_max_spec_factor\":2,"
                  "\"suffix_decoding_min_token_prob\":0.25}";
    if (parse_engine(&o, &log, &flags, line, &err) != STATUS_OK) fail_msg("%s", err.text);
    assert_int_equal(o.speculative.suffix_decoding_max_tree_depth, 12);
    assert_int_equal(o.speculative.suffix_decoding_max_cached_requests, 0);
    assert_true(o.speculative.suffix_decoding_max_spec_factor == 2);
    assert_true(o.speculative.suffix_decoding_min_token_prob == 0.25);
    char again[] = "-sc {\"method\":\"suffix\"}";
    assert_int_equal(parse_engine(&o, &log, &flags, again, &err), STATUS_OK);
    struct speculative_config expected = speculative_config_default();
    assert_int_equal(o.speculative.suffix_decoding_max_tree_depth, expected.suffix_decoding_max_tree_depth);
    assert_int_equal(o.speculative.suffix_decoding_max_cached_requests, expected.suffix_decoding_max_cached_requests);
}

static void test_sampling_flags(void **state)
{
    (void)state;
    struct engine_options o = {0};
    struct log log = {LOG_WARNING};
    struct sampling_flags flags = {0};
    struct error err = {""};
    char line[] = "--temperature 0.7 --top-k -1 --stop a --stop=b, --stop-token-ids 3,4 --stop-token-ids 5 "
                  "--logit-bias 1:-2.5,7:100 --ignore-eos --no-skip-special-tokens --min-tokens 3";
    if (parse_engine(&o, &log, &flags, line, &err) != STATUS_OK) fail_msg("%s", err.text);
    struct sampling_params to = {.top_p = 0.25, .skip_special_tokens = true, .max_tokens = 11, .seed = 5};
    assert_int_equal(sampling_flags_apply(&flags, &to, &err), STATUS_OK);
    assert_true(to.temperature == 0.7 && to.top_p == 0.25 && to.top_k == -1 && to.max_tokens == 11 &&
                to.min_tokens == 3);
    assert_int_equal(to.num_stop, 2);
    assert_string_equal(to.stop[0], "a");
    assert_string_equal(to.stop[1], "b,");
    assert_int_equal(to.num_stop_token_ids, 3);
    assert_int_equal(to.stop_token_ids[2], 5);
    assert_int_equal(to.num_logit_bias, 2);
    assert_int_equal(to.logit_bias[1].token, 7);
    assert_true(to.logit_bias[0].value == -2.5f && to.logit_bias[1].value == 100);
    assert_true(to.ignore_eos && !to.skip_special_tokens && !to.has_seed && to.seed == 5);
    sampling_params_free(&to);

    static const char *const bad[] = {"--stop=",
                                      "--stop-token-ids x",
                                      "--stop-token-ids 1,",
                                      "--stop-token-ids 1,,2",
                                      "--stop-token-ids -1",
                                      "--stop-token-ids 99999999999",
                                      "--logit-bias 1",
                                      "--logit-bias 1:",
                                      "--logit-bias 1:x",
                                      "--logit-bias :1",
                                      "--logit-bias 1:nan",
                                      "--logit-bias 1:2,",
                                      "--logit-bias 1:2;3:4",
                                      "--temperature hot",
                                      "--top-k two"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char copy[64];
        snprintf(copy, sizeof copy, "%s", bad[i]);
        err.text[0] = '\0';
        if (parse_engine(&o, &log, &flags, copy, &err) == STATUS_OK) fail_msg("accepted: %s", bad[i]);
        assert_true(strncmp(err.text, bad[i], strcspn(bad[i], " =")) == 0);
    }
    sampling_flags_free(&flags);
}

/* Names, kinds and defaults come from the table of sampling fields; what the command has set is its default. */
static void test_sampling_help(void **state)
{
    (void)state;
    struct option_table table = {.help_all = true};
    struct sampling_flags flags = {.params = sampling_params_default()};
    flags.params.max_tokens = -1;
    sampling_flags_add_answers(&table, &flags, "Answers:");
    sampling_flags_add(&table, &flags);
    assert_int_equal(table.count, NUM_SAMPLING_FIELDS - 1); /* seed has no flag here */
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    options_print_help(&table, "command [flags]", "What it does.", out);
    fclose(out);
    for (int i = 0; i < NUM_SAMPLING_FIELDS; i++) {
        char flag[64];
        snprintf(flag, sizeof flag, "%s", sampling_fields[i].name);
        for (char *at = flag; *at; at++)
            if (*at == '_') *at = '-';
        if (strcmp(flag, "seed") != 0 && !strstr(text, flag)) fail_msg("%s: %s", flag, text);
    }
    assert_null(strstr(text, "--seed"));
    assert_non_null(strstr(text, "--early-stopping true|false|never\n"));
    assert_non_null(strstr(text, "Default: false.\n"));
    assert_non_null(strstr(text, "\nAnswers:\n      --n N "));
    assert_non_null(strstr(text, "Default: the model's, or 1."));
    assert_non_null(strstr(text, "model's, or -1, no limit."));
    assert_non_null(strstr(text, "--[no-]skip-special-tokens  Leave special tokens out of the text. Default: on."));
    assert_non_null(strstr(text, "--logit-bias ID:VALUE,...   Added to the logits of these tokens, -100 to 100.\n"));
    free(text);
}

/* The README lists every sampling flag. */
static void test_readme_lists_sampling_flags(void **state)
{
    (void)state;
    struct text readme = {0};
    struct error err;
    if (file_read(QUIRE_TEST_DATA "/../../README.md", &readme, &err) != STATUS_OK) skip(); /* it did not travel */
    for (int i = 0; i < NUM_SAMPLING_FIELDS; i++) {
        char flag[64];
        snprintf(flag, sizeof flag, "`--%s`", sampling_fields[i].name);
        for (char *at = flag; *at; at++)
            if (*at == '_') *at = '-';
        if (!strstr(readme.data, flag)) fail_msg("README.md does not list %s", flag);
    }
    text_free(&readme);
}

static void test_sampling_limits(void **state)
{
    (void)state;
    struct option_table table = {.count = 0};
    struct sampling_flags flags = {0};
    sampling_flags_add(&table, &flags);
    char *argv[2 * SAMPLING_PARAMS_MAX_STOP + 4] = {"command"};
    int argc = 1;
    for (int i = 0; i <= SAMPLING_PARAMS_MAX_STOP; i++) {
        argv[argc++] = "--stop";
        argv[argc++] = "x";
    }
    struct error err = {""};
    bool help;
    assert_int_equal(options_parse(&table, argc, argv, &help, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "at most 16 stop strings"));
    char text[SAMPLING_PARAMS_MAX_STOP_BYTES + 1];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    flags.params.num_stop = 0;
    argv[2] = text;
    assert_int_equal(options_parse(&table, 3, argv, &help, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "--stop: expected at most 255 bytes, got 256"));
    sampling_flags_free(&flags);
}

static void test_default_model(void **state)
{
    (void)state;
    char path[4096];
    struct engine_options o = {0};
    struct error err;
    assert_int_equal(default_model_find(path, 4, &err), STATUS_INVALID); /* does not fit */
    o.model = "./given";
    assert_int_equal(model_folder_of_engine(&o, path, sizeof path, &err), STATUS_OK);
    assert_string_equal(o.model, "./given");
    o.speculative.method = DRAFT_MODEL;
    snprintf(o.speculative.model, sizeof o.speculative.model, "ngran");
    assert_int_equal(model_folder_of_engine(&o, path, sizeof path, &err), STATUS_IO);
    assert_non_null(strstr(err.text, "the draft model: ngran: no such folder"));
    snprintf(o.speculative.model, sizeof o.speculative.model, "./draft");
    assert_int_equal(model_folder_of_engine(&o, path, sizeof path, &err), STATUS_OK);
    assert_string_equal(o.speculative.model, "./draft");
    if (default_model_find(path, sizeof path, &err) ==
        STATUS_OK) { /* found from the build folder, or not there: nothing else */
        struct stat info;
        assert_int_equal(stat(path, &info), 0);
        assert_true(S_ISDIR(info.st_mode));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_kind),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_word),
        cmocka_unit_test(test_long_unknown_flag),
        cmocka_unit_test(test_vllms_ways),
        cmocka_unit_test(test_foreign_flags),
        cmocka_unit_test(test_flag_lines),
        cmocka_unit_test(test_help),
        cmocka_unit_test(test_help_text),
        cmocka_unit_test(test_common_flags),
        cmocka_unit_test(test_engine_flags),
        cmocka_unit_test(test_speculation_flags),
        cmocka_unit_test(test_suffix_fields),
        cmocka_unit_test(test_sampling_help),
        cmocka_unit_test(test_readme_lists_sampling_flags),
        cmocka_unit_test(test_sampling_flags),
        cmocka_unit_test(test_sampling_limits),
        cmocka_unit_test(test_default_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
