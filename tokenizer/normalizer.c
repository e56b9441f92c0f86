#include "tokenizer/normalizer.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "tokenizer/normal_form.h"
#include "tokenizer/regexp.h"
#include "tokenizer/unicode.h"

#define MAX_DEPTH 100

enum step_kind { STEP_NORMAL_FORM, STEP_REPLACE, STEP_PREPEND, STEP_LOWERCASE, STEP_STRIP, STEP_STRIP_ACCENTS };

struct step {
    enum step_kind kind;
    enum normal_form form;
    struct regexp *regexp; /* STEP_REPLACE */
    struct text content;   /* STEP_REPLACE, STEP_PREPEND */
    bool left, right;      /* STEP_STRIP */
};

struct normalizer {
    struct step *steps;
    size_t count, capacity;
};

struct opening {
    struct normalizer *n;
    const char *path;
    struct error *err;
};

size_t normalizer_max_length(size_t length)
{
    return 64 * length + 4096;
}

bool normalizer_is_identity(const struct normalizer *n)
{
    return n->count == 0;
}

static void step_free(struct step *step)
{
    regexp_close(step->regexp);
    text_free(&step->content);
}

void normalizer_close(struct normalizer *n)
{
    if (!n) return;
    for (size_t i = 0; i < n->count; i++) step_free(&n->steps[i]);
    free(n->steps);
    free(n);
}

/* ---- opening ---- */

static void read_content(struct json_reader *r, const char *key, struct step *step)
{
    const json_t *value = json_reader_get(r, key);
    if (!json_is_string(value))
        json_reader_expected(r, key, "a string", value);
    else if (!text_append(&step->content, json_string_value(value), json_string_length(value)))
        json_reader_fail(r, STATUS_OUT_OF_MEMORY, "memory ran out");
}

static void read_pattern(struct json_reader *r, struct step *step)
{
    const json_t *pattern = json_reader_get(r, "pattern");
    const json_t *string = json_object_get(pattern, "String"), *regex = json_object_get(pattern, "Regex");
    const json_t *text = string ? string : regex;
    if (!json_is_string(text)) json_reader_expected(r, "pattern", "{\"String\": ...} or {\"Regex\": ...}", pattern);
    if (r->status) return;
    struct error err = {0};
    enum status status =
        regexp_open(json_string_value(text), json_string_length(text), text == string, &step->regexp, &err);
    if (status) json_reader_fail(r, status, "pattern \"%s\": %s", show_string(json_string_value(text)).text, err.text);
}

static void read_step(struct json_reader *r, const char *type, struct step *step)
{
    static const struct {
        const char *type;
        enum step_kind kind;
        enum normal_form form;
    } kinds[] = {
        {"NFC", STEP_NORMAL_FORM, NORMAL_FORM_C},
        {"NFD", STEP_NORMAL_FORM, NORMAL_FORM_D},
        {"NFKC", STEP_NORMAL_FORM, NORMAL_FORM_KC},
        {"NFKD", STEP_NORMAL_FORM, NORMAL_FORM_KD},
        {"Replace", STEP_REPLACE, 0},
        {"Prepend", STEP_PREPEND, 0},
        {"Lowercase", STEP_LOWERCASE, 0},
        {"Strip", STEP_STRIP, 0},
        {"StripAccents", STEP_STRIP_ACCENTS, 0},
    };
    size_t i = 0, count = sizeof kinds / sizeof kinds[0];
    while (i < count && strcmp(type, kinds[i].type) != 0) i++;
    if (i == count) {
        json_reader_fail(r, STATUS_UNSUPPORTED,
                         "type is \"%s\"; quire has Sequence, NFC, NFD, NFKC, NFKD, Replace, Prepend, Lowercase, Strip "
                         "and StripAccents",
                         show_string(type).text);
        return;
    }
    step->kind = kinds[i].kind;
    step->form = kinds[i].form;
    if (step->kind == STEP_REPLACE) {
        read_pattern(r, step);
        read_content(r, "content", step);
    } else if (step->kind == STEP_PREPEND) {
        read_content(r, "prepend", step);
    } else if (step->kind == STEP_STRIP) {
        step->left = json_reader_require_bool(r, "strip_left");
        step->right = json_reader_require_bool(r, "strip_right");
    }
}

