/* The fuzzers on their seeds, and on the inputs that once were findings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>
#include <limits.h>

#include "tests/support/program.h"

/* Seeds of "fuzz_NAME" are in seeds/NAME. The program's own sentence comes last of what it says. */
static void replay(const char *name)
{
    char path[PATH_MAX], seeds[PATH_MAX];
    struct program p;
    snprintf(path, sizeof path, "%s/fuzz_%s", QUIRE_FUZZERS, name);
    snprintf(seeds, sizeof seeds, "%s/../fuzz/seeds/%s", QUIRE_TEST_DATA, name);
    program_run(&p, (const char *const[]){path, seeds, NULL}, NULL);
    if (p.exit_status != 0) fail_msg("exit status %d:\n%s", p.exit_status, p.err.data);
    program_free(&p);
}

static void test_json(void **state)
{
    (void)state;
    replay("json");
}

static void test_tokenizer_json(void **state)
{
    (void)state;
    replay("tokenizer_json");
}

static void test_tokenizer_model(void **state)
{
    (void)state;
    replay("tokenizer_model");
}

static void test_tokenizer_config(void **state)
{
    (void)state;
    replay("tokenizer_config");
}

static void test_grammar(void **state)
{
    (void)state;
    replay("grammar");
}

static void test_structured(void **state)
{
    (void)state;
    replay("structured");
}

static void test_regular(void **state)
{
    (void)state;
    replay("regular");
}

static void test_json_schema(void **state)
{
    (void)state;
    replay("json_schema");
}

static void test_jinja(void **state)
{
    (void)state;
    replay("jinja");
}

static void test_http(void **state)
{
    (void)state;
    replay("http");
}

static void test_chat_template(void **state)
{
    (void)state;
    replay("chat_template");
}

static void test_prompts(void **state)
{
    (void)state;
    replay("prompts");
}

static void test_api(void **state)
{
    (void)state;
    replay("api");
}

static void test_config(void **state)
{
    (void)state;
    replay("config");
}

static void test_safetensors(void **state)
{
    (void)state;
    replay("safetensors");
}

static void test_answer_parser(void **state)
{
    (void)state;
    replay("answer_parser");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_tokenizer_json),
        cmocka_unit_test(test_tokenizer_model),
        cmocka_unit_test(test_tokenizer_config),
        cmocka_unit_test(test_grammar),
        cmocka_unit_test(test_regular),
        cmocka_unit_test(test_structured),
        cmocka_unit_test(test_json_schema),
        cmocka_unit_test(test_jinja),
        cmocka_unit_test(test_chat_template),
        cmocka_unit_test(test_http),
        cmocka_unit_test(test_prompts),
        cmocka_unit_test(test_api),
        cmocka_unit_test(test_config),
        cmocka_unit_test(test_safetensors),
        cmocka_unit_test(test_answer_parser),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
