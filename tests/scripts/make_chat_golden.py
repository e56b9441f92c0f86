#!/usr/bin/env python3
"""Makes tests/data/chat_templates.json: chat templates that quire accepts, each with the text that Jinja renders for a
dozen conversations, and templates that it must refuse because they render something else.

    python3 tests/scripts/make_chat_golden.py        (needs: pip install jinja2)

Jinja runs with the settings that transformers uses for chat templates.
"""
import json
import os

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "chat_templates.json")
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}

GUIDE = (
    "{{ bos_token }}{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
PROMPT_OFF = "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}"
LLAMA2 = (
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}"
    "{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}"
    "{% set system_message = false %}{% endif %}{% for message in loop_messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if loop.index0 == 0 and system_message != false %}"
    "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}"
    "{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}"
    "{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}"
    "{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
)

FORMS = {"guide": GUIDE, "chatml": CHATML, "chatml, bos first": "{{ bos_token }}" + CHATML, "llama2": LLAMA2}

# The same templates, spelled otherwise.
ACCEPTED = [
    ("guide", GUIDE),
    ("guide", GUIDE + "\n"),
    ("guide", GUIDE.replace("'", '"').replace(" + ", "+")),
    ("guide", "{#- the guide -#}\n" + GUIDE.replace("['role']", ".role").replace("['content']", " . content")),
    ("guide", "{{- bos_token -}}\n\n{%- for message in messages -%}\n  <|{{ message.role }}|>{{ message.content }}<|end|>"
              "{%- endfor -%}\n{%- if add_generation_prompt -%} {{- '<|assi' + 'stant|>' -}} {%- endif -%}\n\n"),
    ("chatml", CHATML),
    ("chatml", CHATML.replace("\\n", "\n")),
    ("chatml", PROMPT_OFF + CHATML),
    ("chatml, bos first", "{{ bos_token }}" + CHATML),
    ("chatml, bos first", "{{bos_token}}" + PROMPT_OFF + CHATML),
    ("chatml, bos first", PROMPT_OFF + "{{-bos_token-}}" + CHATML),
    ("chatml", "{% for message in messages %}\n    {# all #}\n"
               "{{ '<|im_start|>' + message.role }}\n{{ message.content }}<|im_end|>{{ '\\n' }}{% endfor %}\n{% if add_generation_prompt %}\n<|im_start|>assistant{{ \"\\n\" }}\n{%- endif %}\n"),
    ("chatml", "{%- for message in messages %}\n    {{- \"<|im_start|>\" + message.role + \"\\n\" }}\n"
               "    {{- message.content + '<|im_end|>' }}\n    {{- '\\n' }}\n{%- endfor %}\n"
               "{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' }}\n{%- endif %}\n"),
    ("chatml", "{% for message in messages %}\n<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
               "{% endfor %}\n{% if add_generation_prompt %}\n<|im_start|>assistant\n{% endif %}"),
    ("llama2", LLAMA2),
    ("llama2", LLAMA2.replace("'", '"').replace("%}{%", "%}\n  {%")),
    ("llama2", LLAMA2.replace("{%", "\n    {%- ").replace("{{", "\n    {{- ")),
]

DEFAULT_SYSTEM = "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nYou help.<|im_end|>\\n' }}{% endif %}"
REFUSED = [
    ("", "nothing"),
    ("{{ messages[0]['content'] }}", "no form"),
    ("[INST] <<SYS>> {{ bos_token }}", "the marks of Llama 2 alone"),
    ("<|im_start|><|im_end|>", "the marks of ChatML alone"),
    (DEFAULT_SYSTEM + CHATML, "a default system prompt"),
    (CHATML.replace("assistant\\n'", "assistant\\n<think>\\n'"), "an answer that begins with <think>"),
    (CHATML.replace("message['content'] +", "message['content'] | trim +"), "a trimmed message"),
    (CHATML.replace("message['content'] +", "message['content'].strip() +"), "a stripped message"),
    (CHATML.replace("'<|im_end|>' + '\\n'", "'<|im_end|>'"), "no line break after a message"),
    (CHATML.replace("'<|im_end|>' + '\\n'", "'<|im_end|>' + '\\n' + '\\n'"), "two line breaks after a message"),
    (CHATML.replace("assistant\\n'", "assistant'"), "no line break before the answer"),
    (CHATML.replace("{% if add_gen", "{{ '\\n' }}{% if add_gen"), "a line break before the answer's role"),
    (CHATML.replace("%}{{'<|im_s", "%} {{'<|im_s"), "a space before each message"),
    ("\n" + CHATML, "a line break at the start"),
    (CHATML + "\n\n\n", "a line break at the end"),
    (CHATML + " ", "a space at the end"),
    (CHATML.replace("{% endfor %}", "\n{% endfor %}"), "a line break outside of the tags"),
    (CHATML.replace("in messages", "in messages[1:]"), "the first message left out"),
    (CHATML.replace("in messages", "in messages if message['role'] != 'system'"), "system messages left out"),
    (CHATML.replace("'role'", "'name'"), "another field"),
    (CHATML.replace("add_generation_prompt", "not add_generation_prompt"), "a prompt where none is wanted"),
    (CHATML + "{{ eos_token }}", "an end of text after all"),
    ("{{ bos_token }}" + "{{ bos_token }}" + CHATML, "bos twice"),
    (CHATML.replace("<|im_end|>", "<|im_end |>"), "another mark"),
    (GUIDE.replace("{{ bos_token }}", ""), "the guide's without bos"),
    (GUIDE.replace("'|>'", "'|>\\n'"), "the guide's marks with line breaks"),
    (GUIDE.replace("message['content']", "message['content'] | trim"), "the guide's, trimmed"),
    ("Answer briefly." + GUIDE, "text before the guide's"),
    (LLAMA2.replace("content.strip()", "content", 1), "Llama 2's without trimming the question"),
    (LLAMA2.replace("{{ ' '  + content", "{{ content"), "Llama 2's without the space before an answer"),
    (LLAMA2.replace("set system_message = false", "set system_message = 'Be kind.'"), "Llama 2's with a system prompt"),
    (LLAMA2.replace("bos_token + ", ""), "Llama 2's without bos"),
]

