/* Answers of every form, as model cards and templates describe them. */
#include "tests/support/answer_parts.h"

#define CALL_BEGIN "<｜tool▁call▁begin｜>"
#define CALL_END "<｜tool▁call▁end｜>"

const struct example answer_examples[] = {
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
    {"llama3_json", NULL, "{\"name\": \"cloak\", \"parameters\": {}}", "C({\"name\": \"cloak\", \"parameters\": {}})"},
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
    {"phi4_mini_json", NULL, "<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]<|/tool_call|>", "[f {}]"},
    {"phi4_mini_json", NULL, "functools[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]", "[f {\"a\": 1}]"},
    {"internlm", NULL, "Yes.<|action_start|><|plugin|>\n{\"name\": \"f\", \"parameters\": {}}<|action_end|>\n",
     "C(Yes.)[f {}]"},
    {"cohere_command3", "cohere_command3",
     "<|START_THINKING|>Hm.<|END_THINKING|><|START_ACTION|>[\n{\"tool_call_id\": \"0\", \"tool_name\": \"f\", "
     "\"parameters\": {\"a\": 1}}\n]<|END_ACTION|>",
     "R(Hm.)[f#0 {\"a\": 1}]"},
    {"command_r", NULL,
     "Action: ```json\n[\n    {\n        \"tool_name\": \"f\",\n        \"parameters\": {}\n    }\n]```", "[f {}]"},
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
    {"openai", "openai_gptoss", "<|channel|>analysis<|message|>Hm.<|end|>Yes.", "R(Hm.)C(Yes.)"},
    {"openai", "openai_gptoss", "Plain text.", "C(Plain text.)"},
    {"openai", "openai_gptoss", "<|channel|>analysis to=python<|message|>1+1<|call|>", "R(1+1)"},
    {NULL, "qwen3", "<think>Without an end", "R(Without an end)"},
    {NULL, "qwen3", "\n\n", "C(\n\n)"},
    {NULL, NULL, "<think>a</think><tool_call>", "C(<think>a</think><tool_call>)"},
};
const int num_answer_examples = sizeof answer_examples / sizeof *answer_examples;
