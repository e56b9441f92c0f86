#include "tokenizer/pre_tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/regexp.h"
#include "tokenizer/unicode.h"

#define GPT2_PATTERN "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
/* \w+|[^\w\s]+ as Rust's regex library has it: its \w has the joiners, too. */
#define WHITESPACE_PATTERN "[[:word:]\\x{200C}\\x{200D}]+|[^[:word:]\\x{200C}\\x{200D}\\s]+"

#define MAX_DEPTH 100

/* What a match becomes. The text between two matches is a word. */
enum behavior { REMOVED, ISOLATED, MERGED_WITH_PREVIOUS, MERGED_WITH_NEXT, CONTIGUOUS };

enum prepend { PREPEND_NEVER, PREPEND_FIRST, PREPEND_ALWAYS };

/* The components, taken apart: ByteLevel is the first, the last and, with use_regex, a split; Metaspace a replacement
 * and a split. */
enum step_kind {
    STEP_SPLIT,   /* split each word at the matches of `regexp`, or at the characters that `is_match` is true of */
    STEP_REPLACE, /* replace spaces by `mark`, and put one before the word (Metaspace) */
    STEP_PREPEND, /* put a space before a word that does not begin with one */
    STEP_MAP      /* write each byte as a character of ByteLevel */
};

struct step {
    enum step_kind kind;
    struct regexp *regexp;
    bool (*is_match)(uint32_t character);
    enum behavior behavior;
    bool invert; /* what lies between matches are the matches */
    char mark[5];
    enum prepend prepend;
};

struct pre_tokenizer {
    struct step *steps;
    size_t count, capacity;
    bool byte_level;
    bool unmap; /* words are in ByteLevel's characters at the end */
};

struct opening {
    struct pre_tokenizer *p;
    const char *path;
    struct error *err;
};

void words_free(struct words *w)
{
    text_free(&w->text);
    free(w->items);
    *w = (struct words){0};
}

bool pre_tokenizer_is_byte_level(const struct pre_tokenizer *p)
{
    return p->byte_level;
}

void pre_tokenizer_close(struct pre_tokenizer *p)
{
    if (!p) return;
    for (size_t i = 0; i < p->count; i++) regexp_close(p->steps[i].regexp);
    free(p->steps);
    free(p);
}

/* ---- opening ---- */

static enum status add_step(struct opening *o, struct step step)
{
    struct pre_tokenizer *p = o->p;
    if (!array_reserve(&p->steps, &p->capacity, p->count + 1, sizeof *p->steps)) {
        regexp_close(step.regexp);
        return error_set(o->err, STATUS_OUT_OF_MEMORY, "%s: memory ran out", o->path);
    }
    p->steps[p->count++] = step;
    return STATUS_OK;
}

static enum status add_pattern(struct opening *o, const char *pattern, size_t length, bool literal,
                               enum behavior behavior, bool invert)
{
    struct step step = {.kind = STEP_SPLIT, .behavior = behavior, .invert = invert};
    enum status status = regexp_open(pattern, length, literal, &step.regexp, o->err);
    if (status) {
        char prefix[1024];
        struct shown shown = show_string(pattern);
        snprintf(prefix, sizeof prefix, "%s: pre_tokenizer: pattern \"%s\"", o->path, shown.text);
        return error_prefix(o->err, status, prefix);
    }
    return add_step(o, step);
}

static enum behavior read_behavior(struct json_reader *r, const char *absent)
{
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    const char *name = json_reader_string(r, "behavior", absent);
    for (int i = 0; name && i < 5; i++)
        if (strcmp(name, names[i]) == 0) return (enum behavior)i;
    json_reader_expected(r, "behavior", "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous",
                         json_reader_get(r, "behavior"));
    return ISOLATED;
}

static enum status open_split(struct opening *o, struct json_reader *r)
{
    const json_t *pattern = json_reader_get(r, "pattern");
    const json_t *string = json_object_get(pattern, "String"), *regex = json_object_get(pattern, "Regex");
    const json_t *text = string ? string : regex;
    enum behavior behavior = read_behavior(r, NULL);
    bool invert = json_reader_require_bool(r, "invert");
    if (!json_is_string(text)) json_reader_expected(r, "pattern", "{\"String\": ...} or {\"Regex\": ...}", pattern);
    if (r->status) return r->status;
    return add_pattern(o, json_string_value(text), json_string_length(text), text == string, behavior, invert);
}

static enum status open_byte_level(struct opening *o, struct json_reader *r)
{
    bool prepend = json_reader_require_bool(r, "add_prefix_space"), use_regex = json_reader_bool(r, "use_regex", true);
    enum status status = r->status;
    if (status == STATUS_OK && prepend) status = add_step(o, (struct step){.kind = STEP_PREPEND});
    if (status == STATUS_OK && use_regex)
        status = add_pattern(o, GPT2_PATTERN, strlen(GPT2_PATTERN), false, ISOLATED, false);
    if (status == STATUS_OK) status = add_step(o, (struct step){.kind = STEP_MAP});
    o->p->byte_level = true;
    return status;
}

