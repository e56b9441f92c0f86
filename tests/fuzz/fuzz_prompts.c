/* The lines that quire generate reads. */
#include <stdlib.h>
#include <string.h>

#include "runtime/prompts.h"
#include "tests/fuzz/fuzz.h"

static const char template[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}{% for part in m.content %}{{ part }}{% endfor %}"
    "{{ m.tool_calls | tojson }}<|im_end|>{% endfor %}{{ tools }}{{ documents }}{{ enable_thinking }}";

static const struct prompt_rules *make_rules(void)
{
    static struct prompt_rules rules;
    struct error err = {""};
    if (rules.tokenizer) return &rules;
    rules = (struct prompt_rules){.tokenizer = fuzz_shared_tokenizer(), .max_n = 8};
    rules.defaults = sampling_params_default();
    rules.vocab_size = tokenizer_size(rules.tokenizer);
    if (chat_template_open(rules.tokenizer, template, &rules.chat.template, &err)) fuzz_require(false, err.text);
    return &rules;
}

static void parse(const struct prompt_rules *rules, struct fuzz_part line)
{
    struct prompt p;
    struct error err = {""};
    if (prompt_parse(rules, line.bytes, line.length, &p, &err) == STATUS_OK) {
        fuzz_require(sampling_params_check(&p.params, rules->vocab_size, &err) == STATUS_OK, err.text);
        for (size_t i = 0; i < p.tokens.count; i++)
            fuzz_require(p.tokens.ids[i] >= 0 && p.tokens.ids[i] < rules->vocab_size, "an id outside the vocabulary");
    } else {
        fuzz_require(err.text[0] != '\0', "a failure without a sentence");
    }
    prompt_free(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct prompt_rules *rules = make_rules();
    struct fuzz_part rest = {(const char *)data, size};
    while (rest.length > 0) {
        const struct fuzz_part line = fuzz_split(&rest, '\n');
        if (!prompt_line_is_blank(line.bytes, line.length)) parse(rules, line);
    }
    return 0;
}
