/* Lookahead at the beginning of a text: each group says something of the whole text. */
#include <string.h>

#include "base/array.h"
#include "tokenizer/grammar/regular_parser.h"

/* The texts that begin with a match of pattern[length]. */
static enum status parse_beginning(const char *pattern, size_t length, size_t *work, struct regular **out,
                                   struct error *err)
{
    struct text whole = {0};
    const bool made =
        text_append_string(&whole, "^(?:") && text_append(&whole, pattern, length) && text_append(&whole, ")", 1);
    const enum status status = made ? regular_parse_within(whole.data, whole.length, true, work, out, err)
                                    : error_set(err, STATUS_OUT_OF_MEMORY, "no memory for a regular expression");
    text_free(&whole);
    return status;
}

enum status regular_narrow(const struct regular *other, struct regular **all, struct error *err)
{
    struct regular *both = regular_intersection(*all, other);
    regular_free(*all);
    *all = both;
    return both ? STATUS_OK
                : error_set(err, STATUS_UNSUPPORTED,
                            "the regular expression is too large: its lookahead needs too many states");
}

enum status regular_look_ahead(const char *pattern, size_t length, bool negative, size_t *work, struct regular **all,
                               struct error *err)
{
    struct regular *one;
    enum status status = parse_beginning(pattern, length, work, &one, err);
    if (status) return status;
    if (!*all) *all = regular_any(0, -1);
    struct regular *others = negative ? regular_complement(one) : NULL;
    status = regular_narrow(negative ? others : one, all, err);
    regular_free(one);
    regular_free(others);
    return status;
}
