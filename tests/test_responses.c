/* /v1/responses (runtime/prompts/responses_request.h): what its bodies become, and its responses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "runtime/prompts/responses_request.h"
#include "tests/support/api_call.h"
#include "tests/support/json_path.h"

/* ---- requests ---- */

static void test_texts(void **state)
{
    (void)state;
    expect_translation(
        responses_to_chat,
        "{\"model\": \"m\", \"input\": \"Q\", \"instructions\": \"I\", \"max_output_tokens\": 5, \"temperature\": 0.5, "
        "\"store\": false, \"metadata\": {\"a\": \"b\"}, \"reasoning\": {\"effort\": \"low\"}, \"truncation\": "
        "\"disabled\", \"include\": [\"reasoning.encrypted_content\"]}",
        "{\"model\": \"m\", \"temperature\": 0.5, \"max_tokens\": 5, \"metadata\": {\"a\": \"b\"}, "
        "\"reasoning_effort\": \"low\", \"messages\": [{\"role\": \"system\", \"content\": \"I\"}, {\"role\": "
        "\"user\", \"content\": \"Q\"}]}");
    expect_translation(
        responses_to_chat,
        "{\"input\": [{\"role\": \"developer\", \"content\": \"D\"}, {\"type\": \"message\", \"role\": \"user\", "
        "\"content\": [{\"type\": \"input_text\", \"text\": \"Q\"}]}], \"text\": {\"format\": {\"type\": "
        "\"json_schema\", \"name\": \"n\", \"strict\": true, \"schema\": {\"type\": \"object\"}}}}",
        "{\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"name\": \"n\", \"strict\": true, "
        "\"schema\": {\"type\": \"object\"}}}, \"messages\": [{\"role\": \"system\", \"content\": \"D\"}, {\"role\": "
        "\"user\", \"content\": [{\"type\": \"text\", \"text\": \"Q\"}]}]}");
}

/* Reasoning, a text and calls that follow each other are one message. */
static void test_turns(void **state)
{
    (void)state;
    expect_translation(
        responses_to_chat,
        "{\"input\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"type\": \"reasoning\", \"id\": \"r\", \"summary\": "
        "[], "
        "\"content\": [{\"type\": \"reasoning_text\", \"text\": \"T\"}]}, {\"type\": \"message\", \"role\": "
        "\"assistant\", "
        "\"content\": [{\"type\": \"output_text\", \"text\": \"A\", \"annotations\": []}]}, {\"type\": "
        "\"function_call\", "
        "\"call_id\": \"1\", \"name\": \"f\", \"arguments\": \"{}\"}, {\"type\": \"function_call\", \"call_id\": "
        "\"2\", "
        "\"name\": \"g\", \"arguments\": \"{}\"}, {\"type\": \"function_call_output\", \"call_id\": \"1\", \"output\": "
        "\"R\"}], \"tools\": [{\"type\": \"function\", \"name\": \"f\", \"parameters\": {\"type\": \"object\"}, "
        "\"strict\": true}], \"tool_choice\": {\"type\": \"function\", \"name\": \"f\"}, \"parallel_tool_calls\": "
        "false}",
        "{\"parallel_tool_calls\": false, \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", "
        "\"parameters\": {\"type\": \"object\"}}}], \"tool_choice\": {\"type\": \"function\", \"function\": {\"name\": "
        "\"f\"}}, \"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", \"content\": "
        "[{\"type\": \"text\", \"text\": \"A\"}], \"reasoning_content\": \"T\", \"tool_calls\": [{\"id\": \"1\", "
        "\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": \"{}\"}}, {\"id\": \"2\", \"type\": "
        "\"function\", \"function\": {\"name\": \"g\", \"arguments\": \"{}\"}}]}, {\"role\": \"tool\", "
        "\"tool_call_id\": "
        "\"1\", \"content\": \"R\"}]}");
}

static void test_refusals(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"{}", "input must be a string or a list of items, found nothing"},
        {"{\"input\": \"Q\", \"previous_response_id\": \"r\"}",
         "there is no field 'previous_response_id' for this url"},
        {"{\"input\": \"Q\", \"truncation\": \"auto\"}",
         "truncation must be \"disabled\": quire leaves nothing out of a prompt, found \"auto\""},
        {"{\"input\": \"Q\", \"background\": true}", "background must be false: quire keeps no responses, found true"},
        {"{\"input\": \"Q\", \"include\": [\"message.output_text.logprobs\"]}",
         "include: quire does not give \"message.output_text.logprobs\""},
        {"{\"input\": [{\"role\": \"user\", \"content\": [{\"type\": \"input_image\"}]}]}",
         "input: quire does not support a part of type \"input_image\""},
        {"{\"input\": [{\"role\": \"tool\", \"content\": \"\"}]}",
         "input: role must be \"user\", \"assistant\", \"system\" or \"developer\", found \"tool\""},
        {"{\"input\": [{\"type\": \"web_search_call\"}]}",
         "input: quire does not support an item of type \"web_search_call\""},
        {"{\"input\": [{\"type\": \"function_call\", \"name\": \"f\", \"arguments\": \"\"}]}",
         "input: call_id of a part of type \"function_call\" must be a string, found nothing"},
        {"{\"input\": \"Q\", \"tools\": [{\"type\": \"web_search\"}]}",
         "tools: quire has no tool of type \"web_search\""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_untranslatable(responses_to_chat, rows[i][0], rows[i][1]);
}

