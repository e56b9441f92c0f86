#include "runtime/options/flag_lines.h"

#include <stdio.h>
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

bool flag_lines_find(const char *lines, const char *name, char *page, size_t size)
{
    static const char PAGE[] = "page\t", FLAG[] = "flag\t";
    const char *command = "";
    for (const char *next; lines && *lines; lines = next) {
        next = lines + strcspn(lines, "\n") + 1;
        const char *text = lines + strlen(FLAG);
        if (strncmp(lines, PAGE, strlen(PAGE)) == 0) command = text;
        if (strncmp(lines, FLAG, strlen(FLAG)) != 0) continue;
        if (strncmp(text, name, strlen(name)) != 0 || text[strlen(name)] != '\t') continue;
        if (page) snprintf(page, size, "%.*s", (int)strcspn(command, "\n"), command);
        return true;
    }
    return false;
}
