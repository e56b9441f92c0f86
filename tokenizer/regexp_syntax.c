#include "tokenizer/regexp_syntax.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "base/words.h"
#include "tokenizer/unicode.h"

struct unicode_class {
    const char *names; /* words, in lower case, without spaces, - and _ */
    bool complement;   /* `text` is what is not in the class */
    const char *text;  /* the inside of a class of PCRE2 */
};
#include "tokenizer/unicode_classes.h"

#define MAX_DEPTH 100
#define MAX_REPEAT 65535 /* PCRE2's */
#define ANY_CHARACTER "(?s:.)"

struct translator {
    const char *start, *at, *end; /* the pattern; at is the next byte to read */
    struct text *out;
    bool ignore_case, dot_matches_newline; /* (?i), (?m) */
    uint32_t last_letter;                  /* under (?i), the letter just before, or 0 */
    int depth;
    enum status status; /* the first failure sticks */
    struct error *err;
};

static void fail(struct translator *t, enum status status, const char *what)
{
    if (t->status == STATUS_OK)
        t->status =
            error_set(t->err, status, "%s, at byte %zu of the regular expression", what, (size_t)(t->at - t->start));
    t->at = t->end;
}

static void append(struct translator *t, struct text *text, const char *string)
{
    if (!text_append_string(text, string)) fail(t, STATUS_OUT_OF_MEMORY, "memory ran out");
}

static void put(struct translator *t, const char *string)
{
    append(t, t->out, string);
}

static bool peek(const struct translator *t, const char *string)
{
    size_t length = strlen(string);
    return (size_t)(t->end - t->at) >= length && memcmp(t->at, string, length) == 0;
}

static bool accept(struct translator *t, const char *string)
{
    if (!peek(t, string)) return false;
    t->at += strlen(string);
    return true;
}

/* The next character of the pattern, 0 at its end. */
static uint32_t next_character(struct translator *t)
{
    if (t->at == t->end) return 0;
    size_t length = 0;
    uint32_t c = utf8_next(t->at, &length);
    t->at += length;
    return c;
}

/* A character inside or outside of a class. */
static void append_character(struct translator *t, struct text *text, uint32_t c)
{
    char escaped[16];
    if (c < 0x80 && isalnum((int)c))
        snprintf(escaped, sizeof escaped, "%c", (int)c);
    else
        snprintf(escaped, sizeof escaped, "\\x{%x}", (unsigned)c);
    append(t, text, escaped);
}

/* Puts "(?:" ... ")" around what was written since `from`. */
static void wrap(struct translator *t, size_t from)
{
    put(t, "(?:)");
    if (t->status) return;
    char *data = t->out->data;
    memmove(data + from + 3, data + from, t->out->length - from - 4);
    memcpy(data + from, "(?:", 3);
}

/* Characters that (?i) makes equal to others. ASCII letters are translated; of the others, with their foldings to
 * several characters, none is, nor the pairs of letters that are equal to a ligature. */
static void check_case(struct translator *t, uint32_t c)
{
    static const utf8proc_category_t cased[] = {UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LL, UTF8PROC_CATEGORY_LT,
                                                UTF8PROC_CATEGORY_LM, UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_NL,
                                                UTF8PROC_CATEGORY_SO, UTF8PROC_CATEGORY_CN};
    for (size_t i = 0; c >= 0x80 && i < sizeof cased / sizeof cased[0]; i++)
        if (utf8proc_category((utf8proc_int32_t)c) == cased[i])
            fail(t, STATUS_UNSUPPORTED, "quire does not translate letters that are not ASCII under (?i)");
}

static void append_other_case(struct translator *t, struct text *text, uint32_t c)
{
    if (c >= 0x80 || !isalpha((int)c)) return;
    append_character(t, text, c ^ 0x20);
    if ((c | 0x20) == 's') append(t, text, "\\x{17f}");
    if ((c | 0x20) == 'k') append(t, text, "\\x{212a}");
}

