#include "runtime/prompts/structured_json.h"

#include <stdio.h>
#include <string.h>

#include "base/words.h"

/* Refuses a field of the value that is not one of these words. */
static void check_names(struct json_reader *r, const json_t *value, const char *words)
{
    const char *name;
    json_t *part;
    json_object_foreach((json_t *)value, name, part)
    {
        if (!words_have(words, name))
            json_reader_fail(r, STATUS_INVALID, "there is no field '%s%s'", r->prefix, show_string(name).text);
    }
}

static void set(struct structured_fields *out, enum structured_kind kind, const json_t *value, const char *place)
{
    out->structured.kind = kind;
    out->structured.value = value;
    snprintf(out->place, sizeof out->place, "%s", place);
}

/* ---- response_format ---- */

static void read_json_schema(struct json_reader *r, const json_t *format, struct structured_fields *out)
{
    const json_t *value = json_object_get(format, "json_schema");
    struct json_reader fields = json_reader(value, r->source, r->err);
    fields.prefix = "response_format.json_schema.";
    check_names(r, format, "type json_schema");
    if (!json_is_map(value)) {
        json_reader_expected(r, "json_schema", "an object", value);
        return;
    }
    check_names(&fields, value, "name description schema strict");
    json_reader_bool(&fields, "strict", true);
    const json_t *schema = json_reader_get(&fields, "schema");
    if (!schema) json_reader_fail(&fields, STATUS_INVALID, "response_format.json_schema.schema is missing");
    if (r->status == STATUS_OK) r->status = fields.status;
    set(out, STRUCTURED_JSON, schema, "response_format.json_schema.schema");
}

static void read_response_format(struct json_reader *r, const json_t *format, struct structured_fields *out)
{
    struct json_reader fields = json_reader(format, r->source, r->err);
    const json_t *type = json_object_get(format, "type");
    fields.prefix = "response_format.";
    if (!json_is_map(format))
        json_reader_expected(r, "response_format", "an object", format);
    else if (json_is_word(type, "text"))
        check_names(&fields, format, "type");
    else if (json_is_word(type, "json_schema"))
        read_json_schema(&fields, format, out);
    else if (json_is_word(type, "structural_tag"))
        set(out, STRUCTURED_STRUCTURAL_TAG, format, "response_format");
    else if (json_is_word(type, "json_object")) {
        check_names(&fields, format, "type");
        set(out, STRUCTURED_JSON_OBJECT, json_true(), "response_format");
    } else
        json_reader_expected(&fields, "type", "\"text\", \"json_object\", \"json_schema\" or \"structural_tag\"", type);
    if (r->status == STATUS_OK) r->status = fields.status;
}

/* ---- structured_outputs ---- */

static void read_structured_outputs(struct json_reader *r, const json_t *outputs, struct structured_fields *out)
{
    struct json_reader fields = json_reader(outputs, r->source, r->err);
    char place[64];
    fields.prefix = "structured_outputs.";
    if (!json_is_map(outputs)) {
        json_reader_expected(r, "structured_outputs", "an object", outputs);
        return;
    }
    check_names(&fields, outputs,
                "json json_object regex choice grammar structural_tag disable_any_whitespace "
                "disable_additional_properties");
    for (int kind = STRUCTURED_NONE + 1; kind < NUM_STRUCTURED_KINDS; kind++) {
        const char *name = structured_kind_name((enum structured_kind)kind);
        const json_t *value = json_reader_get(&fields, name);
        if (!value || (kind == STRUCTURED_JSON_OBJECT && !json_reader_bool(&fields, name, false))) continue;
        if (out->structured.kind != STRUCTURED_NONE)
            json_reader_fail(&fields, STATUS_INVALID, "%s and structured_outputs.%s are both given; one is enough",
                             out->place, name);
        snprintf(place, sizeof place, "structured_outputs.%s", name);
        set(out, (enum structured_kind)kind, value, place);
    }
    if (out->structured.kind == STRUCTURED_NONE)
        json_reader_fail(&fields, STATUS_INVALID,
                         "structured_outputs must have one of json, json_object, regex, choice, grammar and "
                         "structural_tag");
    out->structured.disable_any_whitespace = json_reader_bool(&fields, "disable_any_whitespace", false);
    out->structured.disable_additional_properties = json_reader_bool(&fields, "disable_additional_properties", false);
    if (r->status == STATUS_OK) r->status = fields.status;
}

/* ---- all ---- */

bool structured_json_read(struct json_reader *r, struct structured_fields *out)
{
    const json_t *format = json_reader_get(r, "response_format"), *outputs = json_reader_get(r, "structured_outputs");
    *out = (struct structured_fields){.place = ""};
    if (format && r->status == STATUS_OK) read_response_format(r, format, out);
    if (format && outputs && out->structured.kind != STRUCTURED_NONE)
        json_reader_fail(r, STATUS_INVALID, "response_format and structured_outputs are both given; one is enough");
    if (outputs && r->status == STATUS_OK) read_structured_outputs(r, outputs, out);
    return format || outputs;
}

enum status structured_fields_constraint(const struct structured_fields *fields, struct grammars *grammars,
                                         struct constraint **out, struct error *err)
{
    struct structured_cache *cache;
    enum status status;
    *out = NULL;
    if (fields->structured.kind == STRUCTURED_NONE) return STATUS_OK;
    if (!grammars)
        status = error_set(err, STATUS_INVALID, "without a tokenizer an answer cannot be held to a form");
    else if (!(cache = grammars_cache(grammars)))
        status = error_set(err, STATUS_OUT_OF_MEMORY, "no memory for grammars");
    else
        status = structured_cache_get(cache, &fields->structured, out, err);
    return status == STATUS_OK ? status : error_prefix(err, status, fields->place);
}
