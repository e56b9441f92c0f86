/* A command of quire, or a benchmark, as data: its flags and what runs it. commands.c has the table of all, parses the
 * command line and prints the help; a command's own file calls nothing of it. Results go to stdout, everything else to
 * stderr. */
#ifndef QUIRE_RUNTIME_OPTIONS_COMMAND_H
#define QUIRE_RUNTIME_OPTIONS_COMMAND_H

#include "base/plural.h"
#include "base/status.h"
#include "runtime/options/options.h"

enum { EXIT_STATUS_OK = 0, EXIT_STATUS_FAILURE = 1, EXIT_STATUS_USAGE = 2 };

struct command {
    const char *name, *summary; /* "chat"; a line of the list of commands */
    const char *usage;          /* how it is called, "chat [QUESTION|@FILE|-] [flags]" */
    const char *help;           /* what --help says first; NULL: "Measures SUMMARY." */
    size_t options_size;        /* bytes of its options, which are zeroed first and do not move */
    /* Sets the defaults in *options and adds the flags. It may be followed by `free` alone. */
    void (*add)(const struct command *c, struct option_table *table, void *options);
    int (*run)(void *options);   /* after the flags are parsed; returns the exit status */
    void (*free)(void *options); /* what the options own; or NULL */
    /* A command of parts is only these two and the first line: commands of which one's name must follow, ended by NULL;
     * and what runs where none does, argv[0] being `name`. Both are NULL for any other command. */
    const struct command *const *parts;
    int (*run_without_part)(int argc, char **argv);
};
extern const struct command command_chat, command_serve, command_generate, command_merge, command_profile,
    command_inspect, command_quantize, command_tokenize, command_template, command_bench;

/* The sentence for the user of the command line: the error's text, and its advice as flags ("TEXT: lower
 * --max-model-len to 512, or raise --num-gpu-blocks-override to 33"). */
struct sentence command_sentence(const struct error *err);
void command_spell_flag(const char *setting, char *out, size_t size); /* a setting_speller */

/* "quire COMMAND: sentence" on stderr; returns `exit_status`. */
int command_fail(const char *command, const struct error *err, int exit_status);

#endif
