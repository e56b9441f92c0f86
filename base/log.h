/* Messages for the user, on stderr, because stdout is for results. A log is passed in, never global; a NULL log drops
 * every message. May be called from several threads at once. */
#ifndef QUIRE_BASE_LOG_H
#define QUIRE_BASE_LOG_H

#include <stdbool.h>

#include "base/status.h"

enum log_level { LOG_ERROR, LOG_WARNING, LOG_INFO, LOG_DEBUG };

struct log {
    enum log_level level;   /* messages above this level are dropped */
    const bool *line;       /* true while a line that is redrawn in place stands on the terminal: a message takes it off
                               first. NULL: there is none */
    setting_speller *spell; /* of the settings that a warning advises; NULL: they are named as they are */
};

/* Writes "quire: message\n" to stderr in one piece, with "error: ", "warning: " or "debug: " before the message. */
void log_write(const struct log *log, enum log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Writes a warning that may carry advice (error_sentence). */
void log_warn(const struct log *log, const struct error *warning);

#endif
