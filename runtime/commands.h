/* The commands: quire chat, generate and so on. Each parses its own flags and returns the exit status:
 * 0, 1 for a failure, 2 for wrong usage. Results go to stdout, everything else to stderr. */
#ifndef QUIRE_RUNTIME_COMMANDS_H
#define QUIRE_RUNTIME_COMMANDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/array.h"
#include "base/plural.h"
#include "base/status.h"

enum { EXIT_STATUS_OK = 0, EXIT_STATUS_FAILURE = 1, EXIT_STATUS_USAGE = 2 };

/* argv[0] is the command's name. */
int command_chat(int argc, char **argv);
int command_generate(int argc, char **argv);
int command_profile(int argc, char **argv);
int command_inspect(int argc, char **argv);
int command_tokenize(int argc, char **argv);
int command_merge(int argc, char **argv);
int command_template(int argc, char **argv);
int command_bench(int argc, char **argv);

struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
    const char *const *parts; /* the words that must follow, each with flags of its own, ended by NULL; or NULL */
};
enum { COMMAND_COUNT = 8 };
extern const struct command command_list[COMMAND_COUNT];

/* Appends the flags of every command, in lines (runtime/options/option_help.h); before each command, "page TAB NAME",
 * where NAME is "chat" or "bench latency". False: memory ran out. */
bool command_append_tables(struct text *out);

/* Whether any command has this flag; the name is without dashes. */
bool command_has_flag(const char *name);
/* The same; command[size] gets the first that has it, "generate" or "bench latency". */
bool command_with_flag(const char *name, char *command, size_t size);

/* A warning on stderr for each variable QUIRE_NAME of the environment that is no command's flag; but variables that
 * begin with QUIRE_TEST_ are the tests'. */
void command_check_environment(void);

/* The sentence for the user of the command line: the error's text, and its advice as flags ("TEXT: lower
 * --max-model-len to 512, or raise --num-gpu-blocks-override to 33"). */
struct sentence command_sentence(const struct error *err);
void command_spell_flag(const char *setting, char *out, size_t size); /* a setting_speller */

/* 1204 as "1,204". */
struct grouped {
    char text[32];
};
struct grouped grouped(int64_t number);

/* "quire COMMAND: sentence" on stderr; returns `exit_status`. */
int command_fail(const char *command, const struct error *err, int exit_status);

#endif
