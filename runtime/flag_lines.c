#include "runtime/flag_lines.h"

#include <string.h>

static char *cut(char **at, char separator)
{
    char *field = *at, *end = strchr(field, separator);
    *at = end ? end + 1 : field + strlen(field);
    if (end) *end = '\0';
    return field;
}

bool flag_line_next(char **at, struct flag_line *out)
{
    if (!**at) return false;
    char *line = cut(at, '\n');
    out->kind = cut(&line, '\t');
    out->name = cut(&line, '\t');
    out->letters = cut(&line, '\t');
    out->negation = cut(&line, '\t');
    out->value = cut(&line, '\t');
    out->help = cut(&line, '\t');
    return true;
}
