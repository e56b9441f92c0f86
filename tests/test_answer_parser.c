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
#include "base/file.h"
#include "base/json_scan.h"
#include "base/random.h"
#include "runtime/prompts/answer_parser.h"
#include "tests/support/must.h"

/* ---- parts as text ----
 *
 * "R(thought)C(content)" and for a call "[f" or "[f#id", its arguments, "]". Pieces of a part are joined. */

struct parts {
    struct text shown, content, arguments; /* content: all of it; arguments: of the last call */
    int kind;                              /* of the last part; -1: none */
    int32_t num_tools;
    bool in_call, calls_are_whole; /* the arguments of every call are JSON */
};

static void take(void *user, const struct answer_part *part)
{
    struct parts *p = user;
    const bool joins = (int)part->kind == p->kind;
    if (!joins && (p->kind == PART_REASONING || p->kind == PART_CONTENT)) text_append_string(&p->shown, ")");
    switch (part->kind) {
    case PART_REASONING:
    case PART_CONTENT:
        assert_false(p->in_call);
        assert_true(part->length > 0);
        if (!joins) text_append_string(&p->shown, part->kind == PART_CONTENT ? "C(" : "R(");
        text_append(&p->shown, part->text, part->length);
        if (part->kind == PART_CONTENT) text_append(&p->content, part->text, part->length);
        break;
    case PART_TOOL_CALL:
        assert_false(p->in_call);
        assert_true(part->length > 0);
        assert_int_equal(part->tool, p->num_tools++);
        text_printf(&p->shown, "[%.*s%s%s ", (int)part->length, part->text, part->id ? "#" : "",
                    part->id ? part->id : "");
        p->in_call = true;
        break;
    case PART_TOOL_ARGUMENTS:
        assert_true(p->in_call && part->length > 0);
        assert_int_equal(part->tool, p->num_tools - 1);
        text_append(&p->shown, part->text, part->length);
        text_append(&p->arguments, part->text, part->length);
        break;
    case PART_TOOL_END:
        assert_true(p->in_call);
        assert_int_equal(part->tool, p->num_tools - 1);
        text_append_string(&p->shown, "]");
        p->calls_are_whole = p->calls_are_whole && json_scan_whole(p->arguments.data, p->arguments.length);
        text_clear(&p->arguments);
        p->in_call = false;
        break;
    }
    p->kind = part->kind;
}

static void parts_free(struct parts *p)
{
    text_free(&p->shown);
    text_free(&p->content);
    text_free(&p->arguments);
}

/* ---- parsing in pieces ---- */

struct form {
    const char *tools, *reasoning;
    const json_t *tool_list;
    bool in_reasoning;
};

static const char TOOL_LIST[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"parameters\":{\"type\":\"object\",\"properties\":{"
    "\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"},\"metric\":{\"type\":\"boolean\"},"
    "\"places\":{\"type\":\"array\"},\"where\":{\"$ref\":\"#/$defs/place\"},\"hint\":{\"type\":[\"string\",\"null\"]}},"
    "\"$defs\":{\"place\":{\"type\":\"object\"}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"clock\"}}]";

static json_t *tool_list(void)
{
    json_t *list = json_loads(TOOL_LIST, 0, NULL);
    assert_non_null(list);
    return list;
}

static struct answer_parser *open_parser(const struct form *form, struct parts *parts)
{
    struct answer_parser_options options = {.tool_list = form->tool_list, .in_reasoning = form->in_reasoning};
    struct answer_parser *parser;
    struct error err;
    if (form->tools) assert_non_null(options.tools = tool_format_find(form->tools));
    if (form->reasoning) assert_non_null(options.reasoning = reasoning_format_find(form->reasoning));
    *parts = (struct parts){.kind = -1, .calls_are_whole = true};
    must(answer_parser_create(&options, take, parts, &parser, &err), &err);
    return parser;
}

static void close_parser(struct answer_parser *parser, struct parts *parts)
{
    assert_true(answer_parser_finish(parser));
    assert_int_equal(answer_parser_num_tools(parser), parts->num_tools);
    assert_false(parts->in_call);
    if (parts->kind == PART_REASONING || parts->kind == PART_CONTENT) text_append_string(&parts->shown, ")");
    if (!parts->shown.data) text_append_string(&parts->shown, "");
    answer_parser_free(parser);
}