static enum prepend read_prepend_scheme(struct json_reader *r)
{
    static const char *const names[] = {"never", "first", "always"};
    const char *name = json_reader_string(r, "prepend_scheme", "always");
    int found = -1;
    for (int i = 0; i < 3; i++)
        if (strcmp(name, names[i]) == 0) found = i;
    if (found < 0)
        json_reader_expected(r, "prepend_scheme", "first, never or always", json_reader_get(r, "prepend_scheme"));
    if (!json_reader_bool(r, "add_prefix_space", true) && found > 0)
        json_reader_fail(r, STATUS_INVALID, "add_prefix_space is false, but prepend_scheme is not never");
    return found < 0 ? PREPEND_NEVER : (enum prepend)found;
}

static enum status open_metaspace(struct opening *o, struct json_reader *r)
{
    struct step step = {.kind = STEP_REPLACE, .prepend = read_prepend_scheme(r)};
    const json_t *mark = json_reader_get(r, "replacement");
    bool split = json_reader_bool(r, "split", true);
    size_t length = json_is_string(mark) ? json_string_length(mark) : 0, first = 0;
    if (length) utf8_next(json_string_value(mark), &first);
    if (!length || first != length)
        json_reader_expected(r, "replacement", "one character", mark);
    else if (o->p->byte_level)
        json_reader_fail(r, STATUS_UNSUPPORTED, "quire takes no Metaspace after ByteLevel");
    if (r->status) return r->status;
    memcpy(step.mark, json_string_value(mark), length);
    enum status status = add_step(o, step);
    if (status || !split) return status;
    return add_pattern(o, step.mark, length, true, MERGED_WITH_NEXT, false);
}

static enum status open_one(struct opening *o, const json_t *value, int depth);

static enum status open_sequence(struct opening *o, struct json_reader *r, int depth)
{
    const json_t *list = json_reader_get(r, "pretokenizers");
    if (!json_is_array(list)) json_reader_expected(r, "pretokenizers", "a list", list);
    if (depth > MAX_DEPTH) json_reader_fail(r, STATUS_UNSUPPORTED, "more nested Sequences than quire takes");
    enum status status = r->status;
    for (size_t i = 0; status == STATUS_OK && i < json_array_size(list); i++)
        status = open_one(o, json_array_get(list, i), depth + 1);
    return status;
}

static enum status open_one(struct opening *o, const json_t *value, int depth)
{
    if (!json_is_object(value))
        return error_set(o->err, STATUS_INVALID, "%s: pre_tokenizer must be an object, found %s", o->path,
                         show_value(value).text);
    struct json_reader r = json_reader(value, o->path, o->err);
    r.prefix = "pre_tokenizer.";
    const char *type = json_reader_string(&r, "type", "");
    struct step characters = {.kind = STEP_SPLIT, .behavior = REMOVED, .is_match = unicode_is_white_space};
    if (r.status) return r.status;
    if (strcmp(type, "Sequence") == 0) return open_sequence(o, &r, depth);
    if (strcmp(type, "Split") == 0) return open_split(o, &r);
    if (strcmp(type, "ByteLevel") == 0) return open_byte_level(o, &r);
    if (strcmp(type, "Metaspace") == 0) return open_metaspace(o, &r);
    if (strcmp(type, "Whitespace") == 0)
        return add_pattern(o, WHITESPACE_PATTERN, strlen(WHITESPACE_PATTERN), false, REMOVED, true);
    if (strcmp(type, "Digits") == 0) {
        characters.is_match = unicode_is_numeric;
        characters.behavior = json_reader_require_bool(&r, "individual_digits") ? ISOLATED : CONTIGUOUS;
    } else if (strcmp(type, "Punctuation") == 0) {
        characters.is_match = unicode_is_punctuation;
        characters.behavior = read_behavior(&r, "Isolated");
    } else if (strcmp(type, "WhitespaceSplit") != 0) {
        json_reader_fail(&r, STATUS_UNSUPPORTED,
                         "type is \"%s\"; quire has Sequence, Split, ByteLevel, Digits, Metaspace, Punctuation, "
                         "Whitespace and WhitespaceSplit",
                         show_string(type).text);
    }
    return r.status ? r.status : add_step(o, characters);
}

