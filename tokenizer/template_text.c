#include "tokenizer/template_text.h"

#include <ctype.h>
#include <string.h>

/* Literal text of the output stands between these two bytes; they occur in no template. */
#define LITERAL_START '\x01'
#define LITERAL_END '\x02'

struct reader {
    const char *at;
    struct text *out;
    bool line_start; /* a line begins here, as lstrip_blocks counts: at the start, or after a removed line break */
};

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static const char *skip_space(const char *at)
{
    while (isspace((unsigned char)*at)) at++;
    return at;
}

/* Appends literal output, which continues literal output before it. */
static bool put_literal(struct text *out, const char *bytes, size_t count)
{
    if (count == 0) return true;
    if (memchr(bytes, LITERAL_START, count) || memchr(bytes, LITERAL_END, count)) return false;
    if (out->length > 0 && out->data[out->length - 1] == LITERAL_END)
        out->length--;
    else if (!text_append(out, &(char){LITERAL_START}, 1))
        return false;
    return text_append(out, bytes, count) && text_append(out, &(char){LITERAL_END}, 1);
}

/* Reads the quoted string at r->at and appends its value to *value. */
static bool read_string(struct reader *r, struct text *value)
{
    static const char escapes[] = "n\nt\t\\\\''\"\"";
    const char quote = *r->at++;
    for (; *r->at != quote; r->at++) {
        char c = *r->at;
        if (c == '\0') return false;
        if (c == '\\') {
            const char *found = *++r->at ? strchr(escapes, *r->at) : NULL;
            if (!found || (found - escapes) % 2) return false;
            c = found[1];
        }
        if (!text_append(value, &c, 1)) return false;
    }
    r->at++;
    return true;
}

/* Whether r->at is at the end of a tag: "}}" or "-}}", "%}", "-%}" or "+%}". */
static bool at_close(const struct reader *r, const char *close)
{
    const bool has_control = *r->at == '-' || (*r->at == '+' && *close == '%');
    return strncmp(r->at + has_control, close, 2) == 0;
}

/* A string of an expression: literal output if it is a whole term of the sum that an output tag prints, else quoted. */
static bool put_string(struct reader *r, bool starts_term, const char *close)
{
    struct text value = {0};
    bool ok = text_reserve(&value, 0) && read_string(r, &value);
    r->at = skip_space(r->at);
    if (ok && starts_term && (*r->at == '+' || at_close(r, close)))
        ok = put_literal(r->out, value.data, value.length);
    else
        ok = ok && text_append(r->out, "'", 1) && text_append(r->out, value.data, value.length) &&
             text_append(r->out, "'", 1);
    text_free(&value);
    return ok;
}

/* ".role" as "['role']"; a call keeps its dot. */
static bool put_attribute(struct reader *r)
{
    const char *name = skip_space(r->at + 1), *end = name;
    while (is_word(*end)) end++;
    if (*skip_space(end) == '(') {
        r->at++;
        return text_append(r->out, ".", 1);
    }
    r->at = end;
    return text_append(r->out, "['", 2) && text_append(r->out, name, (size_t)(end - name)) &&
           text_append(r->out, "']", 2);
}

static char last_byte(const struct text *out)
{
    return out->length > 0 ? out->data[out->length - 1] : '\0';
}

static bool put_word(struct reader *r)
{
    const char *start = r->at;
    while (is_word(*r->at)) r->at++;
    return (!is_word(last_byte(r->out)) || text_append(r->out, " ", 1)) &&
           text_append(r->out, start, (size_t)(r->at - start));
}

static bool end_term(struct text *out)
{
    return last_byte(out) == LITERAL_END || text_append(out, ";", 1);
}

/* "= =" and "% }" are not "==" and "%}". */
static bool splits_operator(const struct reader *r)
{
    static const char operators[] = "=!<>%*/}";
    const char last = last_byte(r->out);
    return isspace((unsigned char)r->at[-1]) && *r->at && strchr(operators, *r->at) && last && strchr(operators, last);
}