/* Gives the text in memory of its own, so that a sanitizer sees what is read behind it. */
static void add(struct answer_parser *parser, const char *text, size_t length)
{
    char *copy = malloc(length + 1);
    memcpy(copy, text, length);
    assert_true(answer_parser_add(parser, copy, length));
    memset(copy, '!', length);
    free(copy);
}

/* Pieces of `size` bytes; 0: of random sizes. */
static void parse(const struct form *form, const char *text, size_t length, size_t size, struct random *random,
                  struct parts *parts)
{
    struct answer_parser *parser = open_parser(form, parts);
    for (size_t at = 0; at < length;) {
        size_t piece = size ? size : 1 + (size_t)random_between(random, 0, 8);
        if (piece > length - at) piece = length - at;
        add(parser, text + at, piece);
        at += piece;
    }
    close_parser(parser, parts);
}

/* ---- examples ---- */

#define CALL_BEGIN "<｜tool▁call▁begin｜>"
#define CALL_END "<｜tool▁call▁end｜>"

static const struct example {
    const char *tools, *reasoning; /* NULL: none */
    const char *text, *parts;
} EXAMPLES[] = {
    {"hermes", "qwen3",
     "<think>\nThe weather.\n</think>\n\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Köln\", "
     "\"x\": "
     "[1, {}]}}\n</tool_call>\n<tool_call>\n{\"name\": \"clock\", \"arguments\": {}}\n</tool_call>",
     "R(\nThe weather.\n)[weather {\"city\": \"Köln\", \"x\": [1, {}]}][clock {}]"},
    {"hermes", NULL,
     "Let me look.\n<tool_call>{\"arguments\": {\"a\": \"</tool_call>\"}, \"name\": \"f\"}</tool_call> So.",
     "C(Let me look.\n)[f {\"a\": \"</tool_call>\"}]C( So.)"},
    {"hermes", NULL, "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>", "[f {\"a\": 1}]"},
    {"hermes", NULL,
     "<tool_call>{\"name\": \"f\"}</tool_call><tool_call>{\"name\": \"g\", \"arguments\": null}</tool_call>",
     "[f {}][g {}]"},
    {"hermes", NULL, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}</tool_call>", "[f {\"a\": 1}]"},
    {"hermes", "deepseek_r1", "A mark such as <think> or <tool_call> in a text.",
     "C(A mark such as <think> or <tool_call> in a text.)"},
    {"longcat", NULL, "<longcat_tool_call>{\"name\": \"f\", \"arguments\": {}}</longcat_tool_call>", "[f {}]"},
    {"qwen3_coder", "qwen3",
     "<think>\nx</think>\n<tool_call>\n<function=weather>\n<parameter=city>\nSan \"Juan\"\n\n</parameter>\n<parameter="
     "days>\n 3 \n</parameter>\n<parameter=metric>\nTrue\n</parameter>\n<parameter=places>\n['a', 2]\n</parameter>\n"
     "<parameter=where>\n{\"x\":1}\n</parameter>\n<parameter=hint>\nnull\n</parameter>\n<parameter=new>\n5\n</"
     "parameter>"
     "\n</function>\n</tool_call>\n<tool_call>\n<function=clock>\n</function>\n</tool_call>",
     "R(\nx)[weather {\"city\": \"San \\\"Juan\\\"\\n\", \"days\": 3, \"metric\": true, \"places\": [\"a\", 2], "
     "\"where\": "
     "{\"x\":1}, \"hint\": null, \"new\": \"5\"}][clock {}]"},
    {"qwen3_coder", NULL, "<function=clock><parameter=a>b</parameter></function>", "[clock {\"a\": \"b\"}]"},
    {"qwen3_coder", NULL, "<tool_call><function=weather><parameter=days>three</parameter></function></tool_call>",
     "[weather {\"days\": \"three\"}]"},
    {"seed_oss", "seed_oss",
     "<seed:think>Hm.</seed:think>Yes.<seed:tool_call>\n<function=weather>\n<parameter=city>Rome</parameter>\n"
     "<parameter=days>-02</parameter>\n</function>\n</seed:tool_call>",
     "R(Hm.)C(Yes.)[weather {\"city\": \"Rome\", \"days\": -2}]"},
    {"minimax_m2", "minimax_m2",
     "<think>\nHm.\n</think>\n\n<minimax:tool_call>\n<invoke name=\"weather\">\n<parameter "
     "name=\"city\">Rome</parameter>\n"
     "<parameter name=\"places\">[\"a\"]</parameter>\n</invoke>\n<invoke "
     "name=\"clock\">\n</invoke>\n</minimax:tool_call>",
     "R(\nHm.\n)[weather {\"city\": \"Rome\", \"places\": [\"a\"]}][clock {}]"},
    {"deepseek_v32", "deepseek_v3",
     "<think>a</think>Now.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"weather\">\n<｜DSML｜parameter "
     "name=\"city\" "
     "string=\"true\">北京</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" "
     "string=\"false\">2</｜DSML｜parameter>\n"
     "<｜DSML｜parameter name=\"more\" string=\"false\">{\"a\": null}</｜DSML｜parameter>\n</｜DSML｜invoke>\n"
     "</｜DSML｜function_calls>",
     "R(a)C(Now.\n\n)[weather {\"city\": \"北京\", \"days\": 2, \"more\": {\"a\": null}}]"},
    {"deepseek_v4", NULL, "<｜DSML｜tool_calls><｜DSML｜invoke name=\"clock\"></｜DSML｜invoke></｜DSML｜tool_calls>",
     "[clock {}]"},
    {"step3", "step3",
     "<think>a</think><｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke "
     "name=\"weather\">"
     "<steptml:parameter name=\"days\">2</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>",
     "R(a)[weather {\"days\": 2}]"},
    {"glm45", "glm45",
     "<think>a</think>\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>12</arg_value>\n<arg_key>more</"
     "arg_key>\n"
     "<arg_value>[1, 2]</arg_value>\n<arg_key>other</arg_key>\n<arg_value>[text</arg_value>\n</tool_call>\n"
     "<tool_call>clock</tool_call>",
     "R(a)[weather {\"city\": \"12\", \"more\": [1, 2], \"other\": \"[text\"}][clock {}]"},
    {"glm47", NULL, "<tool_call>weather<arg_key>city</arg_key><arg_value>Rome</arg_value></tool_call>",
     "[weather {\"city\": \"Rome\"}]"},
    {"mistral", "mistral", "[THINK]Hm.[/THINK]Yes.[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g[CALL_ID]aBc123XyZ[ARGS]{}",
     "R(Hm.)C(Yes.)[f {\"a\": 1}][g#aBc123XyZ {}]"},
    {"mistral", NULL,
     "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": \"]\"}}, {\"id\": \"123456789\", \"name\": \"g\", "
     "\"arguments\": {\"b\": 1.5e3}}]",
     "[f {\"a\": \"]\"}][g#123456789 {\"b\": 1.5e3}]"},
    {"mistral", NULL, "[TOOL_CALLS]f{\"a\": {}}", "[f {\"a\": {}}]"},
    {"llama3_json", NULL, "{\"name\": \"weather\", \"parameters\": {\"city\": \"Rome\"}}",
     "[weather {\"city\": \"Rome\"}]"},
    {"llama3_json", NULL,
     "<|python_tag|>{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": "
     "{}}",
     "[f {}][g {}]"},
    {"llama3_json", NULL, "{\"name\": \"Ada\", \"parameters\": {}}", "C({\"name\": \"Ada\", \"parameters\": {}})"},
    {"llama4_json", NULL, "{\"name\": \"clock\", \"parameters\": {}};{\"name\": \"clock\", \"parameters\": {}}",
     "[clock {}][clock {}]"},
    {"pythonic", NULL,
     "[weather(city='it\\'s \"so\"', days=3, places=[1, (2.5, None)], where={'a': True, \"b\": -1}, t='''x'y'''), "
     "clock()]",
     "[weather {\"city\": \"it's \\\"so\\\"\", \"days\": 3, \"places\": [1, [2.5, null]], \"where\": {\"a\": true, "
     "\"b\": "
     "-1}, \"t\": \"x'y\"}][clock {}]"},
    {"pythonic", NULL, "[a link](https://example.org) and [weather(report)]",
     "C([a link](https://example.org) and [weather(report)])"},
    {"llama4_pythonic", NULL, "<|python_start|>[f(a=\"\\u00e4\\n\\ud83d\\ude00\\x41\\101\", b='')]<|python_end|>",
     "[f {\"a\": \"ä\\n😀AA\", \"b\": \"\"}]"},
    {"lfm2", NULL, "<|tool_call_start|>[f(a=\"b\",)]<|tool_call_end|>Done.", "[f {\"a\": \"b\"}]C(Done.)"},
    {"olmo3", "olmo3", "<think>a</think><function_calls>\nweather(city=\"Rome\")\nclock()\n</function_calls>",
     "R(a)[weather {\"city\": \"Rome\"}][clock {}]"},
    {"granite", "granite",
     "Here is my thought process: Hm. Here is my response: <|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": "
     "true}}]",
     "R( Hm. )[f {\"a\": true}]"},
    {"granite", NULL, "[1] A source.", "C([1] A source.)"},
    {"granite-20b-fc", NULL, "<function_call> {\"name\": \"f\", \"arguments\": {}} <function_call> {\"name\": \"g\"}",
     "[f {}][g {}]"},
    {"granite4", NULL, "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>", "[f {}]"},
    {"jamba", NULL, "<tool_calls>[\n{\"name\": \"f\", \"arguments\": {}},\n{\"name\": \"g\"}\n]</tool_calls>",
     "[f {}][g {}]"},
    {"hunyuan_a13b", "hunyuan_a13b",
     "<think>\nHm.\n</think>\n<answer>\n<tool_calls>[{\"name\": \"f\", \"arguments\": {}}]</tool_calls>\n</answer>",
     "R(\nHm.\n)[f {}]"},
    {NULL, "hunyuan_a13b", "<answer>Yes.</answer>", "C(Yes.)"},
    {NULL, "ernie45", "<think>a</think>\n<response>\nYes.</response>", "R(a)C(\nYes.)"},
    {"xlam", NULL, "[{\"name\": \"weather\", \"arguments\": {\"days\": 1}}, {\"name\": \"clock\", \"arguments\": {}}]",
     "[weather {\"days\": 1}][clock {}]"},
    {"xlam", NULL, "```json\n[{\"name\": \"f\", \"arguments\": {}}]\n```", "[f {}]"},
    {"phi4_mini_json", NULL, "functools[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]", "[f {\"a\": 1}]"},
    {"internlm", NULL, "Yes.<|action_start|><|plugin|>\n{\"name\": \"f\", \"parameters\": {}}<|action_end|>\n",
     "C(Yes.)[f {}]"},
    {"cohere_command3", "cohere_command3",
     "<|START_THINKING|>Hm.<|END_THINKING|><|START_ACTION|>[\n{\"tool_call_id\": \"0\", \"tool_name\": \"f\", "
     "\"parameters\": {\"a\": 1}}\n]<|END_ACTION|>",
     "R(Hm.)[f#0 {\"a\": 1}]"},
    {NULL, "cohere_command3", "<|START_RESPONSE|>Yes.<|END_RESPONSE|>", "C(Yes.)"},
    {"apertus", "apertus",
     "<|inner_prefix|>Hm.<|inner_suffix|><|tools_prefix|>[{\"f\": {\"a\": 1}}, {\"g\": {}}]<|tools_suffix|>",
     "R(Hm.)[f {\"a\": 1}][g {}]"},
    {"deepseek_v3", "deepseek_r1",
     "<think>a</think>Yes.<｜tool▁calls▁begin｜>" CALL_BEGIN
     "function<｜tool▁sep｜>f\n```json\n{\"a\": \"```\"}\n```" CALL_END "\n" CALL_BEGIN
     "function<｜tool▁sep｜>g\n```json\n{}\n```" CALL_END "<｜tool▁calls▁end｜>",
     "R(a)C(Yes.)[f {\"a\": \"```\"}][g {}]"},
    {"deepseek_v31", NULL,
     "<｜tool▁calls▁begin｜>" CALL_BEGIN "f<｜tool▁sep｜>{\"a\": 1}" CALL_END CALL_BEGIN "g<｜tool▁sep｜>{}" CALL_END
     "<｜tool▁calls▁end｜>",
     "[f {\"a\": 1}][g {}]"},
    {"kimi_k2", "kimi_k2",
     "<think>a<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\": 1}"
     "<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
     "<|tool_calls_section_end|>",
     "R(a)[f#functions.f:0 {\"a\": 1}][g#functions.g:1 {}]"},
    {"gemma4", "gemma4",
     "<|channel>thought\nHm.<channel|>Yes.<|tool_call>call:weather{city:<|\"|>a \"b\"<c><|\"|>,days:42,metric:false,"
     "where:{x:-1.5,y:None},places:[<|\"|>p<|\"|>,q r]}<tool_call|><|tool_call>call:clock{}<tool_call|>",
     "R(Hm.)C(Yes.)[weather {\"city\": \"a \\\"b\\\"<c>\", \"days\": 42, \"metric\": false, \"where\": {\"x\": -1.5, "
     "\"y\": "
     "null}, \"places\": [\"p\", \"q r\"]}][clock {}]"},
    {"functiongemma", NULL, "<start_function_call>call:f{a:<escape>b<escape>}<end_function_call>",
     "[f {\"a\": \"b\"}]"},
    {"openai", "openai_gptoss",
     "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>Now.<|end|><|start|>"
     "assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": 1}<|call|>",
     "R(Hm.)C(Now.)[f {\"a\": 1}]"},
    {"openai", "openai_gptoss",
     "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>",
     "R(Hm.)C(Yes.)"},
    {"openai", "openai_gptoss", " to=functions.f<|channel|>commentary json<|message|>{}<|call|>", "[f {}]"},
    {"openai", "openai_gptoss", "<|channel|>commentary to=functions.f<|message|><|call|>", "[f {}]"},
    {NULL, "openai_gptoss", "<|channel|>commentary to=functions.f<|message|>{}<|call|>", "C({})"},
    {"openai", "openai_gptoss", "Plain text.", "C(Plain text.)"},
    {"openai", "openai_gptoss", "<|channel|>analysis to=python<|message|>1+1<|call|>", "R(1+1)"},
    {NULL, "qwen3", "<think>Without an end", "R(Without an end)"},
    {NULL, "qwen3", "\n\n", "C(\n\n)"},
    {NULL, NULL, "<think>a</think><tool_call>", "C(<think>a</think><tool_call>)"},
};
enum { NUM_EXAMPLES = sizeof EXAMPLES / sizeof *EXAMPLES };

