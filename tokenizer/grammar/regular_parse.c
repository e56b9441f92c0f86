#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/utf8.h"
#include "tokenizer/grammar/regular_class.h"
#include "tokenizer/grammar/regular_parser.h"

enum { MAX_DEPTH = 200 /* of groups */, MAX_COUNT = REGULAR_MAX_STATES /* of a repetition */ };

enum status regular_fail(struct regular_parser *p, enum status status, size_t at, const char *what)
{
    if (p->status) return p->status;
    size_t characters = 1;
    for (size_t i = 0; i < at;) characters++, utf8_next(p->pattern + i, &i);
    return p->status = error_set(p->err, status, "character %zu of the regular expression: %s", characters, what);
}

bool regular_peek(const struct regular_parser *p, const char *word)
{
    const size_t length = strlen(word);
    return p->length - p->at >= length && memcmp(p->pattern + p->at, word, length) == 0;
}

bool regular_take(struct regular_parser *p, const char *word)
{
    if (!regular_peek(p, word)) return false;
    p->at += strlen(word);
    return true;
}

static int32_t add_part(struct regular_parser *p, struct regular_part part)
{
    struct regular_tree *t = &p->tree;
    if (p->status) return 0;
    if (!array_reserve(&t->parts, &t->part_capacity, t->num_parts + 2, sizeof *t->parts)) {
        p->status = error_set(p->err, STATUS_OUT_OF_MEMORY, "no memory for a regular expression");
        return 0;
    }
    if (t->num_parts == 0) t->parts[t->num_parts++] = (struct regular_part){0};
    t->parts[t->num_parts] = part;
    return (int32_t)t->num_parts++;
}

static void add_child(struct regular_parser *p, int32_t parent, int32_t child)
{
    if (p->status) return;
    struct regular_part *part = &p->tree.parts[parent];
    if (part->child)
        p->tree.parts[part->last_child].sibling = child;
    else
        part->child = child;
    part->last_child = child;
}

/* A part for one character of the set, which is moved into the tree. */
static int32_t add_set(struct regular_parser *p, struct character_set *set)
{
    struct regular_tree *t = &p->tree;
    size_t i = 0;
    character_set_sort(set);
    while (i < t->num_sets && !character_set_equal(&t->sets[i], set)) i++;
    if (set->failed || !array_reserve(&t->sets, &t->set_capacity, i + 1, sizeof *t->sets)) {
        character_set_free(set);
        if (!p->status) p->status = error_set(p->err, STATUS_OUT_OF_MEMORY, "no memory for a regular expression");
        return 0;
    }
    if (i == t->num_sets)
        t->sets[t->num_sets++] = *set;
    else
        character_set_free(set);
    return add_part(p, (struct regular_part){.kind = REGULAR_SET, .set = (int32_t)i});
}

static int32_t add_character(struct regular_parser *p, uint32_t c)
{
    struct character_set set = {0};
    character_set_add(&set, c, c);
    if (p->ignore_case) character_set_add_cases(&set);
    return add_set(p, &set);
}

static int32_t add_dot(struct regular_parser *p)
{
    struct character_set set = {0};
    if (!p->dot_all) regular_line_ends(&set);
    character_set_sort(&set);
    character_set_invert(&set);
    return add_set(p, &set);
}

static int32_t parse_choice(struct regular_parser *p);

/* Behind "(?": flags of the group, ":" if they are the group's only, ")" if they hold from here on. Returns false if
 * the group is a lone setting of flags. */
static bool parse_flags(struct regular_parser *p, size_t start)
{
    bool value = true;
    for (;; p->at++) {
        if (regular_peek(p, "i"))
            p->ignore_case = value;
        else if (regular_peek(p, "s"))
            p->dot_all = value;
        else if (regular_peek(p, "-") && value)
            value = false;
        else
            break;
    }
    if (regular_take(p, ":")) return true;
    if (regular_take(p, ")")) return false;
    regular_fail(p, STATUS_UNSUPPORTED, start,
                 "quire supports groups of the forms (...), (?:...), (?<name>...), "
                 "(?P<name>...), (?i) and (?s), no others");
    return true;
}

