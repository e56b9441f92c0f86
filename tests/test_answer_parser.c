/* The parts of answers (runtime/prompts/answer_parser.h): an example of each form, and that the parts do not depend on
 * the pieces in which the text comes, nor are lost where it is damaged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/array.h"
#include "base/random.h"
#include "runtime/prompts/answer_parser.h"
#include "tests/support/answer_parts.h"

static void test_examples(void **state)
{
    (void)state;
    struct random random = {33};
    json_t *list = answer_tool_list();
    for (int i = 0; i < num_answer_examples; i++) {
        const struct example *e = &answer_examples[i];
        const struct form form = {e->tools, e->reasoning, list, false};
        struct parts parts;
        parse_answer(&form, e->text, strlen(e->text), strlen(e->text), &random, &parts);
        assert_string_equal(parts.shown.data, e->parts);
        assert_true(parts.calls_are_whole);
        parts_free(&parts);
        check_pieces(&form, e->text, e->parts, &random);
    }
    json_decref(list);
}

/* Each form has an example with a call, or with a thought. */
static void test_every_form_has_an_example(void **state)
{
    (void)state;
    const struct answer_format *format;
    for (int i = 0; (format = tool_format_at(i)); i++) {
        bool found = false;
        for (int k = 0; k < num_answer_examples; k++)
            found = found || (answer_examples[k].tools && tool_format_find(answer_examples[k].tools) == format &&
                              strchr(answer_examples[k].parts, '['));
        if (!found) fail_msg("no example of %s", format->name);
        assert_ptr_equal(tool_format_find(format->name), format);
        assert_true(format->description[0] != '\0');
    }
    for (int i = 0; (format = reasoning_format_at(i)); i++) {
        bool found = false;
        for (int k = 0; k < num_answer_examples; k++)
            found = found ||
                    (answer_examples[k].reasoning && reasoning_format_find(answer_examples[k].reasoning) == format &&
                     strstr(answer_examples[k].parts, "R("));
        if (!found) fail_msg("no example of %s", format->name);
        assert_ptr_equal(reasoning_format_find(format->name), format);
    }
    assert_null(tool_format_find("nothing"));
    assert_null(reasoning_format_find(""));
}

/* ---- damage ---- */

/* What was given of an answer that goes on stays as it is. */
static void check_prefix(const struct form *form, const char *text, size_t length, size_t cut)
{
    struct parts half, whole;
    struct answer_parser *parser = open_parser(form, &half);
    add_piece(parser, text, cut);
    const size_t given = half.shown.length;
    add_piece(parser, text + cut, length - cut);
    close_parser(parser, &half);
    parse_answer(form, text, length, length, NULL, &whole);
    assert_true(given <= whole.shown.length);
    assert_string_equal(half.shown.data, whole.shown.data);
    parts_free(&half);
    parts_free(&whole);
}

/* An answer without a call, in a form without thoughts, is all content. */
static void check_nothing_is_lost(const struct form *form, const struct parts *parts, const char *text, size_t length)
{
    if (parts->num_tools > 0 || form->reasoning || (form->tools && strcmp(form->tools, "openai") == 0)) return;
    assert_int_equal(parts->content.length, length);
    assert_true(length == 0 || memcmp(parts->content.data, text, length) == 0);
}

static void check_damaged(const struct form *form, const char *text, size_t length, struct random *random)
{
    struct parts whole, bytes;
    parse_answer(form, text, length, length ? length : 1, random, &whole);
    check_nothing_is_lost(form, &whole, text, length);
    for (int i = 0; i < 4; i++) {
        parse_answer(form, text, length, i == 0, random, &bytes);
        assert_string_equal(bytes.shown.data, whole.shown.data);
        parts_free(&bytes);
    }
    parts_free(&whole);
}

/* Removes, doubles or replaces some bytes; pieces of other examples come in, too. */
static void damage(struct text *t, struct random *random)
{
    const struct example *other = &answer_examples[random_between(random, 0, num_answer_examples - 1)];
    const size_t size = (size_t)random_between(random, 1, 12),
                 at = (size_t)random_between(random, 0, (int64_t)t->length);
    const size_t left = t->length - at, cut = size < left ? size : left, length = strlen(other->text);
    struct text changed = {0};
    text_append(&changed, t->data, at);
    switch (random_between(random, 0, 3)) {
    case 0:
        break;
    case 1:
        text_append(&changed, t->data + at, cut), text_append(&changed, t->data + at, cut);
        break;
    case 2:
        text_append(&changed, (char[]){(char)random_between(random, 1, 126)}, 1);
        break;
    default: {
        const size_t from = (size_t)random_between(random, 0, (int64_t)length - 1);
        text_append(&changed, other->text + from, size < length - from ? size : length - from);
    }
    }
    text_append(&changed, t->data + at + cut, left - cut);
    text_free(t);
    *t = changed;
}

