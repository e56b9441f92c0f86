/* str methods that change the case of characters or judge them. A changed character keeps the mark of its source. */
#include "tokenizer/jinja/characters.h"
#include "tokenizer/jinja/str_methods.h"

enum { CAPITAL_SIGMA = 0x3A3, SMALL_SIGMA = 0x3C3, FINAL_SIGMA = 0x3C2 };

/* The next character from byte `at` on, in one direction, that is not case-ignorable, is cased. */
static bool is_cased_after(const struct jinja_string *s, size_t at)
{
    while (at < s->length) {
        uint32_t c = character_decode(s->bytes, &at);
        if (!character_is_case_ignorable(c)) return character_is_cased(c);
    }
    return false;
}

static bool is_cased_before(const struct jinja_string *s, size_t at)
{
    while (at > 0) {
        do {
            at--;
        } while (((unsigned char)s->bytes[at] & 0xC0) == 0x80);
        size_t next = at;
        uint32_t c = character_decode(s->bytes, &next);
        if (!character_is_case_ignorable(c)) return character_is_cased(c);
    }
    return false;
}

/* Appends the character at *at in another case, and moves *at behind it. A sigma is final at the end of a word. */
static bool build_cased(struct jinja_run *run, struct jinja_builder *b, const struct jinja_string *s, size_t *at,
                        enum character_case wanted)
{
    size_t start = *at;
    bool marked = jinja_mark_at(s, start);
    uint32_t c = character_decode(s->bytes, at), to[3];
    if (c == CAPITAL_SIGMA && wanted == CHARACTER_LOWER) {
        bool final = is_cased_before(s, start) && !is_cased_after(s, *at);
        return jinja_build_character(run, b, final ? FINAL_SIGMA : SMALL_SIGMA, marked);
    }
    int n = character_to_case(c, wanted, to);
    bool ok = true;
    for (int i = 0; i < n; i++) ok = jinja_build_character(run, b, to[i], marked);
    return ok;
}

static bool build_range_cased(struct jinja_run *run, struct jinja_builder *b, const struct jinja_string *s, size_t from,
                              size_t to, enum character_case wanted)
{
    while (from < to && jinja_tick(run) && build_cased(run, b, s, &from, wanted)) continue;
    return !jinja_failed(run);
}

bool jinja_build_lower(struct jinja_run *run, struct jinja_builder *b, const struct jinja_string *s, size_t from,
                       size_t to)
{
    return build_range_cased(run, b, s, from, to, CHARACTER_LOWER);
}

bool jinja_build_upper(struct jinja_run *run, struct jinja_builder *b, const struct jinja_string *s, size_t from,
                       size_t to)
{
    return build_range_cased(run, b, s, from, to, CHARACTER_UPPER);
}

static struct jinja_value to_case(struct jinja_run *run, const char *name, struct jinja_value self,
                                  const struct jinja_args *args, enum character_case wanted)
{
    struct jinja_builder b = {0};
    if (!jinja_bind_positional(run, name, args, 0, 0, NULL)) return jinja_undefined(NULL);
    build_range_cased(run, &b, self.string, 0, self.string->length, wanted);
    return jinja_build_end(run, &b);
}

struct jinja_value jinja_str_upper(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return to_case(run, "upper", self, args, CHARACTER_UPPER);
}

struct jinja_value jinja_str_lower(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return to_case(run, "lower", self, args, CHARACTER_LOWER);
}

struct jinja_value jinja_str_casefold(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return to_case(run, "casefold", self, args, CHARACTER_FOLD);
}

struct jinja_value jinja_str_capitalize(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    struct jinja_builder b = {0};
    size_t at = 0;
    if (!jinja_bind_positional(run, "capitalize", args, 0, 0, NULL)) return jinja_undefined(NULL);
    if (self.string->length) build_cased(run, &b, self.string, &at, CHARACTER_TITLE);
    jinja_build_lower(run, &b, self.string, at, self.string->length);
    return jinja_build_end(run, &b);
}

struct jinja_value jinja_str_title(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    const struct jinja_string *s = self.string;
    struct jinja_builder b = {0};
    bool in_word = false;
    if (!jinja_bind_positional(run, "title", args, 0, 0, NULL)) return jinja_undefined(NULL);
    for (size_t at = 0; at < s->length && jinja_tick(run);) {
        size_t next = at;
        bool cased = character_is_cased(character_decode(s->bytes, &next));
        if (!build_cased(run, &b, s, &at, in_word ? CHARACTER_LOWER : CHARACTER_TITLE)) break;
        in_word = cased;
    }
    return jinja_build_end(run, &b);
}

