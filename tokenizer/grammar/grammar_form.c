#include "tokenizer/grammar/grammar_form.h"

#include <string.h>

#include "tokenizer/grammar/gbnf.h"
#include "tokenizer/grammar/lark.h"
#include "tokenizer/grammar/regular.h"

static bool is_gbnf(const char *text, size_t length)
{
    static const char blanks[] = " \t\r", name[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    for (size_t at = 0; at < length;) {
        while (at < length && text[at] && strchr(blanks, text[at])) at++;
        const size_t from = at;
        while (at < length && text[at] && strchr(name, text[at])) at++;
        const bool has_name = at > from;
        while (at < length && text[at] && strchr(blanks, text[at])) at++;
        if (has_name && length - at >= 3 && memcmp(text + at, "::=", 3) == 0) return true;
        const char *newline = memchr(text + at, '\n', length - at);
        if (!newline) return false;
        at = (size_t)(newline - text) + 1;
    }
    return false;
}

enum status grammar_form_node(const char *text, size_t length, struct grammar_builder *b, grammar_node *out,
                              struct error *err)
{
    int32_t root = 0;
    const enum status status =
        is_gbnf(text, length) ? gbnf_parse(text, length, b, &root, err) : lark_parse(text, length, b, &root, err);
    *out = status == STATUS_OK ? grammar_reference(b, root) : grammar_never(b);
    return status;
}

enum status grammar_pattern_node(const char *pattern, size_t length, struct grammar_builder *b, grammar_node *out,
                                 struct error *err)
{
    struct regular *language = NULL;
    enum status status = regular_parse(pattern, length, false, &language, err);
    *out = grammar_never(b);
    if (status == STATUS_OK && !regular_node(language, REGULAR_PLAIN, b, out))
        status = error_set(err, STATUS_UNSUPPORTED, "the regular expression is too large, or memory ran out");
    regular_free(language);
    return status;
}
