#include "runtime/commands.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/notice.h"
#include "runtime/bench/bench.h"
#include "runtime/flag_lines.h"

const struct command command_list[COMMAND_COUNT] = {
    {"chat", command_chat, "talk with a model in the terminal", NULL},
    {"generate", command_generate, "run a file of prompts through a model", NULL},
    {"merge", command_merge, "put the outputs of several quire generate into one", NULL},
    {"profile", command_profile, "show where the memory goes, and how many requests fit", NULL},
    {"inspect", command_inspect, "show what a checkpoint folder holds, and what of it fits here", NULL},
    {"tokenize", command_tokenize, "show the token ids of a text, or the text of ids", NULL},
    {"template", command_template, "show what the chat template makes of a conversation", NULL},
    {"bench", command_bench, "measure how fast a model runs here", bench_names},
};

/* ---- flags of all commands ---- */

/* Appends what the command prints for --help-table. Commands print to stdout, which is a variable in the C library. */
static bool append_table(struct text *out, const struct command *c, const char *part)
{
    char name[16], word[16], help[] = "--help-table", *bytes = NULL;
    char *argv[] = {name, part ? word : help, part ? help : NULL, NULL};
    size_t size = 0;
    FILE *memory = open_memstream(&bytes, &size), *before = stdout;
    if (!memory) return false;
    snprintf(name, sizeof name, "%s", c->name);
    snprintf(word, sizeof word, "%s", part ? part : "");
    stdout = memory;
    c->run(part ? 3 : 2, argv);
    stdout = before;
    const bool ok = fclose(memory) == 0 && text_printf(out, "page\t%s%s%s\n", name, part ? " " : "", word) &&
                    text_append(out, bytes, size);
    free(bytes);
    return ok;
}

bool command_append_tables(struct text *out)
{
    bool ok = true;
    for (int i = 0; i < COMMAND_COUNT; i++) {
        const char *const *parts = command_list[i].parts;
        if (!parts) ok = ok && append_table(out, &command_list[i], NULL);
        for (; parts && *parts; parts++) ok = ok && append_table(out, &command_list[i], *parts);
    }
    return ok;
}

/* Without memory to look, every flag is taken to be there. */
bool command_with_flag(const char *name, char *command, size_t size)
{
    struct text tables = {0};
    struct flag_line line;
    bool found = !command_append_tables(&tables);
    char *at = tables.data;
    snprintf(command, size, "%s", "COMMAND");
    while (!found && flag_line_next(&at, &line)) {
        if (strcmp(line.kind, "page") == 0) snprintf(command, size, "%s", line.name);
        found = strcmp(line.kind, "flag") == 0 && strcmp(line.name, name) == 0;
    }
    text_free(&tables);
    return found;
}

bool command_has_flag(const char *name)
{
    char command[32];
    return command_with_flag(name, command, sizeof command);
}

static void check_variable(const char *variable)
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
    if (capital && length - PREFIX < sizeof flag && command_has_flag(flag)) return;
    notice_printf(stderr, "warning: %.*s in the environment is ignored: no command has a flag --%s\n", (int)length,
                  variable, flag);
}

void command_check_environment(void)
{
    for (char **variable = environ; *variable; variable++)
        if (strncmp(*variable, "QUIRE_", 6) == 0 && strncmp(*variable, "QUIRE_TEST_", 11) != 0)
            check_variable(*variable);
}

/* ---- errors ---- */

/* "max_model_len" is --max-model-len. */
void command_spell_flag(const char *setting, char *out, size_t size)
{
    snprintf(out, size, "--%s", setting);
    for (char *at = out; *at; at++)
        if (*at == '_') *at = '-';
}

struct sentence command_sentence(const struct error *err)
{
    return error_sentence(err, command_spell_flag);
}

struct grouped grouped(int64_t number)
{
    struct grouped g = {""};
    char digits[24];
    const int length = snprintf(digits, sizeof digits, "%lld", (long long)number);
    size_t at = 0;
    for (int i = 0; i < length; i++) {
        if (i > (number < 0) && (length - i) % 3 == 0) g.text[at++] = ',';
        g.text[at++] = digits[i];
    }
    return g;
}

int command_fail(const char *command, const struct error *err, int exit_status)
{
    notice_printf(stderr, "quire %s: %s\n", command, command_sentence(err).text);
    return exit_status;
}
