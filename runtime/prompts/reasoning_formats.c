/* The table of forms of thoughts. Rows stand in the order in which a template's source is looked at. */
#include "runtime/prompts/answer_formats.h"

#include <string.h>

#include "base/json_scan.h"

static const struct reasoning_form FORMS[] = {
    {.format = {"openai_gptoss", "gpt-oss"},
     .begins = {"<|channel|>analysis<|message|>"},
     .is_harmony = true,
     .signs = {"<|channel|>analysis"}},
    {.format = {"mistral", "Magistral and later"}, .begins = {"[THINK]"}, .ends = {"[/THINK]"}, .signs = {"[THINK]"}},
    {.format = {"seed_oss", "Seed-OSS"},
     .begins = {"<seed:think>"},
     .ends = {"</seed:think>"},
     .signs = {"<seed:think>"}},
    {.format = {"gemma4", "Gemma 4"},
     .begins = {"<|channel>"},
     .ends = {"<channel|>"},
     .label = "thought\n",
     .signs = {"<|channel>"}},
    {.format = {"cohere_command3", "Command A Reasoning"},
     .begins = {"<|START_THINKING|>"},
     .ends = {"<|END_THINKING|>"},
     .answer_begin = "<|START_RESPONSE|>",
     .answer_end = "<|END_RESPONSE|>",
     .signs = {"<|START_THINKING|>"}},
    {.format = {"apertus", "Apertus"},
     .begins = {"<|inner_prefix|>"},
     .ends = {"<|inner_suffix|>"},
     .signs = {"<|inner_prefix|>"}},
    {.format = {"granite", "Granite 3.2 and 3.3"},
     .begins = {"Here is my thought process:", "Here's my thought process:"},
     .ends = {"Here is my response:", "Here's my response:"},
     .signs = {"Here is my thought process:"}},
    {.format = {"hunyuan_a13b", "Hunyuan A13B"},
     .begins = {"<think>"},
     .ends = {"</think>"},
     .answer_begin = "<answer>",
     .answer_end = "</answer>",
     .signs = {"</think>", "<answer>"}},
    {.format = {"ernie45", "ERNIE 4.5"},
     .begins = {"<think>"},
     .ends = {"</think>"},
     .answer_begin = "<response>",
     .answer_end = "</response>",
     .signs = {"</think>", "<response>"}},
    {.format = {"kimi_k2", "Kimi K2 Thinking"},
     .begins = {"<think>"},
     .ends = {"</think>"},
     .ends_at_tools = true,
     .signs = {"</think>", "<|tool_calls_section_begin|>"}},
    {.format = {"deepseek_r1", "all that write <think>: DeepSeek, Qwen, GLM, MiniMax, Olmo, Step and others"},
     .begins = {"<think>"},
     .ends = {"</think>"},
     .signs = {"</think>"}},
};

enum { NUM_FORMS = sizeof FORMS / sizeof *FORMS };

/* Other names of vLLM for forms of the table. */
static const struct answer_alias ALIASES[] = {{"deepseek_v3", "deepseek_r1"},
                                              {"deepseek_v4", "deepseek_r1"},
                                              {"glm45", "deepseek_r1"},
                                              {"glm47", "deepseek_r1"},
                                              {"holo2", "deepseek_r1"},
                                              {"mimo", "deepseek_r1"},
                                              {"minimax_m2", "deepseek_r1"},
                                              {"nemotron_v3", "deepseek_r1"},
                                              {"olmo3", "deepseek_r1"},
                                              {"qwen3", "deepseek_r1"},
                                              {"step3", "deepseek_r1"},
                                              {"step3p5", "deepseek_r1"},
                                              {NULL, NULL}};

const struct answer_format *reasoning_format_at(int i)
{
    return i >= 0 && i < NUM_FORMS ? &FORMS[i].format : NULL;
}

const struct answer_format *reasoning_format_find(const char *name)
{
    const struct answer_format *format = NULL;
    name = answer_alias_resolve(ALIASES, name);
    for (int i = 0; (format = reasoning_format_at(i)) && strcmp(format->name, name) != 0; i++) continue;
    return format;
}

const struct answer_format *reasoning_format_of_template(const char *source)
{
    for (int i = 0; i < NUM_FORMS; i++)
        if (answer_signs_are_in(FORMS[i].signs, source)) return &FORMS[i].format;
    return NULL;
}

bool reasoning_format_is_special(const struct answer_format *reasoning, const struct tokenizer *t)
{
    const struct reasoning_form *form = (const struct reasoning_form *)reasoning;
    const char *const around[] = {form->answer_begin, form->answer_end};
    return answer_marks_are_special(form->begins, FORM_MAX_MARKS, t) ||
           answer_marks_are_special(form->ends, FORM_MAX_MARKS, t) || answer_marks_are_special(around, 2, t);
}

/* How much of text[length] is left without blanks at its end, and without `mark` before them. */
static bool cut_mark(const char *text, size_t *length, const char *mark)
{
    size_t end = *length, size = strlen(mark);
    while (end > 0 && json_is_blank(text[end - 1])) end--;
    while (size > 0 && mark[size - 1] == '\n') size--;
    if (end < size || memcmp(text + end - size, mark, size) != 0) return false;
    *length = end - size;
    return true;
}

bool reasoning_is_open(const struct answer_format *reasoning, const char *prompt_end, size_t length)
{
    const struct reasoning_form *form = (const struct reasoning_form *)reasoning;
    if (!form) return false;
    if (form->label) cut_mark(prompt_end, &length, form->label);
    for (int i = 0; i < FORM_MAX_MARKS && form->begins[i]; i++)
        if (cut_mark(prompt_end, &length, form->begins[i])) return true;
    return false;
}
