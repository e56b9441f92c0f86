/* Streams of APIs (runtime/prompts/api.h): joined, their events are the response that is one object. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/api_call.h"
#include "tests/support/json_path.h"

/* Appends the string at `path` of each event, if it is there, to *out. */
static void join(const json_t *events, const char *path, struct text *out)
{
    const json_t *event;
    size_t i;
    assert_true(text_append(out, "", 0));
    json_array_foreach((json_t *)events, i, event)
    {
        const json_t *text = json_at(event, path);
        if (json_is_string(text)) assert_true(text_append(out, json_string_value(text), json_string_length(text)));
    }
}

/* Events' strings at `from`, joined, are the object's at `to`. */
static void expect_joined(const json_t *events, const char *from, const json_t *object, const char *to)
{
    struct text joined = {0};
    join(events, from, &joined);
    const json_t *whole = json_at(object, to);
    assert_string_equal(joined.data, json_is_string(whole) ? json_string_value(whole) : "");
    text_free(&joined);
}

/* Events' lists at `from`, joined, are the object's at `to`. */
static void expect_lists(const json_t *events, const char *from, const json_t *object, const char *to)
{
    json_t *list = json_array();
    const json_t *event;
    size_t i;
    json_array_foreach((json_t *)events, i, event) json_array_extend(list, (json_t *)json_at(event, from));
    if (!json_at(object, to)) assert_int_equal(json_array_size(list), 0);
    if (json_at(object, to) && !json_equal(list, json_at(object, to))) fail_msg("%s: %s", from, json_dumps(list, 0));
    json_decref(list);
}

/* The body as an object and as a stream: the same answer. */
static void compare_chat(const char *fields, const char *answer, enum finish_reason end)
{
    struct text body = {0};
    assert_true(text_printf(&body, "{" MESSAGES ", " TOOLS "%s}", fields));
    json_t *o = api_object(&world, API_CHAT, body.data, answer, end);
    text_clear(&body);
    assert_true(text_printf(&body, "{\"stream\": true, " MESSAGES ", " TOOLS "%s}", fields));
    json_t *events = api_events(&world, API_CHAT, body.data, answer, end);
    text_free(&body);
    const json_t *event;
    size_t i;
    json_array_foreach(events, i, event) expect_json_text(event, "object", "chat.completion.chunk");
    expect_json_text(events, "0/choices/0/delta/role", "assistant");
    expect_joined(events, "choices/0/delta/content", o, "choices/0/message/content");
    expect_joined(events, "choices/0/delta/reasoning", o, "choices/0/message/reasoning");
    expect_joined(events, "choices/0/delta/reasoning_content", o, "choices/0/message/reasoning");
    expect_joined(events, "choices/0/delta/tool_calls/0/id", o, "choices/0/message/tool_calls/0/id");
    expect_joined(events, "choices/0/delta/tool_calls/0/function/name", o,
                  "choices/0/message/tool_calls/0/function/name");
    expect_joined(events, "choices/0/delta/tool_calls/0/function/arguments", o,
                  "choices/0/message/tool_calls/0/function/arguments");
    expect_joined(events, "choices/0/finish_reason", o, "choices/0/finish_reason");
    expect_lists(events, "choices/0/logprobs/content", o, "choices/0/logprobs/content");
    expect_lists(events, "choices/0/token_ids", o, "choices/0/token_ids");
    expect_lists(events, "prompt_token_ids", o, "prompt_token_ids");
    json_decref(o);
    json_decref(events);
}

static void test_chat_streams(void **state)
{
    (void)state;
    static const char *const fields[] = {"", ", \"logprobs\": true, \"top_logprobs\": 3",
                                         ", \"return_token_ids\": true",
                                         ", \"logprobs\": true, \"return_token_ids\": true"};
    static const char *const answers[] = {"It rains.", "<think>Hm.\n</think>It \"rains\" \xc3\xa4.", CALL,
                                          "<think>Hm.</think>Wait. " CALL, "<tool_call>{\"name\": 3}"};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        for (size_t k = 0; k < sizeof answers / sizeof *answers; k++)
            compare_chat(fields[i], answers[k], k % 2 ? FINISH_STOP : FINISH_LENGTH);
}

static void test_completion_streams(void **state)
{
    (void)state;
    static const char *const fields[] = {"", ", \"logprobs\": 2", ", \"return_token_ids\": true, \"logprobs\": 0",
                                         ", \"echo\": true", ", \"echo\": true, \"logprobs\": 1"};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        char body[256];
        snprintf(body, sizeof body, "{\"prompt\": \"Well\"%s}", fields[i]);
        json_t *o = api_object(&world, API_COMPLETION, body, " it rains \xe2\x82\xac", FINISH_STOP);
        snprintf(body, sizeof body, "{\"stream\": true, \"prompt\": \"Well\"%s}", fields[i]);
        json_t *events = api_events(&world, API_COMPLETION, body, " it rains \xe2\x82\xac", FINISH_STOP);
        expect_json_text(events, "0/object", "text_completion");
        expect_joined(events, "choices/0/text", o, "choices/0/text");
        expect_joined(events, "choices/0/finish_reason", o, "choices/0/finish_reason");
        expect_lists(events, "choices/0/logprobs/tokens", o, "choices/0/logprobs/tokens");
        expect_lists(events, "choices/0/logprobs/token_logprobs", o, "choices/0/logprobs/token_logprobs");
        expect_lists(events, "choices/0/logprobs/top_logprobs", o, "choices/0/logprobs/top_logprobs");
        expect_lists(events, "choices/0/logprobs/text_offset", o, "choices/0/logprobs/text_offset");
        expect_lists(events, "choices/0/token_ids", o, "choices/0/token_ids");
        expect_lists(events, "choices/0/prompt_token_ids", o, "choices/0/prompt_token_ids");
        json_decref(o);
        json_decref(events);
    }
}

static void test_stream_usage(void **state)
{
    (void)state;
    json_t *events = api_events(
        &world, API_CHAT, "{" MESSAGES ", \"n\": 2, \"stream\": true, \"stream_options\": {\"include_usage\": true}}",
        "It rains", FINISH_STOP);
    const size_t count = json_array_size(events);
    const json_t *last = json_array_get(events, count - 1);
    expect_json(last, "choices", "[]");
    assert_true(json_integer_value(json_at(last, "usage/completion_tokens")) >= 4);
    for (size_t i = 0; i + 1 < count; i++) expect_json(json_array_get(events, i), "usage", "null");
    json_decref(events);
    events = api_events(&world, API_COMPLETION,
                        "{\"prompt\": [5], \"stream\": true, \"stream_options\": {\"continuous_usage_stats\": true}}",
                        "It rains", FINISH_STOP);
    expect_json(events, "0/usage/completion_tokens", "1");
    expect_json(events, "1/usage/completion_tokens", "2");
    assert_true(json_array_size(json_at(json_array_get(events, json_array_size(events) - 1), "choices")) == 1);
    json_decref(events);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chat_streams),
        cmocka_unit_test(test_completion_streams),
        cmocka_unit_test(test_stream_usage),
    };
    return cmocka_run_group_tests(tests, api_world_set_up, api_world_tear_down);
}
