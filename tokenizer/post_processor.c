#include "tokenizer/post_processor.h"

#include <string.h>

#include "base/json.h"

enum { MAX_TOKENS = 1000 }; /* before the text or after it; known tokenizers have a few */

struct reading {
    const char *path;
    struct post_processor *out;
    struct error *err;
};

static enum status malformed(const struct reading *r, const char *what)
{
    return error_set(r->err, STATUS_INVALID, "%s: post_processor: %s", r->path, what);
}

/* The ids of the special token `name`: {"special_tokens": {name: {"ids": [...]}}}. */
static enum status append_special(const struct reading *r, const json_t *processor, const json_t *name,
                                  struct token_list *list)
{
    const json_t *specials = json_object_get(processor, "special_tokens");
    const json_t *ids = json_object_get(json_object_get(specials, json_string_value(name)), "ids");
    if (!json_is_array(ids)) return malformed(r, "a token of \"single\" has no \"ids\" in \"special_tokens\"");
    if (json_array_size(ids) > MAX_TOKENS - list->count)
        return malformed(r, "\"single\" puts more than 1000 tokens before or after the text");
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *value = json_array_get(ids, i);
        const int32_t id = (int32_t)json_integer_value(value);
        if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > INT32_MAX)
            return malformed(r, "\"ids\" must be token ids");
        if (!token_list_append(list, &id, 1))
            return error_set(r->err, STATUS_OUT_OF_MEMORY, "%s: out of memory", r->path);
    }
    return STATUS_OK;
}

/* "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}] */
static enum status read_template(const struct reading *r, const json_t *processor)
{
    const json_t *single = json_object_get(processor, "single");
    bool seen = false;
    if (!json_is_array(single)) return malformed(r, "\"single\" must be a list");
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *piece = json_array_get(single, i), *special = json_object_get(piece, "SpecialToken");
        if (json_object_get(piece, "Sequence")) {
            if (seen) return malformed(r, "\"single\" has the text twice");
            seen = true;
            continue;
        }
        const json_t *name = json_object_get(special, "id");
        if (!json_is_string(name)) return malformed(r, "an element of \"single\" is neither a token nor the text");
        enum status status = append_special(r, processor, name, seen ? &r->out->after : &r->out->before);
        if (status) return status;
    }
    return seen ? STATUS_OK : malformed(r, "\"single\" does not contain the text");
}

static enum status read_any(const struct reading *r, const json_t *value)
{
    const char *type = json_string_value(json_object_get(value, "type"));
    if (!type) return malformed(r, "there must be an object with a \"type\"");
    if (strcmp(type, "ByteLevel") == 0) return STATUS_OK;
    if (strcmp(type, "TemplateProcessing") == 0) {
        if (r->out->before.count + r->out->after.count) return malformed(r, "there are two TemplateProcessing");
        return read_template(r, value);
    }
    if (strcmp(type, "Sequence") != 0)
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: the post_processor \"%s\" is not one that quire has: TemplateProcessing, ByteLevel, "
                         "Sequence",
                         r->path, show_string(type).text);
    const json_t *processors = json_object_get(value, "processors"), *element;
    if (!json_is_array(processors)) return malformed(r, "\"processors\" must be a list");
    size_t i;
    json_array_foreach((json_t *)processors, i, element)
    {
        if (strcmp("Sequence", show_string(json_string_value(json_object_get(element, "type"))).text) == 0)
            return malformed(r, "a Sequence in a Sequence");
        enum status status = read_any(r, element);
        if (status) return status;
    }
    return STATUS_OK;
}

enum status post_processor_read(const json_t *value, const char *path, struct post_processor *out, struct error *err)
{
    *out = (struct post_processor){0};
    const struct reading r = {path, out, err};
    return !value || json_is_null(value) ? STATUS_OK : read_any(&r, value);
}

void post_processor_free(struct post_processor *p)
{
    token_list_free(&p->before);
    token_list_free(&p->after);
}
