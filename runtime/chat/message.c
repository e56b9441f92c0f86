#include "runtime/chat/message.h"

#include <string.h>

static const char QUOTES[] = "\"\"\"";
enum { NUM_QUOTES = 3 };

void message_clear(struct message *m)
{
    text_clear(&m->text);
    m->is_quoted = false;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool has_quotes(const struct text *t, size_t at)
{
    return t->length >= at + NUM_QUOTES && memcmp(t->data + at, QUOTES, NUM_QUOTES) == 0;
}

/* Do quotes open the message: at its start, or after a command and a blank? */
static bool find_opening(const struct text *t, size_t *at)
{
    size_t i = 0;
    while (i < t->length && is_blank(t->data[i])) i++;
    *at = i;
    if (has_quotes(t, i)) return true;
    if (i >= t->length || t->data[0] != '/') return false;
    for (; i < t->length && t->data[i] != '\n'; i++) {
        *at = i + 1;
        if (is_blank(t->data[i]) && has_quotes(t, i + 1)) return true;
    }
    return false;
}

/* Quotes that end a line, from this byte on. */
static bool find_closing(const struct text *t, size_t from, size_t *at)
{
    for (; from + NUM_QUOTES <= t->length; from++) {
        if (!has_quotes(t, from)) continue;
        size_t after = from + NUM_QUOTES;
        while (after < t->length && is_blank(t->data[after])) after++;
        *at = from;
        if (after == t->length || t->data[after] == '\n') return true;
    }
    return false;
}

static void cut(struct text *t, size_t from, size_t to)
{
    memmove(t->data + from, t->data + to, t->length - to + 1);
    t->length -= to - from;
}

/* Takes off the quotes, and the newlines next to them, if the closing ones end the message. Where they stand in its
 * middle, as in a pasted program, the message stays as it is. */
static bool close_quotes(struct message *m)
{
    struct text *t = &m->text;
    size_t inside = m->opened + NUM_QUOTES, end;
    if (!find_closing(t, inside, &end)) return false;
    if (memchr(t->data + end, '\n', t->length - end)) return true;
    if (end > inside && t->data[end - 1] == '\n') end--;
    cut(t, end, t->length);
    cut(t, m->opened, inside + (inside < t->length && t->data[inside] == '\n'));
    return true;
}

bool message_add(struct message *m, const char *typed, size_t length, bool *open)
{
    const bool first = m->text.length == 0;
    if (!text_append(&m->text, typed, length)) return false;
    if (first && !m->is_quoted) m->is_quoted = find_opening(&m->text, &m->opened);
    if (m->is_quoted) {
        *open = !close_quotes(m);
    } else {
        size_t backslashes = 0;
        while (backslashes < length && typed[length - 1 - backslashes] == '\\') backslashes++;
        *open = backslashes % 2 == 1;
        if (*open) m->text.length--;
    }
    return !*open || text_append(&m->text, "\n", 1);
}
