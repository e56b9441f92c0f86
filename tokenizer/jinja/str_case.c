/* str methods that change the case of characters or judge them. A changed character keeps the mark of its source. */
#include "tokenizer/jinja/characters.h"
#include "tokenizer/jinja/library.h"

enum { CAPITAL_SIGMA = 0x3A3, SMALL_SIGMA = 0x3C3, FINAL_SIGMA = 0x3C2 };

/* The next character from byte `at` on, in one direction, that is not case-ignorable, is cased. */
static bool is_cased_after(const struct jinja_string *s, size_t at)
{
    while (at < s->length) {
        uint32_t c = utf8_next(s->bytes + at, &at);
        if (!character_is_case_ignorable(c)) return character_is_cased(c);
    }
    return false;
}

static bool is_cased_before(const struct jinja_string *s, size_t at)
{
    while (at > 0) {
        size_t next = at = jinja_character_start(s, at);
        uint32_t c = utf8_next(s->bytes + next, &next);
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
    uint32_t c = utf8_next(s->bytes + *at, at), to[3];
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

/* `variant` is the case that is wanted. */
static struct jinja_value str_to_case(struct jinja_run *run, struct jinja_call *c)
{
    struct jinja_builder b = {0};
    build_range_cased(run, &b, c->self.string, 0, c->self.string->length, (enum character_case)c->variant);
    return jinja_build_end(run, &b);
}

static struct jinja_value str_capitalize(struct jinja_run *run, struct jinja_call *c)
{
    struct jinja_builder b = {0};
    size_t at = 0;
    if (c->self.string->length) build_cased(run, &b, c->self.string, &at, CHARACTER_TITLE);
    jinja_build_lower(run, &b, c->self.string, at, c->self.string->length);
    return jinja_build_end(run, &b);
}

static struct jinja_value str_title(struct jinja_run *run, struct jinja_call *c)
{
    const struct jinja_string *s = c->self.string;
    struct jinja_builder b = {0};
    bool in_word = false;
    for (size_t at = 0; at < s->length && jinja_tick(run);) {
        size_t next = at;
        bool cased = character_is_cased(utf8_next(s->bytes + next, &next));
        if (!build_cased(run, &b, s, &at, in_word ? CHARACTER_LOWER : CHARACTER_TITLE)) break;
        in_word = cased;
    }
    return jinja_build_end(run, &b);
}

static struct jinja_value str_swapcase(struct jinja_run *run, struct jinja_call *c)
{
    const struct jinja_string *s = c->self.string;
    struct jinja_builder b = {0};
    for (size_t at = 0; at < s->length && jinja_tick(run);) {
        size_t start = at, next = at;
        uint32_t character = utf8_next(s->bytes + next, &next);
        if (character_is_upper(character) || character_is_lower(character)) {
            build_cased(run, &b, s, &at, character_is_upper(character) ? CHARACTER_LOWER : CHARACTER_UPPER);
        } else {
            jinja_build_range(run, &b, s, start, next);
            at = next;
        }
    }
    return jinja_build_end(run, &b);
}

/* --- judging --- */

static bool is_ascii(uint32_t c)
{
    return c < 0x80;
}

enum { ALPHA, DECIMAL, DIGIT, NUMERIC, ALNUM, SPACE, PRINTABLE, ASCII };

/* Whether all characters are of the class `variant`. The empty string is printable and ASCII, and nothing else. */
static struct jinja_value str_is(struct jinja_run *run, struct jinja_call *c)
{
    static bool (*const judges[])(uint32_t) = {[ALPHA] = character_is_alpha,         [DECIMAL] = character_is_decimal,
                                               [DIGIT] = character_is_digit,         [NUMERIC] = character_is_numeric,
                                               [ALNUM] = character_is_alnum,         [SPACE] = character_is_space,
                                               [PRINTABLE] = character_is_printable, [ASCII] = is_ascii};
    const struct jinja_string *s = c->self.string;
    for (size_t at = 0; at < s->length && jinja_tick(run);) {
        if (!judges[c->variant](utf8_next(s->bytes + at, &at))) return jinja_bool(false);
    }
    return jinja_bool(s->length > 0 || c->variant >= PRINTABLE);
}

/* Whether there are cased characters, and all of them are upper case (`variant`), or lower case. */
static struct jinja_value str_is_cased(struct jinja_run *run, struct jinja_call *c)
{
    const struct jinja_string *s = c->self.string;
    bool found = false;
    for (size_t at = 0; at < s->length && jinja_tick(run);) {
        const uint32_t character = utf8_next(s->bytes + at, &at);
        if (!character_is_cased(character)) continue;
        if (!(c->variant ? character_is_upper(character) : character_is_lower(character))) return jinja_bool(false);
        found = true;
    }
    return jinja_bool(found);
}

static struct jinja_value str_istitle(struct jinja_run *run, struct jinja_call *c)
{
    const struct jinja_string *s = c->self.string;
    bool found = false, in_word = false;
    for (size_t at = 0; at < s->length && jinja_tick(run);) {
        uint32_t character = utf8_next(s->bytes + at, &at);
        bool small = character_is_lower(character), cased = character_is_cased(character);
        if (cased && small != in_word) return jinja_bool(false);
        found = found || cased;
        in_word = cased;
    }
    return jinja_bool(found);
}

static struct jinja_value str_isidentifier(struct jinja_run *run, struct jinja_call *c)
{
    const struct jinja_string *s = c->self.string;
    for (size_t at = 0; at < s->length && jinja_tick(run);) {
        bool first = at == 0;
        uint32_t character = utf8_next(s->bytes + at, &at);
        if (!(first ? character_starts_identifier(character) : character_continues_identifier(character)))
            return jinja_bool(false);
    }
    return jinja_bool(s->length > 0);
}

const struct jinja_function jinja_case_methods[] = {
    {"capitalize", str_capitalize, "/"},
    {"casefold", str_to_case, "/", CHARACTER_FOLD},
    {"isalnum", str_is, "/", ALNUM},
    {"isalpha", str_is, "/", ALPHA},
    {"isascii", str_is, "/", ASCII},
    {"isdecimal", str_is, "/", DECIMAL},
    {"isdigit", str_is, "/", DIGIT},
    {"isidentifier", str_isidentifier, "/"},
    {"islower", str_is_cased, "/", false},
    {"isnumeric", str_is, "/", NUMERIC},
    {"isprintable", str_is, "/", PRINTABLE},
    {"isspace", str_is, "/", SPACE},
    {"istitle", str_istitle, "/"},
    {"isupper", str_is_cased, "/", true},
    {"lower", str_to_case, "/", CHARACTER_LOWER},
    {"swapcase", str_swapcase, "/"},
    {"title", str_title, "/"},
    {"upper", str_to_case, "/", CHARACTER_UPPER},
    {NULL},
};
