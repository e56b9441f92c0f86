/* The filter wordwrap, which breaks lines as Python's textwrap does: a line is cut into chunks (words and the white
 * space between them), and as many chunks as fit make a line. */
#include <string.h>

#include "tokenizer/jinja/characters.h"
#include "tokenizer/jinja/library.h"

struct paragraph {
    const struct jinja_string *text;
    uint32_t *characters; /* [count], and a 0 behind them */
    size_t *begins;       /* [count + 1] in bytes */
    size_t count;
    size_t *chunks; /* [num_chunks + 1] characters at which they begin */
    size_t num_chunks;
};

struct wrapping {
    int64_t width;
    bool break_words, break_on_hyphens;
    const struct jinja_string *line_end;
};

static bool is_ascii_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == ' ';
}

static bool is_letter(uint32_t c)
{
    return character_is_word(c) && !character_is_decimal(c);
}

/* What a dash may follow. */
static bool is_word_punctuation(uint32_t c)
{
    return character_is_word(c) || (c && c < 0x80 && strchr("!\"'&.,?", (int)c));
}

static uint32_t at(const struct paragraph *p, size_t i)
{
    return i < p->count ? p->characters[i] : 0;
}

/* Whether two or more dashes begin at i, behind a word and before one; *end is behind them. */
static bool is_em_dash(const struct paragraph *p, size_t i, size_t *end)
{
    if (i == 0 || !is_word_punctuation(at(p, i - 1)) || at(p, i) != '-' || at(p, i + 1) != '-') return false;
    while (at(p, i) == '-') i++;
    *end = i;
    return i < p->count && character_is_word(at(p, i));
}

/* Whether a word may be broken behind the hyphen at i: letters stand on both sides. */
static bool is_hyphen(const struct paragraph *p, size_t i)
{
    if (at(p, i) != '-' || i < 2) return false;
    bool before = is_letter(at(p, i - 1)) && is_letter(at(p, i - 2));
    before = before || (i >= 3 && is_letter(at(p, i - 3)) && at(p, i - 2) == '-' && is_word_punctuation(at(p, i - 1)));
    size_t next = i + 2 + (at(p, i + 2) == '-');
    return before && is_letter(at(p, i + 1)) && is_letter(at(p, next));
}

/* Where the chunk that begins at i ends. */
static size_t end_of_chunk(const struct paragraph *p, size_t i, bool break_on_hyphens)
{
    size_t end = i, dash;
    if (is_ascii_space(at(p, i))) {
        while (end < p->count && is_ascii_space(at(p, end))) end++;
        return end;
    }
    if (break_on_hyphens && is_em_dash(p, i, &end)) return end;
    for (end = i + 1; end < p->count && !is_ascii_space(at(p, end)); end++) {
        if (!break_on_hyphens) continue;
        if (is_hyphen(p, end)) return end + 1;
        if (is_em_dash(p, end, &dash)) return end;
    }
    return end;
}

static bool split_chunks(struct jinja_run *run, const struct jinja_string *text, bool break_on_hyphens,
                         struct paragraph *out)
{
    *out = (struct paragraph){.text = text, .count = text->count};
    out->characters = jinja_alloc(run, (text->count + 1) * sizeof *out->characters);
    out->begins = jinja_alloc(run, (text->count + 1) * sizeof *out->begins);
    out->chunks = jinja_alloc(run, (text->count + 1) * sizeof *out->chunks);
    if (!out->characters || !out->begins || !out->chunks) return false;
    size_t byte = 0;
    for (size_t i = 0; i < text->count; i++) {
        out->begins[i] = byte;
        out->characters[i] = utf8_next(text->bytes + byte, &byte);
    }
    out->begins[text->count] = text->length;
    for (size_t i = 0; i < text->count && jinja_tick(run); i = out->chunks[out->num_chunks])
        out->chunks[++out->num_chunks] = end_of_chunk(out, i, break_on_hyphens);
    return !jinja_failed(run);
}

static bool is_blank(const struct paragraph *p, size_t from, size_t to)
{
    while (from < to && character_is_space(at(p, from))) from++;
    return from == to;
}

