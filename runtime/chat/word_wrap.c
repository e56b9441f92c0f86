#include "runtime/chat/word_wrap.h"

#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"

enum { TAB = 8 };

static bool append_spaces(struct text *out, int count)
{
    return text_printf(out, "%*s", count, "");
}

/* What the cursor has passed; beyond the last column the terminal goes on in the next line. */
static void advance(struct word_wrap *w, int columns)
{
    w->column += columns;
    if (w->column > w->columns) w->column = (w->column - 1) % w->columns + 1;
}

static bool break_line(struct word_wrap *w, struct text *out)
{
    w->spaces = 0;
    w->column = w->hang;
    return text_append(out, "\n", 1) && append_spaces(out, w->hang);
}

static bool fits(const struct word_wrap *w, int columns)
{
    return w->column + columns < w->columns;
}

/* ---- where a line may be broken ---- */

/* Chinese and Japanese; Korean is broken at its spaces. */
static bool is_ideographic(uint32_t c)
{
    return utf8proc_charwidth((utf8proc_int32_t)c) == 2 && !(c >= 0xAC00 && c <= 0xD7A3);
}

/* Stands at no line's start: closing brackets, full stops, marks of repetition and length. */
static bool is_closing(uint32_t c)
{
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return category == UTF8PROC_CATEGORY_PE || category == UTF8PROC_CATEGORY_PF || category == UTF8PROC_CATEGORY_PO ||
           category == UTF8PROC_CATEGORY_LM;
}

static bool is_opening(uint32_t c)
{
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return category == UTF8PROC_CATEGORY_PS || category == UTF8PROC_CATEGORY_PI;
}

static bool may_break(uint32_t before, uint32_t c)
{
    return (is_ideographic(before) || is_ideographic(c)) && !is_closing(c) && !is_opening(before);
}

/* ---- lines of the text ---- */

static bool is_list_marker(const char *head, size_t length)
{
    if (length == 1) return *head == '-' || *head == '*' || *head == '+';
    if (length == 3 && memcmp(head, "\xe2\x80\xa2", 3) == 0) return true; /* U+2022 */
    const size_t digits = strspn(head, "0123456789");
    return digits > 0 && digits + 1 == length && (head[digits] == '.' || head[digits] == ')');
}

static bool is_verbatim(const struct word_wrap *w)
{
    return w->fence || (w->is_indented && w->hang == 0);
}

/* Notes the first word of a line, and where the text begins after the marker of a list. */
static void note_head(struct word_wrap *w, uint32_t c)
{
    const bool is_blank = c == ' ' || c == '\t';
    if (!w->is_begun) w->is_indented = is_blank;
    w->is_begun = true;
    if (w->head_ended || (is_blank && w->head_length == 0)) return;
    char bytes[4];
    const size_t length = utf8_write(c, bytes);
    w->head_ended = is_blank || w->head_length + length >= sizeof w->head;
    if (!w->head_ended) {
        memcpy(w->head + w->head_length, bytes, length);
        w->head_length += length;
    } else if (!w->fence && is_list_marker(w->head, w->head_length) && w->column + 1 <= w->columns / 2) {
        w->hang = w->column + 1;
    }
}

/* A line of the text has ended: was it one that begins or ends a block of code? */
static void note_fence(struct word_wrap *w)
{
    const char *rest = w->head;
    const char first = w->head_length ? *rest : '\0';
    while (rest < w->head + w->head_length && *rest == first) rest++;
    const size_t run = (size_t)(rest - w->head), after = w->head_length - run;
    if ((first != '`' && first != '~') || run < 3) return;
    if (w->fence) {
        if (first == w->fence && run >= w->fence_length && after == 0) w->fence = '\0';
    } else if (first == '~' || !memchr(rest, '`', after)) {
        w->fence = first;
        w->fence_length = run;
    }
}

static bool end_line(struct word_wrap *w, struct text *out)
{
    if (!word_wrap_flush(w, out)) return false;
    note_fence(w);
    w->spaces = w->column = w->hang = 0;
    w->head_length = 0;
    memset(w->head, 0, sizeof w->head);
    w->is_begun = w->is_indented = w->head_ended = false;
    return text_append(out, "\n", 1);
}

/* ---- words ---- */

/* Puts the beginning of a word, `columns` wide, where it belongs. */
static bool place_word(struct word_wrap *w, int columns, struct text *out)
{
    bool ok = true;
    if (!fits(w, w->spaces + columns) && w->column > w->hang) {
        ok = break_line(w, out);
    } else {
        ok = append_spaces(out, w->spaces);
        advance(w, w->spaces);
        w->spaces = 0;
    }
    w->is_first = w->column <= w->hang;
    return ok;
}

/* The word does not fit any more: takes what is shown of it away, and shows it in the next line. */
static bool move_word(struct word_wrap *w, int shown, struct text *out)
{
    w->is_first = true;
    if (!text_printf(out, "\033[%dD\033[K", shown) || !break_line(w, out)) return false;
    advance(w, w->word_columns);
    return text_append(out, w->word.data, w->word.length);
}

static bool show_in_word(struct word_wrap *w, const char *bytes, size_t length, int columns, struct text *out)
{
    const int shown = w->word_columns - columns;
    if (w->word.length == length && !place_word(w, columns, out)) return false;
    if (shown > 0 && !fits(w, columns) && !w->is_first && w->is_simple) return move_word(w, shown, out);
    advance(w, columns);
    return text_append(out, bytes, length);
}

bool word_wrap_flush(struct word_wrap *w, struct text *out)
{
    bool ok = true;
    if (w->word.length > 0 && !w->can_move) {
        ok = place_word(w, w->word_columns, out) && text_append(out, w->word.data, w->word.length);
        advance(w, w->word_columns);
    }
    text_clear(&w->word);
    w->word_columns = 0;
    return ok;
}

static bool add_to_word(struct word_wrap *w, uint32_t c, struct text *out)
{
    const uint32_t before = w->text.before;
    bool begins;
    char bytes[4];
    const size_t length = utf8_write(c, bytes);
    const int columns = columns_add(&w->text, c, &begins);
    if (begins && w->word.length > 0 && may_break(before, c) && !word_wrap_flush(w, out)) return false;
    if (w->word.length == 0) w->is_simple = true;
    w->is_simple = w->is_simple && w->text.simple;
    w->word_columns += columns;
    if (!text_append(&w->word, bytes, length)) return false;
    return !w->can_move || show_in_word(w, bytes, length, columns, out);
}

/* Adds a character as it is. A tab reaches to the next multiple of 8 columns. */
static bool add_verbatim(struct word_wrap *w, uint32_t c, struct text *out)
{
    bool begins;
    char bytes[4];
    const int columns = columns_add(&w->text, c, &begins);
    advance(w, c == '\t' ? TAB - w->column % TAB : columns);
    return text_append(out, bytes, utf8_write(c, bytes));
}

bool word_wrap_add(struct word_wrap *w, uint32_t c, struct text *out)
{
    if (c == '\n') {
        w->text = (struct columns){0};
        return end_line(w, out);
    }
    const bool is_blank = c == ' ' || c == '\t';
    if (is_blank && !word_wrap_flush(w, out)) return false;
    note_head(w, c);
    if (is_verbatim(w)) return add_verbatim(w, c, out);
    if (!is_blank) return add_to_word(w, c, out);
    w->text = (struct columns){0};
    w->spaces += c == '\t' ? TAB - (w->column + w->spaces) % TAB : 1;
    return true;
}
