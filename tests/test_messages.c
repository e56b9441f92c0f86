/* /v1/messages (runtime/prompts/messages_request.h): what its bodies become, and its responses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "runtime/prompts/messages_request.h"
#include "tests/support/api_call.h"
#include "tests/support/json_path.h"

/* ---- requests ---- */

static void test_texts(void **state)
{
    (void)state;
    expect_translation(
        messages_to_chat,
        "{\"model\": \"m\", \"max_tokens\": 5, \"system\": \"S\", \"messages\": [{\"role\": \"user\", \"content\": "
        "\"Q\"}], \"stop_sequences\": [\"x\"], \"temperature\": 0.5, \"top_k\": 3, \"stream\": true, "
        "\"metadata\": {\"user_id\": \"u\"}, \"min_p\": 0.1}",
        "{\"model\": \"m\", \"max_tokens\": 5, \"temperature\": 0.5, \"top_k\": 3, \"stream\": true, \"min_p\": "
        "0.1, \"stop\": [\"x\"], \"messages\": [{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", "
        "\"content\": \"Q\"}]}");
    expect_translation(
        messages_to_chat,
        "{\"max_tokens\": 5, \"system\": [{\"type\": \"text\", \"text\": \"S\", \"cache_control\": {\"type\": "
        "\"ephemeral\"}}], \"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": "
        "\"Q\"}, {\"type\": \"text\", \"text\": \"R\"}]}]}",
        "{\"max_tokens\": 5, \"messages\": [{\"role\": \"system\", \"content\": [{\"type\": \"text\", \"text\": "
        "\"S\"}]}, {\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"Q\"}, {\"type\": \"text\", "
        "\"text\": \"R\"}]}]}");
    expect_translation(
        messages_to_chat,
        "{\"max_tokens\": 5, \"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", "
        "\"content\": \"A\"}], \"thinking\": {\"type\": \"disabled\"}}",
        "{\"max_tokens\": 5, \"continue_final_message\": true, \"add_generation_prompt\": false, "
        "\"chat_template_kwargs\": {\"enable_thinking\": false}, \"messages\": [{\"role\": \"user\", "
        "\"content\": \"Q\"}, {\"role\": \"assistant\", \"content\": \"A\"}]}");
}

static void test_tools(void **state)
{
    (void)state;
    expect_translation(
        messages_to_chat,
        "{\"max_tokens\": 5, \"tools\": [{\"name\": \"f\", \"description\": \"D\", \"input_schema\": {\"type\": "
        "\"object\"}}], \"tool_choice\": {\"type\": \"tool\", \"name\": \"f\", \"disable_parallel_tool_use\": true}, "
        "\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", \"content\": [{\"type\": "
        "\"thinking\", \"thinking\": \"T\", \"signature\": \"\"}, {\"type\": \"text\", \"text\": \"A\"}, {\"type\": "
        "\"tool_use\", \"id\": \"1\", \"name\": \"f\", \"input\": {\"a\": 1}}]}, {\"role\": \"user\", \"content\": "
        "[{\"type\": \"tool_result\", \"tool_use_id\": \"1\", \"content\": \"R\"}, {\"type\": \"text\", \"text\": "
        "\"And?\"}]}]}",
        "{\"max_tokens\": 5, \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": "
        "\"D\", \"parameters\": {\"type\": \"object\"}}}], \"parallel_tool_calls\": false, \"tool_choice\": {\"type\": "
        "\"function\", \"function\": {\"name\": \"f\"}}, \"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, "
        "{\"role\": \"assistant\", \"content\": [{\"type\": \"text\", \"text\": \"A\"}], \"reasoning_content\": \"T\", "
        "\"tool_calls\": [{\"id\": \"1\", \"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": "
        "\"{\\\"a\\\":1}\"}}]}, {\"role\": \"tool\", \"tool_call_id\": \"1\", \"content\": \"R\"}, {\"role\": "
        "\"user\", "
        "\"content\": [{\"type\": \"text\", \"text\": \"And?\"}]}]}");
    expect_translation(messages_to_chat, "{\"max_tokens\": 5, \"tool_choice\": {\"type\": \"any\"}, \"messages\": []}",
                       "{\"max_tokens\": 5, \"tool_choice\": \"required\", \"messages\": []}");
}

static void test_refusals(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"{\"messages\": []}", "max_tokens is missing"},
        {"{\"max_tokens\": 1}", "messages must be a list of messages, found nothing"},
        {"{\"max_tokens\": 1, \"messages\": [], \"container\": \"c\"}", "there is no field 'container' for this url"},
        {"{\"max_tokens\": 1, \"messages\": [{\"role\": \"system\", \"content\": \"\"}]}",
         "messages: role must be \"user\" or \"assistant\", found \"system\""},
        {"{\"max_tokens\": 1, \"messages\": [{\"role\": \"user\", \"content\": 1}]}",
         "messages: content must be a string or a list of blocks, found 1"},
        {"{\"max_tokens\": 1, \"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\"}]}]}",
         "messages: quire does not support a block of type \"image\" in a message of the user"},
        {"{\"max_tokens\": 1, \"messages\": [{\"role\": \"assistant\", \"content\": [{\"type\": \"tool_use\", \"id\": "
         "\"1\", \"name\": \"f\"}]}]}",
         "messages: input of a block of type tool_use must be an object, found nothing"},
        {"{\"max_tokens\": 1, \"messages\": [], \"tools\": [{\"type\": \"bash_20250124\", \"name\": \"bash\"}]}",
         "tools: quire has no tool of type \"bash_20250124\""},
        {"{\"max_tokens\": 1, \"messages\": [], \"tool_choice\": \"auto\"}",
         "tool_choice must be an object whose type is \"auto\", \"any\", \"none\" or, with a name, \"tool\", found "
         "\"auto\""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_untranslatable(messages_to_chat, rows[i][0], rows[i][1]);
}

