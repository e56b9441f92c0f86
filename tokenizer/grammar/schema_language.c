/* The strings and numbers that the keywords of a conjunction allow, as regular languages. */
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "tokenizer/grammar/regular_state.h"
#include "tokenizer/grammar/regular_syntax.h"
#include "tokenizer/grammar/schema_compiler.h"
#include "tokenizer/grammar/schema_formats.h"

static struct schema_language *find_language(struct schema_compiler *c, const char *pattern, size_t length, bool search,
                                             const char *path, const char *keyword)
{
    struct error why = {""};
    if (c->status) return NULL;
    for (size_t i = 0; i < c->num_languages; i++)
        if (c->languages[i].key == pattern) return &c->languages[i];
    struct regular *language = NULL;
    if (!array_reserve(&c->languages, &c->language_capacity, c->num_languages + 1, sizeof *c->languages)) {
        schema_out_of_memory(c);
        return NULL;
    }
    const enum status status = regular_parse_within(pattern, length, search, &c->left, &language, &why);
    if (status) schema_fail(c, status, "%s/%s: %s", path, keyword, why.text);
    if (status) return NULL;
    c->languages[c->num_languages] = (struct schema_language){pattern, language, -1};
    return &c->languages[c->num_languages++];
}

const struct regular *schema_pattern(struct schema_compiler *c, const char *pattern, size_t length, const char *path)
{
    const struct schema_language *found = find_language(c, pattern, length, true, path, "patternProperties");
    return found ? found->language : NULL;
}

struct regular *schema_intersection(struct schema_compiler *c, const struct regular *a, const struct regular *b,
                                    const char *path)
{
    if (c->status) return NULL;
    const size_t pairs = (size_t)a->num_states * (size_t)b->num_states;
    const size_t work = pairs < REGULAR_MAX_STATES ? pairs : REGULAR_MAX_STATES;
    struct regular *both = work <= c->left ? regular_intersection(a, b) : NULL;
    c->left -= work <= c->left ? work : c->left;
    if (!both)
        schema_fail(c, STATUS_UNSUPPORTED, "%s: what patterns, formats and bounds say together is too large for quire",
                    path);
    return both;
}

/* Replaces *out by its intersection with `other`, or by a copy of it where *out is NULL. */
static void intersect(struct schema_compiler *c, struct regular **out, const struct regular *other, const char *path)
{
    if (c->status || !other) return;
    struct regular *all = *out ? NULL : regular_any(0, -1);
    struct regular *both = NULL;
    if (*out || all)
        both = schema_intersection(c, *out ? *out : all, other, path);
    else
        schema_out_of_memory(c);
    regular_free(*out);
    regular_free(all);
    *out = both;
}

/* The language of the keyword of s, "pattern" or "format"; NULL: it says nothing of strings, or it has failed. */
static struct schema_language *keyword_language(struct schema_compiler *c, const struct schema *s, const char *keyword)
{
    const json_t *value = json_object_get(s->json, keyword);
    if (!value) return NULL;
    if (strcmp(keyword, "pattern") == 0)
        return find_language(c, json_string_value(value), json_string_length(value), true, s->path, keyword);
    const char *known = schema_format_pattern(json_string_value(value));
    return known ? find_language(c, known, strlen(known), false, s->path, keyword) : NULL;
}

static const char *const string_keywords[] = {"pattern", "format"};

void schema_string_language(struct schema_compiler *c, const struct conjunction *j, struct regular **out)
{
    *out = NULL;
    for (size_t i = 0; i < 2 * j->count && !c->status; i++) {
        const struct schema *s = j->members[i / 2].schema;
        const struct schema_language *found = keyword_language(c, s, string_keywords[i % 2]);
        if (found) intersect(c, out, found->language, s->path);
    }
}

