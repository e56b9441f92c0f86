/* Where values come from: the flag, QUIRE_NAME, the file of --config, the default; and what such a file may hold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "runtime/commands.h"
#include "runtime/options/engine_flags.h"
#include "runtime/options/options.h"
#include "runtime/options/sampling_flags.h"
#include "tests/support/temp_folder.h"

struct values {
    struct engine_options engine;
    struct log log;
    struct sampling_flags sampling;
    struct option_table table;
};

/* Parses `flag` (or nothing) and --config with a file of this content (NULL: without). What is in *v must be freed with
 * sampling_flags_free. */
static enum status parse(struct values *v, const char *flag, const char *file, struct error *err)
{
    struct temp_folder folder;
    char path[512], *argv[5] = {"command"}, word[128], with[] = "--config";
    int argc = 1;
    bool help;
    memset(v, 0, sizeof *v);
    v->engine = engine_options_default();
    v->sampling.params = sampling_params_default();
    engine_flags_add(&v->table, &v->engine, &v->log);
    sampling_flags_add(&v->table, &v->sampling);
    temp_folder_make(&folder);
    if (flag) {
        snprintf(word, sizeof word, "%s", flag);
        argv[argc++] = word;
    }
    if (file) {
        temp_folder_write_string(&folder, "c", file);
        assert_true(path_join(path, sizeof path, folder.path, "c"));
        argv[argc++] = with;
        argv[argc++] = path;
    }
    argv[argc] = NULL;
    struct text flags = {0};
    assert_true(command_append_flags(&flags));
    v->table.flags_of_all = flags.data;
    enum status status = options_parse(&v->table, argc, argv, &help, err);
    if (status == STATUS_OK) status = options_read_config(&v->table, err);
    text_free(&flags);
    temp_folder_remove(&folder);
    return status;
}

static void test_order(void **state)
{
    (void)state;
    struct values v;
    struct error err;
    static const char file[] = "max-model-len: 100\n";
    setenv("QUIRE_MAX_MODEL_LEN", "200", 1);
    assert_int_equal(parse(&v, "--max-model-len=300", file, &err), STATUS_OK);
    assert_int_equal(v.engine.max_model_len, 300);
    assert_int_equal(parse(&v, NULL, file, &err), STATUS_OK);
    assert_int_equal(v.engine.max_model_len, 200);
    setenv("QUIRE_MAX_MODEL_LEN", "", 1); /* counts as not set */
    assert_int_equal(parse(&v, NULL, file, &err), STATUS_OK);
    assert_int_equal(v.engine.max_model_len, 100);
    assert_int_equal(parse(&v, NULL, NULL, &err), STATUS_OK);
    assert_int_equal(v.engine.max_model_len, engine_options_default().max_model_len);
    unsetenv("QUIRE_MAX_MODEL_LEN");
}