/* How much of a word that is too long for any line goes on this one, which has `room` left. */
static size_t broken_length(const struct paragraph *p, size_t from, size_t to, size_t room, bool break_on_hyphens)
{
    if (!break_on_hyphens || to - from <= room) return room < to - from ? room : to - from;
    size_t hyphen = room;
    while (hyphen > 0 && at(p, from + hyphen - 1) != '-') hyphen--;
    for (size_t i = 0; i + 1 < hyphen; i++) {
        if (at(p, from + i) != '-') return hyphen;
    }
    return room;
}

/* Takes chunks from *chunk on for one line, which are characters *from .. *to. False: nothing is left of them. */
static bool take_line(struct paragraph *p, const struct wrapping *w, size_t *chunk, size_t *from, size_t *to)
{
    size_t width = (size_t)w->width, last; /* where the last piece of the line begins */
    size_t pieces = 0;
    *from = *to = last = p->chunks[*chunk];
    while (*chunk < p->num_chunks && p->chunks[*chunk + 1] - *from <= width) {
        last = *to;
        *to = p->chunks[++*chunk];
        pieces++;
    }
    if (*chunk < p->num_chunks && p->chunks[*chunk + 1] - *to > width) {
        if (w->break_words) {
            last = *to;
            *to += broken_length(p, *to, p->chunks[*chunk + 1], width - (*to - *from), w->break_on_hyphens);
            p->chunks[*chunk] = *to; /* the rest of the chunk */
            pieces++;
        } else if (pieces == 0) {
            *to = p->chunks[++*chunk];
            pieces++;
        }
    }
    if (pieces && is_blank(p, last, *to)) {
        *to = last;
        pieces--;
    }
    return pieces > 0;
}

static bool build_wrapped(struct jinja_run *run, struct jinja_builder *b, const struct jinja_string *text,
                          const struct wrapping *w)
{
    struct paragraph p;
    if (!split_chunks(run, text, w->break_on_hyphens, &p)) return false;
    size_t lines = 0, from, to;
    for (size_t chunk = 0; chunk < p.num_chunks && jinja_tick(run);) {
        if (lines && is_blank(&p, p.chunks[chunk], p.chunks[chunk + 1])) chunk++;
        if (chunk == p.num_chunks || !take_line(&p, w, &chunk, &from, &to)) continue;
        if (lines++) jinja_build_string(run, b, w->line_end);
        jinja_build_range(run, b, text, p.begins[from], p.begins[to]);
    }
    return !jinja_failed(run);
}

static struct jinja_value filter_wordwrap(struct jinja_run *run, struct jinja_call *c)
{
    static const struct jinja_string newline = {.bytes = "\n", .length = 1, .count = 1};
    struct wrapping w;
    if (!jinja_expect_int(run, "wordwrap", c->v[0], 79, &w.width)) return jinja_undefined(NULL);
    const struct jinja_string *s = jinja_expect_string(run, "wordwrap", c->self);
    w.break_words = c->v[1].kind == JINJA_UNDEFINED || jinja_is_true(run, c->v[1]);
    w.break_on_hyphens = c->v[3].kind == JINJA_UNDEFINED || jinja_is_true(run, c->v[3]);
    w.line_end = c->v[2].kind == JINJA_UNDEFINED || c->v[2].kind == JINJA_NONE
                     ? &newline
                     : jinja_expect_string(run, "wordwrap", c->v[2]);
    const struct jinja_list *lines = jinja_failed(run) ? NULL : jinja_lines(run, s, false);
    if (lines && lines->count && w.width <= 0) jinja_fail(run, "invalid width %d (must be > 0)", (int)w.width);
    struct jinja_builder b = {0};
    for (size_t i = 0; lines && i < lines->count && !jinja_failed(run); i++) {
        const struct jinja_string *line = lines->items[i].string;
        if (i && w.line_end == &newline) /* stands for the end of the line before, and has its mark */
            jinja_build_bytes(run, &b, "\n", 1, jinja_mark_at(s, (size_t)(line->bytes - s->bytes) - 1));
        else if (i)
            jinja_build_string(run, &b, w.line_end);
        build_wrapped(run, &b, line, &w);
    }
    return jinja_build_end(run, &b);
}

const struct jinja_function jinja_wordwrap_filters[] = {
    {"wordwrap", filter_wordwrap, "width=, break_long_words=, wrapstring=, break_on_hyphens="}, {NULL}};
