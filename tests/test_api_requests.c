/* Requests of APIs (runtime/prompts/api.h): what bodies mean, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "tests/support/api_call.h"
#include "tests/support/json_path.h"
#include "tests/support/must.h"

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        enum api_form form;
        const char *body;
        int status;
        const char *param, *sentence;
    } cases[] = {
        {API_CHAT, "", 400, "", "the body: "},
        {API_CHAT, "[]", 400, "", "the body: "},
        {API_CHAT, "{\"a\": \"\xff\"}", 400, "", "byte 8 is not UTF-8"},
        {API_CHAT, "{}", 400, "messages", "messages is missing"},
        {API_CHAT, "{\"model\": \"gpt\", " MESSAGES "}", 404, "model", "model: there is no model 'gpt' here"},
        {API_CHAT, "{\"model\": 3, " MESSAGES "}", 400, "model", "model must be a string, found 3"},
        {API_CHAT, "{" MESSAGES ", \"temprature\": 1}", 400, "temprature", "there is no field 'temprature'"},
        {API_CHAT, "{" MESSAGES ", \"temperature\": -1}", 400, "temperature", "temperature "},
        {API_CHAT, "{" MESSAGES ", \"n\": 9}", 400, "n", "n is 9"},
        {API_CHAT, "{" MESSAGES ", \"stream_options\": {}}", 400, "stream_options", "stream_options needs stream"},
        {API_CHAT, "{" MESSAGES ", \"stream\": true, \"prompt_logprobs\": 1}", 400, "prompt_logprobs",
         "prompt_logprobs are not a part of a stream"},
        {API_CHAT, "{" MESSAGES ", \"continue_final_message\": true, \"add_generation_prompt\": true}", 400,
         "continue_final_message", "continue_final_message and add_generation_prompt are both true"},
        {API_CHAT, "{\"messages\": [{\"role\": \"user\"}], \"continue_final_message\": true}", 400,
         "continue_final_message", "continue_final_message needs a last message whose content is text"},
        {API_COMPLETION, "{\"prompt\": [\"a\", 3]}", 400, "prompt", "prompt 2 of 2: prompt must be"},
        {API_COMPLETION, "{\"prompt\": []}", 400, "", "the prompt is empty"},
        {API_COMPLETION, "{\"prompt\": \"x\", \"suffix\": \"y\"}", 400, "suffix", "suffix must be \"\""},
        {API_MESSAGES, "{\"messages\": []}", 400, "max_tokens", "max_tokens is missing"},
        {API_RESPONSES, "{\"input\": \"x\", \"conversation\": \"c\"}", 400, "conversation",
         "there is no field 'conversation'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct api_request request;
        struct api_refusal refusal = {0};
        const char *body = cases[i].body;
        if (api_request_read(&world.rules, cases[i].form, body, strlen(body), &request, &refusal))
            fail_msg("accepted: %s", body);
        if (strncmp(refusal.error.text, cases[i].sentence, strlen(cases[i].sentence)) != 0)
            fail_msg("%s: %s", body, refusal.error.text);
        assert_int_equal(refusal.http_status, cases[i].status);
        assert_string_equal(refusal.param, cases[i].param);
        api_request_free(&request);
    }
}

static void test_refusal_written(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *type;
    } cases[] = {{400, "invalid_request_error"}, {401, "authentication_error"}, {404, "invalid_request_error"},
                 {429, "rate_limit_error"},      {500, "server_error"},         {503, "server_error"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct api_refusal refusal = {.http_status = cases[i].status, .param = "n", .error = {"a \"b\" \xff"}};
        struct text out = {0};
        struct error err;
        json_t *o;
        assert_true(api_refusal_write(API_CHAT, &refusal, &out));
        must(json_object_parse(out.data, out.length, 0, NULL, &o, &err), &err);
        expect_json_text(o, "error/message", "a \"b\" \xef\xbf\xbd");
        expect_json_text(o, "error/type", cases[i].type);
        expect_json_text(o, "error/param", "n");
        assert_int_equal(json_integer_value(json_at(o, "error/code")), cases[i].status);
        json_decref(o);
        text_free(&out);
    }
}

static void expect_prompt(const char *body, const char *text, bool in_reasoning)
{
    struct api_call c;
    struct text decoded = {0};
    struct error err;
    api_call_begin(&c, &world, API_CHAT, body);
    const struct prompt *p = &c.request.prompts[0];
    must(tokenizer_decode(world.tokenizer, p->tokens.ids, p->tokens.count, true, &decoded, &err), &err);
    assert_string_equal(decoded.data, text);
    assert_int_equal(p->parts.in_reasoning, in_reasoning);
    text_free(&decoded);
    api_call_end(&c);
}

static void test_ends_of_prompts(void **state)
{
    (void)state;
    static const char thinking[] = "\"chat_template_kwargs\": {\"think\": true}";
    static const char turns[] =
        "\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", \"content\": \"%s\"}]";
    char body[512];
    expect_prompt("{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}", "<|user|>Hi<|end|><|assistant|>",
                  false);
    expect_prompt("{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"add_generation_prompt\": false}",
                  "<|user|>Hi<|end|>", false);
    snprintf(body, sizeof body, "{\"messages\": [{\"role\": \"user\", \"content\": \"<think>\"}], %s}", thinking);
    expect_prompt(body, "<|user|><think><|end|><|assistant|><think>\n", true);
    expect_prompt("{\"messages\": [{\"role\": \"user\", \"content\": \"<think>\"}]}",
                  "<|user|><think><|end|><|assistant|>", false);
    const char *const contents[] = {"Well, it", "<think>Well", "<think>Well</think>It"};
    for (int i = 0; i < 3; i++) {
        char list[256], text[256];
        snprintf(list, sizeof list, turns, contents[i]);
        snprintf(body, sizeof body, "{%s, \"continue_final_message\": true}", list);
        snprintf(text, sizeof text, "<|user|>Hi<|end|><|assistant|>%s", contents[i]);
        expect_prompt(body, text, i == 1);
    }
}

static void test_fields(void **state)
{
    (void)state;
    struct api_call c;
    api_call_begin(&c, &world, API_CHAT,
                   "{" MESSAGES ", \"cache_salt\": \"s\", \"priority\": -3, \"seed\": 4, \"top_k\": 5, \"min_p\": 0.5, "
                   "\"max_completion_tokens\": 6, \"stop\": [\"x\"], \"logit_bias\": {\"7\": 1}, \"user\": \"me\", "
                   "\"repetition_penalty\": 1.5, \"min_tokens\": 2, \"ignore_eos\": true}");
    const struct prompt *p = &c.request.prompts[0];
    struct engine_request request;
    struct error err;
    must(prompt_request(p, &request, &err), &err);
    assert_string_equal(request.cache_salt, "s");
    assert_int_equal(request.priority, -3);
    assert_true(request.at_start);
    assert_int_equal(p->params.seed, 4);
    assert_int_equal(p->params.top_k, 5);
    assert_int_equal(p->params.max_tokens, 6);
    assert_int_equal(p->params.num_stop, 1);
    assert_int_equal(p->params.num_logit_bias, 1);
    assert_true(p->params.ignore_eos);
    api_call_end(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_refusal_written),
        cmocka_unit_test(test_ends_of_prompts),
        cmocka_unit_test(test_fields),
    };
    return cmocka_run_group_tests(tests, api_world_set_up, api_world_tear_down);
}
