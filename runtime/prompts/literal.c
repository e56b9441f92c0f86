#include "runtime/prompts/literal.h"

#include <string.h>

#include "base/json_scan.h"
#include "base/json_value.h"
#include "base/utf8.h"

void literal_init(struct literal *l, const char *quote, struct text *out)
{
    *l = (struct literal){.quote = quote, .out = out, .state = LITERAL_VALUE};
}

static void put(struct literal *l, const char *json)
{
    if (!text_append_string(l->out, json)) l->failed = true;
}

static void put_text(struct literal *l, const char *text, size_t length)
{
    if (!json_append_escaped(l->out, text, length)) l->failed = true;
}

static enum literal_result go(struct literal *l, int state)
{
    l->state = state;
    return LITERAL_MORE;
}

static bool in_dict(const struct literal *l)
{
    return l->depth > 0 && l->closers[l->depth - 1] != ']' && l->closers[l->depth - 1] != ')';
}

/* ---- lists, dicts and calls ---- */

static enum literal_result open_container(struct literal *l, char closer)
{
    if (l->depth == LITERAL_MAX_DEPTH) return LITERAL_WRONG;
    l->closers[l->depth++] = closer;
    l->has_items = false;
    put(l, in_dict(l) ? "{" : "[");
    return go(l, LITERAL_ITEM);
}

void literal_init_call(struct literal *l, struct text *out)
{
    literal_init(l, NULL, out);
    open_container(l, '(');
}

static enum literal_result close_container(struct literal *l, char c)
{
    if (l->depth == 0) return LITERAL_WRONG;
    const char closer = l->closers[l->depth - 1];
    if (c != (closer == '(' ? ')' : closer)) return LITERAL_WRONG;
    put(l, in_dict(l) ? "}" : "]");
    l->depth--;
    l->has_items = true;
    l->state = LITERAL_AFTER;
    return l->depth == 0 ? LITERAL_END : LITERAL_MORE;
}

static enum literal_result add_after(struct literal *l, char c)
{
    if (json_is_blank(c)) return LITERAL_MORE;
    if (c != ',' || l->depth == 0) return close_container(l, c);
    return go(l, LITERAL_ITEM);
}

/* ---- words and numbers ---- */

/* The word has ended: it is a key, a constant, a number, or Gemma's text without marks. */
static enum literal_result end_word(struct literal *l)
{
    static const char *const words[][2] = {{"True", "true"},   {"true", "true"}, {"False", "false"},
                                           {"false", "false"}, {"None", "null"}, {"null", "null"}};
    while (l->word_length > 0 && json_is_blank(l->word[l->word_length - 1])) l->word_length--;
    l->word[l->word_length] = '\0';
    if (!l->is_key) {
        l->state = LITERAL_AFTER;
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            if (strcmp(l->word, words[i][0]) == 0) return put(l, words[i][1]), LITERAL_MORE;
        if (json_scan_whole(l->word, l->word_length)) return put(l, l->word), LITERAL_MORE;
        if (!l->quote) return LITERAL_WRONG;
    }
    put(l, "\"");
    put_text(l, l->word, l->word_length);
    put(l, "\"");
    return go(l, l->is_key ? LITERAL_COLON : LITERAL_AFTER);
}

static enum literal_result add_to_word(struct literal *l, char c)
{
    const bool in_text = l->quote && !l->is_key; /* blanks may be inside */
    const char *ends = l->is_key ? (l->quote ? ":,{}[]<" : "=:,()[]{}'\"") : (l->quote ? ",}]{[<" : ",)]}([{'\"=:");
    const bool ended = strchr(ends, c) != NULL || (json_is_blank(c) && !in_text);
    if (!ended) {
        if (l->word_length + 1 >= LITERAL_MAX_WORD || c == '\0') return LITERAL_WRONG;
        l->word[l->word_length++] = c;
        return LITERAL_MORE;
    }
    if (end_word(l) == LITERAL_WRONG) return LITERAL_WRONG;
    return literal_add(l, c);
}

