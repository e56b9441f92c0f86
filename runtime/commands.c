#include "runtime/commands.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/notice.h"
#include "runtime/options/flag_lines.h"

const struct command *const command_list[COMMAND_COUNT] = {
    &command_chat,    &command_generate, &command_serve,    &command_merge,    &command_profile,
    &command_inspect, &command_quantize, &command_tokenize, &command_template, &command_bench,
};

/* ---- flags of all commands ---- */

struct help_text {
    char text[160];
};
static const char *help_of(const struct command *c, struct help_text *room)
{
    snprintf(room->text, sizeof room->text, "Measures %s.", c->summary);
    return c->help ? c->help : room->text;
}

static bool append_page(struct text *out, const struct command *c, const struct command *part)
{
    struct option_table table = {0};
    struct help_text room;
    const struct command *page = part ? part : c;
    void *options = calloc(1, page->options_size);
    if (!options) return false;
    page->add(page, &table, options);
    const bool ok = text_printf(out, "page\t%s%s%s\n", c->name, part ? " " : "", part ? part->name : "") &&
                    options_append_lines(&table, page->usage, help_of(page, &room), out);
    if (page->free) page->free(options);
    free(options);
    return ok;
}

bool command_append_flags(struct text *out)
{
    bool ok = true;
    for (int i = 0; i < COMMAND_COUNT; i++) {
        const struct command *const *part = command_list[i]->parts;
        if (!part) ok = ok && append_page(out, command_list[i], NULL);
        for (; part && *part; part++) ok = ok && append_page(out, command_list[i], *part);
    }
    return ok;
}

static void check_variable(const char *variable, const char *flags)
{
    enum { PREFIX = sizeof "QUIRE_" - 1 };
    char flag[64];
    const size_t length = strcspn(variable, "=");
    snprintf(flag, sizeof flag, "%.*s", (int)(length - PREFIX), variable + PREFIX);
    bool capital = true;
    for (char *at = flag; *at; at++) {
        capital = capital && !islower((unsigned char)*at);
        *at = *at == '_' ? '-' : (char)tolower((unsigned char)*at);
    }
    if (capital && length - PREFIX < sizeof flag && flag_lines_find(flags, flag, NULL, 0)) return;
    notice_printf(stderr, "warning: %.*s in the environment is ignored: no command has a flag --%s\n", (int)length,
                  variable, flag);
}

static void check_environment(void)
{
    struct text flags = {0};
    for (char **variable = environ; *variable; variable++) {
        if (strncmp(*variable, "QUIRE_", 6) != 0 || strncmp(*variable, "QUIRE_TEST_", 11) == 0) continue;
        if (flags.data || command_append_flags(&flags)) check_variable(*variable, flags.data);
    }
    text_free(&flags);
}

/* ---- a command ---- */

/* A run of a command. */
struct run {
    const struct command *command;
    struct option_table table;
    struct text flags; /* of all commands, as lines */
    void *options;
};

/* Empties the options, and parses the command line into them. */
static enum status parse_words(struct run *r, int argc, char **argv, bool *help, struct error *err)
{
    memset(r->options, 0, r->command->options_size);
    r->table = (struct option_table){.flags_of_all = r->flags.data};
    r->command->add(r->command, &r->table, r->options);
    return options_parse(&r->table, argc, argv, help, err);
}

/* The flags of all commands are put together only where one may be another command's: for a file, and for a command
 * line that is refused, which is parsed once more to get the better sentence. */
static enum status parse(struct run *r, int argc, char **argv, bool *help, struct error *err)
{
    enum status status = parse_words(r, argc, argv, help, err);
    if (status != STATUS_OK && command_append_flags(&r->flags)) {
        if (r->command->free) r->command->free(r->options);
        status = parse_words(r, argc, argv, help, err);
    }
    if (status != STATUS_OK || *help) return status;
    if (r->table.config && !r->flags.data && !command_append_flags(&r->flags))
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the flags");
    r->table.flags_of_all = r->flags.data;
    return options_read_config(&r->table, err);
}

/* `name` begins what is said of wrong usage. */
static int parse_and_run(const struct command *c, const char *name, int argc, char **argv)
{
    struct run r = {.command = c, .options = malloc(c->options_size)};
    struct help_text room;
    struct error err;
    bool help = false;
    int exit_status = EXIT_STATUS_OK;
    if (!r.options) {
        error_set(&err, STATUS_OUT_OF_MEMORY, "out of host memory for the flags");
        return command_fail(name, &err, EXIT_STATUS_FAILURE);
    }
    if (parse(&r, argc, argv, &help, &err) != STATUS_OK)
        exit_status = command_fail(name, &err, EXIT_STATUS_USAGE);
    else if (help)
        options_print_help(&r.table, c->usage, help_of(c, &room), stdout);
    else
        exit_status = c->run(r.options);
    if (c->free) c->free(r.options);
    free(r.options);
    text_free(&r.flags);
    return exit_status;
}

int command_run(const struct command *c, int argc, char **argv)
{
    check_environment();
    if (!c->parts) return parse_and_run(c, c->name, argc, argv);
    for (const struct command *const *part = c->parts; argc >= 2 && *part; part++)
        if (strcmp(argv[1], (*part)->name) == 0) return parse_and_run(*part, c->name, argc - 1, argv + 1);
    return c->run_without_part(argc, argv);
}