struct jinja_value jinja_str_swapcase(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    const struct jinja_string *s = self.string;
    struct jinja_builder b = {0};
    if (!jinja_bind_positional(run, "swapcase", args, 0, 0, NULL)) return jinja_undefined(NULL);
    for (size_t at = 0; at < s->length && jinja_tick(run);) {
        size_t start = at, next = at;
        uint32_t c = character_decode(s->bytes, &next);
        if (character_is_upper(c) || character_is_lower(c)) {
            build_cased(run, &b, s, &at, character_is_upper(c) ? CHARACTER_LOWER : CHARACTER_UPPER);
        } else {
            jinja_build_range(run, &b, s, start, next);
            at = next;
        }
    }
    return jinja_build_end(run, &b);
}

/* --- judging --- */

/* Whether there are characters, and all of them are such. */
static struct jinja_value all(struct jinja_run *run, const char *name, struct jinja_value self,
                              const struct jinja_args *args, bool (*is)(uint32_t c))
{
    const struct jinja_string *s = self.string;
    if (!jinja_bind_positional(run, name, args, 0, 0, NULL)) return jinja_undefined(NULL);
    for (size_t at = 0; at < s->length && jinja_tick(run);) {
        if (!is(character_decode(s->bytes, &at))) return jinja_bool(false);
    }
    return jinja_bool(s->length > 0);
}

struct jinja_value jinja_str_isalpha(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return all(run, "isalpha", self, args, character_is_alpha);
}

struct jinja_value jinja_str_isdecimal(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return all(run, "isdecimal", self, args, character_is_decimal);
}

struct jinja_value jinja_str_isdigit(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return all(run, "isdigit", self, args, character_is_digit);
}

struct jinja_value jinja_str_isnumeric(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return all(run, "isnumeric", self, args, character_is_numeric);
}

struct jinja_value jinja_str_isalnum(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return all(run, "isalnum", self, args, character_is_alnum);
}

struct jinja_value jinja_str_isspace(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return all(run, "isspace", self, args, character_is_space);
}

struct jinja_value jinja_str_isprintable(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    if (self.string->length == 0 && args->count == 0) return jinja_bool(true);
    return all(run, "isprintable", self, args, character_is_printable);
}

struct jinja_value jinja_str_isascii(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    if (!jinja_bind_positional(run, "isascii", args, 0, 0, NULL)) return jinja_undefined(NULL);
    for (size_t i = 0; i < self.string->length; i++) {
        if ((unsigned char)self.string->bytes[i] >= 0x80) return jinja_bool(false);
    }
    return jinja_bool(true);
}

/* Whether there are cased characters, and all of them are in this case. */
static struct jinja_value all_cased(struct jinja_run *run, const char *name, struct jinja_value self,
                                    const struct jinja_args *args, bool (*is)(uint32_t c))
{
    const struct jinja_string *s = self.string;
    bool found = false;
    if (!jinja_bind_positional(run, name, args, 0, 0, NULL)) return jinja_undefined(NULL);
    for (size_t at = 0; at < s->length && jinja_tick(run);) {
        uint32_t c = character_decode(s->bytes, &at);
        if (!character_is_cased(c)) continue;
        if (!is(c)) return jinja_bool(false);
        found = true;
    }
    return jinja_bool(found);
}

struct jinja_value jinja_str_islower(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return all_cased(run, "islower", self, args, character_is_lower);
}

struct jinja_value jinja_str_isupper(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    return all_cased(run, "isupper", self, args, character_is_upper);
}

struct jinja_value jinja_str_istitle(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    const struct jinja_string *s = self.string;
    bool found = false, in_word = false;
    if (!jinja_bind_positional(run, "istitle", args, 0, 0, NULL)) return jinja_undefined(NULL);
    for (size_t at = 0; at < s->length && jinja_tick(run);) {
        uint32_t c = character_decode(s->bytes, &at);
        bool small = character_is_lower(c), cased = character_is_cased(c);
        if (cased && small != in_word) return jinja_bool(false);
        found = found || cased;
        in_word = cased;
    }
    return jinja_bool(found);
}

struct jinja_value jinja_str_isidentifier(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    const struct jinja_string *s = self.string;
    if (!jinja_bind_positional(run, "isidentifier", args, 0, 0, NULL)) return jinja_undefined(NULL);
    for (size_t at = 0; at < s->length && jinja_tick(run);) {
        bool first = at == 0;
        uint32_t c = character_decode(s->bytes, &at);
        if (!(first ? character_starts_identifier(c) : character_continues_identifier(c))) return jinja_bool(false);
    }
    return jinja_bool(s->length > 0);
}
