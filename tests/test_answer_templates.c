/* Which forms a chat template is made for, and that what it writes of a call, as a model is to write it, is read as
 * that call (runtime/prompts/answer_parser.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/array.h"
#include "base/file.h"
#include "runtime/prompts/answer_parser.h"
#include "tests/support/must.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/marked_text.h"

static struct text read_template(const char *name)
{
    char path[4096];
    struct text source = {0};
    struct error err;
    snprintf(path, sizeof path, "%s/templates/%s.jinja", QUIRE_TEST_DATA, name);
    must(file_read(path, &source, &err), &err);
    return source;
}

static void test_forms(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"apertus", "apertus", NULL},
        {"chatml", NULL, NULL},
        {"deepseek-r1", "deepseek_v3", "deepseek_r1"},
        {"deepseek-v3.1", "deepseek_v31", "deepseek_r1"},
        {"falcon3", NULL, NULL},
        {"glm4", "glm45", "deepseek_r1"},
        {"gpt-oss", "openai", "openai_gptoss"},
        {"granite3", "granite", "granite"},
        {"hermes", "hermes", NULL},
        {"kimi", "kimi_k2", NULL},
        {"lfm2", "lfm2", "deepseek_r1"},
        {"llama2", NULL, NULL},
        {"llama3.1", "llama3_json", NULL},
        {"llama3.2", "llama3_json", NULL},
        {"llama3", NULL, NULL},
        {"mistral-small", "mistral", NULL},
        {"mistral-v1", NULL, NULL},
        {"mistral-v3", "mistral", NULL},
        {"phi4", "phi4_mini_json", NULL},
        {"qwen2.5", "hermes", NULL},
        {"qwen3", "hermes", "deepseek_r1"},
        {"qwq", "hermes", "deepseek_r1"},
        {"seed-oss", "seed_oss", "seed_oss"},
        {"zephyr", NULL, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct text source = read_template(cases[i][0]);
        const struct answer_format *tools = tool_format_of_template(source.data),
                                   *reasoning = reasoning_format_of_template(source.data);
        if (tools != (cases[i][1] ? tool_format_find(cases[i][1]) : NULL) ||
            reasoning != (cases[i][2] ? reasoning_format_find(cases[i][2]) : NULL))
            fail_msg("%s: %s, %s", cases[i][0], tools ? tools->name : "none", reasoning ? reasoning->name : "none");
        text_free(&source);
    }
}

/* ---- what a template writes of a call ---- */

static const char MESSAGES[] = "[{\"role\":\"user\",\"content\":\"The weather in "
                               "Rome?\"},{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{"
                               "\"id\":\"call00001\",\"type\":\"function\",\"function\":{\"name\":\"weather\","
                               "\"arguments\":{\"city\":\"Rome\",\"days\":3}"
                               "}}]}]";
static const char TOOLS[] = "[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"description\":\"The "
                            "weather\",\"parameters\":{\"type\":"
                            "\"object\",\"properties\":{\"city\":{\"type\":\"string\",\"description\":\"where\"},"
                            "\"days\":{\"type\":\"integer\","
                            "\"description\":\"how many\"}},\"required\":[\"city\"]}}}]";

static json_t *parse(const char *text)
{
    json_t *value = json_loads(text, 0, NULL);
    assert_non_null(value);
    return value;
}

/* The first `count` messages. Kimi's ids hold the name; Mistral's templates want nine letters or digits. */
static struct text render(const struct chat_template *template, const char *name, size_t count, bool prompt)
{
    json_t *messages = parse(MESSAGES), *tools = parse(TOOLS);
    if (strcmp(name, "kimi") == 0)
        json_object_set_new(json_array_get(json_object_get(json_array_get(messages, 1), "tool_calls"), 0), "id",
                            json_string("functions.weather:0"));
    while (json_array_size(messages) > count) json_array_remove(messages, count);
    const struct chat_input input = {
        .messages = messages, .tools = tools, .add_generation_prompt = prompt, .fit_form = true, .now = 1700000000};
    struct marked_text out = {0};
    struct error err;
    must(chat_template_render(template, &input, &out, &err), &err);
    struct text text = {0};
    text_append(&text, out.text.data, out.text.length);
    marked_text_free(&out);
    json_decref(messages);
    json_decref(tools);
    return text;
}

