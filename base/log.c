#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/notice.h"

void log_write(const struct log *log, enum log_level level, const char *format, ...)
{
    static const char *const names[] = {"error: ", "warning: ", "", "debug: "};
    if (!log || level > log->level) return;
    char text[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (log->line && *log->line) fputs("\r\033[K", stderr);
    notice_printf(stderr, "quire: %s%s\n", names[level], text);
}

void log_warn(const struct log *log, const struct error *warning)
{
    if (log) log_write(log, LOG_WARNING, "%s", error_sentence(warning, log->spell).text);
}