/* ---- responses ---- */

#define BODY "\"input\": \"What is the weather?\""
#define TOOL                                                                                                           \
    "\"tools\": [{\"type\": \"function\", \"name\": \"weather\", \"parameters\": {\"type\": \"object\", "              \
    "\"properties\": "                                                                                                 \
    "{\"city\": {\"type\": \"string\"}}}}]"

static void test_response(void **state)
{
    (void)state;
    json_t *o = api_object(&world, API_RESPONSES, "{" BODY ", \"temperature\": 0.5}", "It \"rains\".", FINISH_STOP);
    expect_json_text(o, "id", "resp_id");
    expect_json_text(o, "object", "response");
    expect_json_text(o, "status", "completed");
    expect_json(o, "temperature", "0.5");
    expect_json(o, "tools", "[]");
    expect_json_text(o, "output/0/type", "message");
    expect_json(
        o, "output/0/content",
        "[{\"type\": \"output_text\", \"annotations\": [], \"logprobs\": [], \"text\": \"It \\\"rains\\\".\"}]");
    assert_true(json_integer_value(json_at(o, "usage/total_tokens")) ==
                json_integer_value(json_at(o, "usage/input_tokens")) +
                    json_integer_value(json_at(o, "usage/output_tokens")));
    json_decref(o);
    o = api_object(&world, API_RESPONSES, "{" BODY "}", "It", FINISH_LENGTH);
    expect_json_text(o, "status", "incomplete");
    expect_json_text(o, "output/0/status", "incomplete");
    expect_json_text(o, "incomplete_details/reason", "max_output_tokens");
    json_decref(o);
}

static void expect_items(const json_t *output)
{
    expect_json_text(output, "0/type", "reasoning");
    expect_json_text(output, "0/content/0/text", "Look.");
    expect_json_text(output, "1/type", "message");
    expect_json_text(output, "1/content/0/text", "Wait.");
    expect_json_text(output, "2/type", "function_call");
    expect_json_text(output, "2/name", "weather");
    expect_json_text(output, "2/arguments", "{\"city\": \"Aachen\"}");
    expect_json_text(output, "3/type", "function_call");
    assert_string_not_equal(json_string_value(json_at(output, "2/call_id")),
                            json_string_value(json_at(output, "3/call_id")));
    expect_no_json(output, "4");
}

static void test_items(void **state)
{
    (void)state;
    json_t *o =
        api_object(&world, API_RESPONSES, "{" BODY ", " TOOL "}", "<think>Look.</think>Wait." CALL CALL, FINISH_STOP);
    expect_items(json_at(o, "output"));
    json_decref(o);
}

/* The last event has the whole response; an item's events have its text, and each text ends as its deltas said. */
static void test_stream(void **state)
{
    (void)state;
    json_t *events = api_events(&world, API_RESPONSES, "{\"stream\": true, " BODY ", " TOOL "}",
                                "<think>Look.</think>Wait." CALL CALL, FINISH_STOP),
           *event;
    struct text sum = {0};
    size_t i, whole = 0, added = 0, done = 0;
    json_array_foreach(events, i, event)
    {
        const char *delta = json_string_value(json_at(event, "delta")),
                   *text = json_string_value(json_at(event, "text"));
        if (!text) text = json_string_value(json_at(event, "arguments"));
        assert_int_equal(json_integer_value(json_at(event, "sequence_number")), i);
        added += json_is_word(json_at(event, "type"), "response.output_item.added");
        done += json_is_word(json_at(event, "type"), "response.output_item.done");
        if (delta) assert_true(text_append_string(&sum, delta));
        if (!text) continue;
        assert_string_equal(sum.data, text);
        text_clear(&sum);
        whole++;
    }
    text_free(&sum);
    assert_int_equal(whole, 4);
    assert_int_equal(added, 4);
    assert_int_equal(done, 4);
    const json_t *last = json_array_get(events, json_array_size(events) - 1);
    expect_json_text(json_array_get(events, 0), "type", "response.created");
    expect_json_text(last, "type", "response.completed");
    expect_items(json_at(last, "response/output"));
    json_decref(events);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),    cmocka_unit_test(test_turns), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_response), cmocka_unit_test(test_items), cmocka_unit_test(test_stream),
    };
    return cmocka_run_group_tests(tests, api_world_set_up, api_world_tear_down);
}
