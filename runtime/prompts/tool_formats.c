/* The table of forms of calls: which marks each has, and which templates are made for it. Rows stand in the order in
 * which a template's source is looked at, so that a form stands before those whose signs its templates have, too. */
#include "runtime/prompts/answer_formats.h"

#include <stdio.h>
#include <string.h>

#define SECTION_BEGIN "<｜tool▁calls▁begin｜>"
#define SECTION_END "<｜tool▁calls▁end｜>"
#define CALL_BEGIN "<｜tool▁call▁begin｜>"
#define CALL_END "<｜tool▁call▁end｜>"

static const struct tool_form FORMS[] = {
    {.format = {"openai", "gpt-oss"},
     .syntax = SYNTAX_HARMONY,
     .begins = {"<|start|>", "<|channel|>"},
     .signs = {"<|channel|>", "functions"}},
    {.format = {"deepseek_v32", "DeepSeek V3.2 and V4"},
     .syntax = SYNTAX_XML,
     .writes_lines = true,
     .begins = {"<｜DSML｜function_calls>", "<｜DSML｜tool_calls>"},
     .ends = {"</｜DSML｜function_calls>", "</｜DSML｜tool_calls>"},
     .guesses = true,
     .marks = {.call = "<｜DSML｜invoke name=\"",
               .name_end = {"\">"},
               .key = "<｜DSML｜parameter name=\"",
               .key_end = "\" string=\"false\">",
               .string_key_end = "\" string=\"true\">",
               .value_end = "</｜DSML｜parameter>",
               .call_end = "</｜DSML｜invoke>"},
     .signs = {"<｜DSML｜"}},
    {.format = {"deepseek_v3", "DeepSeek V3 and R1"},
     .syntax = SYNTAX_NAMED,
     .writes_lines = true,
     .begins = {SECTION_BEGIN},
     .ends = {SECTION_END},
     .marks = {.call = CALL_BEGIN "function<｜tool▁sep｜>", .name_end = {"```json"}, .call_end = "```" CALL_END},
     .signs = {CALL_BEGIN, "```json"}},
    {.format = {"deepseek_v31", "DeepSeek V3.1"},
     .syntax = SYNTAX_NAMED,
     .begins = {SECTION_BEGIN},
     .ends = {SECTION_END},
     .marks = {.call = CALL_BEGIN, .name_end = {"<｜tool▁sep｜>"}, .call_end = CALL_END},
     .signs = {CALL_BEGIN}},
    {.format = {"kimi_k2", "Kimi K2"},
     .syntax = SYNTAX_NAMED,
     .begins = {"<|tool_calls_section_begin|>"},
     .ends = {"<|tool_calls_section_end|>"},
     .has_id = true,
     .marks = {.call = "<|tool_call_begin|>",
               .name_end = {"<|tool_call_argument_begin|>"},
               .call_end = "<|tool_call_end|>"},
     .signs = {"<|tool_calls_section_begin|>"}},
    {.format = {"minimax_m2", "MiniMax M2"},
     .syntax = SYNTAX_XML,
     .writes_lines = true,
     .begins = {"<minimax:tool_call>"},
     .ends = {"</minimax:tool_call>"},
     .trims = true,
     .marks = {.call = "<invoke name=\"",
               .name_end = {"\">"},
               .key = "<parameter name=\"",
               .key_end = "\">",
               .value_end = "</parameter>",
               .call_end = "</invoke>"},
     .signs = {"minimax:tool_call"}},
    {.format = {"seed_oss", "Seed-OSS"},
     .syntax = SYNTAX_XML,
     .writes_lines = true,
     .begins = {"<seed:tool_call>"},
     .ends = {"</seed:tool_call>"},
     .trims = true,
     .marks = {.call = "<function=",
               .name_end = {">"},
               .key = "<parameter=",
               .key_end = ">",
               .value_end = "</parameter>",
               .call_end = "</function>"},
     .signs = {"seed:tool_call"}},
    {.format = {"step3", "Step3"},
     .syntax = SYNTAX_XML,
     .begins = {"<｜tool_calls_begin｜>"},
     .ends = {"<｜tool_calls_end｜>"},
     .trims = true,
     .marks = {.call = "<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"",
               .name_end = {"\">"},
               .key = "<steptml:parameter name=\"",
               .key_end = "\">",
               .value_end = "</steptml:parameter>",
               .call_end = "</steptml:invoke><｜tool_call_end｜>"},
     .signs = {"<steptml:invoke"}},
    {.format = {"glm45", "GLM-4.5 and later"},
     .syntax = SYNTAX_XML,
     .writes_lines = true,
     .begins = {"<tool_call>"},
     .guesses = true,
     .marks = {.call = "<tool_call>",
               .key = "<arg_key>",
               .key_end = "</arg_key>",
               .value = "<arg_value>",
               .value_end = "</arg_value>",
               .call_end = "</tool_call>"},
     .signs = {"<arg_key>"}},
    {.format = {"qwen3_coder", "Qwen3-Coder and Qwen3.5"},
     .syntax = SYNTAX_XML,
     .writes_value_lines = true,
     .writes_lines = true,
     .begins = {"<tool_call>", "<function="},
     .ends = {"</tool_call>"},
     .trims = true,
     .marks = {.call = "<function=",
               .name_end = {">"},
               .key = "<parameter=",
               .key_end = ">",
               .value_end = "</parameter>",
               .call_end = "</function>"},
     .signs = {"<function=", "<parameter="}},
    {.format = {"gemma4", "Gemma 4"},
     .syntax = SYNTAX_LITERAL,
     .begins = {"<|tool_call>call:"},
     .ends = {"<tool_call|>"},
     .quote = "<|\"|>",
     .signs = {"<|tool_call>"}},
    {.format = {"functiongemma", "FunctionGemma"},
     .syntax = SYNTAX_LITERAL,
     .begins = {"<start_function_call>call:"},
     .ends = {"<end_function_call>"},
     .quote = "<escape>",
     .signs = {"<start_function_call>"}},
    {.format = {"mistral", "Mistral, both forms"},
     .syntax = SYNTAX_JSON,
     .begins = {"[TOOL_CALLS]"},
     .may_be_named = true,
     .marks = {.name_end = {"[ARGS]", "[CALL_ID]", "{"}},
     .signs = {"[TOOL_CALLS]"}},
    {.format = {"longcat", "LongCat-Flash"},
     .syntax = SYNTAX_JSON,
     .writes_lines = true,
     .begins = {"<longcat_tool_call>"},
     .ends = {"</longcat_tool_call>"},
     .signs = {"<longcat_tool_call>"}},
    {.format = {"phi4_mini_json", "Phi-4 mini"},
     .syntax = SYNTAX_JSON,
     .writes_list = true,
     .begins = {"<|tool_call|>", "functools"},
     .ends = {"<|/tool_call|>"},
     .signs = {"<|/tool|>"}},
    {.format = {"internlm", "InternLM 2.5"},
     .syntax = SYNTAX_JSON,
     .arguments_key = "parameters",
     .writes_lines = true,
     .begins = {"<|action_start|><|plugin|>", "<|action_start|> <|plugin|>"},
     .ends = {"<|action_end|>"},
     .signs = {"<|action_start|>"}},
    {.format = {"cohere_command3", "Command R7B and Command A"},
     .syntax = SYNTAX_JSON,
     .name_key = "tool_name",
     .arguments_key = "parameters",
     .writes_list = true,
     .begins = {"<|START_ACTION|>"},
     .ends = {"<|END_ACTION|>"},
     .signs = {"<|START_ACTION|>"}},
    {.format = {"command_r", "Command R and R+"},
     .syntax = SYNTAX_JSON,
     .writes_list = true,
     .name_key = "tool_name",
     .arguments_key = "parameters",
     .begins = {"Action: ```json"},
     .ends = {"```"},
     .signs = {"Action: ```json"}},
    {.format = {"apertus", "Apertus"},
     .syntax = SYNTAX_JSON,
     .writes_list = true,
     .begins = {"<|tools_prefix|>"},
     .ends = {"<|tools_suffix|>"},
     .name_is_key = true,
     .signs = {"<|tools_prefix|>"}},
    {.format = {"lfm2", "LFM2"},
     .syntax = SYNTAX_LITERAL,
     .begins = {"<|tool_call_start|>"},
     .ends = {"<|tool_call_end|>"},
     .signs = {"<|tool_list_start|>"}},
    {.format = {"olmo3", "Olmo 3"},
     .syntax = SYNTAX_LITERAL,
     .writes_lines = true,
     .begins = {"<function_calls>"},
     .ends = {"</function_calls>"},
     .signs = {"<function_calls>"}},
    {.format = {"llama4_pythonic", "Llama 4"},
     .syntax = SYNTAX_LITERAL,
     .begins = {"<|python_start|>"},
     .ends = {"<|python_end|>"},
     .bare = "[",
     .signs = {"<|python_start|>"}},
    {.format = {"hunyuan_a13b", "Hunyuan A13B"},
     .syntax = SYNTAX_JSON,
     .writes_list = true,
     .begins = {"<tool_calls>"},
     .ends = {"</tool_calls>"},
     .signs = {"<tool_calls>", "<answer>"}},
    {.format = {"jamba", "Jamba 1.5 and later"},
     .syntax = SYNTAX_JSON,
     .writes_list = true,
     .begins = {"<tool_calls>"},
     .ends = {"</tool_calls>"},
     .signs = {"<tool_calls>"}},
    {.format = {"granite-20b-fc", "Granite 20B function calling"},
     .syntax = SYNTAX_JSON,
     .begins = {"<function_call>"},
     .signs = {"<function_call>"}},
    {.format = {"granite", "Granite 3"},
     .syntax = SYNTAX_JSON,
     .writes_list = true,
     .begins = {"<|tool_call|>", "<tool_call>"},
     .bare = "[",
     .signs = {"<|tool_call|>"}},
    {.format = {"llama3_json", "Llama 3.1 and 3.2"},
     .syntax = SYNTAX_JSON,
     .arguments_key = "parameters",
     .begins = {"<|python_tag|>"},
     .bare = "{",
     .separator = ";",
     .signs = {"Environment: ipython"}},
    {.format = {"hermes", "Hermes, Qwen2.5, Qwen3 and others"},
     .syntax = SYNTAX_JSON,
     .writes_lines = true,
     .begins = {"<tool_call>"},
     .ends = {"</tool_call>"},
     .signs = {"<tool_call>"}},
    /* Templates do not show that they are made for these. */
    {.format = {"pythonic", "Llama 3.2 and ToolACE, as Python's calls"}, .syntax = SYNTAX_LITERAL, .bare = "["},
    {.format = {"xlam", "xLAM"},
     .syntax = SYNTAX_JSON,
     .writes_list = true,
     .begins = {"<tool_call>", "[TOOL_CALLS]", "```json"},
     .ends = {"</tool_call>", "```"},
     .bare = "["},
};