static void test_damaged(void **state)
{
    (void)state;
    struct random random = {7};
    json_t *list = answer_tool_list();
    for (int i = 0; i < num_answer_examples; i++) {
        for (int round = 0; round < 300; round++) {
            struct text text = {0};
            const struct form form = {answer_examples[i].tools, round % 3 ? answer_examples[i].reasoning : NULL,
                                      round % 2 ? list : NULL, round % 5 == 0};
            text_append_string(&text, answer_examples[i].text);
            for (int64_t n = random_between(&random, 1, 3); n > 0 && text.length > 0; n--) damage(&text, &random);
            check_damaged(&form, text.data ? text.data : "", text.length, &random);
            text_free(&text);
        }
    }
    json_decref(list);
}

static void test_cut_off(void **state)
{
    (void)state;
    struct random random = {9};
    for (int i = 0; i < num_answer_examples; i++) {
        const struct form form = {answer_examples[i].tools, NULL, NULL, false};
        for (size_t length = 0; length < strlen(answer_examples[i].text); length++) {
            check_damaged(&form, answer_examples[i].text, length, &random);
            check_prefix(&form, answer_examples[i].text, strlen(answer_examples[i].text), length);
        }
    }
}

/* What is certain is given at once: what was given when so much of an answer has come. */
static void test_promptness(void **state)
{
    (void)state;
    static const struct example examples[] = {
        {"hermes", "qwen3", "Yes, ", "C(Yes, "},
        {"hermes", "qwen3", "Yes <tool", "C(Yes "},
        {"hermes", "qwen3", "<think>Hm", "R(Hm"},
        {"hermes", "qwen3", "<think>Hm</thin", "R(Hm"},
        {"hermes", "qwen3", "<think>Hm</think>\n\nY", "R(Hm)C(\n\nY"},
        {"hermes", NULL, "<tool_call>{\"name\": \"f\", \"arguments\": {", "[f {"},
        {"hermes", NULL, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"b", "[f {\"a\": \"b"},
        {"hermes", NULL, "<tool_call>{\"name\": \"f\", \"arguments\": {}}", "[f {}]"},
        {"hermes", NULL, "<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"f\"", "[f {\"a\": 1}"},
        {"llama3_json", NULL, "{\"name\": \"clock\", \"parameters\": {", "[clock {"},
        {"llama3_json", NULL, "No", "C(No"},
        {"granite", NULL, "[1", "C([1"},
        {"granite", NULL, "[{\"name\": \"clock\", \"arguments\": {}}, 1", "[clock {}]C(, 1"},
        {"jamba", NULL, "<tool_calls>[{\"name\": \"f\", \"arguments\": {}}", "[f {}]"},
        {"mistral", "mistral", "[TOOL_CALLS]f[ARGS]{\"a", "[f {\"a"},
        {"qwen3_coder", NULL, "<function=weather><parameter=", "[weather "},
        {"qwen3_coder", NULL, "<function=weather><parameter=city>\nRo", "[weather {\"city\": \"Ro"},
        {"qwen3_coder", NULL, "<function=weather><parameter=city>\nRo\n", "[weather {\"city\": \"Ro"},
        {"qwen3_coder", NULL, "<function=weather><parameter=days>5</parameter>", "[weather {\"days\": 5"},
        {"glm45", NULL, "<tool_call>clock</tool_call>", "[clock {}]"},
        {"pythonic", NULL, "[weather(city=", "[weather {\"city\": "},
        {"pythonic", NULL, "[weather(city='Ro", "[weather {\"city\": \"Ro"},
        {"pythonic", NULL, "[weather(days=5,", "[weather {\"days\": 5"},
        {"pythonic", NULL, "[weather is", "C([weather is"},
        {"gemma4", "gemma4", "<|channel>thought\nHm", "R(Hm"},
        {"gemma4", NULL, "<|tool_call>call:weather{city:<|\"|>Ro", "[weather {\"city\": \"Ro"},
        {"openai", "openai_gptoss", "<|channel|>analysis<|message|>Hm", "R(Hm"},
        {"openai", "openai_gptoss", "<|channel|>commentary to=functions.f<|message|>{\"a", "[f {\"a"},
    };
    json_t *list = answer_tool_list();
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        const struct form form = {examples[i].tools, examples[i].reasoning, list, false};
        struct parts parts;
        struct answer_parser *parser = open_parser(&form, &parts);
        for (const char *at = examples[i].text; *at; at++) add_piece(parser, at, 1);
        assert_string_equal(parts.shown.data, examples[i].parts);
        close_parser(parser, &parts);
        parts_free(&parts);
    }
    json_decref(list);
}