static enum literal_result begin_word(struct literal *l, char c)
{
    l->word_length = 0;
    l->state = LITERAL_WORD;
    const bool bad_start = c == '\0' || strchr(l->quote ? ":,{}[]" : "=:,()[]{}'\"", c) != NULL;
    return bad_start ? LITERAL_WRONG : add_to_word(l, c);
}

/* ---- strings ---- */

/* Half of a surrogate pair without the other half is no character. */
static void put_half(struct literal *l)
{
    if (l->high) put(l, UTF8_REPLACEMENT);
    l->high = 0;
}

static enum literal_result end_string(struct literal *l)
{
    put_half(l);
    put(l, "\"");
    return go(l, l->is_key ? LITERAL_COLON : LITERAL_AFTER);
}

static enum literal_result begin_string(struct literal *l, char c)
{
    const bool marked = l->quote && c == l->quote[0];
    put(l, "\"");
    l->delimiter = marked ? '\0' : c;
    l->is_triple = false;
    l->quotes = l->marked = 1;
    return go(l, marked ? LITERAL_MARK : LITERAL_QUOTES);
}

static enum literal_result add_to_mark(struct literal *l, char c)
{
    if (c != l->quote[l->marked]) return LITERAL_WRONG;
    if (l->quote[++l->marked]) return LITERAL_MORE;
    l->marked = 0;
    return go(l, LITERAL_STRING);
}

/* A quote has begun the string: a second ends it, and a third makes it one that ends with three. */
static enum literal_result add_to_quotes(struct literal *l, char c)
{
    if (c == l->delimiter && ++l->quotes < 3) return LITERAL_MORE;
    l->state = LITERAL_STRING;
    if (c == l->delimiter) {
        l->is_triple = true;
        l->quotes = 0;
        return LITERAL_MORE;
    }
    if (l->quotes == 1) {
        l->quotes = 0;
        return literal_add(l, c);
    }
    end_string(l);
    return literal_add(l, c);
}

/* The code point of an escape, or one half of it. */
static void put_code(struct literal *l, uint32_t code)
{
    char bytes[4];
    const bool is_high = code >= 0xd800 && code < 0xdc00, is_low = code >= 0xdc00 && code < 0xe000;
    if (is_low && l->high)
        code = 0x10000 + ((l->high - 0xd800) << 10) + (code - 0xdc00);
    else
        put_half(l);
    const bool is_whole = l->high || !(is_high || is_low || code > 0x10ffff);
    l->high = is_high ? code : 0;
    if (is_whole)
        put_text(l, bytes, utf8_write(code, bytes));
    else if (!is_high)
        put(l, UTF8_REPLACEMENT);
}

static enum literal_result add_to_escape(struct literal *l, char c)
{
    static const char letters[] = "ntrbfva\\'\"", meanings[] = "\n\t\r\b\f\v\a\\'\"";
    const char *letter = c ? strchr(letters, c) : NULL;
    l->state = LITERAL_STRING;
    if (c != 'u') put_half(l);
    if (letter) return put_text(l, &meanings[letter - letters], 1), LITERAL_MORE;
    if (c == '\n') return LITERAL_MORE;
    const int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : c >= '0' && c <= '7' ? 3 : 0;
    if (digits == 0) {
        put_text(l, "\\", 1);
        return literal_add(l, c);
    }
    l->code = 0;
    l->digits = digits;
    l->base = digits == 3 ? 8 : 16;
    l->state = LITERAL_CODE;
    return digits == 3 ? literal_add(l, c) : LITERAL_MORE;
}

static enum literal_result add_to_code(struct literal *l, char c)
{
    const int value = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : 16;
    const bool digit = value < l->base;
    if (!digit && l->base == 16) return LITERAL_WRONG;
    if (digit) l->code = l->code * (uint32_t)l->base + (uint32_t)value, l->digits--;
    if (digit && l->digits > 0) return LITERAL_MORE;
    l->state = LITERAL_STRING;
    put_code(l, l->code);
    return digit ? LITERAL_MORE : literal_add(l, c);
}

