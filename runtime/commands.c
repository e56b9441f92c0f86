#include "runtime/commands.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/notice.h"
#include "runtime/flag_lines.h"

const struct command *const command_list[COMMAND_COUNT] = {
    &command_chat,    &command_generate, &command_merge,    &command_profile,
    &command_inspect, &command_tokenize, &command_template, &command_bench,
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

static void check_environment(const char *flags)
{
    for (char **variable = environ; *variable; variable++)
        if (strncmp(*variable, "QUIRE_", 6) == 0 && strncmp(*variable, "QUIRE_TEST_", 11) != 0)
            check_variable(*variable, flags);
}

/* ---- a command ---- */

/* `name` begins what is said of wrong usage. */
static int parse_and_run(const struct command *c, const char *name, int argc, char **argv, const char *flags)
{
    struct option_table table = {.flags_of_all = flags};
    struct help_text room;
    struct error err;
    bool help = false;
    int exit_status = EXIT_STATUS_OK;
    void *options = calloc(1, c->options_size);
    if (!options) {
        error_set(&err, STATUS_OUT_OF_MEMORY, "out of host memory for the flags");
        return command_fail(name, &err, EXIT_STATUS_FAILURE);
    }
    c->add(c, &table, options);
    if (options_parse(&table, argc, argv, &help, &err) != STATUS_OK)
        exit_status = command_fail(name, &err, EXIT_STATUS_USAGE);
    else if (help)
        options_print_help(&table, c->usage, help_of(c, &room), stdout);
    else
        exit_status = c->run(options);
    if (c->free) c->free(options);
    free(options);
    return exit_status;
}

static int run_part(const struct command *c, int argc, char **argv, const char *flags)
{
    for (const struct command *const *part = c->parts; argc >= 2 && *part; part++)
        if (strcmp(argv[1], (*part)->name) == 0) return parse_and_run(*part, c->name, argc - 1, argv + 1, flags);
    return c->run_without_part(argc, argv);
}

int command_run(const struct command *c, int argc, char **argv)
{
    struct text flags = {0};
    struct error err;
    int exit_status;
    if (command_append_flags(&flags)) {
        check_environment(flags.data);
        exit_status =
            c->parts ? run_part(c, argc, argv, flags.data) : parse_and_run(c, c->name, argc, argv, flags.data);
    } else {
        error_set(&err, STATUS_OUT_OF_MEMORY, "out of host memory for the flags");
        exit_status = command_fail(c->name, &err, EXIT_STATUS_FAILURE);
    }
    text_free(&flags);
    return exit_status;
}