enum status pre_tokenizer_open(const json_t *value, const char *path, struct pre_tokenizer **out, struct error *err)
{
    struct pre_tokenizer *p = calloc(1, sizeof *p);
    *out = p;
    if (!p) return error_set(err, STATUS_OUT_OF_MEMORY, "%s: memory ran out", path);
    if (!value || json_is_null(value)) return STATUS_OK;
    struct opening o = {p, path, err};
    enum status status = open_one(&o, value, 0);
    if (status) {
        pre_tokenizer_close(p);
        *out = NULL;
        return status;
    }
    /* Nothing looks at the characters of a ByteLevel that is the last step, so the words stay bytes. */
    if (p->byte_level && p->steps[p->count - 1].kind == STEP_MAP)
        p->count--;
    else
        p->unmap = p->byte_level;
    return STATUS_OK;
}

/* ---- splitting ---- */

/* The state of one call. A step reads `words` and makes `next`. */
struct splitting {
    struct words *words, *next;
    struct regexp_memory *memory; /* NULL until a step needs it */
    bool at_start;                /* the first word begins the input */
    bool memory_ran_out;
    size_t length; /* of the input */
    struct error *err;
};

static void add_word(struct splitting *s, size_t start, size_t end)
{
    struct words *w = s->next;
    if (w->count == w->capacity && !array_reserve(&w->items, &w->capacity, w->count + 1, sizeof *w->items)) {
        s->memory_ran_out = true;
        return;
    }
    w->items[w->count++] = (struct word){(uint32_t)start, (uint32_t)(end - start)};
}

/* The words of one word, as its matches and what is between them arrive from left to right. */
struct parts {
    struct splitting *s;
    enum behavior behavior;
    bool invert, last_was_match;
    size_t first;         /* index of the first part in s->next */
    size_t pending_start; /* MERGED_WITH_NEXT: a match that waits for what follows; SIZE_MAX: none */
    size_t end;           /* of the last part */
};

static void add_part(struct parts *p, size_t start, size_t end, bool match)
{
    struct splitting *s = p->s;
    bool merge = false;
    match ^= p->invert;
    if (p->behavior == CONTIGUOUS) merge = match == p->last_was_match;
    if (p->behavior == MERGED_WITH_PREVIOUS) merge = match && !p->last_was_match;
    if (p->behavior == MERGED_WITH_NEXT) {
        if (match && p->pending_start != SIZE_MAX)
            add_word(s, p->pending_start, p->end);
        else if (!match && p->pending_start != SIZE_MAX)
            start = p->pending_start;
        p->pending_start = match ? start : SIZE_MAX;
        if (!match) add_word(s, start, end);
    } else if (merge && s->next->count > p->first) {
        struct word *last = &s->next->items[s->next->count - 1];
        last->length = (uint32_t)(end - last->offset);
    } else if (p->behavior != REMOVED || !match)
        add_word(s, start, end);
    p->last_was_match = match;
    p->end = end;
}

/* Matches may be empty; tokenizers drops empty words once all are there. */
static void finish_parts(struct parts *p)
{
    struct words *w = p->s->next;
    if (p->pending_start != SIZE_MAX) add_word(p->s, p->pending_start, p->end);
    size_t kept = p->first;
    for (size_t i = p->first; i < w->count; i++)
        if (w->items[i].length) w->items[kept++] = w->items[i];
    w->count = kept;
}

static enum status split_by_regexp(const struct step *step, struct parts *parts, size_t offset, size_t length)
{
    struct splitting *s = parts->s;
    struct regexp_search search = regexp_search(step->regexp, s->memory, s->words->text.data + offset, length);
    size_t start, end, last = 0;
    enum status status;
    while ((status = regexp_next(&search, &start, &end, s->err)) == STATUS_OK && start != SIZE_MAX) {
        if (last != start) add_part(parts, offset + last, offset + start, false);
        add_part(parts, offset + start, offset + end, true);
        last = end;
    }
    if (status == STATUS_OK && last != length) add_part(parts, offset + last, offset + length, false);
    return status;
}

static void split_by_characters(const struct step *step, struct parts *parts, size_t offset, size_t length)
{
    const char *text = parts->s->words->text.data;
    size_t end = offset + length, last = offset;
    for (size_t at = offset; at < end;) {
        size_t start = at;
        if (!step->is_match(utf8_next(text + at, &at))) continue;
        if (last != start) add_part(parts, last, start, false);
        add_part(parts, start, at, true);
        last = at;
    }
    if (last != end) add_part(parts, last, end, false);
}

static enum status split_words(const struct step *step, struct splitting *s)
{
    const struct words *from = s->words;
    enum status status = STATUS_OK;
    if (step->regexp && !s->memory && !(s->memory = regexp_memory_new())) s->memory_ran_out = true;
    for (size_t i = 0; i < from->count && status == STATUS_OK && !s->memory_ran_out; i++) {
        struct parts parts = {s, step->behavior, step->invert, false, s->next->count, SIZE_MAX, 0};
        struct word word = from->items[i];
        if (step->regexp)
            status = split_by_regexp(step, &parts, word.offset, word.length);
        else
            split_by_characters(step, &parts, word.offset, word.length);
        finish_parts(&parts);
    }
    s->at_start = s->at_start && s->next->count && s->next->items[0].offset == from->items[0].offset;
    struct text text = s->next->text; /* the words are of the same text */
    s->next->text = s->words->text;
    s->words->text = text;
    return status;
}

