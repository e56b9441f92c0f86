/* From an automaton over characters to one over the bytes in which they are written. Between two states of the first
 * stand states for the beginnings of characters; equal ones are made once. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "tokenizer/grammar/regular_state.h"

enum {
    MAX_BYTE_STATES = 1 << 17,
    CONTINUATIONS = 64, /* bytes 0x80 .. 0xBF of UTF-8 */
    NONE = -1           /* no state */
};

/* The classes of the characters that begin with some bytes, by the next byte: the same for all states. A reference is
 * the index of such a node, or -1 - class for characters that are all of one class; class num_classes has no text. */
struct prefix {
    int32_t next[CONTINUATIONS]; /* references */
    int32_t only;                /* the class of all its characters that have one; -1: there are several */
};

struct speller {
    const struct regular *r;
    bool is_json;
    struct prefix *prefixes;
    size_t num_prefixes, prefix_capacity;
    int32_t ascii_class[128];
    int32_t lead_reference[256]; /* by a character's first byte */
    int32_t *state_of;           /* [r->num_states]: the byte state; NONE: no text leads on from it */
    int32_t *uniform; /* [3, byte states]: any character's last 1 to 3 bytes lead to this state; NONE: not made yet */
    int32_t *rows;    /* [num_rows, 256] */
    size_t num_rows, row_capacity;
    struct slot {
        int32_t row; /* one behind those of states; NONE: free */
        uint32_t hash;
    } * table; /* [table_size] */
    size_t table_size;
    int32_t num_states; /* rows of r's states */
    bool failed;
};

/* The class of a character, and the last character of its interval. A character that is written in fewer bytes, or
 * none, is of class num_classes. */
static int32_t class_at(const struct alphabet *a, uint32_t character, uint32_t least, uint32_t *last)
{
    if (character < least) return *last = least - 1, a->num_classes;
    if (character > 0x10FFFF) return *last = UINT32_MAX, a->num_classes;
    if (character >= 0xD800 && character <= 0xDFFF) return *last = 0xDFFF, a->num_classes;
    const int32_t i = alphabet_interval(a, symbol_of(character));
    *last = i + 1 < a->num_intervals ? symbol_character(a->first[i + 1] - 1) : 0x10FFFF;
    if (character < 0xD800 && *last > 0xD7FF) *last = 0xD7FF;
    return a->class_of[i];
}

/* The reference for the characters from `first` that differ in their last `depth` continuation bytes. */
static int32_t find_prefix(struct speller *s, uint32_t first, uint32_t least, int depth)
{
    uint32_t last;
    const int32_t class = class_at(&s->r->alphabet, first, least, &last);
    if (depth == 0 || last - first >= (1u << 6 * depth) - 1) return -1 - class;
    const size_t index = s->num_prefixes++;
    if (s->failed || !array_reserve(&s->prefixes, &s->prefix_capacity, index + 1, sizeof *s->prefixes)) {
        s->failed = true;
        s->num_prefixes = index;
        return -1 - class;
    }
    int32_t only = s->r->alphabet.num_classes;
    for (uint32_t i = 0; i < CONTINUATIONS; i++) {
        const int32_t next = find_prefix(s, first + (i << 6 * (depth - 1)), least, depth - 1);
        const int32_t class_of_next = next < 0 ? -1 - next : s->prefixes[next].only;
        if (only == s->r->alphabet.num_classes) only = class_of_next;
        if (class_of_next != only && class_of_next != s->r->alphabet.num_classes) only = -1;
        s->prefixes[index].next[i] = next;
    }
    s->prefixes[index].only = only;
    return (int32_t)index;
}

/* Bytes that begin characters of so many continuation bytes. */
static const struct {
    uint8_t first, last;
    int depth;
} leads[] = {{0xC2, 0xDF, 1}, {0xE0, 0xEF, 2}, {0xF0, 0xF4, 3}};
enum { NUM_LEADS = 3 };

static void find_leads(struct speller *s)
{
    static const uint32_t least[] = {0x80, 0x800, 0x10000};
    for (uint32_t c = 0; c < 0x80; c++) s->ascii_class[c] = alphabet_class(&s->r->alphabet, c);
    for (int i = 0; i < NUM_LEADS; i++)
        for (uint32_t byte = leads[i].first; byte <= leads[i].last; byte++)
            s->lead_reference[byte] =
                find_prefix(s, (byte & (0x3Fu >> leads[i].depth)) << 6 * leads[i].depth, least[i], leads[i].depth);
}

/* A new row, all NONE, of which the caller knows that it will be needed; NULL: memory ran out, or there are too many.
 */
