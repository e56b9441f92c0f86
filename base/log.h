/* Messages for the person at the terminal, on stderr; stdout is for results. Quiet by default: warnings only.
 * A log is passed in, never global; a NULL log swallows everything. Safe to call from several threads. */
#ifndef QUIRE_BASE_LOG_H
#define QUIRE_BASE_LOG_H

enum log_level { LOG_ERROR, LOG_WARNING, LOG_INFO, LOG_DEBUG };

struct log {
    enum log_level level; /* messages above this level are dropped */
};

/* Writes "quire: message\n" (level named for warnings and debug) to stderr in one piece. */
void log_write(const struct log *log, enum log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