static bool begins_with(const char *text, size_t length, const char *string)
{
    size_t count = strlen(string);
    return length >= count && memcmp(text, string, count) == 0;
}

static bool replace_spaces(struct text *out, const char *text, size_t length, const char *mark)
{
    bool good = true;
    while (length && good) {
        const char *space = memchr(text, ' ', length);
        size_t before = space ? (size_t)(space - text) : length;
        good = text_append(out, text, before) && (!space || text_append_string(out, mark));
        text += before + (space != NULL);
        length -= before + (space != NULL);
    }
    return good;
}

static bool map_bytes(struct text *out, const char *text, size_t length)
{
    if (!text_reserve(out, out->length + 2 * length)) return false;
    for (size_t i = 0; i < length; i++)
        out->length += utf8_write(byte_level_character((unsigned char)text[i]), out->data + out->length);
    return true;
}

static bool unmap_bytes(struct text *out, const char *text, size_t length)
{
    if (!text_reserve(out, out->length + length)) return false;
    for (size_t i = 0; i < length;) out->data[out->length++] = (char)byte_level_byte(utf8_next(text + i, &i));
    return true;
}

/* One word's new text; `first`: it begins the input. step NULL: ByteLevel's characters back to bytes. */
static bool rewrite_word(const struct step *step, struct text *out, const char *text, size_t length, bool first)
{
    if (!step) return unmap_bytes(out, text, length);
    if (step->kind == STEP_MAP) return map_bytes(out, text, length);
    if (step->kind == STEP_PREPEND)
        return (text[0] == ' ' || text_append(out, " ", 1)) && text_append(out, text, length);
    bool prepend = step->prepend == PREPEND_ALWAYS || (step->prepend == PREPEND_FIRST && first);
    if (prepend && text[0] != ' ' && !begins_with(text, length, step->mark) && !text_append_string(out, step->mark))
        return false;
    return replace_spaces(out, text, length, step->mark);
}

/* Words count their bytes in 32 bits. Text that was short enough may have grown. */
static enum status check_length(size_t length, struct error *err)
{
    if (length <= UINT32_MAX) return STATUS_OK;
    return error_set(err, STATUS_INVALID, "a text of 4 GiB or more cannot be tokenized in one piece");
}

static enum status rewrite_words(const struct step *step, struct splitting *s)
{
    const struct words *from = s->words;
    struct text *out = &s->next->text;
    text_clear(out);
    for (size_t i = 0; i < from->count && !s->memory_ran_out; i++) {
        struct word word = from->items[i];
        size_t start = out->length;
        if (!rewrite_word(step, out, from->text.data + word.offset, word.length, i == 0 && s->at_start))
            s->memory_ran_out = true;
        add_word(s, start, out->length);
    }
    if (out->length >
        normalizer_max_length(s->length)) /* a step makes 8 bytes of one at most, so this is soon enough */
        return error_set(s->err, STATUS_UNSUPPORTED,
                         "the pre_tokenizer makes more than %zu bytes of a text of %zu, which no tokenizer needs; mend "
                         "tokenizer.json",
                         normalizer_max_length(s->length), s->length);
    return check_length(out->length, s->err);
}

/* Makes the words of one step the words of the next. */
static void take_step(struct splitting *s)
{
    struct words *old = s->words;
    s->words = s->next;
    s->next = old;
    old->count = 0;
}

enum status pre_tokenizer_split(const struct pre_tokenizer *p, const char *text, size_t length, bool first,
                                struct words *out, struct error *err)
{
    struct words other = {0};
    struct splitting s = {.words = &other, .next = out, .at_start = first, .length = length, .err = err};
    enum status status = check_length(length, err);
    text_clear(&out->text);
    out->count = 0;
    if (status) return status;
    if (!text_append(&out->text, text, length)) s.memory_ran_out = true;
    if (length) add_word(&s, 0, length);
    take_step(&s);
    for (size_t i = 0; i < p->count + p->unmap && status == STATUS_OK && !s.memory_ran_out; i++) {
        const struct step *step = i < p->count ? &p->steps[i] : NULL;
        status = step && step->kind == STEP_SPLIT ? split_words(step, &s) : rewrite_words(step, &s);
        take_step(&s);
    }
    if (s.words != out) {
        struct words swap = *out;
        *out = other;
        other = swap;
    }
    words_free(&other);
    regexp_memory_free(s.memory);
    if (s.memory_ran_out) status = error_set(err, STATUS_OUT_OF_MEMORY, "memory ran out while splitting a text");
    return status;
}
