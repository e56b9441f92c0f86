/* The lines that quire generate reads, those of OpenAI batches among them. Each is read as it stands, and as with
 * --chat. */
#include <stdlib.h>
#include <string.h>

#include "runtime/prompt_line.h"
#include "tests/fuzz/fuzz.h"

static const char template[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}{% for part in m.content %}{{ part }}{% endfor %}"
    "{{ m.tool_calls | tojson }}<|im_end|>{% endfor %}{{ tools }}{{ documents }}{{ enable_thinking }}";

static struct prompt_rules *make_rules(void)
{
    static struct prompt_rules rules;
    struct error err = {""};
    if (rules.tokenizer) return &rules;
    rules = (struct prompt_rules){.tokenizer = fuzz_shared_tokenizer(), .max_n = 8};
    rules.defaults = sampling_params_default();
    rules.vocab_size = rules.num_ids = tokenizer_size(rules.tokenizer);
    rules.system = "Be brief.";
    rules.warn_of_text = true;
    rules.model_name = "org/name";
    if (chat_template_open(rules.tokenizer, template, &rules.chat.template, &err)) fuzz_require(false, err.text);
    return &rules;
}

/* What the answer to a line of a batch needs is there. */
static void check_batch(const struct prompt *p, bool parsed)
{
    const struct openai_request *r = &p->openai;
    if (r->kind == OPENAI_NONE) return;
    fuzz_require(!parsed || json_is_string(p->id), "a line of a batch without an id");
    fuzz_require(!parsed || p->is_chat == (r->kind == OPENAI_CHAT), "a line of a batch of the other kind");
    fuzz_require(!r->model || json_is_string(r->model), "a model that is no text");
    fuzz_require(!r->metadata || json_is_object(r->metadata), "metadata that is no object");
}

static void check_warnings(const struct prompt_rules *rules, const struct prompt *p)
{
    struct prompt_warnings said = {0};
    struct error sentence;
    int count = 0;
    while (prompt_warning(&said, rules, p, &sentence)) {
        fuzz_require_sentence(&sentence);
        fuzz_require(++count <= 2, "a warning is said twice");
    }
}

static void parse(const struct prompt_rules *rules, struct fuzz_part line)
{
    struct prompt p;
    struct error err = {""};
    const bool parsed = prompt_parse(rules, line.bytes, line.length, &p, &err) == STATUS_OK;
    if (parsed) {
        fuzz_require(sampling_params_check(&p.params, rules->vocab_size, &err) == STATUS_OK, err.text);
        for (size_t i = 0; i < p.tokens.count; i++)
            fuzz_require(p.tokens.ids[i] >= 0 && p.tokens.ids[i] < rules->vocab_size, "an id outside the vocabulary");
    } else {
        fuzz_require(err.text[0] != '\0', "a failure without a sentence");
    }
    check_batch(&p, parsed);
    check_warnings(rules, &p);
    prompt_free(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct prompt_rules *rules = make_rules();
    struct fuzz_part rest = {(const char *)data, size};
    while (rest.length > 0) {
        const struct fuzz_part line = fuzz_split(&rest, '\n');
        if (prompt_line_is_blank(line.bytes, line.length)) continue;
        for (int i = 0; i < 2; i++) {
            rules->as_chat = i == 1;
            parse(rules, line);
        }
    }
    return 0;
}