/* A byte of a string between marks. No mark has its first byte twice. */
static enum literal_result add_to_marked(struct literal *l, char c)
{
    if (c == l->quote[l->marked]) return l->quote[++l->marked] ? LITERAL_MORE : end_string(l);
    put_text(l, l->quote, (size_t)l->marked);
    l->marked = c == l->quote[0];
    if (!l->marked) put_text(l, &c, 1);
    return LITERAL_MORE;
}

static enum literal_result add_to_string(struct literal *l, char c)
{
    if (!l->delimiter) return add_to_marked(l, c);
    if (c != '\\') put_half(l);
    if (l->is_triple && c == l->delimiter) {
        if (++l->quotes < 3) return LITERAL_MORE;
        return end_string(l);
    }
    for (; l->is_triple && l->quotes > 0; l->quotes--) put_text(l, &l->delimiter, 1);
    if (c == '\\') return go(l, LITERAL_ESCAPE);
    if (c == l->delimiter) return end_string(l);
    put_text(l, &c, 1);
    return LITERAL_MORE;
}

/* ---- values ---- */

static enum literal_result begin_value(struct literal *l, char c)
{
    if (json_is_blank(c)) return LITERAL_MORE;
    if (l->state == LITERAL_ITEM && strchr(")]}", c) && c) return close_container(l, c);
    l->is_key = in_dict(l) && l->state == LITERAL_ITEM;
    if (l->state == LITERAL_ITEM && l->has_items) put(l, ", ");
    l->has_items = true;
    const bool in_call = l->is_key && l->closers[l->depth - 1] == '(';
    if (!in_call && (c == '"' || (l->quote ? c == l->quote[0] : c == '\''))) return begin_string(l, c);
    if (l->is_key) return l->quote || in_call ? begin_word(l, c) : LITERAL_WRONG;
    if (c == '{') return open_container(l, '}');
    if (c == '[') return open_container(l, ']');
    if (c == '(' && !l->quote) return open_container(l, ')');
    return l->depth > 0 ? begin_word(l, c) : LITERAL_WRONG;
}

static enum literal_result add_colon(struct literal *l, char c)
{
    if (json_is_blank(c)) return LITERAL_MORE;
    if (c != (l->closers[l->depth - 1] == '(' ? '=' : ':')) return LITERAL_WRONG;
    put(l, ": ");
    l->num_keys++;
    return go(l, LITERAL_VALUE);
}

enum literal_result literal_add(struct literal *l, char byte)
{
    switch (l->state) {
    case LITERAL_COLON:
        return add_colon(l, byte);
    case LITERAL_AFTER:
        return add_after(l, byte);
    case LITERAL_MARK:
        return add_to_mark(l, byte);
    case LITERAL_WORD:
        return add_to_word(l, byte);
    case LITERAL_QUOTES:
        return add_to_quotes(l, byte);
    case LITERAL_STRING:
        return add_to_string(l, byte);
    case LITERAL_ESCAPE:
        return add_to_escape(l, byte);
    case LITERAL_CODE:
        return add_to_code(l, byte);
    default:
        return begin_value(l, byte);
    }
}

bool literal_whole(const char *text, size_t length, struct text *out)
{
    struct literal l;
    const size_t before = out->length;
    enum literal_result result = LITERAL_MORE;
    size_t at = 0;
    literal_init(&l, NULL, out);
    while (at < length && result == LITERAL_MORE) result = literal_add(&l, text[at++]);
    while (at < length && json_is_blank(text[at])) at++;
    if (result == LITERAL_END && at == length && !l.failed) return true;
    out->length = before;
    if (out->data) out->data[before] = '\0';
    return false;
}