/* The JSON of drafts: an object in a JSON file, quoted in lines. A short form comes before it wherever it stands. */
static void test_speculation(void **state)
{
    (void)state;
    static const struct {
        const char *flag, *file, *sentence; /* sentence NULL: accepted */
        enum draft_method method;
        int32_t tokens;
    } cases[] = {
        {NULL, "{\"speculative_config\": {\"method\": \"ngram\", \"num_speculative_tokens\": 3}}", NULL, DRAFT_NGRAM,
         3},
        {NULL, "speculative-config: '{\"method\": \"suffix\", \"num_speculative_tokens\": 2}'\n", NULL, DRAFT_SUFFIX,
         2},
        {NULL, "speculative-model: ngram\nnum_speculative_tokens: 4\n", NULL, DRAFT_NGRAM, 4},
        {NULL, "speculative-model: '[ngram]'\n", NULL, DRAFT_NGRAM, 7},
        {NULL, "num-speculative-tokens: 4\nspeculative-config: '{\"method\": \"suffix\"}'\n", NULL, DRAFT_SUFFIX, 4},
        {"--speculative-model=none", "{\"speculative_config\": {\"method\": \"ngram\"}}", NULL, DRAFT_NONE, 7},
        {"--num-speculative-tokens=5",
         "{\"speculative_config\": {\"method\": \"ngram\", \"num_speculative_tokens\": 3}}", NULL, DRAFT_NGRAM, 5},
        {"-sc={\"method\":\"suffix\"}",
         "{\"speculative_config\": {\"method\": \"ngram\", \"num_speculative_tokens\": 3}}", NULL, DRAFT_SUFFIX, 7},
        {NULL, "{\"speculative_config\": {\"method\": \"medusa\"}}",
         "speculative-config: method: expected ngram|suffix|grammar|draft_model|mtp|none, got 'medusa'"},
        {NULL, "{\"speculative_config\": {\"method\": \"ngram\", \"num_speculative_tokens\": 0}}",
         "speculative-config: num_speculative_tokens is 0, but must be from 1 to 7"},
        {NULL, "speculative-config: {}\n", ":1: objects, nested lists and texts of several lines are not read here"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct values v;
        struct error err = {""};
        const enum status status = parse(&v, cases[i].flag, cases[i].file, &err);
        if ((status == STATUS_OK) != !cases[i].sentence) fail_msg("%s: %s", cases[i].file, err.text);
        if (cases[i].sentence && !strstr(err.text, cases[i].sentence)) fail_msg("%s: %s", cases[i].file, err.text);
        if (cases[i].sentence) continue;
        if (v.engine.speculative.method != cases[i].method ||
            v.engine.speculative.num_speculative_tokens != cases[i].tokens)
            fail_msg("%s: method %d, %d tokens", cases[i].file, v.engine.speculative.method,
                     v.engine.speculative.num_speculative_tokens);
    }
}

/* A list that a flag gives is not lengthened by the file's. */
static void test_lists(void **state)
{
    (void)state;
    struct values v;
    struct error err;
    static const char file[] = "{\"stop\": [\"a\", \"b\", \"c\"]}";
    assert_int_equal(parse(&v, NULL, file, &err), STATUS_OK);
    assert_int_equal(v.sampling.params.num_stop, 3);
    assert_true(v.sampling.given != 0);
    sampling_flags_free(&v.sampling);
    /* the same as YAML */
    static const struct {
        const char *file;
        int num_stop, num_ids;
        const char *last;
    } cases[] = {
        {"stop: [a, \"b\\n, ]\", 'it''s', ] # c\nseed: 1\n", 3, 0, "it's"},
        {"stop: [ ]\n", 0, 0, NULL},
        {"stop:\n- a\n-   \"b\"\t# c\n# d\n\n  - c d # e\nstop_token_ids: [2, 13,14]\n", 3, 3, "c d"},
        {"stop:   # list\r\n  - '- x'\r\nstop-token-ids:\n  - 2\n  - 3,4", 1, 3, "- x"},
        {"stop: a\nstop_token_ids:\n- 2", 1, 1, "a"},
        {"stop:\n- null\n- a", 1, 0, "a"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (parse(&v, NULL, cases[i].file, &err) != STATUS_OK) fail_msg("%s: %s", cases[i].file, err.text);
        const struct sampling_params *p = &v.sampling.params;
        assert_int_equal(p->num_stop, cases[i].num_stop);
        assert_int_equal(p->num_stop_token_ids, cases[i].num_ids);
        if (cases[i].last) assert_string_equal(p->stop[p->num_stop - 1], cases[i].last);
        sampling_flags_free(&v.sampling);
    }
    assert_int_equal(parse(&v, "--stop=x", file, &err), STATUS_OK);
    assert_int_equal(v.sampling.params.num_stop, 1);
    sampling_flags_free(&v.sampling);
}

static void test_environment(void **state)
{
    (void)state;
    static const struct {
        const char *variable, *value, *sentence; /* NULL: accepted */
    } cases[] = {
        {"QUIRE_BLOCK_SIZE", "17", "QUIRE_BLOCK_SIZE: expected 8|16|32|64|128, got '17'"},
        {"QUIRE_DTYPE", "int8", "QUIRE_DTYPE: expected auto|float32|float|float16|half|bfloat16, got 'int8'"},
        {"QUIRE_THREADS", "-1", "QUIRE_THREADS: expected a whole number from 0 to 4096, got '-1'"},
        {"QUIRE_ENFORCE_EAGER", "maybe", "QUIRE_ENFORCE_EAGER: expected true or false, got 'maybe'"},
        {"QUIRE_STOP_TOKEN_IDS", "x", "QUIRE_STOP_TOKEN_IDS: expected token ids"},
        {"QUIRE_CONFIG", "/nowhere/at/all", "/nowhere/at/all"},
        {"QUIRE_SPECULATIVE_CONFIG", "{\"method\":\"ngram\",\"num_speculative_tokens\":9}",
         "QUIRE_SPECULATIVE_CONFIG: num_speculative_tokens is 9, but must be from 1 to 7"},
        {"QUIRE_SPECULATIVE_MODEL", "suffix", NULL},
        {"QUIRE_ENFORCE_EAGER", "Yes", NULL},
        {"QUIRE_HELP", "1", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct values v;
        struct error err = {""};
        setenv(cases[i].variable, cases[i].value, 1);
        const enum status status = parse(&v, NULL, NULL, &err);
        unsetenv(cases[i].variable);
        if (!cases[i].sentence != (status == STATUS_OK)) fail_msg("%s: %s", cases[i].variable, err.text);
        if (cases[i].sentence && !strstr(err.text, cases[i].sentence)) fail_msg("%s", err.text);
        sampling_flags_free(&v.sampling);
    }
    struct values v;
    struct error err;
    setenv("QUIRE_VERBOSE", "2", 1);
    setenv("QUIRE_ENABLE_PREFIX_CACHING", "off", 1);
    setenv("QUIRE_ASYNC_SCHEDULING", "0", 1);
    assert_int_equal(parse(&v, NULL, NULL, &err), STATUS_OK);
    unsetenv("QUIRE_VERBOSE");
    unsetenv("QUIRE_ENABLE_PREFIX_CACHING");
    unsetenv("QUIRE_ASYNC_SCHEDULING");
    assert_int_equal(v.log.level, LOG_ERROR + 2);
    assert_false(v.engine.enable_prefix_caching);
    assert_int_equal(v.engine.async_scheduling, 0);
}

static void test_lines(void **state)
{
    (void)state;
    static const char file[] =
        "\xEF\xBB\xBF# settings\r\n---\n\nmodel: \"a\\n\\\"b\\u00e9\"  # quoted\n"
        "max_model_len = 77\nenforce-eager: true # yes\n"
        "device:\tcpu\ndtype: 'float16'\nkv-cache-dtype: null\nswap-space: ~\nseed:   12\n"
        "stop: 'it''s # not a comment'\ntrace: x#y\n"; /* the last names another command's flag */
    struct values v;
    struct error err = {""};
    if (parse(&v, NULL, file, &err) != STATUS_OK) fail_msg("%s", err.text);
    assert_string_equal(v.engine.model, "a\n\"b\xC3\xA9");
    assert_int_equal(v.engine.max_model_len, 77);
    assert_true(v.engine.enforce_eager);
    assert_string_equal(v.engine.device, "cpu");
    assert_string_equal(v.engine.dtype, "float16");
    assert_string_equal(v.engine.kv_cache_dtype, engine_options_default().kv_cache_dtype);
    assert_int_equal(v.engine.seed, 12);
    assert_string_equal(v.sampling.params.stop[0], "it's # not a comment");
    sampling_flags_free(&v.sampling);
}

static void test_json(void **state)
{
    (void)state;
    static const char file[] = " {\"model\": \"m\", \"max_model_len\": 5, \"gpu-memory-utilization\": 0.5,\n"
                               "\"enforce-eager\": true, \"async-scheduling\": false, \"dtype\": null, \"verbose\": 1}";
    struct values v;
    struct error err = {""};
    if (parse(&v, NULL, file, &err) != STATUS_OK) fail_msg("%s", err.text);
    assert_string_equal(v.engine.model, "m");
    assert_int_equal(v.engine.max_model_len, 5);
    assert_true(v.engine.gpu_memory_utilization == 0.5);
    assert_true(v.engine.enforce_eager);
    assert_int_equal(v.engine.async_scheduling, 0);
    assert_int_equal(v.log.level, LOG_ERROR + 1);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *file, *sentence;
    } cases[] = {
        {"block-size: 17", "c:1: block-size: expected 8|16|32|64|128, got '17'"},
        {"\n\nblock_size=17", "c:3: block-size: expected 8|16|32|64|128"},
        {"{\"block-size\": 17}", "c: block-size: expected 8|16|32|64|128, got '17'"},
        {"max-model-length: 5", "c:1: max-model-length: no command has a flag --max-model-length; did you mean "
                                "--max-model-len?"},
        {"{\"zzzzzzzzzzzz\": 1}", "c: zzzzzzzzzzzz: no command has a flag --zzzzzzzzzzzz; "},
        {"seed: 1\nseed: 2", "c:2: seed: the file gives this flag twice"},
        {"{\"seed\": 1, \"seed\": 2}", "the key \"seed\" is there twice"},
        {"a line", "c:1: there is no name with ':' and a blank, or '='"},
        {"seed:1", "c:1: there is no name with"},
        {" seed: 1", "c:1: the line begins with a blank"},
        {"seed: 1\n- 2", "c:2: a line of a list stands below no 'name:'"},
        {"- 2", "c:1: a line of a list stands below no 'name:'"},
        {"seed: [1, 2]", "c:1: seed: a list, but --seed takes one value"},
        {"seed:\n- 1\n- 2", "c:3: seed: a list, but --seed takes one value"},
        {"{\"seed\": [1, 2]}", "c: seed: a list, but --seed takes one value"},
        {"stop: [a, b", "c:1: a list in [ ] must end on the same line"},
        {"stop: [a, \"b\" c]", "c:1: a value in double quotes must end"},
        {"stop: [a, [b]]", "c:1: objects, nested lists"},
        {"stop: [a] b", "c:1: something stands behind the list"},
        {"stop:\n- [a]", "c:2: objects, nested lists"},
        {"--seed: 1", "c:1: names have no dashes before them"},
        {"seed: 1\n  more: 2", "c:2: the line begins with a blank"},
        {"model:\n\nseed: 1", "c:1: model needs a value: --model PATH"},
        {"api-server-count: 2", "c:1: api-server-count: no command has a flag --api-server-count: one process"},
        {"n_predict: 8", "c:1: n-predict: no command has a flag --n-predict; did you mean --max-tokens?"},
        {"stop: {a: b}", "c:1: objects, nested lists and texts of several lines"},
        {"system: |", "c:1: objects, nested lists and texts of several lines"},
        {"model: \"a", "c:1: a value in double quotes must end"},
        {"model: \"a\" b", "c:1: a value in double quotes must end"},
        {"model: \"\\x\"", "c:1: between double quotes only JSON's escapes"},
        {"model: 'a", "c:1: a value in single quotes must end"},
        {"model:", "c:1: model needs a value: --model PATH"},
        {"{\"model\": ", "c: "},
        {"{\"model\": \"a\\u0000b\"}", "c: model: the value has a NUL byte"},
        {"config: x", "c:1: config: --config belongs on the command line"},
        {"help: true", "c:1: help: --help belongs on the command line"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct values v;
        struct error err = {""};
        if (parse(&v, NULL, cases[i].file, &err) != STATUS_INVALID) fail_msg("accepted: %s", cases[i].file);
        if (!strstr(err.text, cases[i].sentence)) fail_msg("%s: %s", cases[i].file, err.text);
        sampling_flags_free(&v.sampling);
    }
}

static void test_too_long(void **state)
{
    (void)state;
    static char file[OPTIONS_CONFIG_MAX + 64] = "model: ";
    struct values v;
    struct error err = {""};
    memset(file + 7, 'x', OPTIONS_CONFIG_MAX - 1);
    assert_int_equal(parse(&v, NULL, file, &err), STATUS_OK);
    assert_int_equal(strlen(v.engine.model), OPTIONS_CONFIG_MAX - 1);
    strcat(file, "x");
    assert_int_equal(parse(&v, NULL, file, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "too long: at most 64 KiB"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),       cmocka_unit_test(test_speculation), cmocka_unit_test(test_lists),
        cmocka_unit_test(test_environment), cmocka_unit_test(test_lines),       cmocka_unit_test(test_json),
        cmocka_unit_test(test_refusals),    cmocka_unit_test(test_too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