/* Every way to cut the text in two, bytes one by one, and random pieces. */
static void check_pieces(const struct form *form, const char *text, size_t length, const char *expected,
                         struct random *random)
{
    struct parts parts;
    for (size_t size = 1; size <= length + 8; size++) {
        parse(form, text, length, size <= length ? size : 0, random, &parts);
        assert_string_equal(parts.shown.data, expected);
        parts_free(&parts);
    }
    for (size_t cut = 1; cut < length; cut++) {
        struct answer_parser *parser = open_parser(form, &parts);
        add(parser, text, cut);
        add(parser, text + cut, length - cut);
        close_parser(parser, &parts);
        assert_string_equal(parts.shown.data, expected);
        parts_free(&parts);
    }
}

static void test_examples(void **state)
{
    (void)state;
    struct random random = {33};
    json_t *list = tool_list();
    for (int i = 0; i < NUM_EXAMPLES; i++) {
        const struct example *e = &EXAMPLES[i];
        const struct form form = {e->tools, e->reasoning, list, false};
        struct parts parts;
        parse(&form, e->text, strlen(e->text), strlen(e->text), &random, &parts);
        assert_string_equal(parts.shown.data, e->parts);
        assert_true(parts.calls_are_whole);
        parts_free(&parts);
        check_pieces(&form, e->text, strlen(e->text), e->parts, &random);
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
        for (int k = 0; k < NUM_EXAMPLES; k++)
            found = found || (EXAMPLES[k].tools && tool_format_find(EXAMPLES[k].tools) == format &&
                              strchr(EXAMPLES[k].parts, '['));
        if (!found) fail_msg("no example of %s", format->name);
        assert_ptr_equal(tool_format_find(format->name), format);
        assert_true(format->description[0] != '\0');
    }
    for (int i = 0; (format = reasoning_format_at(i)); i++) {
        bool found = false;
        for (int k = 0; k < NUM_EXAMPLES; k++)
            found = found || (EXAMPLES[k].reasoning && reasoning_format_find(EXAMPLES[k].reasoning) == format &&
                              strstr(EXAMPLES[k].parts, "R("));
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
    add(parser, text, cut);
    const size_t given = half.shown.length;
    add(parser, text + cut, length - cut);
    close_parser(parser, &half);
    parse(form, text, length, length, NULL, &whole);
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
    parse(form, text, length, length ? length : 1, random, &whole);
    check_nothing_is_lost(form, &whole, text, length);
    for (int i = 0; i < 4; i++) {
        parse(form, text, length, i == 0, random, &bytes);
        assert_string_equal(bytes.shown.data, whole.shown.data);
        parts_free(&bytes);
    }
    parts_free(&whole);
}

/* Removes, doubles or replaces some bytes; pieces of other examples come in, too. */
static void damage(struct text *t, struct random *random)
{
    const struct example *other = &EXAMPLES[random_between(random, 0, NUM_EXAMPLES - 1)];
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
    json_t *list = tool_list();
    for (int i = 0; i < NUM_EXAMPLES; i++) {
        for (int round = 0; round < 300; round++) {
            struct text text = {0};
            const struct form form = {EXAMPLES[i].tools, round % 3 ? EXAMPLES[i].reasoning : NULL,
                                      round % 2 ? list : NULL, round % 5 == 0};
            text_append_string(&text, EXAMPLES[i].text);
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
    for (int i = 0; i < NUM_EXAMPLES; i++) {
        const struct form form = {EXAMPLES[i].tools, NULL, NULL, false};
        for (size_t length = 0; length < strlen(EXAMPLES[i].text); length++) {
            check_damaged(&form, EXAMPLES[i].text, length, &random);
            check_prefix(&form, EXAMPLES[i].text, strlen(EXAMPLES[i].text), length);
        }
    }
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
        {"qwen3_coder", NULL, "<function=f>Text</function>", "[f ]C(Text</function>)"},
        {"pythonic", NULL, "[f(a=1, b=g)]", "[f {\"a\": 1, \"b\": ]C()])"},
        {"mistral", NULL, "[TOOL_CALLS] are written so.", "C([TOOL_CALLS] are written so.)"},
        {"kimi_k2", NULL, "<|tool_calls_section_begin|>none<|tool_calls_section_end|>",
         "C(<|tool_calls_section_begin|>none<|tool_calls_section_end|>)"},
        {"openai", "openai_gptoss", "<|channel|>final", "C(<|channel|>final)"},
    };
    struct random random = {1};
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        const struct form form = {examples[i].tools, examples[i].reasoning, NULL, false};
        check_pieces(&form, examples[i].text, strlen(examples[i].text), examples[i].parts, &random);
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
        check_pieces(&form, examples[i].text, strlen(examples[i].text), examples[i].parts, &random);
    }
}

/* ---- templates ---- */

static void test_templates(void **state)
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
        {"qwen2.5", "hermes", NULL},
        {"qwen3", "hermes", "deepseek_r1"},
        {"qwq", "hermes", "deepseek_r1"},
        {"seed-oss", "seed_oss", "seed_oss"},
        {"zephyr", NULL, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[4096];
        struct text source = {0};
        struct error err;
        snprintf(path, sizeof path, "%s/templates/%s.jinja", QUIRE_TEST_DATA, cases[i][0]);
        must(file_read(path, &source, &err), &err);
        const struct answer_format *tools = tool_format_of_template(source.data),
                                   *reasoning = reasoning_format_of_template(source.data);
        if (tools != (cases[i][1] ? tool_format_find(cases[i][1]) : NULL) ||
            reasoning != (cases[i][2] ? reasoning_format_find(cases[i][2]) : NULL))
            fail_msg("%s: %s, %s", cases[i][0], tools ? tools->name : "none", reasoning ? reasoning->name : "none");
        text_free(&source);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_examples),         cmocka_unit_test(test_every_form_has_an_example),
        cmocka_unit_test(test_damaged_examples), cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_cut_off),          cmocka_unit_test(test_open_thoughts),
        cmocka_unit_test(test_templates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
