/* quantization_config_of: what compressed_tensors.c reads, written. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "model/quantization.h"

struct writer {
    const struct quantized_module *modules; /* [count] */
    size_t count;
    bool *covered; /* [count] a pattern of the list that is being written matches it */
};

/* --- Names --- */

/* Whether the name begins with these parts, of which the last ends before a dot; or has this part anywhere. */
static bool begins_with(const char *name, const char *parts, size_t length)
{
    return strncmp(name, parts, length) == 0 && name[length] == '.';
}

static bool has_part(const char *name, const char *part, size_t length)
{
    while (name && !begins_with(name, part, length)) {
        name = strchr(name, '.');
        if (name) name++;
    }
    return name;
}

/* Whether that is so of a matrix with another scheme. Floats are ignored before any group is looked at. */
static bool is_of_others(const struct writer *w, uint8_t scheme, bool (*matches)(const char *, const char *, size_t),
                         const char *text, size_t length)
{
    for (size_t i = 0; i < w->count; i++) {
        const struct quantized_module *m = &w->modules[i];
        if (m->scheme != 0 && m->scheme != scheme && matches(m->name, text, length)) return true;
    }
    return false;
}

static bool is_word(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)text[i]) && text[i] != '_') return false;
    return length > 0;
}

/* Appends what matches module `index` and none with another scheme. Programs put other prefixes before the names of a
 * file. So of the shortest beginning that no other has, "vision_tower" or "model.layers.0.mlp.gate", the last part is
 * looked for anywhere in a name. Where another has that part, and for "lm_head", it is the whole name. */
static bool add_pattern(struct writer *w, size_t index, json_t *list)
{
    const struct quantized_module *m = &w->modules[index];
    const size_t whole = strlen(m->name) - strlen(".weight");
    size_t end = strcspn(m->name, "."), part;
    while (end < whole && is_of_others(w, m->scheme, begins_with, m->name, end))
        end += 1 + strcspn(m->name + end + 1, ".");
    for (part = end; part > 0 && m->name[part - 1] != '.';) part--;
    const bool anywhere = strcspn(m->name, ".") < whole && is_word(m->name + part, end - part) &&
                          !is_of_others(w, m->scheme, has_part, m->name + part, end - part);
    struct text text = {0};
    bool ok = anywhere ? text_printf(&text, "re:.*\\b%.*s\\b", (int)(end - part), m->name + part)
                       : text_append(&text, m->name, whole);
    ok = ok && json_array_append_new(list, json_string(text.data)) == 0;
    text_free(&text);
    w->covered[index] = true;
    for (size_t i = index; i < w->count && anywhere; i++)
        if (has_part(w->modules[i].name, m->name + part, end - part)) w->covered[i] = true;
    return ok;
}

/* Patterns for the modules of that scheme. */
static json_t *patterns_of(struct writer *w, uint8_t scheme)
{
    json_t *list = json_array();
    bool ok = list;
    memset(w->covered, 0, w->count);
    for (size_t i = 0; i < w->count && ok; i++)
        if (!w->covered[i] && w->modules[i].scheme == scheme) ok = add_pattern(w, i, list);
    if (ok) return list;
    json_decref(list);
    return NULL;
}

/* --- Groups --- */

static const char *format_of(const struct weight_scheme *s)
{
    return s->format == WEIGHT_FP8                     ? "float-quantized"
           : s->format == WEIGHT_INT8 && s->quantize_x ? "int-quantized"
                                                       : "pack-quantized";
}

static json_t *numbers(const struct weight_scheme *s, const char *strategy, bool dynamic)
{
    json_t *size = s->group_size > 0 ? json_integer(s->group_size) : json_null();
    return json_pack("{s:s, s:i, s:b, s:s, s:o, s:b}", "type", s->format == WEIGHT_FP8 ? "float" : "int", "num_bits",
                     s->format == WEIGHT_INT4 ? 4 : 8, "symmetric", !s->has_zeros, "strategy", strategy, "group_size",
                     size, "dynamic", dynamic);
}

/* Takes `targets`. */
static json_t *group_of(const struct weight_scheme *s, json_t *targets)
{
    json_t *weights = numbers(s, s->group_size > 0 ? "group" : "channel", false);
    json_t *x = s->quantize_x ? numbers(s, "token", true) : json_null();
    return json_pack("{s:o, s:o, s:o, s:n, s:s}", "targets", targets, "weights", weights, "input_activations", x,
                     "output_activations", "format", format_of(s));
}

/* That of experts; 0: they are floats, or there are none. */
static uint8_t scheme_of_experts(const struct model_spec *spec)
{
    uint8_t scheme = 0;
    for (int32_t i = 0; i < spec->num_layers && scheme == 0; i++) scheme = spec->layers[i].schemes[TENSOR_EXPERT_DOWN];
    return scheme;
}

/* The one that most have, but for that of experts, if there is another; 0: all are floats. */
static uint8_t usual_scheme(const struct writer *w, uint8_t experts)
{
    size_t counts[MODEL_MAX_SCHEMES] = {0};
    uint8_t usual = experts;
    for (size_t i = 0; i < w->count; i++) {
        const uint8_t scheme = w->modules[i].scheme;
        if (scheme == 0 || scheme == experts) continue;
        counts[scheme]++;
        if (usual == experts || counts[scheme] > counts[usual]) usual = scheme;
    }
    return usual;
}

/* Takes `targets`, of which there may be none. */
static void add_group(const struct model_spec *spec, uint8_t scheme, json_t *targets, json_t *groups)
{
    char name[16];
    snprintf(name, sizeof name, "group_%zu", json_object_size(groups));
    if (json_array_size(targets) > 0)
        json_object_set_new(groups, name, group_of(&spec->schemes[scheme], targets));
    else
        json_decref(targets);
}

/* The usual scheme is that of every linear module that no other group names. Experts are none in transformers, which
 * takes their scheme from the first group with a pattern that has the word. */
static json_t *groups_of(struct writer *w, const struct model_spec *spec, uint8_t usual, uint8_t experts)
{
    json_t *groups = json_object();
    if (experts != 0 && experts != usual) add_group(spec, experts, json_pack("[s]", "re:.*\\bexperts\\b"), groups);
    add_group(spec, usual, json_pack("[s]", "Linear"), groups);
    for (uint8_t i = 1; i < spec->num_schemes; i++)
        if (i != usual && i != experts) add_group(spec, i, patterns_of(w, i), groups);
    return groups;
}

/* A router is called a gate in some files, and no gate in what transformers makes of them. */
static json_t *ignored_modules(struct writer *w, const struct model_spec *spec)
{
    json_t *list = patterns_of(w, 0);
    if (list && model_spec_num_experts(spec) > 0) json_array_append_new(list, json_string("re:.*\\brouter\\b"));
    return list;
}

json_t *quantization_config_of(const struct model_spec *spec, const struct quantized_module *modules, size_t count)
{
    struct writer w = {modules, count, malloc(count + 1)};
    const uint8_t experts = scheme_of_experts(spec), usual = usual_scheme(&w, experts);
    const char *format = format_of(&spec->schemes[usual]);
    json_t *config = NULL;
    if (experts != 0 && strcmp(format_of(&spec->schemes[experts]), format) != 0) format = "mixed-precision";
    if (w.covered)
        config = json_pack("{s:s, s:s, s:s, s:o, s:o}", "quant_method", "compressed-tensors", "quantization_status",
                           "compressed", "format", format, "config_groups", groups_of(&w, spec, usual, experts),
                           "ignore", ignored_modules(&w, spec));
    free(w.covered);
    return config;
}