enum { NUM_FORMS = sizeof FORMS / sizeof *FORMS };

/* Other names of vLLM for forms of the table. */
static const struct answer_alias ALIASES[] = {
    {"deepseek_v4", "deepseek_v32"}, {"ernie45", "hermes"},          {"glm47", "glm45"},
    {"granite4", "hermes"},          {"llama4_json", "llama3_json"}, {"mimo", "qwen3_coder"},
    {"qwen3_xml", "qwen3_coder"},    {"step3p5", "qwen3_coder"},     {NULL, NULL}};

const char *answer_alias_resolve(const struct answer_alias *aliases, const char *name)
{
    for (; aliases->alias; aliases++)
        if (strcmp(aliases->alias, name) == 0) return aliases->name;
    return name;
}

bool answer_signs_are_in(const char *const *signs, const char *source)
{
    for (int i = 0; i < FORM_MAX_MARKS && signs[i]; i++)
        if (!strstr(source, signs[i])) return false;
    return signs[0] != NULL;
}

const struct answer_format *tool_format_at(int i)
{
    return i >= 0 && i < NUM_FORMS ? &FORMS[i].format : NULL;
}

const struct answer_format *tool_format_find(const char *name)
{
    const struct answer_format *format = NULL;
    name = answer_alias_resolve(ALIASES, name);
    for (int i = 0; (format = tool_format_at(i)) && strcmp(format->name, name) != 0; i++) continue;
    return format;
}

