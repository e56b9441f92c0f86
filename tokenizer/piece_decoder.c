#include "tokenizer/piece_decoder.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "tokenizer/pre_tokenizer.h"

enum {
    MAX_STEPS = 16,
    MAX_GROWTH = 64 /* bytes that the Replaces may make of one; known tokenizers make none longer */
};

enum step_kind { STEP_REPLACE, STEP_STRIP, STEP_BYTE_LEVEL, STEP_BYTE_FALLBACK };

struct step {
    enum step_kind kind;
    char *pattern, *content; /* REPLACE */
    size_t start, stop;      /* STRIP: how many spaces at most */
};

struct piece_decoder {
    struct step steps[MAX_STEPS];
    int num_steps;
    struct text replaced; /* room for REPLACE */
};

/* --- opening --- */

struct reading {
    const char *path;
    struct piece_decoder *decoder;
    struct decoding_rules *rules;
    bool fused;    /* a Fuse has been read: the steps after it see the whole text */
    size_t growth; /* bytes that the Replaces make of one at most */
    struct error *err;
};

static enum status malformed(const struct reading *r, const char *what)
{
    return error_set(r->err, STATUS_INVALID, "%s: decoder: %s", r->path, what);
}

static enum status unsupported(const struct reading *r, const char *what)
{
    return error_set(r->err, STATUS_UNSUPPORTED,
                     "%s: decoder: %s is not supported; quire has ByteLevel, Metaspace, Replace of a string, "
                     "ByteFallback, Fuse, Strip of spaces and Sequence",
                     r->path, what);
}

static struct step *add_step(struct reading *r, enum step_kind kind)
{
    if (r->decoder->num_steps == MAX_STEPS) return NULL;
    struct step *step = &r->decoder->steps[r->decoder->num_steps++];
    step->kind = kind;
    return step;
}

static enum status add_replace(struct reading *r, const char *pattern, const char *content)
{
    struct step *step = add_step(r, STEP_REPLACE);
    if (!step) return malformed(r, "there are too many steps");
    const size_t growth = (strlen(content) + strlen(pattern) - 1) / strlen(pattern);
    if (growth > 1) r->growth = growth > MAX_GROWTH ? growth : r->growth * growth;
    if (r->growth > MAX_GROWTH)
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: decoder: step %d, a Replace, makes the text of a token more than %d times as long, which "
                         "no tokenizer needs",
                         r->path, r->decoder->num_steps, MAX_GROWTH);
    step->pattern = strdup(pattern);
    step->content = strdup(content);
    if (step->pattern && step->content) return STATUS_OK;
    return error_set(r->err, STATUS_OUT_OF_MEMORY, "%s: out of memory", r->path);
}

static enum status read_replace(struct reading *r, const json_t *value)
{
    const json_t *pattern = json_object_get(value, "pattern");
    const char *string = json_string_value(json_object_get(pattern, "String"));
    const char *content = json_string_value(json_object_get(value, "content"));
    if (json_object_get(pattern, "Regex")) return unsupported(r, "Replace of a regular expression");
    if (!string || !*string || !content) return malformed(r, "Replace needs a \"pattern\" and a \"content\"");
    return add_replace(r, string, content);
}

static enum status read_metaspace(struct reading *r, const json_t *value)
{
    const char *replacement = json_string_value(json_object_get(value, "replacement"));
    const char *scheme = json_string_value(json_object_get(value, "prepend_scheme"));
    const json_t *prefix = json_object_get(value, "add_prefix_space");
    if (!replacement || !*replacement) return malformed(r, "Metaspace needs a \"replacement\"");
    r->rules->spaceless_first_token = scheme ? strcmp(scheme, "never") != 0 : !json_is_false(prefix);
    return add_replace(r, replacement, " ");
}

static enum status read_strip(struct reading *r, const json_t *value)
{
    const char *content = json_string_value(json_object_get(value, "content"));
    const json_int_t start = json_integer_value(json_object_get(value, "start"));
    const json_int_t stop = json_integer_value(json_object_get(value, "stop"));
    if (!content || strcmp(content, " ") != 0) return unsupported(r, "Strip of something else than a space");
    if (start < 0 || stop < 0 || start > 1000 || stop > 1000)
        return malformed(r, "Strip has a wrong \"start\" or \"stop\"");
    if (r->fused && stop > 0) return unsupported(r, "Strip at the end of a text");
    if (r->fused) {
        r->rules->strip_spaces = (uint32_t)start;
        return STATUS_OK;
    }
    struct step *step = add_step(r, STEP_STRIP);
    if (!step) return malformed(r, "there are too many steps");
    step->start = (size_t)start;
    step->stop = (size_t)stop;
    return STATUS_OK;
}

static enum status read_bytes(struct reading *r, enum step_kind kind, enum decoding decoding)
{
    r->rules->decoding = decoding;
    return add_step(r, kind) ? STATUS_OK : malformed(r, "there are too many steps");
}

