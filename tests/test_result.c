/* Lines of answers (runtime/prompts/result_line.h) whose text is taken apart, in quire's own form and in OpenAI's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "runtime/prompts/result_line.h"
#include "tests/support/api_call.h"
#include "tests/support/json_path.h"
#include "tests/support/must.h"

static int set_up(void **state)
{
    api_world_set_up(state);
    world.prompts.format = PROMPT_FORMAT_JSONL;
    return 0;
}

/* The line that is written of a line whose answers are all `answer`. */
static json_t *line_of(const char *input, const char *answer)
{
    struct prompt p;
    struct error err = {""};
    struct text line = {0};
    json_t *object;
    must(prompt_parse(&world.prompts, input, strlen(input), &p, &err), &err);
    struct result *r = result_create(&world.rules, (struct result_place){.index = 7, .line = 8}, &p);
    assert_non_null(r);
    for (int32_t i = 0; i < p.params.n; i++) api_say(world.tokenizer, &p, i, answer, FINISH_STOP, result_deliver, r);
    assert_true(r->done && !r->no_memory && !r->error);
    must(result_format(r, &line, &err), &err);
    assert_int_equal(line.data[line.length - 1], '\n');
    must(json_object_parse(line.data, line.length, 0, NULL, &object, &err), &err);
    expect_json(object, "index", "7");
    result_free(r);
    prompt_free(&p);
    text_free(&line);
    return object;
}

static void test_own_form(void **state)
{
    (void)state;
    json_t *line = line_of("{" MESSAGES ", " TOOLS ", \"id\": 3}", "<think>Hm.</think>Wait. " CALL);
    expect_json(line, "id", "3");
    expect_json_text(line, "reasoning", "Hm.");
    expect_json_text(line, "text", "Wait. ");
    expect_json_text(line, "tool_calls/0/type", "function");
    expect_json_text(line, "tool_calls/0/function/name", "weather");
    expect_json_text(line, "tool_calls/0/function/arguments", "{\"city\": \"Aachen\"}");
    assert_int_equal(strlen(json_string_value(json_at(line, "tool_calls/0/id"))), 9);
    expect_json_text(line, "finish_reason", "stop");
    json_decref(line);
    line = line_of("{" MESSAGES ", " TOOLS ", \"n\": 2}", "<think>Hm.</think>Rain.");
    expect_json(line, "texts", "[\"Rain.\", \"Rain.\"]");
    expect_json(line, "reasoning", "[\"Hm.\", \"Hm.\"]");
    expect_json(line, "tool_calls", "[[], []]");
    json_decref(line);
    line = line_of("{" MESSAGES "}", "<think>Hm.</think>" CALL);
    expect_json_text(line, "text", CALL);
    expect_no_json(line, "tool_calls");
    json_decref(line);
    line = line_of("{\"prompt\": \"x\"}", "<think>Hm.</think>" CALL); /* no conversation */
    expect_json_text(line, "text", "<think>Hm.</think>" CALL);
    expect_no_json(line, "reasoning");
    json_decref(line);
}

#define LINE(body) "{\"custom_id\": \"a\", \"url\": \"/v1/chat/completions\", \"body\": {" body "}}"

static void test_batch(void **state)
{
    (void)state;
    json_t *line = line_of(LINE(MESSAGES ", " TOOLS), "<think>Hm.</think>" CALL);
    const json_t *choice = json_at(line, "response/body/choices/0");
    expect_json_text(line, "response/body/id", "chatcmpl-7");
    expect_json_text(choice, "message/reasoning", "Hm.");
    expect_json(choice, "message/content", "null");
    expect_json_text(choice, "message/tool_calls/0/function/name", "weather");
    expect_json_text(choice, "finish_reason", "tool_calls");
    json_decref(line);
}

/* Unless a parser is named, only lines of a batch that have tools are taken apart. */
static void test_unasked(void **state)
{
    (void)state;
    world.prompts.parses_tools = world.prompts.parses_reasoning = false;
    json_t *line = line_of("{" MESSAGES ", " TOOLS "}", "<think>Hm.</think>" CALL);
    expect_json_text(line, "text", "<think>Hm.</think>" CALL);
    expect_no_json(line, "tool_calls");
    json_decref(line);
    line = line_of(LINE(MESSAGES), "<think>Hm.</think>Rain.");
    expect_json_text(line, "response/body/choices/0/message/content", "<think>Hm.</think>Rain.");
    json_decref(line);
    line = line_of(LINE(MESSAGES ", " TOOLS), "<think>Hm.</think>" CALL);
    expect_json_text(line, "response/body/choices/0/message/reasoning", "Hm.");
    json_decref(line);
    world.prompts.parses_tools = world.prompts.parses_reasoning = true;
}

/* The same line gives the same ids of calls. */
static void test_repeated(void **state)
{
    (void)state;
    static const char *const inputs[] = {"{" MESSAGES ", " TOOLS "}", LINE(MESSAGES ", " TOOLS)};
    static const char *const places[] = {"tool_calls/0/id", "response/body/choices/0/message/tool_calls/0/id"};
    for (int i = 0; i < 2; i++) {
        json_t *first = line_of(inputs[i], CALL), *second = line_of(inputs[i], CALL);
        expect_json_text(first, places[i], json_string_value(json_at(second, places[i])));
        json_decref(first);
        json_decref(second);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_form),
        cmocka_unit_test(test_batch),
        cmocka_unit_test(test_unasked),
        cmocka_unit_test(test_repeated),
    };
    return cmocka_run_group_tests(tests, set_up, api_world_tear_down);
}
