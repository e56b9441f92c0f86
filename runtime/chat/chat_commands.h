/* The commands of a chat at the terminal: /help, /system and so on. */
#ifndef QUIRE_RUNTIME_CHAT_COMMANDS_H
#define QUIRE_RUNTIME_CHAT_COMMANDS_H

#include <stddef.h>

#include "runtime/chat/session.h"

/* What can follow a command, for completion. */
enum command_argument {
    ARGUMENT_NONE,
    ARGUMENT_TEXT,
    ARGUMENT_FILE,
    ARGUMENT_BRANCH,
    ARGUMENT_SETTING,
    ARGUMENT_ON_OFF,
    ARGUMENT_NEW
};

struct chat_command {
    const char *name;     /* with its slash */
    const char *argument; /* for the help: "FILE", "[NAME]"; "" */
    enum command_argument kind;
    const char *help;                               /* one line; NULL: another name of the command before it */
    void (*run)(struct session *s, char *argument); /* `argument`: without blanks around it; "" */
};

extern const struct chat_command chat_commands[];
extern const size_t num_chat_commands;

/* Runs a line that begins with a slash. */
void chat_commands_run(struct session *s, const char *line, size_t length);

/* A line_complete; `user` is the session. Candidates are commands, branches, settings, switches and files. */
size_t chat_commands_complete(void *user, const char *text, size_t length, struct line_candidates *c);

#endif