/* ---- responses ---- */

#define BODY "\"max_tokens\": 50, " MESSAGES
#define TOOL                                                                                                           \
    "\"tools\": [{\"name\": \"weather\", \"input_schema\": {\"type\": \"object\", \"properties\": {\"city\": "         \
    "{\"type\": \"string\"}}}}]"

static void test_message(void **state)
{
    (void)state;
    json_t *o = api_object(&world, API_MESSAGES, "{" BODY "}", "It \"rains\".", FINISH_STOP);
    expect_json_text(o, "id", "msg_id");
    expect_json_text(o, "type", "message");
    expect_json_text(o, "model", "guide");
    expect_json(o, "content", "[{\"type\": \"text\", \"text\": \"It \\\"rains\\\".\"}]");
    expect_json_text(o, "stop_reason", "end_turn");
    expect_json(o, "stop_sequence", "null");
    assert_true(json_integer_value(json_at(o, "usage/input_tokens")) > 0);
    assert_true(json_integer_value(json_at(o, "usage/output_tokens")) > 0);
    json_decref(o);
    o = api_object(&world, API_MESSAGES, "{" BODY "}", "It", FINISH_LENGTH);
    expect_json_text(o, "stop_reason", "max_tokens");
    json_decref(o);
}

static void test_blocks(void **state)
{
    (void)state;
    json_t *o =
        api_object(&world, API_MESSAGES, "{" BODY ", " TOOL "}", "<think>Look.</think>Wait. " CALL CALL, FINISH_STOP);
    expect_json_text(o, "content/0/type", "thinking");
    expect_json_text(o, "content/0/thinking", "Look.");
    expect_json_text(o, "content/1/type", "text");
    expect_json_text(o, "content/2/type", "tool_use");
    expect_json_text(o, "content/2/name", "weather");
    expect_json(o, "content/2/input", "{\"city\": \"Aachen\"}");
    expect_json_text(o, "content/3/type", "tool_use");
    assert_string_not_equal(json_string_value(json_at(o, "content/2/id")),
                            json_string_value(json_at(o, "content/3/id")));
    expect_no_json(o, "content/4");
    expect_json_text(o, "stop_reason", "tool_use");
    json_decref(o);
}

/* Adds a text of an event to that of its block, or begins a block. */
static void build(json_t *blocks, const json_t *event)
{
    static const char *const deltas[] = {"text", "thinking", "partial_json"};
    const json_t *block = json_at(event, "content_block"), *delta = json_at(event, "delta");
    const size_t index = (size_t)json_integer_value(json_at(event, "index"));
    struct text sum = {0};
    if (block) {
        assert_int_equal(index, json_array_size(blocks));
        json_array_append_new(blocks, json_pack("{s:O,s:s}", "type", json_object_get(block, "type"), "sum", ""));
    }
    for (size_t i = 0; i < sizeof deltas / sizeof *deltas; i++) {
        const char *text = json_string_value(json_object_get(delta, deltas[i]));
        if (!text) continue;
        assert_int_equal(index, json_array_size(blocks) - 1);
        json_t *built = json_array_get(blocks, index);
        assert_true(text_append_string(&sum, json_string_value(json_object_get(built, "sum"))));
        assert_true(text_append_string(&sum, text));
        json_object_set_new(built, "sum", json_string(sum.data));
        text_free(&sum);
    }
}

static void test_stream(void **state)
{
    (void)state;
    json_t *events = api_events(&world, API_MESSAGES, "{\"stream\": true, " BODY ", " TOOL "}",
                                "<think>Look.</think>Wait." CALL, FINISH_STOP),
           *blocks = json_array(), *event;
    const size_t count = json_array_size(events);
    size_t i, starts = 0, stops = 0;
    json_array_foreach(events, i, event)
    {
        starts += json_is_word(json_at(event, "type"), "content_block_start");
        stops += json_is_word(json_at(event, "type"), "content_block_stop");
        build(blocks, event);
    }
    assert_int_equal(starts, 3);
    assert_int_equal(stops, 3);
    expect_json(blocks, "",
                "[{\"type\": \"thinking\", \"sum\": \"Look.\"}, {\"type\": \"text\", \"sum\": \"Wait.\"}, {\"type\": "
                "\"tool_use\", \"sum\": \"{\\\"city\\\": \\\"Aachen\\\"}\"}]");
    expect_json_text(json_array_get(events, 0), "type", "message_start");
    expect_json_text(json_array_get(events, count - 2), "delta/stop_reason", "tool_use");
    expect_json_text(json_array_get(events, count - 1), "type", "message_stop");
    json_decref(events);
    json_decref(blocks);
}

static void test_errors(void **state)
{
    (void)state;
    static const char body[] = "{\"model\": \"none\", " BODY "}";
    struct api_request request;
    struct api_refusal refusal;
    struct text out = {0};
    assert_false(api_request_read(&world.rules, API_MESSAGES, body, strlen(body), &request, &refusal));
    assert_int_equal(refusal.http_status, 404);
    assert_true(api_refusal_write(API_MESSAGES, &refusal, &out));
    assert_string_equal(out.data,
                        "{\"type\":\"error\",\"error\":{\"type\":\"not_found_error\",\"message\":\"model: there is "
                        "no model 'none' here; there is 'guide'\"}}");
    api_request_free(&request);
    text_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),   cmocka_unit_test(test_tools),  cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_message), cmocka_unit_test(test_blocks), cmocka_unit_test(test_stream),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, api_world_set_up, api_world_tear_down);
}