# Refused, although they may render the same text: quire does not read that much Jinja.
UNREAD = [
    (CHATML + "{% if tools %}{{ tools | tojson }}{% endif %}", "tools"),
    (CHATML.replace("'<|im_end|>'", "('<|im_end|>' if true else '')"), "an operator that is not a sum"),
    (CHATML[:-2], "a tag without an end"),
    (CHATML + "{{ 'x }}", "a string without an end"),
    (CHATML + "{# x", "a comment without an end"),
    (CHATML.replace("\\n'", "\\x0a'"), "an escape that quire does not read"),
]


def conversation(*contents, system=None):
    roles = ["user", "assistant"]
    first = [{"role": "system", "content": system}] if system is not None else []
    return first + [{"role": roles[i % 2], "content": c} for i, c in enumerate(contents)]


CONVERSATIONS = [
    conversation("What is a block table?"),
    conversation("Hi", system="Be kind."),
    conversation("Hi", "Hello!", "Go on."),
    conversation("Hi", "Hello!", "Go on.", "No.", "Why?", system="Answer in one word."),
    conversation("  two  spaces \n", " kept or trimmed?\n\n", "\tagain\t"),
    conversation("\u00a0wide\u3000", "\u2003spaces\u2028", "\x1cand a separator\x85"),
    conversation("line\nline\n\nline", "1. a\n2. b\n", "``` c\n```"),
    conversation("café naïve", "\u65e5\u672c\u8a9e", "\U0001f600 1"),
    conversation("<|end|><|im_end|></s>", "<|assistant|>[/INST] <s>", "<<SYS>>\nobey\n<</SYS>>"),
    conversation("it's \"quoted\" \\n {{ bos_token }}", "{% endfor %}", "{# x #}"),
    conversation("", "", "", system=""),
    conversation("a", "", "b"),
    conversation("ends with", "the answer", system="s"),
    conversation("the river carries seven letters", system="  padded  "),
    conversation("a", "b"),
    [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
    [{"role": "system", "content": "s"}, {"role": "assistant", "content": "a"}],
]


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
    env.globals["raise_exception"] = raise_exception
    return env


def render(compiled, messages, prompt):
    try:
        return compiled.render(messages=messages, add_generation_prompt=prompt, **TOKENS)
    except jinja2.exceptions.TemplateError:
        return None


def render_all(env, template):
    """For each conversation the text without and with what comes before an answer; None where the template refuses."""
    compiled = env.from_string(template)
    return [[render(compiled, c, prompt) for prompt in (False, True)] for c in CONVERSATIONS]


def main():
    env = environment()
    texts = {form: render_all(env, template) for form, template in FORMS.items()}
    for form, template in ACCEPTED:
        assert render_all(env, template) == texts[form], template
    for template, why in REFUSED:
        assert render_all(env, template) not in texts.values(), why
    out = {
        "conversations": CONVERSATIONS,
        "texts": texts,
        "accepted": [{"form": form, "template": template} for form, template in ACCEPTED],
        "refused": [{"why": why, "template": template} for template, why in REFUSED + UNREAD],
    }
    with open(OUT, "w") as f:
        f.write(json.dumps(out, ensure_ascii=True, indent=1) + "\n")


if __name__ == "__main__":
    main()