static void put_literal(struct translator *t, uint32_t c)
{
    uint32_t last = t->last_letter;
    t->last_letter = 0;
    if (!t->ignore_case) {
        append_character(t, t->out, c);
        return;
    }
    check_case(t, c);
    if (c >= 0x80 || !isalpha((int)c)) {
        append_character(t, t->out, c);
        return;
    }
    char pair[3] = {(char)(last | 0x20), (char)(c | 0x20), 0};
    if (last && strstr("ff fi fl ss st", pair))
        fail(t, STATUS_UNSUPPORTED, "quire does not translate letters that are also a ligature under (?i)");
    t->last_letter = c;
    put(t, "[");
    append_character(t, t->out, c);
    append_other_case(t, t->out, c);
    put(t, "]");
}

/* Reads 1 to `most` digits of base 8 or 16. */
static bool read_digits(struct translator *t, int base, int most, uint32_t *value)
{
    int count = 0;
    *value = 0;
    for (; count < most && t->at < t->end && isxdigit((unsigned char)*t->at); count++, t->at++) {
        int c = tolower((unsigned char)*t->at), digit = c <= '9' ? c - '0' : c - 'a' + 10;
        if (digit >= base) break;
        *value = *value * (uint32_t)base + (uint32_t)digit;
    }
    return count > 0;
}