struct schema_language *schema_single_language(struct schema_compiler *c, const struct conjunction *j)
{
    struct schema_language *single = NULL;
    int64_t least, most;
    conjunction_counts(j, "minLength", "maxLength", &least, &most);
    if (least > 0 || most >= 0) return NULL;
    for (size_t i = 0; i < 2 * j->count && !c->status; i++) {
        struct schema_language *found = keyword_language(c, j->members[i / 2].schema, string_keywords[i % 2]);
        if (found && single && found->key != single->key) return NULL;
        if (found) single = found;
    }
    return single;
}

/* Takes the texts of other lengths away, if there are bounds. */
static void intersect_lengths(struct schema_compiler *c, const struct conjunction *j, struct regular **out)
{
    int64_t least, most;
    conjunction_counts(j, "minLength", "maxLength", &least, &most);
    if (c->status || (least == 0 && most < 0)) return;
    struct regular *lengths = regular_any(least, most);
    if (lengths)
        intersect(c, out, lengths, j->members[0].schema->path);
    else
        schema_fail(c, STATUS_UNSUPPORTED, "%s: quire supports lengths of at most %d beside a pattern",
                    j->members[0].schema->path, REGULAR_MAX_STATES - 2);
    regular_free(lengths);
}

/* The strings among the values. */
static struct regular *language_of_values(struct schema_compiler *c, const json_t *values)
{
    struct regular_text *texts = schema_alloc(c, (json_array_size(values) + 1) * sizeof *texts);
    int32_t count = 0;
    size_t i;
    const json_t *value;
    if (!texts) return NULL;
    json_array_foreach(values, i, value) if (json_is_string(value)) texts[count++] =
        (struct regular_text){json_string_value(value), json_string_length(value)};
    struct regular *language = regular_texts(texts, count);
    if (!language) schema_out_of_memory(c);
    return language;
}

void schema_names_language(struct schema_compiler *c, const struct conjunction *j, struct regular **out)
{
    size_t pending;
    const char *key;
    *out = NULL;
    json_t *values = schema_values(c, j);
    if (!(conjunction_types(j) & TYPE_STRING)) {
        *out = regular_texts(NULL, 0);
        if (!*out) schema_out_of_memory(c);
    } else if (values) {
        *out = language_of_values(c, values);
    } else if (conjunction_pending(j, &pending, &key)) {
        schema_fail(c, STATUS_UNSUPPORTED, "%s/%s: quire does not support \"%s\" in propertyNames",
                    j->members[pending].schema->path, key, key);
    } else {
        schema_string_language(c, j, out);
        intersect_lengths(c, j, out);
    }
    json_decref(values);
}

void schema_lengths_of_language(struct schema_compiler *c, const struct conjunction *j, struct regular **language)
{
    if (*language) intersect_lengths(c, j, language);
}

/* Numbers as they are bounded by the keywords. */
struct range {
    struct decimal least, most;
    bool has_least, has_most;
};

static void raise_least(struct range *r, const struct decimal *d)
{
    if (!r->has_least || decimal_compare(d, &r->least) > 0) r->least = *d;
    r->has_least = true;
}

static void lower_most(struct range *r, const struct decimal *d)
{
    if (!r->has_most || decimal_compare(d, &r->most) < 0) r->most = *d;
    r->has_most = true;
}

/* Numbers are doubles to those who read them, so an exclusive bound is the next double; but so near to 0 nothing is
 * written without an exponent. */
static bool exclude(struct decimal *d, bool up, bool integers)
{
    struct decimal zero;
    decimal_parse(&zero, "0");
    if (integers) return decimal_next_integer(d, up);
    if (decimal_compare(d, &zero) == 0) return decimal_parse(d, up ? "1e-20" : "-1e-20");
    return decimal_next_double(d, up);
}

/* The nearest integer that is not outside of the bound. */
static bool round_inwards(struct decimal *d, bool up)
{
    return decimal_is_whole(d) || decimal_next_integer(d, up);
}

