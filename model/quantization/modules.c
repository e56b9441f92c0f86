/* Which modules a name in quantization_config means. */
#include <fnmatch.h>
#include <string.h>

/* PCRE2 needs to know which of its libraries is used. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "model/quantization/reader.h"

/* A pattern that takes longer is refused: no list of names needs as much. */
enum { MATCH_LIMIT = 100000 };

struct regexp {
    pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *context;
};

static void regexp_close(struct regexp *re)
{
    pcre2_code_free(re->code);
    pcre2_match_data_free(re->match);
    pcre2_match_context_free(re->context);
}

/* False after a failure; the caller closes *re all the same. */
static bool regexp_open(struct json_reader *r, const char *key, const char *pattern, struct regexp *re)
{
    int number;
    PCRE2_SIZE offset;
    re->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_ANCHORED, &number, &offset, NULL);
    if (!re->code && number != PCRE2_ERROR_HEAP_FAILED) {
        PCRE2_UCHAR why[128];
        pcre2_get_error_message(number, why, sizeof why);
        json_reader_fail(r, STATUS_INVALID, "%s%s: \"%s\" is no regular expression: %s", r->prefix, key,
                         show_string(pattern).text, (const char *)why);
        return false;
    }
    re->match = pcre2_match_data_create(1, NULL);
    re->context = pcre2_match_context_create(NULL);
    if (!re->code || !re->match || !re->context) {
        json_reader_fail(r, STATUS_OUT_OF_MEMORY, "out of host memory for the names in %s%s", r->prefix, key);
        return false;
    }
    pcre2_set_match_limit(re->context, MATCH_LIMIT);
    return true;
}

static struct tensor_name module_name(const struct module *m, int prefix)
{
    return tensor_name_with(m->name.text, &tensor_prefixes[prefix]);
}

static void match_regexp(struct quantization_reader *q, const char *key, const char *pattern)
{
    struct regexp re = {NULL};
    const bool opened = regexp_open(&q->json, key, pattern, &re);
    for (int32_t i = 0; i < q->num_modules; i++) {
        struct module *m = &q->modules[i];
        m->matched = false;
        for (int p = 0; p < q->num_prefixes && opened && !m->matched; p++) {
            const struct tensor_name name = module_name(m, p);
            const int found =
                pcre2_match(re.code, (PCRE2_SPTR)name.text, PCRE2_ZERO_TERMINATED, 0, 0, re.match, re.context);
            m->matched = found >= 0;
            if (found < 0 && found != PCRE2_ERROR_NOMATCH)
                json_reader_fail(&q->json, STATUS_INVALID, "%s%s: the regular expression \"%s\" takes too long",
                                 q->json.prefix, key, show_string(pattern).text);
        }
    }
    regexp_close(&re);
}

static bool has_parts(const char *name, const char *parts)
{
    const size_t length = strlen(parts);
    if (length == 0) return false;
    for (const char *at = name; (at = strstr(at, parts)); at++)
        if ((at == name || at[-1] == '.') && (at[length] == '.' || at[length] == '\0')) return true;
    return false;
}

/* Of experts, "gate" means the router and not each expert's gate_proj, as vLLM takes it, where all experts of a layer
 * are one module: a pattern is part of what comes before the expert's number. */
static bool has_substring(const struct module *m, const char *name, const char *pattern)
{
    const char *found = *pattern ? strstr(name, pattern) : NULL;
    const char *experts = m->tensor->num_experts > 0 ? strstr(name, "experts") : NULL;
    return found && (!experts || found <= experts);
}

static bool is_match(const struct module *m, const char *name, const char *pattern, enum module_match how)
{
    switch (how) {
    case MATCH_NAME_OR_CLASS:
        return strcmp(name, pattern) == 0 ||
               strcmp(pattern, m->tensor->role == TENSOR_EMBEDDING ? "Embedding" : "Linear") == 0;
    case MATCH_PARTS:
        return has_parts(name, pattern);
    case MATCH_SUBSTRING:
        return has_substring(m, name, pattern);
    case MATCH_GLOB:
        return has_parts(name, pattern) || fnmatch(pattern, name, 0) == 0;
    }
    return false;
}

static void match_name(struct quantization_reader *q, const char *name, enum module_match how)
{
    for (int32_t i = 0; i < q->num_modules; i++) {
        struct module *m = &q->modules[i];
        m->matched = false;
        for (int p = 0; p < q->num_prefixes && !m->matched; p++)
            m->matched = is_match(m, module_name(m, p).text, name, how);
    }
}

void modules_match(struct quantization_reader *q, const char *key, const char *pattern, enum module_match how)
{
    if (q->json.status != STATUS_OK) return;
    if (strncmp(pattern, "re:", 3) == 0)
        match_regexp(q, key, pattern + 3);
    else
        match_name(q, pattern, how);
}

void modules_set_skipped(struct quantization_reader *q, bool skipped)
{
    for (int32_t i = 0; i < q->num_modules; i++)
        if (q->modules[i].matched) q->modules[i].skipped = skipped;
}

void modules_skip(struct quantization_reader *q, const char *key, enum module_match how)
{
    const json_t *list = json_reader_get(&q->json, key);
    if (!list) return;
    if (!json_is_array(list)) json_reader_expected(&q->json, key, "an array of names", list);
    for (size_t n = 0; n < json_array_size(list); n++) { /* 0 of what is no array */
        const json_t *pattern = json_array_get(list, n);
        if (!json_is_string(pattern)) {
            json_reader_expected(&q->json, key, "an array of names", list);
            return;
        }
        modules_match(q, key, json_string_value(pattern), how);
        modules_set_skipped(q, true);
    }
}