/* Behind "(". Returns false if nothing is grouped. */
static bool parse_group_kind(struct regular_parser *p, size_t start)
{
    static const struct {
        const char *mark, *sentence;
    } refused[] = {{"?=", "quire does not support lookahead, (?=...)"},
                   {"?!", "quire does not support lookahead, (?!...)"},
                   {"?<=", "quire does not support lookbehind, (?<=...)"},
                   {"?<!", "quire does not support lookbehind, (?<!...)"},
                   {"?>", "quire does not support atomic groups, (?>...)"},
                   {"?P=", "quire does not support back-references, (?P=name)"}};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (regular_peek(p, refused[i].mark)) regular_fail(p, STATUS_UNSUPPORTED, start, refused[i].sentence);
    if (p->status || !regular_take(p, "?")) return true;
    if (!regular_take(p, "<") && !regular_take(p, "P<")) return parse_flags(p, start);
    const size_t name = p->at;
    while (p->at < p->length && p->pattern[p->at] != '>' && p->pattern[p->at] != ')') p->at++;
    if (p->at == name || !regular_take(p, ">")) regular_fail(p, STATUS_INVALID, start, "a group's name has no end");
    return true;
}

static int32_t parse_group(struct regular_parser *p)
{
    const size_t start = p->at++;
    const bool ignore_case = p->ignore_case, dot_all = p->dot_all;
    if (!parse_group_kind(p, start)) return add_part(p, (struct regular_part){.kind = REGULAR_SEQUENCE});
    if (++p->depth > MAX_DEPTH) regular_fail(p, STATUS_UNSUPPORTED, start, "groups are nested too deeply");
    const int32_t part = parse_choice(p);
    if (!p->status && !regular_take(p, ")")) regular_fail(p, STATUS_INVALID, start, "this ( has no )");
    p->depth--;
    p->ignore_case = ignore_case;
    p->dot_all = dot_all;
    return part;
}

/* One character, class, group or assertion. */
static int32_t parse_atom(struct regular_parser *p)
{
    struct character_set set = {0};
    uint32_t c;
    if (regular_peek(p, "(")) return parse_group(p);
    if (regular_take(p, ".")) return add_dot(p);
    if (regular_take(p, "^")) return add_part(p, (struct regular_part){.kind = REGULAR_BEGIN});
    if (regular_take(p, "$")) return add_part(p, (struct regular_part){.kind = REGULAR_END});
    if (regular_take(p, "[")) {
        if (!regular_parse_brackets(p, &set)) return add_set(p, &set);
        character_set_free(&set);
        return 0;
    }
    if (!regular_peek(p, "\\")) return add_character(p, utf8_next(p->pattern + p->at, &p->at));
    if (regular_take(p, "\\A")) return add_part(p, (struct regular_part){.kind = REGULAR_BEGIN});
    if (regular_take(p, "\\Z") || regular_take(p, "\\z"))
        return add_part(p, (struct regular_part){.kind = REGULAR_END});
    const enum regular_escape kind = regular_parse_escape(p, false, &c, &set);
    if (kind == REGULAR_ESCAPE_CHARACTER) return add_character(p, c);
    if (kind == REGULAR_ESCAPE_SET) return add_set(p, &set);
    character_set_free(&set);
    return 0;
}

/* Reads digits; -1: there are none. */
static int32_t parse_count(struct regular_parser *p)
{
    int32_t count = -1;
    for (; p->at < p->length && p->pattern[p->at] >= '0' && p->pattern[p->at] <= '9'; p->at++) {
        count = (count < 0 ? 0 : count) * 10 + (p->pattern[p->at] - '0');
        if (count > MAX_COUNT) count = MAX_COUNT + 1;
    }
    return count;
}

/* Reads * + ? {m}, {m,}, {,n} or {m,n}. Returns false if there is none: a { that begins no count is a character. */
static bool parse_quantifier(struct regular_parser *p, int32_t *least, int32_t *most)
{
    const size_t start = p->at;
    *least = 0;
    *most = -1;
    if (regular_take(p, "*")) return true;
    if (regular_take(p, "+")) return *least = 1, true;
    if (regular_take(p, "?")) return *most = 1, true;
    if (!regular_take(p, "{")) return false;
    const int32_t first = parse_count(p);
    const bool comma = regular_take(p, ",");
    const int32_t second = comma ? parse_count(p) : first;
    if ((first < 0 && second < 0) || !regular_take(p, "}")) {
        p->at = start;
        return false;
    }
    *least = first < 0 ? 0 : first;
    *most = second;
    if (second >= 0 && second < *least)
        regular_fail(p, STATUS_INVALID, start, "the most of a repetition is below the least");
    else if (*least > MAX_COUNT || *most > MAX_COUNT)
        regular_fail(p, STATUS_UNSUPPORTED, start, "a repetition of more than 65536 times");
    return true;
}

