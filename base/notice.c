#include "base/notice.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/columns.h"
#include "base/visible.h"

int notice_columns(FILE *stream)
{
    struct winsize size;
    const int fd = fileno(stream);
    return fd < 0 || !isatty(fd) || ioctl(fd, TIOCGWINSZ, &size) != 0 ? 0 : size.ws_col;
}

bool notice_wrap(struct text *out, const char *text, int column, int indent, int columns)
{
    bool ok = true;
    while (*text && ok) {
        const size_t spaces = strspn(text, " "), length = strcspn(text + spaces, " \n");
        const char *word = text + spaces;
        const int width = columns_of(word, length);
        if (length > 0 && column > indent && column + (int)spaces + width > columns) {
            ok = text_printf(out, "\n%*s", indent, "");
            column = indent + width;
        } else {
            ok = text_append(out, text, spaces);
            column += (int)spaces + width;
        }
        ok = ok && text_append(out, word, length);
        text = word + length;
        if (*text != '\n') continue;
        ok = ok && text_append(out, text++, 1);
        column = 0;
    }
    return ok;
}

void notice_print_line(FILE *stream, const char *text, int indent, int columns)
{
    struct text lines = {0};
    const bool wrapped = columns > 0 && notice_wrap(&lines, text, indent, indent, columns) && lines.length > 0;
    fprintf(stream, "%s\n", wrapped ? lines.data : text);
    text_free(&lines);
}

/* What a terminal of so many columns gets in place of the text. */
static bool lay_out(struct text *text, int columns)
{
    struct text shown = {0}, lines = {0};
    const bool ok = visible_append(&shown, text->data, text->length) && text_append(&shown, "", 0) &&
                    text_append(&lines, "", 0) && notice_wrap(&lines, shown.data, 0, 0, columns);
    text_free(&shown);
    text_free(text);
    *text = lines;
    return ok;
}

bool notice_printf(FILE *stream, const char *format, ...)
{
    struct text text = {0};
    const int columns = notice_columns(stream);
    va_list args;
    va_start(args, format);
    bool ok = text_vprintf(&text, format, args);
    va_end(args);
    ok = ok && (columns == 0 || lay_out(&text, columns));
    if (!ok) errno = ENOMEM;
    ok = ok && visible_write(stream, text.data, text.length);
    text_free(&text);
    return ok;
}