/* After "\x", "\u" or "\0". */
static uint32_t read_code(struct translator *t, char kind)
{
    uint32_t value = 0;
    bool braces = kind == 'x' && accept(t, "{");
    bool good = read_digits(t, kind == '0' ? 8 : 16, braces ? 8 : kind == 'u' ? 4 : 2, &value) || kind == '0';
    if (braces) good = accept(t, "}") && good;
    if (!good || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
        fail(t, STATUS_INVALID, "a \\x or \\u without the number of a character");
    else if (kind == 'x' && !braces && value >= 0x80)
        fail(t, STATUS_UNSUPPORTED, "quire does not translate \\x of a byte that is not ASCII");
    return value;
}

/* After a backslash: whether it is one certain character, which is then read. */
static bool read_escaped_character(struct translator *t, uint32_t *c)
{
    static const char letters[] = "tnrfvae", codes[] = "\t\n\r\f\v\a\x1b";
    const char *before = t->at;
    *c = next_character(t);
    const char *letter = *c && *c < 0x80 ? strchr(letters, (int)*c) : NULL;
    if (letter)
        *c = (uint32_t)codes[letter - letters];
    else if (*c == 'x' || *c == 'u' || *c == '0')
        *c = read_code(t, (char)*c);
    else if (*c < 0x80 && isalnum((int)*c)) {
        t->at = before;
        return false;
    }
    if (before == t->end) fail(t, STATUS_INVALID, "a backslash at the end");
    return t->status == STATUS_OK;
}

static const struct unicode_class *find_class(const char *name)
{
    for (size_t i = 0; i < sizeof unicode_classes / sizeof unicode_classes[0]; i++)
        if (words_have(unicode_classes[i].names, name)) return &unicode_classes[i];
    return NULL;
}

/* The name up to `close`, as unicode_classes has it. */
static const struct unicode_class *read_class_name(struct translator *t, const char *prefix, const char *close)
{
    char name[64];
    size_t length = (size_t)snprintf(name, sizeof name, "%s", prefix);
    const char *begin = t->at;
    for (; t->at < t->end && !peek(t, close); t->at++)
        if (!strchr(" _-", *t->at) && length + 3 < sizeof name) name[length++] = (char)tolower((unsigned char)*t->at);
    int shown = (int)(t->at - begin > 40 ? 40 : t->at - begin);
    if (prefix[0]) memcpy(name + length, ":]", 2), length += 2;
    name[length] = 0;
    const struct unicode_class *found = accept(t, close) ? find_class(name) : NULL;
    /* [[:alpha:]] is \p{alpha}, but [[:punct:]] is not \p{punct}, and there is no \p{word}. */
    if (!found && prefix[0]) {
        name[length - 2] = 0;
        found = strlen(name + 2) > 4 || strcmp(name + 2, "word") == 0 ? find_class(name + 2) : NULL;
    } else if (found && !prefix[0] && strcmp(name, "word") == 0)
        found = find_class("\\w");
    char message[128];
    snprintf(message, sizeof message, "quire knows no class of characters \"%.*s\"", shown, begin);
    if (!found) fail(t, STATUS_UNSUPPORTED, message);
    return found;
}

/* After a backslash: a class such as \s, \D or \p{^L}. NULL: it is none, and nothing was read. */
static const struct unicode_class *read_escaped_class(struct translator *t, bool in_brackets, bool *complement)
{
    static const char letters[] = "sdwh";
    const char *const names[] = {"space", "digit", in_brackets ? "word" : "\\w", "xdigit"};
    if (t->at == t->end) return NULL;
    char letter = *t->at;
    *complement = isupper((unsigned char)letter) != 0;
    const char *found = strchr(letters, tolower((unsigned char)letter));
    if (found && letter) {
        t->at++;
        return find_class(names[found - letters]);
    }
    if (!peek(t, "p{") && !peek(t, "P{")) return NULL;
    t->at += 2;
    if (accept(t, "^")) *complement = !*complement;
    return read_class_name(t, "", "}");
}

/* A set of characters in brackets: the inside of a PCRE2 class, and what PCRE2 cannot say there, as expressions of one
 * character, a | before each. */
struct class_set {
    struct text items, others;
};

static void add_class(struct translator *t, struct class_set *set, const struct unicode_class *class, bool complement)
{
    if (!class) return;
    complement ^= class->complement;
    if (complement && strcmp(class->names, "space") == 0) {
        class = find_class("nonspace"); /* so that [^\S\n] is a plain class */
        complement = false;
    }
    if (complement) append(t, &set->others, "|[^");
    append(t, complement ? &set->others : &set->items, class->text);
    if (complement) append(t, &set->others, "]");
}

/* Appends an expression for the set, which is empty afterwards. */
static void append_set(struct translator *t, struct text *text, struct class_set *set, bool complement)
{
    bool items = set->items.length > 0, others = set->others.length > 0;
    if (!items && !others) fail(t, STATUS_INVALID, "an empty class");
    if (t->status) return;
    if (others && complement) append(t, text, "(?:(?!");
    if (others) append(t, text, "(?:");
    if (items) {
        append(t, text, complement && !others ? "[^" : "[");
        append(t, text, set->items.data);
        append(t, text, "]");
    }
    if (others) {
        append(t, text, set->others.data + (items ? 0 : 1));
        append(t, text, ")");
    }
    if (others && complement) append(t, text, ")" ANY_CHARACTER ")");
    text_clear(&set->items);
    text_clear(&set->others);
}

static void add_range(struct translator *t, struct class_set *set, uint32_t first, uint32_t last)
{
    if (first > last) fail(t, STATUS_INVALID, "a range whose end is before its beginning");
    append_character(t, &set->items, first);
    if (first < last) {
        append(t, &set->items, "-");
        append_character(t, &set->items, last);
    }
    if (!t->ignore_case) return;
    if (first < last && last >= 0x80)
        fail(t, STATUS_UNSUPPORTED, "quire does not translate ranges beyond ASCII under (?i)");
    check_case(t, first);
    for (uint32_t c = first; c <= last && c < 0x80; c++) append_other_case(t, &set->items, c);
}

/* A character of a class, after which "-" and another may follow. */
static uint32_t read_class_character(struct translator *t)
{
    uint32_t c;
    if (!accept(t, "\\")) return next_character(t);
    if (accept(t, "b")) return '\b';
    if (!read_escaped_character(t, &c)) fail(t, STATUS_UNSUPPORTED, "quire does not translate this escape in a class");
    return c;
}

static void read_class(struct translator *t, struct text *text);

static void read_class_item(struct translator *t, struct class_set *set)
{
    bool complement = false;
    const struct unicode_class *class = NULL;
    if (accept(t, "[:")) {
        complement = accept(t, "^");
        class = read_class_name(t, "[:", ":]");
    } else if (accept(t, "[")) {
        append(t, &set->others, "|");
        read_class(t, &set->others);
        return;
    } else if (peek(t, "\\") && t->at + 1 < t->end) {
        const char *before = t->at++;
        class = read_escaped_class(t, true, &complement);
        if (!class && t->status == STATUS_OK) t->at = before;
        if (class && t->ignore_case && strcmp(class->names, "space") != 0 && strcmp(class->names, "digit") != 0)
            fail(t, STATUS_UNSUPPORTED, "quire does not translate this class in brackets under (?i)");
    }
    if (class) {
        add_class(t, set, class, complement);
        return;
    }
    if (t->status) return;
    uint32_t first = read_class_character(t), last = first;
    if (peek(t, "-") && t->at + 1 < t->end && t->at[1] != ']') {
        t->at++;
        if (peek(t, "[") || peek(t, "&&")) fail(t, STATUS_UNSUPPORTED, "quire does not translate this range");
        last = read_class_character(t);
    }
    add_range(t, set, first, last);
}

/* After "[": the class up to its "]" as an expression of one character. */
static void read_class(struct translator *t, struct text *text)
{
    if (++t->depth > MAX_DEPTH) fail(t, STATUS_UNSUPPORTED, "more nested groups and classes than quire takes");
    struct class_set set = {{0}};
    struct text all = {0}; /* of an intersection: a lookahead for each part before the last */
    bool complement = accept(t, "^"), closed = false;
    if (peek(t, "]")) fail(t, STATUS_UNSUPPORTED, "a class that begins with ]; write \\]");
    while (t->at < t->end && !(closed = accept(t, "]"))) {
        if (accept(t, "&&")) {
            append(t, &all, "(?=");
            append_set(t, &all, &set, false);
            append(t, &all, ")");
        } else
            read_class_item(t, &set);
    }
    if (!closed) fail(t, STATUS_INVALID, "a class without its ]");
    if (!all.length)
        append_set(t, text, &set, complement);
    else {
        append_set(t, &all, &set, false);
        append(t, text, complement ? "(?:(?!" : "(?:");
        if (t->status == STATUS_OK) append(t, text, all.data);
        append(t, text, complement ? ")" ANY_CHARACTER ")" : ")");
    }
    t->depth--;
    text_free(&set.items);
    text_free(&set.others);
    text_free(&all);
}

static void put_word_boundary(struct translator *t, bool boundary)
{
    const char *word = find_class("\\w")->text;
    struct text *out = t->out;
    if (!text_printf(out, "(?:(?<=[%s])(?%c[%s])|(?<![%s])(?%c[%s]))", word, boundary ? '!' : '=', word, word,
                     boundary ? '=' : '!', word))
        fail(t, STATUS_OUT_OF_MEMORY, "memory ran out");
}

/* After a backslash outside of brackets. Returns whether it matches exactly one character. */
static bool translate_escape(struct translator *t)
{
    bool complement;
    uint32_t c;
    const struct unicode_class *class = read_escaped_class(t, false, &complement);
    if (class) {
        put(t, complement != class->complement ? "[^" : "[");
        put(t, class->text);
        put(t, "]");
        return true;
    }
    if (t->status) return false;
    if (accept(t, "b"))
        put_word_boundary(t, true);
    else if (accept(t, "B"))
        put_word_boundary(t, false);
    else if (accept(t, "A"))
        put(t, "\\A");
    else if (accept(t, "z"))
        put(t, "\\z");
    else if (accept(t, "Z"))
        put(t, "\\Z");
    else if (accept(t, "R"))
        put(t, "(?>\\x{d}\\x{a}|[\\x{a}-\\x{d}\\x{85}\\x{2028}\\x{2029}])");
    else if (accept(t, "N")) {
        put(t, "[^\\n]");
        return true;
    } else if (accept(t, "O")) {
        put(t, ANY_CHARACTER);
        return true;
    } else if (read_escaped_character(t, &c)) {
        put_literal(t, c);
        return true;
    } else {
        char message[64];
        snprintf(message, sizeof message, "quire does not translate \\%c", *t->at);
        fail(t, STATUS_UNSUPPORTED, message);
    }
    return false;
}

static void translate_alternatives(struct translator *t);

/* After "(?": options such as "i-m", up to their ":" or ")". */
static void translate_options(struct translator *t)
{
    bool ignore_case = t->ignore_case, dot = t->dot_matches_newline, on = true;
    for (; t->at < t->end && *t->at != ':' && *t->at != ')'; t->at++) {
        if (*t->at == '-')
            on = false;
        else if (*t->at == 'i')
            t->ignore_case = on;
        else if (*t->at == 'm')
            t->dot_matches_newline = on;
        else if (*t->at != 'x' || on) {
            fail(t, STATUS_UNSUPPORTED, "quire does not translate this group");
            return;
        }
    }
    /* "(?i)" holds up to the end of the group that it stands in, alternatives included. */
    bool group = accept(t, ":");
    if (!group) accept(t, ")");
    put(t, "(?:");
    translate_alternatives(t);
    if (group && !accept(t, ")")) fail(t, STATUS_INVALID, "a group without its )");
    put(t, ")");
    t->ignore_case = ignore_case;
    t->dot_matches_newline = dot;
}

/* After "(". */
static void translate_group(struct translator *t)
{
    static const char *const as_they_are[] = {"?:", "?=", "?!", "?>", "?<=", "?<!"};
    const char *opening = "?:";
    bool found = !peek(t, "?");
    for (size_t i = 0; i < sizeof as_they_are / sizeof as_they_are[0] && !found; i++)
        if ((found = accept(t, as_they_are[i]))) opening = as_they_are[i];
    if (!found && peek(t, "?<")) { /* (?<name>...) */
        while (t->at < t->end && *t->at != '>') t->at++;
        found = accept(t, ">");
    }
    if (!found) {
        accept(t, "?");
        translate_options(t);
        return;
    }
    put(t, "(");
    put(t, opening);
    translate_alternatives(t);
    if (!accept(t, ")")) fail(t, STATUS_INVALID, "a group without its )");
    put(t, ")");
}

/* Returns whether the atom matches exactly one character. */
static bool translate_atom(struct translator *t)
{
    if (accept(t, "(")) {
        if (++t->depth > MAX_DEPTH) fail(t, STATUS_UNSUPPORTED, "more nested groups and classes than quire takes");
        translate_group(t);
        t->depth--;
    } else if (accept(t, "[")) {
        read_class(t, t->out);
        return true;
    } else if (accept(t, "\\")) {
        return translate_escape(t);
    } else if (accept(t, ".")) {
        put(t, t->dot_matches_newline ? ANY_CHARACTER : "[^\\n]");
        return true;
    } else if (accept(t, "^")) {
        put(t, "(?m:^)");
    } else if (accept(t, "$")) {
        put(t, "(?m:$)");
    } else if (peek(t, "*") || peek(t, "+") || peek(t, "?")) {
        fail(t, STATUS_INVALID, "nothing to repeat");
    } else {
        put_literal(t, next_character(t));
        return true;
    }
    return false;
}

/* {n}, {n,}, {,m} or {n,m}; anything else after { is text, and nothing is read. A bound that is not there is -1. */
static bool read_interval(struct translator *t, int *least, int *most)
{
    const char *before = t->at;
    int bounds[2] = {-1, -1};
    bool comma = false, good = accept(t, "{");
    for (int i = 0; good && i < 2 && (i == 0 || comma); i++) {
        for (; t->at < t->end && isdigit((unsigned char)*t->at); t->at++) {
            bounds[i] = (bounds[i] < 0 ? 0 : bounds[i]) * 10 + (*t->at - '0');
            if (bounds[i] > MAX_REPEAT) bounds[i] = MAX_REPEAT + 1;
        }
        if (i == 0) comma = accept(t, ",");
    }
    if (!good || (bounds[0] < 0 && bounds[1] < 0) || !accept(t, "}")) {
        t->at = before;
        return false;
    }
    if (bounds[0] > MAX_REPEAT || bounds[1] > MAX_REPEAT) fail(t, STATUS_UNSUPPORTED, "a repeat of more than 65535");
    *least = bounds[0] < 0 ? 0 : bounds[0];
    *most = comma ? bounds[1] : bounds[0];
    if (*most >= 0 && *least > *most) fail(t, STATUS_UNSUPPORTED, "quire does not translate {n,m} with n above m");
    return true;
}

/* The repeat of an interval; `single`: of one character. */
static void put_interval(struct translator *t, bool single, int least, int most)
{
    char repeat[32];
    if (single && least == 1 && accept(t, "+")) { /* X{1,3}+, a repeat of a repeat, is X+ */
        put(t, "+");
        return;
    }
    if (least == most)
        snprintf(repeat, sizeof repeat, "{%d}", least);
    else if (most < 0)
        snprintf(repeat, sizeof repeat, "{%d,}", least);
    else
        snprintf(repeat, sizeof repeat, "{%d,%d}", least, most);
    put(t, repeat);
    if (least != most && accept(t, "?")) put(t, "?"); /* X{2}? is (X{2})? */
}

/* Translates the repeats after an atom that was written from `atom` on. */
static void translate_repeats(struct translator *t, size_t atom, bool single)
{
    for (bool first = true; t->at < t->end; first = false) {
        int least, most;
        char sign = *t->at;
        if (sign == '*' || sign == '+' || sign == '?') {
            t->at++;
            if (!first) wrap(t, atom);
            put(t, sign == '*' ? "*" : sign == '+' ? "+" : "?");
            if (accept(t, "?"))
                put(t, "?");
            else if (accept(t, "+"))
                put(t, "+");
        } else if (sign == '{' && read_interval(t, &least, &most)) {
            if (!first) wrap(t, atom);
            put_interval(t, single && first, least, most);
        } else
            return;
        t->last_letter = 0;
    }
}

/* A branch "X+$", X being one character: without help, every X of a run that is not at the end of a line would be
 * tried. A match begins at the run's first X, or where the search does. */
static void guard_run_before_end(struct translator *t, size_t branch, size_t atom_end)
{
    struct text guard = {0};
    size_t rest = t->out->length - branch;
    append(t, &guard, "(?:\\G|(?<!");
    if (t->status == STATUS_OK && !text_append(&guard, t->out->data + branch, atom_end - branch))
        fail(t, STATUS_OUT_OF_MEMORY, "memory ran out");
    append(t, &guard, "))");
    if (t->status == STATUS_OK && !text_append(&guard, t->out->data + branch, rest))
        fail(t, STATUS_OUT_OF_MEMORY, "memory ran out");
    if (t->status == STATUS_OK) {
        t->out->length = branch;
        append(t, t->out, guard.data);
    }
    text_free(&guard);
}

static bool at_branch_end(const struct translator *t)
{
    return t->at == t->end || *t->at == '|' || *t->at == ')';
}

static void translate_branch(struct translator *t)
{
    size_t branch = t->out->length;
    t->last_letter = 0;
    for (bool first = true; !at_branch_end(t); first = false) {
        size_t atom = t->out->length;
        if (accept(t, "(?#")) { /* a comment */
            while (t->at < t->end && *t->at != ')') t->at++;
            if (!accept(t, ")")) fail(t, STATUS_INVALID, "a comment without its )");
            continue;
        }
        bool single = translate_atom(t);
        size_t atom_end = t->out->length;
        if (!single) t->last_letter = 0;
        bool run = first && single && t->depth == 0 && peek(t, "+$");
        translate_repeats(t, atom, single);
        if (run && accept(t, "$")) {
            put(t, "(?m:$)");
            if (at_branch_end(t)) guard_run_before_end(t, branch, atom_end);
        }
    }
}

static void translate_alternatives(struct translator *t)
{
    translate_branch(t);
    while (accept(t, "|")) {
        put(t, "|");
        translate_branch(t);
    }
}

enum status regexp_translate(const char *pattern, size_t length, struct text *out, struct error *err)
{
    struct translator t = {.start = pattern, .at = pattern, .end = pattern + length, .out = out, .err = err};
    text_clear(out);
    put(&t, "");
    translate_alternatives(&t);
    if (t.at < t.end) fail(&t, STATUS_INVALID, "a ) without its (");
    return t.status;
}