static int32_t parse_repeat(struct regular_parser *p)
{
    const size_t start = p->at;
    int32_t least, most;
    int32_t part = 0;
    if (parse_quantifier(p, &least, &most))
        regular_fail(p, STATUS_INVALID, start, "there is nothing to repeat");
    else
        part = parse_atom(p);
    if (p->status || !parse_quantifier(p, &least, &most)) return part;
    if (regular_peek(p, "+"))
        regular_fail(p, STATUS_UNSUPPORTED, p->at, "quire does not support possessive repetition");
    regular_take(p, "?");
    const size_t second = p->at;
    int32_t ignored;
    if (!p->status && parse_quantifier(p, &ignored, &ignored))
        regular_fail(p, STATUS_INVALID, second, "a repetition of a repetition needs a group");
    const int32_t repeat = add_part(p, (struct regular_part){.kind = REGULAR_REPEAT, .least = least, .most = most});
    add_child(p, repeat, part);
    return repeat;
}

static int32_t parse_sequence(struct regular_parser *p)
{
    const int32_t sequence = add_part(p, (struct regular_part){.kind = REGULAR_SEQUENCE});
    while (!p->status && p->at < p->length && !regular_peek(p, "|") && !regular_peek(p, ")"))
        add_child(p, sequence, parse_repeat(p));
    return sequence;
}

static int32_t parse_choice(struct regular_parser *p)
{
    const int32_t choice = add_part(p, (struct regular_part){.kind = REGULAR_CHOICE});
    do add_child(p, choice, parse_sequence(p));
    while (!p->status && regular_take(p, "|"));
    return choice;
}

/* Lookahead at the beginning of the text, as in ^(?=.*\d)(?!.*\s).{8,}$: the texts that all groups allow. *all stays
 * NULL if there is none. It is refused before alternatives, of which it would be a part of the first alone. */
static void parse_lookahead(struct regular_parser *p, bool search, size_t *work, struct regular **all)
{
    if (!regular_take(p, "^") && search) return;
    while (!p->status && (regular_peek(p, "(?=") || regular_peek(p, "(?!"))) {
        const size_t start = p->at;
        const bool negative = p->pattern[start + 2] == '!';
        p->at += 3;
        parse_choice(p);
        if (!p->status && !regular_peek(p, ")")) regular_fail(p, STATUS_INVALID, start, "this ( has no )");
        if (!p->status)
            p->status = regular_look_ahead(p->pattern + start + 3, p->at - start - 3, negative, work, all, p->err);
        p->at++;
    }
}

/* What follows the lookahead, from the beginning of the text. */
static void parse_rest(struct regular_parser *p)
{
    const size_t start = p->at;
    const int32_t begin = add_part(p, (struct regular_part){.kind = REGULAR_BEGIN}), rest = parse_choice(p);
    if (!p->status && p->tree.parts[rest].child != p->tree.parts[rest].last_child)
        regular_fail(p, STATUS_UNSUPPORTED, start, "quire supports lookahead only where no alternatives follow it");
    p->tree.root = add_part(p, (struct regular_part){.kind = REGULAR_SEQUENCE});
    add_child(p, p->tree.root, begin);
    add_child(p, p->tree.root, rest);
}

enum status regular_parse_within(const char *pattern, size_t length, bool search, size_t *work, struct regular **out,
                                 struct error *err)
{
    struct regular_parser p = {.pattern = pattern, .length = length, .err = err};
    struct regular *ahead = NULL;
    *out = NULL;
    if (utf8_valid_prefix(pattern, length) < length)
        return error_set(err, STATUS_INVALID, "the regular expression is not UTF-8");
    parse_lookahead(&p, search, work, &ahead);
    if (ahead) {
        parse_rest(&p);
    } else if (!p.status) {
        p.at = 0;
        p.tree.root = parse_choice(&p);
    }
    if (p.at < length) regular_fail(&p, STATUS_INVALID, p.at, "this ) has no (");
    if (!p.status) p.status = regular_compile(&p.tree, search, work, out, err);
    if (!p.status && ahead) p.status = regular_narrow(ahead, out, err);
    for (size_t i = 0; i < p.tree.num_sets; i++) character_set_free(&p.tree.sets[i]);
    free(p.tree.sets);
    free(p.tree.parts);
    regular_free(ahead);
    return p.status;
}

enum status regular_parse(const char *pattern, size_t length, bool search, struct regular **out, struct error *err)
{
    size_t work = REGULAR_MAX_WORK;
    return regular_parse_within(pattern, length, search, &work, out, err);
}