const struct answer_format *tool_format_of_template(const char *source)
{
    for (int i = 0; i < NUM_FORMS; i++)
        if (answer_signs_are_in(FORMS[i].signs, source)) return &FORMS[i].format;
    return NULL;
}

/* ---- special tokens ---- */

/* Marks are tokens in angles or brackets, and text between them. */
static bool has_special(const char *mark, const struct tokenizer *t)
{
    char token[64];
    for (const char *begin = mark; begin && (begin = strpbrk(begin, "<[")); begin++) {
        for (const char *end = begin; (end = strchr(end, *begin == '<' ? '>' : ']')); end++) {
            const int length = (int)(end + 1 - begin);
            if (snprintf(token, sizeof token, "%.*s", length, begin) >= (int)sizeof token) break;
            const int32_t id = tokenizer_special_id(t, token);
            if (id >= 0 && tokenizer_is_special(t, id)) return true;
        }
    }
    return false;
}

bool answer_marks_are_special(const char *const *marks, int count, const struct tokenizer *t)
{
    for (int i = 0; i < count; i++)
        if (has_special(marks[i], t)) return true;
    return false;
}

bool tool_format_is_special(const struct answer_format *tools, const struct tokenizer *t)
{
    const struct tool_form *form = (const struct tool_form *)tools;
    const struct call_marks *m = &form->marks;
    const char *const others[] = {m->call,  m->call_end,       m->key,       m->key_end,
                                  m->value, m->string_key_end, m->value_end, form->quote};
    return answer_marks_are_special(form->begins, FORM_MAX_MARKS, t) ||
           answer_marks_are_special(form->ends, FORM_MAX_MARKS, t) ||
           answer_marks_are_special(m->name_end, FORM_MAX_MARKS, t) ||
           answer_marks_are_special(others, sizeof others / sizeof *others, t);
}