static enum status add_step(struct opening *o, struct json_reader *r, const char *type)
{
    struct normalizer *n = o->n;
    struct step step = {0};
    read_step(r, type, &step);
    if (r->status == STATUS_OK && !array_reserve(&n->steps, &n->capacity, n->count + 1, sizeof *n->steps))
        json_reader_fail(r, STATUS_OUT_OF_MEMORY, "memory ran out");
    if (r->status)
        step_free(&step);
    else
        n->steps[n->count++] = step;
    return r->status;
}

static enum status open_one(struct opening *o, const json_t *value, int depth)
{
    if (!json_is_object(value))
        return error_set(o->err, STATUS_INVALID, "%s: normalizer must be an object, found %s", o->path,
                         show_value(value).text);
    struct json_reader r = json_reader(value, o->path, o->err);
    r.prefix = "normalizer.";
    const char *type = json_reader_string(&r, "type", "");
    if (r.status) return r.status;
    if (strcmp(type, "Sequence") != 0) return add_step(o, &r, type);
    const json_t *list = json_reader_get(&r, "normalizers");
    if (!json_is_array(list)) json_reader_expected(&r, "normalizers", "a list", list);
    if (depth > MAX_DEPTH) json_reader_fail(&r, STATUS_UNSUPPORTED, "more nested Sequences than quire takes");
    enum status status = r.status;
    for (size_t i = 0; status == STATUS_OK && i < json_array_size(list); i++)
        status = open_one(o, json_array_get(list, i), depth + 1);
    return status;
}

enum status normalizer_open(const json_t *value, const char *path, struct normalizer **out, struct error *err)
{
    struct normalizer *n = calloc(1, sizeof *n);
    *out = n;
    if (!n) return error_set(err, STATUS_OUT_OF_MEMORY, "%s: memory ran out", path);
    if (!value || json_is_null(value)) return STATUS_OK;
    struct opening o = {n, path, err};
    enum status status = open_one(&o, value, 0);
    if (status) {
        normalizer_close(n);
        *out = NULL;
    }
    return status;
}

/* ---- applying ---- */

struct input {
    const char *text, *marks; /* marks: NULL, or [length] */
    size_t length;
    size_t step;     /* which one it is the input of, from 1 */
    size_t original; /* length of the text that is normalized */
};

static bool copy(struct marked_text *out, const struct input *in, size_t start, size_t end)
{
    return text_append(&out->text, in->text + start, end - start) &&
           (!in->marks || text_append(&out->marks, in->marks + start, end - start));
}

/* Appends bytes that were made of in[start, end). */
static bool write_bytes(struct marked_text *out, const char *bytes, size_t count, const struct input *in, size_t start,
                        size_t end)
{
    const bool mark = in->marks && memchr(in->marks + start, 1, end - start);
    return marked_text_append(out, bytes, count, in->marks, mark);
}

/* Fails if the step may not add its content to so many bytes. */
static enum status check_growth(const struct step *step, const struct input *in, size_t bytes, struct error *err)
{
    const size_t max = normalizer_max_length(in->original);
    if (bytes <= max && step->content.length <= max - bytes) return STATUS_OK;
    return error_set(err, STATUS_UNSUPPORTED,
                     "step %zu of the normalizer, %s, makes more than %zu bytes of a text of %zu, which no tokenizer "
                     "needs; mend tokenizer.json",
                     in->step, step->kind == STEP_REPLACE ? "a Replace" : "a Prepend", max, in->original);
}

static enum status replace(const struct step *step, const struct input *in, struct marked_text *out, struct error *err)
{
    struct regexp_memory *memory = regexp_memory_new();
    struct regexp_search search = regexp_search(step->regexp, memory, in->text, in->length);
    size_t last = 0, start, end;
    bool good = memory != NULL;
    enum status status = STATUS_OK;
    while (good && in->length) { /* nothing is found in an empty text */
        status = regexp_next(&search, &start, &end, err);
        if (status || start == SIZE_MAX || (status = check_growth(step, in, out->text.length, err))) break;
        good = copy(out, in, last, start) && write_bytes(out, step->content.data, step->content.length, in, start, end);
        last = end;
    }
    regexp_memory_free(memory);
    if (status) return status;
    return good && copy(out, in, last, in->length) ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}