struct call {
    struct text name, arguments;
    int count;
};

static void take(void *user, const struct answer_part *part)
{
    struct call *c = user;
    if (part->kind == PART_TOOL_CALL) c->count++, text_append(&c->name, part->text, part->length);
    if (part->kind == PART_TOOL_ARGUMENTS) text_append(&c->arguments, part->text, part->length);
}

static void check_call(const char *name, const struct call *c, const char *answer)
{
    json_t *arguments = c->arguments.data ? json_loads(c->arguments.data, 0, NULL) : NULL;
    json_t *expected = parse("{\"city\":\"Rome\",\"days\":3}");
    if (c->count != 1 || strcmp(c->name.data, "weather") != 0 || !json_equal(arguments, expected))
        fail_msg("%s: %d calls in %s", name, c->count, answer);
    json_decref(arguments);
    json_decref(expected);
}

/* The answer is what the conversation has behind the prompt. */
static void check_template(const struct tokenizer *tokenizer, const char *name)
{
    struct chat_template *template;
    struct answer_parser *parser;
    struct error err;
    struct text source = read_template(name);
    must(chat_template_open(tokenizer, source.data, &template, &err), &err);
    struct text prompt = render(template, name, 1, true), whole = render(template, name, 2, false);
    json_t *tools = parse(TOOLS);
    size_t same = 0;
    while (same < prompt.length && prompt.data[same] == whole.data[same]) same++;
    /* A prompt may end with a mark that begins a thought, or says that there is none. */
    while (same > 0 && same < prompt.length && whole.data[same - 1] != '>' && whole.data[same - 1] != '\n') same--;
    const struct answer_parser_options options = {.tools = tool_format_of_template(source.data),
                                                  .reasoning = reasoning_format_of_template(source.data),
                                                  .tool_list = tools};
    struct call call = {0};
    must(answer_parser_create(&options, take, &call, &parser, &err), &err);
    assert_true(answer_parser_add(parser, whole.data + same, whole.length - same));
    assert_true(answer_parser_finish(parser));
    check_call(name, &call, whole.data + same);
    answer_parser_free(parser);
    text_free(&call.name);
    text_free(&call.arguments);
    text_free(&source);
    text_free(&prompt);
    text_free(&whole);
    json_decref(tools);
    chat_template_close(template);
}

static void test_calls(void **state)
{
    (void)state;
    static const char *const names[] = {"apertus",  "deepseek-r1", "deepseek-v3.1",  "glm4",          "gpt-oss",
                                        "granite3", "hermes",      "kimi",           "llama3.1",      "llama3.2",
                                        "qwen2.5",  "qwen3",       "mistral-v3",     "mistral-small", "seed-oss",
                                        "qwq",      "reka-edge",   "command-r-tools"};
    struct tokenizer *tokenizer;
    struct error err;
    must(tokenizer_open(QUIRE_GUIDE, &tokenizer, &err), &err);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) check_template(tokenizer, names[i]);
    tokenizer_close(tokenizer);
}

/* The tokenizers of tests/data/tokenizers have the special tokens of their families. */
static void check_special(const char *folder, const char *tools, bool tools_are, const char *reasoning,
                          bool reasoning_is)
{
    char path[4096];
    struct tokenizer *tokenizer;
    struct error err;
    snprintf(path, sizeof path, "%s/tokenizers/%s", QUIRE_TEST_DATA, folder);
    must(tokenizer_open(path, &tokenizer, &err), &err);
    assert_int_equal(tool_format_is_special(tool_format_find(tools), tokenizer), tools_are);
    assert_int_equal(reasoning_format_is_special(reasoning_format_find(reasoning), tokenizer), reasoning_is);
    tokenizer_close(tokenizer);
}

static void test_special_tokens(void **state)
{
    (void)state;
    check_special("qwen2", "hermes", false, "qwen3", false);
    check_special("deepseek", "deepseek_v31", false, "deepseek_r1", false);
    check_special("o200k", "openai", true, "openai_gptoss", true);
    check_special("tekken", "mistral", true, "mistral", false);
    check_special("llama3", "llama3_json", true, "deepseek_r1", false);
    check_special("llama3", "pythonic", false, "granite", false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forms), cmocka_unit_test(test_calls),
                                       cmocka_unit_test(test_special_tokens)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