static void add_bound(struct schema_compiler *c, struct range *r, const struct schema *s, const char *key,
                      bool integers)
{
    const json_t *value = json_object_get(s->json, key);
    const bool exclusive = key[0] == 'e', is_least = strstr(key, "inimum");
    struct decimal d;
    if (!value) return;
    if (!decimal_of_json(&d, value) ||
        (exclusive && !(integers && !decimal_is_whole(&d)) && !exclude(&d, is_least, integers)) ||
        (integers && !round_inwards(&d, is_least))) {
        schema_fail(c, STATUS_UNSUPPORTED, "%s/%s has too many digits", s->path, key);
        return;
    }
    if (is_least)
        raise_least(r, &d);
    else
        lower_most(r, &d);
}

static struct range find_range(struct schema_compiler *c, const struct conjunction *j, bool integers)
{
    static const char *const keys[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"};
    struct range r = {.has_least = false};
    for (size_t i = 0; i < j->count; i++) {
        const struct schema *s = j->members[i].schema;
        const json_t *format = json_object_get(s->json, "format");
        const char *least, *most;
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) add_bound(c, &r, s, keys[k], integers);
        if (!format || !schema_format_range(json_string_value(format), &least, &most)) continue;
        struct decimal d;
        decimal_parse(&d, least);
        raise_least(&r, &d);
        decimal_parse(&d, most);
        lower_most(&r, &d);
    }
    return r;
}

/* Numbers with so many digits that those who read them as doubles cannot tell whether they are multiples are left out.
 */
static void intersect_digits(struct schema_compiler *c, const struct schema *s, int32_t num_fraction,
                             struct regular **out)
{
    enum { DOUBLE_DIGITS = 15 };
    const int32_t behind = num_fraction > 0 ? num_fraction : 1;
    char pattern[64];
    struct regular *digits;
    snprintf(pattern, sizeof pattern, "-?\\d{1,%d}(\\.\\d{1,%d})?", behind < DOUBLE_DIGITS ? DOUBLE_DIGITS - behind : 1,
             behind);
    if (regular_parse(pattern, strlen(pattern), false, &digits, NULL)) digits = NULL;
    intersect(c, out, digits, s->path);
    if (!digits) schema_out_of_memory(c);
    regular_free(digits);
}

static void intersect_multiples(struct schema_compiler *c, const struct schema *s, bool integers, struct regular **out)
{
    const json_t *value = json_object_get(s->json, "multipleOf");
    struct decimal d;
    if (!value || c->status) return;
    struct regular *multiples = decimal_of_json(&d, value) ? decimal_multiples(&d) : NULL;
    if (multiples)
        intersect(c, out, multiples, s->path);
    else
        schema_fail(c, STATUS_UNSUPPORTED, "%s/multipleOf has too many digits for quire, which divides digit by digit",
                    s->path);
    if (multiples && !integers) intersect_digits(c, s, d.num_fraction, out);
    regular_free(multiples);
}

void schema_number_language(struct schema_compiler *c, const struct conjunction *j, bool integers, struct regular **out)
{
    const struct range r = find_range(c, j, integers);
    bool multiples = false;
    *out = NULL;
    for (size_t i = 0; i < j->count; i++)
        multiples = multiples || json_object_get(j->members[i].schema->json, "multipleOf");
    if (c->status || (!r.has_least && !r.has_most && !multiples)) return;
    const char *path = j->members[0].schema->path;
    *out = decimal_numbers(integers);
    struct regular *least = r.has_least ? decimal_bound(&r.least, true) : NULL;
    struct regular *most = r.has_most ? decimal_bound(&r.most, false) : NULL;
    if (!*out || (r.has_least && !least) || (r.has_most && !most)) schema_out_of_memory(c);
    intersect(c, out, least, path);
    intersect(c, out, most, path);
    for (size_t i = 0; i < j->count; i++) intersect_multiples(c, j->members[i].schema, integers, out);
    regular_free(least);
    regular_free(most);
}
