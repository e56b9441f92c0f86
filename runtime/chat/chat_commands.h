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

/* Completion of line[length]: calls add(user, word) with each command, branch, setting or switch that may stand where
 * the word begins that is being typed, and returns that place. *file: a file name may stand there. */
size_t chat_commands_complete(const struct session *s, const char *line, size_t length, bool *file,
                              void (*add)(void *user, const char *word), void *user);

#endif