/* What a model writes that is not right. */
static void test_damaged_examples(void **state)
{
    (void)state;
    static const struct example examples[] = {
        {"hermes", NULL, "<tool_call>{'name': 'f'}</tool_call>", "C(<tool_call>{'name': 'f'}</tool_call>)"},
        {"hermes", NULL, "<tool_call>{\"name\": \"f g\", \"arguments\": {}}</tool_call>",
         "C(<tool_call>{\"name\": \"f g\", \"arguments\": {}}</tool_call>)"},
        {"hermes", NULL, "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
         "C(<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>)"},
        {"hermes", NULL, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1,, \"b\"", "[f {\"a\": 1,]C(, \"b\")"},
        {"hermes", NULL, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"cut o", "[f {\"a\": \"cut o]"},
        {"hermes", NULL, "<tool_call>{\"name\": \"f", "C(<tool_call>{\"name\": \"f)"},
        {"hermes", NULL, "<tool_call>\n<tool_call>\n{\"name\": \"f\"}\n</tool_call>", "C(<tool_call>\n)[f {}]"},
        {"qwen3_coder", NULL, "<function=f><parameter=a>b", "[f {\"a\": \"b]"},
        {"qwen3_coder", NULL, "<function=f>Text</function>", "C(<function=f>Text</function>)"},
        {"pythonic", NULL, "[f(a=1, b=g)]", "[f {\"a\": 1, \"b\": ]C()])"},
        {"mistral", NULL, "[TOOL_CALLS]f[ARGS]{\"a\": 1,, \"b\": 2}", "[f {\"a\": 1,]C(, \"b\": 2})"},
        {"mistral", NULL, "[TOOL_CALLS] are written so.", "C([TOOL_CALLS] are written so.)"},
        {"kimi_k2", NULL, "<|tool_calls_section_begin|>none<|tool_calls_section_end|>",
         "C(<|tool_calls_section_begin|>none<|tool_calls_section_end|>)"},
        {"openai", "openai_gptoss", "<|channel|>final", "C(<|channel|>final)"},
    };
    struct random random = {1};
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        const struct form form = {examples[i].tools, examples[i].reasoning, NULL, false};
        check_pieces(&form, examples[i].text, examples[i].parts, &random);
    }
}

/* ---- thoughts that the prompt begins ---- */

static void check_open(const char *name, const char *prompt, bool open)
{
    assert_int_equal(reasoning_is_open(reasoning_format_find(name), prompt, strlen(prompt)), open);
}

static void test_open_thoughts(void **state)
{
    (void)state;
    struct random random = {2};
    check_open("qwen3", "<|im_start|>assistant\n<think>\n", true);
    check_open("qwen3", "<|im_start|>assistant\n<think>\n\n</think>\n\n", false);
    check_open("qwen3", "What does <think> mean?<|im_end|>\n<|im_start|>assistant\n", false);
    check_open("gemma4", "<|turn>model\n<|channel>thought\n", true);
    check_open("gemma4", "<|turn>model\n<|channel>", true);
    check_open("gemma4", "a thought\n", false);
    check_open("openai_gptoss", "<|start|>assistant", false);
    check_open("openai_gptoss", "<|start|>assistant<|channel|>analysis<|message|>", true);
    check_open("mistral", "", false);
    assert_false(reasoning_is_open(NULL, "<think>", 7));
    static const struct example examples[] = {
        {"hermes", "qwen3", "Hm.</think>\n<tool_call>{\"name\": \"f\"}</tool_call>", "R(Hm.)[f {}]"},
        {"hermes", "qwen3", "\n<think>Hm.</think>Yes.", "R(Hm.)C(Yes.)"},
        {"hermes", "qwen3", "<tool_call> comes first.</think>", "R(<tool_call> comes first.)"},
        {"gemma4", "gemma4", "thought\nHm.<channel|>Yes.", "R(Hm.)C(Yes.)"},
        {"openai", "openai_gptoss", "Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.", "R(Hm.)C(Yes.)"},
    };
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        const struct form form = {examples[i].tools, examples[i].reasoning, NULL, true};
        check_pieces(&form, examples[i].text, examples[i].parts, &random);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_examples),         cmocka_unit_test(test_every_form_has_an_example),
        cmocka_unit_test(test_damaged_examples), cmocka_unit_test(test_promptness),
        cmocka_unit_test(test_damaged),          cmocka_unit_test(test_cut_off),
        cmocka_unit_test(test_open_thoughts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