static bool lowercase(const struct input *in, struct marked_text *out)
{
    bool good = true;
    for (size_t at = 0; at < in->length && good;) {
        size_t start = at;
        uint32_t lower[2];
        char bytes[8];
        int count = unicode_lower(utf8_next(in->text + at, &at), lower);
        size_t length = utf8_write(lower[0], bytes);
        if (count == 2) length += utf8_write(lower[1], bytes + length);
        good = write_bytes(out, bytes, length, in, start, at);
    }
    return good;
}

static bool strip_accents(const struct input *in, struct marked_text *out)
{
    size_t kept = 0;
    for (size_t at = 0; at < in->length;) {
        size_t start = at;
        if (!unicode_is_mark(utf8_next(in->text + at, &at))) continue;
        if (!copy(out, in, kept, start)) return false;
        kept = at;
    }
    return copy(out, in, kept, in->length);
}

static bool strip(const struct step *step, const struct input *in, struct marked_text *out)
{
    size_t start = 0, end = 0; /* of what is between white space at both ends */
    bool inside = false;
    for (size_t at = 0; at < in->length;) {
        size_t character = at;
        if (unicode_is_white_space(utf8_next(in->text + at, &at))) continue;
        if (!inside) start = character;
        inside = true;
        end = at;
    }
    /* A text of white space alone loses all of it, whichever side is stripped. */
    if (!inside && (step->left || step->right)) return copy(out, in, 0, 0);
    return copy(out, in, step->left ? start : 0, step->right ? end : in->length);
}

static enum status prepend(const struct step *step, const struct input *in, struct marked_text *out, struct error *err)
{
    if (in->length == 0) return STATUS_OK;
    const enum status status = check_growth(step, in, in->length, err);
    if (status) return status;
    const bool good =
        write_bytes(out, step->content.data, step->content.length, in, 0, 0) && copy(out, in, 0, in->length);
    return good ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}

/* Leaves an empty string, not NULL. */
static bool clear(struct marked_text *t)
{
    text_clear(&t->text);
    text_clear(&t->marks);
    return text_append(&t->text, "", 0);
}

static enum status apply_step(const struct step *step, const struct input *in, struct marked_text *out,
                              struct error *err)
{
    bool good = false;
    switch (step->kind) {
    case STEP_REPLACE:
        return replace(step, in, out, err);
    case STEP_NORMAL_FORM:
        good = normal_form_append(step->form, in->text, in->marks, in->length, out);
        break;
    case STEP_PREPEND:
        return prepend(step, in, out, err);
    case STEP_LOWERCASE:
        good = lowercase(in, out);
        break;
    case STEP_STRIP:
        good = strip(step, in, out);
        break;
    case STEP_STRIP_ACCENTS:
        good = strip_accents(in, out);
        break;
    }
    return good ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}

enum status normalizer_apply(const struct normalizer *n, const char *text, const char *marks, size_t length,
                             struct marked_text *out, struct error *err)
{
    struct marked_text from = {0}; /* what the step before made */
    struct input in = {text, marks, length, 1, length};
    enum status status = clear(out) && (n->count > 0 || copy(out, &in, 0, length)) ? STATUS_OK : STATUS_OUT_OF_MEMORY;
    for (size_t i = 0; i < n->count && status == STATUS_OK; i++) {
        if (i > 0) {
            struct marked_text swap = from;
            from = *out;
            *out = swap;
            if (!clear(out)) status = STATUS_OUT_OF_MEMORY;
            in = (struct input){from.text.data, marks ? from.marks.data : NULL, from.text.length, i + 1, length};
        }
        if (status == STATUS_OK) status = apply_step(&n->steps[i], &in, out, err);
    }
    marked_text_free(&from);
    if (status == STATUS_OUT_OF_MEMORY) error_set(err, status, "memory ran out while normalizing a text");
    return status;
}
