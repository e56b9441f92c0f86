#include "tokenizer/regexp.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/utf8.h"
#include "tokenizer/regexp_syntax.h"

/* A search that backtracks more often than this, and than twice for each byte of the text, is given up. Expressions of
 * published tokenizers backtrack at most once for each byte. */
#define MATCH_LIMIT 1000000
/* Repeats of groups need memory for each repeat. Only what is used of it is taken from the system. */
#define STACK_START (64 * 1024)
#define STACK_LIMIT ((size_t)1 << 30)

struct regexp {
    pcre2_code *code;    /* NULL: a literal */
    struct text literal; /* not empty */
};

struct regexp_memory {
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack; /* NULL until a search needs more than PCRE2's own 32 KiB */
};

static enum status compile(const struct text *pattern, struct regexp *re, struct error *err)
{
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context) return error_set(err, STATUS_OUT_OF_MEMORY, "memory ran out");
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    int number;
    PCRE2_SIZE offset;
    re->code = pcre2_compile((PCRE2_SPTR)pattern->data, pattern->length, PCRE2_UTF, &number, &offset, context);
    pcre2_compile_context_free(context);
    if (!re->code) {
        PCRE2_UCHAR message[128];
        pcre2_get_error_message(number, message, sizeof message);
        return error_set(err, STATUS_UNSUPPORTED, "PCRE2 does not take the regular expression: %s",
                         (const char *)message);
    }
    pcre2_jit_compile(re->code, PCRE2_JIT_COMPLETE); /* where PCRE2 has no JIT, it interprets */
    return STATUS_OK;
}

enum status regexp_open(const char *pattern, size_t length, bool literal, struct regexp **out, struct error *err)
{
    struct regexp *re = calloc(1, sizeof *re);
    struct text translated = {0};
    enum status status = STATUS_OK;
    if (!re || (literal && length && !text_append(&re->literal, pattern, length)))
        status = error_set(err, STATUS_OUT_OF_MEMORY, "memory ran out");
    else if (!literal || length == 0) { /* an empty literal matches wherever the empty expression does */
        status = regexp_translate(pattern, length, &translated, err);
        if (status == STATUS_OK) status = compile(&translated, re, err);
    }
    text_free(&translated);
    if (status) regexp_close(re);
    *out = status ? NULL : re;
    return status;
}

void regexp_close(struct regexp *re)
{
    if (!re) return;
    pcre2_code_free(re->code);
    text_free(&re->literal);
    free(re);
}

struct regexp_memory *regexp_memory_new(void)
{
    struct regexp_memory *m = calloc(1, sizeof *m);
    if (!m) return NULL;
    m->match = pcre2_match_data_create(1, NULL);
    m->context = pcre2_match_context_create(NULL);
    if (!m->match || !m->context) {
        regexp_memory_free(m);
        return NULL;
    }
    return m;
}

void regexp_memory_free(struct regexp_memory *m)
{
    if (!m) return;
    pcre2_match_data_free(m->match);
    pcre2_match_context_free(m->context);
    pcre2_jit_stack_free(m->stack);
    free(m);
}

struct regexp_search regexp_search(const struct regexp *re, struct regexp_memory *m, const char *text, size_t length)
{
    const size_t limit = MATCH_LIMIT + 2 * length;
    pcre2_set_match_limit(m->context, limit < UINT32_MAX ? (uint32_t)limit : UINT32_MAX);
    return (struct regexp_search){re, m, text, length, 0, SIZE_MAX};
}

static enum status search_failed(int number, struct error *err)
{
    PCRE2_UCHAR message[128];
    pcre2_get_error_message(number, message, sizeof message);
    return error_set(err, number == PCRE2_ERROR_NOMEMORY ? STATUS_OUT_OF_MEMORY : STATUS_INVALID,
                     "the search for a regular expression was given up (%s)", (const char *)message);
}

static enum status find_code(struct regexp_search *s, size_t *start, size_t *end, struct error *err)
{
    struct regexp_memory *m = s->memory;
    for (;;) {
        int number =
            pcre2_match(s->re->code, (PCRE2_SPTR)s->text, s->length, s->from, PCRE2_NO_UTF_CHECK, m->match, m->context);
        if (number > 0) {
            const PCRE2_SIZE *vector = pcre2_get_ovector_pointer(m->match);
            *start = vector[0];
            *end = vector[1];
            return STATUS_OK;
        }
        if (number == PCRE2_ERROR_NOMATCH) {
            *start = SIZE_MAX;
            return STATUS_OK;
        }
        if (number != PCRE2_ERROR_JIT_STACKLIMIT || m->stack) return search_failed(number, err);
        m->stack = pcre2_jit_stack_create(STACK_START, STACK_LIMIT, NULL);
        if (!m->stack) return search_failed(PCRE2_ERROR_NOMEMORY, err);
        pcre2_jit_stack_assign(m->context, NULL, m->stack);
    }
}

static void find_literal(const struct regexp_search *s, size_t *start, size_t *end)
{
    const struct text *literal = &s->re->literal;
    const char *from = s->text + s->from;
    const bool here = s->length - s->from >= literal->length && memcmp(from, literal->data, literal->length) == 0;
    const char *found = here ? from : memmem(from, s->length - s->from, literal->data, literal->length);
    *start = found ? (size_t)(found - s->text) : SIZE_MAX;
    *end = found ? *start + literal->length : SIZE_MAX;
}

enum status regexp_next(struct regexp_search *s, size_t *start, size_t *end, struct error *err)
{
    enum status status = STATUS_OK;
    *start = *end = SIZE_MAX;
    while (s->from <= s->length) {
        if (s->re->code)
            status = find_code(s, start, end, err);
        else
            find_literal(s, start, end);
        if (status || *start == SIZE_MAX) break;
        if (*start != *end || *end != s->last_end) {
            s->from = s->last_end = *end;
            return STATUS_OK;
        }
        if (s->from < s->length)
            utf8_next(s->text + s->from, &s->from);
        else
            s->from++;
    }
    s->from = s->length + 1;
    *start = SIZE_MAX;
    return status;
}