static int32_t *add_row(struct speller *s)
{
    if (s->failed || s->num_rows == MAX_BYTE_STATES ||
        !array_reserve(&s->rows, &s->row_capacity, (s->num_rows + 1) * 256, sizeof *s->rows)) {
        s->failed = true;
        return NULL;
    }
    int32_t *row = s->rows + 256 * s->num_rows++;
    memset(row, 0xFF, 256 * sizeof *row);
    return row;
}

/* The slot of a row of which only bytes first .. last lead anywhere. */
static size_t row_slot(const struct speller *s, const int32_t *row, int first, int last)
{
    uint64_t hash = (uint64_t)first;
    for (int i = first; i <= last; i++) hash = (hash ^ (uint32_t)row[i]) * UINT64_C(0x9E3779B97F4A7C15);
    hash ^= hash >> 32;
    size_t slot = hash & (s->table_size - 1);
    while (s->table[slot].row != NONE &&
           (s->table[slot].hash != (uint32_t)hash ||
            memcmp(s->rows + 256 * (size_t)s->table[slot].row, row, 256 * sizeof *row) != 0))
        slot = (slot + 1) & (s->table_size - 1);
    s->table[slot].hash = (uint32_t)hash;
    return slot;
}

static bool grow_table(struct speller *s)
{
    if (2 * s->num_rows < s->table_size) return true;
    const size_t size = s->table_size ? 2 * s->table_size : 1024, old_size = s->table_size;
    struct slot *table = malloc(size * sizeof *table), *old = s->table;
    if (!table) return false;
    memset(table, 0xFF, size * sizeof *table);
    for (size_t i = 0; i < old_size; i++) {
        if (old[i].row == NONE) continue;
        size_t slot = old[i].hash & (size - 1);
        while (table[slot].row != NONE) slot = (slot + 1) & (size - 1);
        table[slot] = old[i];
    }
    s->table = table;
    s->table_size = size;
    free(old);
    return true;
}

/* The state of a row that was added last, of which only bytes first .. last lead anywhere. The row is given back if
 * there is an equal one, or if it leads nowhere. */
static int32_t share_row(struct speller *s, int first, int last)
{
    if (s->failed || !grow_table(s)) {
        s->failed = true;
        return NONE;
    }
    const int32_t *row = s->rows + 256 * (s->num_rows - 1);
    int i = first;
    while (i <= last && row[i] == NONE) i++;
    int32_t *found = i <= last ? &s->table[row_slot(s, row, first, last)].row : NULL;
    if (found && *found == NONE) return *found = (int32_t)s->num_rows - 1;
    s->num_rows--;
    return found ? *found : NONE;
}

/* The state before any `depth` continuation bytes that lead to `target`, a state of r's. */
static int32_t uniform_state(struct speller *s, int32_t target, int depth)
{
    if (target == NONE || depth == 0 || s->failed) return target;
    int32_t *made = &s->uniform[(depth - 1) * s->num_states + target];
    if (*made != NONE) return *made;
    const int32_t next = uniform_state(s, target, depth - 1);
    int32_t *row = add_row(s);
    for (int i = 0; row && i < CONTINUATIONS; i++) row[0x80 + i] = next;
    return *made = share_row(s, 0x80, 0xBF);
}

static int32_t target_of(const struct speller *s, int32_t from, int32_t class)
{
    if (class == s->r->alphabet.num_classes) return NONE;
    return s->state_of[s->r->next[from * s->r->alphabet.num_classes + class]];
}

/* The state in which `depth` continuation bytes are missing of a character that follows state `from` of r. */
static int32_t prefix_state(struct speller *s, int32_t from, int32_t reference, int depth)
{
    if (reference < 0) return uniform_state(s, target_of(s, from, -1 - reference), depth);
    const int32_t only = s->prefixes[reference].only;
    if (only >= 0 && target_of(s, from, only) == NONE) return NONE;
    int32_t next[CONTINUATIONS];
    bool any = false;
    for (int i = 0; i < CONTINUATIONS; i++) {
        next[i] = prefix_state(s, from, s->prefixes[reference].next[i], depth - 1);
        any = any || next[i] != NONE;
    }
    int32_t *row = any ? add_row(s) : NULL;
    if (row) memcpy(row + 0x80, next, sizeof next);
    return row ? share_row(s, 0x80, 0xBF) : NONE;
}

/* JSON's escape of a character by a letter; '\0': it has none. */
static char escape_letter(uint32_t c)
{
    switch (c) {
    case '"':
    case '\\':
        return (char)c;
    case '\b':
        return 'b';
    case '\f':
        return 'f';
    case '\n':
        return 'n';
    case '\r':
        return 'r';
    case '\t':
        return 't';
    default:
        return '\0';
    }
}