static enum status read_any(struct reading *r, const json_t *value, bool in_sequence)
{
    const char *type = json_string_value(json_object_get(value, "type"));
    if (!type) return malformed(r, "there must be an object with a \"type\"");
    if (strcmp(type, "Replace") == 0) return read_replace(r, value);
    if (strcmp(type, "Metaspace") == 0) return read_metaspace(r, value);
    if (strcmp(type, "Strip") == 0) return read_strip(r, value);
    if (strcmp(type, "ByteLevel") == 0) return read_bytes(r, STEP_BYTE_LEVEL, DECODE_BYTE_LEVEL);
    if (strcmp(type, "ByteFallback") == 0) return read_bytes(r, STEP_BYTE_FALLBACK, DECODE_BYTE_FALLBACK);
    if (strcmp(type, "Fuse") == 0) {
        r->fused = true;
        return STATUS_OK;
    }
    if (strcmp(type, "Sequence") != 0 || in_sequence) return unsupported(r, show_string(type).text);
    const json_t *decoders = json_object_get(value, "decoders"), *element;
    if (!json_is_array(decoders)) return malformed(r, "\"decoders\" must be a list");
    size_t i;
    json_array_foreach((json_t *)decoders, i, element)
    {
        enum status status = read_any(r, element, true);
        if (status) return status;
    }
    return STATUS_OK;
}

enum status piece_decoder_open(const json_t *value, const char *path, struct piece_decoder **out,
                               struct decoding_rules *rules, struct error *err)
{
    *rules = (struct decoding_rules){.decoding = DECODE_BYTE_FALLBACK};
    *out = calloc(1, sizeof **out);
    if (!*out) return error_set(err, STATUS_OUT_OF_MEMORY, "%s: out of memory", path);
    struct reading r = {.path = path, .decoder = *out, .rules = rules, .growth = 1, .err = err};
    if (!value || json_is_null(value)) {
        rules->space_between = true; /* as tokenizers joins pieces without a decoder */
        return STATUS_OK;
    }
    return read_any(&r, value, false);
}

void piece_decoder_close(struct piece_decoder *d)
{
    if (!d) return;
    for (int i = 0; i < d->num_steps; i++) {
        free(d->steps[i].pattern);
        free(d->steps[i].content);
    }
    text_free(&d->replaced);
    free(d);
}

/* --- one piece --- */

/* memmem, which takes long to begin, is only asked about pieces that have the pattern's first byte. */
static const char *find(const char *from, const char *end, const char *pattern, size_t length)
{
    const char *first = memchr(from, pattern[0], (size_t)(end - from));
    return first ? memmem(first, (size_t)(end - first), pattern, length) : NULL;
}

static bool replace(const struct step *step, struct text *bytes, struct text *room)
{
    const size_t pattern = strlen(step->pattern), content = strlen(step->content);
    const char *from = bytes->data, *end = from + bytes->length, *found = find(from, end, step->pattern, pattern);
    if (!found) return true;
    text_clear(room);
    for (; found; found = find(from, end, step->pattern, pattern)) {
        if (!text_append(room, from, (size_t)(found - from)) || !text_append(room, step->content, content))
            return false;
        from = found + pattern;
    }
    if (!text_append(room, from, (size_t)(end - from))) return false;
    const struct text result = *room;
    *room = *bytes;
    *bytes = result;
    return true;
}

static void strip(const struct step *step, struct text *bytes)
{
    size_t start = 0, stop = 0;
    while (start < step->start && start < bytes->length && bytes->data[start] == ' ') start++;
    while (stop < step->stop && start + stop < bytes->length && bytes->data[bytes->length - 1 - stop] == ' ') stop++;
    bytes->length -= start + stop;
    memmove(bytes->data, bytes->data + start, bytes->length);
}

/* "<0x0A>" is a byte. */
static bool fall_back(struct text *bytes)
{
    unsigned value = 0;
    if (bytes->length != 6 || memcmp(bytes->data, "<0x", 3) != 0 || bytes->data[5] != '>') return false;
    for (int i = 3; i < 5; i++) {
        const char *digits = "0123456789abcdef", c = bytes->data[i];
        const char *digit = c ? strchr(digits, c >= 'A' && c <= 'F' ? c + 'a' - 'A' : c) : NULL;
        if (!digit) return false;
        value = 16 * value + (unsigned)(digit - digits);
    }
    bytes->data[0] = (char)value;
    bytes->length = 1;
    return true;
}

/* The bytes that the characters of the piece stand for; a piece with another character is left as it is. */
static void from_byte_level(struct text *bytes)
{
    size_t at = 0;
    while (at < bytes->length && bytes->data[at] > ' ' && bytes->data[at] < 0x7F) at++; /* these stand for themselves */
    const size_t same = at;
    for (uint32_t c; at < bytes->length;) {
        at += utf8_decode(bytes->data + at, bytes->length - at, &c);
        if (byte_level_byte(c) < 0) return;
    }
    size_t count = same;
    for (uint32_t c = at = same; at < bytes->length;) {
        at += utf8_decode(bytes->data + at, bytes->length - at, &c);
        bytes->data[count++] = (char)byte_level_byte(c);
    }
    bytes->length = count;
}

bool piece_decoder_apply(struct piece_decoder *d, const char *piece, size_t length, struct text *bytes, bool *is_byte)
{
    text_clear(bytes);
    *is_byte = false;
    if (!text_append(bytes, piece, length)) return false;
    for (int i = 0; i < d->num_steps && !*is_byte; i++) {
        const struct step *step = &d->steps[i];
        if (step->kind == STEP_REPLACE && !replace(step, bytes, &d->replaced)) return false;
        if (step->kind == STEP_STRIP) strip(step, bytes);
        if (step->kind == STEP_BYTE_LEVEL) from_byte_level(bytes);
        if (step->kind == STEP_BYTE_FALLBACK) *is_byte = fall_back(bytes);
    }
    return true;
}