static bool put_token(struct reader *r, bool starts_term, const char *close)
{
    const char c = *r->at;
    if (c == '\0' || splits_operator(r)) return false; /* the template ends inside of a tag */
    if (c == '\'' || c == '"') return put_string(r, starts_term, close);
    if (is_word(c)) return put_word(r);
    if (c == '.') return put_attribute(r);
    r->at++;
    return text_append(r->out, &c, 1);
}

static int depth_change(char c)
{
    return (c == '(' || c == '[' || c == '{') - (c == ')' || c == ']' || c == '}');
}

/* Whether a token that begins with c may stand in an output, outside of brackets. Only + may: with another operator the
 * output is not the terms of the sum, one after the other. */
static bool is_simple(const struct reader *r, char c)
{
    const char last = last_byte(r->out);
    if (is_word(c)) return !is_word(last) && last != '\'' && last != ')' && last != ']';
    return strchr("'\"+.()[]", c) != NULL;
}

/* Reads the inside of an output: its terms one after the other, with a ";" after each that is not literal text. */
static bool read_output(struct reader *r)
{
    bool ok = true, starts_term = true;
    int depth = 0;
    for (r->at = skip_space(r->at); ok && !at_close(r, "}}"); r->at = skip_space(r->at)) {
        const char c = *r->at;
        if (depth == 0 && !is_simple(r, c)) return false;
        depth += depth_change(c);
        if (c == '+' && depth == 0) {
            if (starts_term) return false;
            r->at++;
            ok = end_term(r->out);
            starts_term = true;
        } else {
            ok = put_token(r, starts_term, "}}");
            starts_term = false;
        }
    }
    return ok && !starts_term && end_term(r->out);
}

static bool read_block(struct reader *r)
{
    bool ok = text_append(r->out, "{%", 2);
    for (r->at = skip_space(r->at); ok && !at_close(r, "%}"); r->at = skip_space(r->at)) ok = put_token(r, false, "%}");
    return ok && text_append(r->out, "%}", 2);
}

/* Reads a tag ({{, {% or {#) and skips the white space that it removes after itself. */
static bool read_tag(struct reader *r)
{
    const char kind = r->at[1];
    r->at += r->at[2] == '-' || r->at[2] == '+' ? 3 : 2;
    if (kind == '#') {
        const char *end = strstr(r->at, "#}");
        if (!end) return false;
        r->at = end - (end > r->at && (end[-1] == '-' || end[-1] == '+'));
    } else if (!(kind == '{' ? read_output(r) : read_block(r))) {
        return false;
    }
    const char control = *r->at == '-' || *r->at == '+' ? *r->at++ : '\0';
    r->at += 2;
    const char *after = r->at;
    if (control == '-')
        r->at = skip_space(r->at);
    else if (control == '\0' && kind != '{' && *r->at == '\n')
        r->at++; /* trim_blocks */
    r->line_start = r->at > after && r->at[-1] == '\n';
    return true;
}

static const char *next_tag(const char *at)
{
    while (*at && !(at[0] == '{' && (at[1] == '{' || at[1] == '%' || at[1] == '#'))) at++;
    return at;
}

/* Reads the text before `tag`, without the white space that the tag removes. */
static bool put_data(struct reader *r, const char *tag)
{
    const char *start = r->at, *end = tag;
    const bool last = *tag == '\0';
    if (!last && tag[2] == '-') {
        while (end > start && isspace((unsigned char)end[-1])) end--;
    } else if (!last && tag[1] != '{' && tag[2] != '+') { /* lstrip_blocks */
        const char *line = tag;
        while (line > start && line[-1] != '\n' && isspace((unsigned char)line[-1])) line--;
        if (line > start ? line[-1] == '\n' : r->line_start) end = line;
    } else if (last && end > start && end[-1] == '\n') {
        end--; /* Jinja drops the line break at the end of a template */
    }
    r->at = tag;
    return put_literal(r->out, start, (size_t)(end - start));
}

bool template_text_canonical(const char *source, struct text *out)
{
    struct reader r = {.at = source, .out = out, .line_start = true};
    for (;;) {
        const char *tag = next_tag(r.at);
        if (!put_data(&r, tag)) return false;
        if (!*tag) return true;
        if (!read_tag(&r)) return false;
    }
}