static int32_t character_target(const struct speller *s, int32_t from, uint32_t c)
{
    return target_of(s, from, s->ascii_class[c]);
}

/* The state behind \u00X of a control character, X being `high`. */
static int32_t last_digit_state(struct speller *s, int32_t from, uint32_t high)
{
    int32_t *row = add_row(s);
    for (uint32_t i = 0; row && i < 16; i++) {
        const uint32_t c = 16 * high + i;
        if (!escape_letter(c)) row[i < 10 ? '0' + i : 'a' + i - 10] = character_target(s, from, c);
    }
    return share_row(s, '0', 'f');
}

/* The state behind a byte that leads to `next` alone. */
static int32_t byte_state(struct speller *s, unsigned char byte, int32_t next)
{
    int32_t *row = next == NONE ? NULL : add_row(s);
    if (row) row[byte] = next;
    return row ? share_row(s, byte, byte) : NONE;
}

/* The state behind a backslash. */
static int32_t escape_state(struct speller *s, int32_t from)
{
    bool any = false;
    for (uint32_t c = 0; c < 0x80 && !any; c++)
        any = (c < 0x20 || escape_letter(c)) && character_target(s, from, c) != NONE;
    if (!any) return NONE;
    const int32_t zero = last_digit_state(s, from, 0), one = last_digit_state(s, from, 1);
    int32_t *row = add_row(s);
    if (row) {
        row['0'] = zero;
        row['1'] = one;
    }
    const int32_t number = byte_state(s, '0', byte_state(s, '0', share_row(s, '0', '1'))); /* behind \u */
    row = add_row(s);
    if (row) row['u'] = number;
    for (uint32_t c = 0; row && c < 0x80; c++)
        if (escape_letter(c)) row[(unsigned char)escape_letter(c)] = character_target(s, from, c);
    return share_row(s, '"', 'u');
}

static void spell_state(struct speller *s, int32_t from)
{
    const size_t index = 256 * (size_t)s->state_of[from];
    for (uint32_t c = 0; c < 0x80; c++) {
        const bool escaped = s->is_json && (c < 0x20 || escape_letter(c));
        if (!escaped) s->rows[index + c] = character_target(s, from, c);
    }
    if (s->is_json) {
        const int32_t next = escape_state(s, from);
        s->rows[index + '\\'] = next;
    }
    for (int i = 0; i < NUM_LEADS; i++) {
        for (uint32_t byte = leads[i].first; byte <= leads[i].last && !s->failed; byte++) {
            const int32_t next = prefix_state(s, from, s->lead_reference[byte], leads[i].depth);
            s->rows[index + byte] = next;
        }
    }
}

/* A state that does not end and does not change has no text. */
static bool is_dead(const struct regular *r, int32_t state)
{
    for (int32_t c = 0; c < r->alphabet.num_classes; c++)
        if (r->next[state * r->alphabet.num_classes + c] != state) return false;
    return !r->ends[state];
}

static bool make_rows(struct speller *s)
{
    const size_t n = (size_t)s->r->num_states;
    s->state_of = malloc(n * sizeof *s->state_of);
    s->uniform = malloc(3 * n * sizeof *s->uniform);
    if (!s->state_of || !s->uniform) return false;
    memset(s->uniform, 0xFF, 3 * n * sizeof *s->uniform);
    for (size_t i = 0; i < n; i++) s->state_of[i] = is_dead(s->r, (int32_t)i) ? NONE : (add_row(s), s->num_states++);
    find_leads(s);
    for (size_t i = 0; i < n && !s->failed; i++)
        if (s->state_of[i] != NONE) spell_state(s, (int32_t)i);
    return !s->failed;
}

bool regular_node(const struct regular *r, enum regular_spelling spelling, struct grammar_builder *b, grammar_node *out)
{
    struct speller s = {.r = r, .is_json = spelling == REGULAR_JSON_STRING};
    bool *ends = NULL;
    *out = grammar_never(b);
    if (r && regular_is_empty(r)) return true;
    if (r && make_rows(&s)) ends = calloc(s.num_rows, sizeof *ends);
    if (ends) {
        for (int32_t i = 0; i < r->num_states; i++)
            if (s.state_of[i] != NONE) ends[s.state_of[i]] = r->ends[i];
        *out = grammar_from_automaton(b, &(struct grammar_automaton){(int32_t)s.num_rows, s.rows, ends});
    }
    const bool made = ends != NULL;
    free(ends);
    free(s.prefixes);
    free(s.state_of);
    free(s.uniform);
    free(s.rows);
    free(s.table);
    return made;
}
