#include "runtime/options/options.h"

#include <ctype.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "base/edit_distance.h"
#include "runtime/commands.h"
#include "runtime/options/config_file.h"
#include "runtime/options/option_help.h"
#include "runtime/options/option_value.h"

void option_table_add(struct option_table *table, const struct option_spec *specs, int count)
{
    for (int i = 0; i < count && table->count < OPTIONS_MAX; i++) table->specs[table->count++] = specs[i];
}

/* The flags of the table and those that every command has. */
enum { FLAGS_MAX = OPTIONS_MAX + NUM_EVERYWHERE_FLAGS };
struct flags {
    const struct option_spec *specs[FLAGS_MAX]; /* [count] */
    enum option_source from[FLAGS_MAX];
    int count;
    struct option_spec everywhere[NUM_EVERYWHERE_FLAGS];
    const char *config; /* --config */
};

static void list_flags(const struct option_table *table, struct flags *out)
{
    *out = (struct flags){.count = 0};
    for (int i = 0; i < table->count; i++) out->specs[out->count++] = &table->specs[i];
    for (int i = 0; i < NUM_EVERYWHERE_FLAGS; i++) {
        out->everywhere[i] = everywhere_flags[i];
        out->specs[out->count++] = &out->everywhere[i];
    }
    out->everywhere[FLAG_CONFIG].target = &out->config;
}

static bool is_everywhere(const struct flags *flags, const struct option_spec *spec, enum everywhere_flag flag)
{
    return spec == &flags->everywhere[flag];
}

/* ---- unknown flags ---- */

enum { NAME_MAX_LENGTH = EDIT_DISTANCE_MAX_LENGTH };

struct suggestion {
    const char *name; /* NULL: no flag is near */
    int distance;     /* of the best so far: a better one must be below it */
    bool negated;
};

static void consider(struct suggestion *best, const char *typed, const char *known, bool negated)
{
    int distance = edit_distance(typed, known);
    if (distance < best->distance) *best = (struct suggestion){known, distance, negated};
}

/* The flag that `name` most likely meant. */
static struct suggestion nearest_flag(const struct flags *flags, const char *name)
{
    struct suggestion best = {NULL, edit_distance_near(name) + 1, false};
    bool negated = strncmp(name, "no-", 3) == 0;
    for (int i = 0; i < flags->count; i++) {
        const struct option_spec *spec = flags->specs[i];
        if (negated && option_is_switch(spec)) consider(&best, name + 3, spec->name, true);
        consider(&best, name, spec->name, false);
    }
    return best;
}

/* `word` as typed: "--name" or "--name=value". Either no flag begins with that name, or several do. */
static enum status unknown_flag(const struct flags *flags, const char *word, struct error *err)
{
    char name[NAME_MAX_LENGTH + 1];
    size_t length = strcspn(word, "=") - 2;
    snprintf(name, sizeof name, "%.*s", (int)(length < NAME_MAX_LENGTH ? length : NAME_MAX_LENGTH), word + 2);
    const char *first = NULL, *second = NULL;
    for (int i = 0; i < flags->count && length < NAME_MAX_LENGTH; i++) {
        const char *known = flags->specs[i]->name;
        if (strncmp(known, name, length) != 0) continue;
        if (first) second = known;
        if (!first) first = known;
    }
    if (second) {
        return error_set(err, STATUS_INVALID, "--%s could mean --%s or --%s; write the whole name", name, first,
                         second);
    }
    for (char *at = name; *at; at++) {
        if (*at == '_') *at = '-';
    }
    struct suggestion nearest = nearest_flag(flags, name);
    if (!nearest.name) {
        return error_set(err, STATUS_INVALID, "there is no flag %.*s; --help-all lists the flags", (int)length + 2,
                         word);
    }
    return error_set(err, STATUS_INVALID, "there is no flag %.*s; did you mean --%s%s? --help-all lists the flags",
                     (int)length + 2, word, nearest.negated ? "no-" : "", nearest.name);
}

/* ---- getopt_long ---- */

enum { CODE_FIRST = 256, MAX_LONG = 2 * FLAGS_MAX + 1 };

/* The tables of getopt_long. The code of a flag is CODE_FIRST + 2 * its index, + 1 for --no-. */
struct getopt_tables {
    struct option longs[MAX_LONG];
    char negated_names[FLAGS_MAX][NAME_MAX_LENGTH];
    char letters[2 + 2 * FLAGS_MAX + 1];
};

static void build_tables(const struct flags *flags, struct getopt_tables *out)
{
    int n = 0;
    size_t letter = 0;
    /* '-': a word that is no flag comes as code 1; ':': a missing value comes as code ':'. */
    out->letters[letter++] = '-';
    out->letters[letter++] = ':';
    for (int i = 0; i < flags->count; i++) {
        const struct option_spec *spec = flags->specs[i];
        int has_value = option_takes_value(spec) ? required_argument : no_argument;
        out->longs[n++] = (struct option){spec->name, has_value, NULL, CODE_FIRST + 2 * i};
        if (spec->letter) {
            out->letters[letter++] = spec->letter;
            if (has_value == required_argument) out->letters[letter++] = ':';
        }
        if (option_is_switch(spec)) {
            snprintf(out->negated_names[i], NAME_MAX_LENGTH, "no-%s", spec->name);
            out->longs[n++] = (struct option){out->negated_names[i], no_argument, NULL, CODE_FIRST + 2 * i + 1};
        }
    }
    out->letters[letter] = '\0';
    out->longs[n] = (struct option){0};
}

/* The index of the flag that a code of getopt means; -1: there is none. */
static int index_of_code(const struct flags *flags, int code)
{
    if (code >= CODE_FIRST) return (code - CODE_FIRST) / 2;
    for (int i = 0; i < flags->count; i++) {
        if (flags->specs[i]->letter == code) return i;
    }
    return -1;
}

/* getopt_long returned '?' or ':'; optopt and the word at which it stopped tell why. */
static enum status refused(const struct flags *flags, int code, const char *word, struct error *err)
{
    char label[NAME_MAX_LENGTH + 8];
    const int index = optopt ? index_of_code(flags, optopt) : -1;
    if (index < 0 && optopt)
        return error_set(err, STATUS_INVALID, "there is no flag -%c; --help-all lists the flags", optopt);
    if (index < 0) return unknown_flag(flags, word, err);
    const struct option_spec *spec = flags->specs[index];
    snprintf(label, sizeof label, "--%s%s", optopt >= CODE_FIRST && (optopt & 1) ? "no-" : "", spec->name);
    if (code == ':') return option_value_missing(spec, label, err);
    return error_set(err, STATUS_INVALID, "%s takes no value, but was written %s", label, word);
}

static enum status take_word(const struct option_table *table, const char *word, struct error *err)
{
    if (table->words) {
        table->words->list[table->words->count++] = word;
        return STATUS_OK;
    }
    if (table->word && *table->word)
        return error_set(err, STATUS_INVALID, "'%s' is a word too many; put a text of several words in quotes", word);
    if (table->word) {
        *table->word = word;
        return STATUS_OK;
    }
    return error_set(err, STATUS_INVALID, "'%s' is not a flag; flags begin with --, and --help lists them", word);
}

/* One flag of the command line; `text` is its value, or NULL. */
static enum status take_flag(struct flags *flags, int code, const char *text, struct error *err)
{
    const int index = index_of_code(flags, code);
    const struct option_spec *spec = flags->specs[index];
    char label[NAME_MAX_LENGTH + 8];
    flags->from[index] = OPTION_FROM_FLAG;
    if (!option_takes_value(spec)) return option_set_switch(spec, code >= CODE_FIRST && (code & 1), err);
    snprintf(label, sizeof label, "--%s", spec->name);
    return option_set(spec, label, text, err);
}

/* Which help the code asks for; false: none. */
static bool is_help(const struct flags *flags, int code, enum option_help *help)
{
    const int index = code == '?' || code == ':' || code == 1 ? -1 : index_of_code(flags, code);
    if (index < 0) return false;
    if (is_everywhere(flags, flags->specs[index], FLAG_HELP))
        *help = OPTION_HELP_COMMON;
    else if (is_everywhere(flags, flags->specs[index], FLAG_HELP_ALL))
        *help = OPTION_HELP_ALL;
    else
        return false;
    return true;
}

static enum status parse_command_line(struct option_table *table, struct flags *flags, int argc, char **argv,
                                      bool *help, struct error *err)
{
    struct getopt_tables tables;
    enum status status = STATUS_OK;
    build_tables(flags, &tables);
    optind = 0; /* glibc: begin a new scan */
    opterr = 0;
    while (status == STATUS_OK) {
        optopt = 0;
        const int code = getopt_long(argc, argv, tables.letters, tables.longs, NULL);
        if (code == -1) break;
        *help = is_help(flags, code, &table->help);
        if (*help) return STATUS_OK;
        if (code == 1)
            status = take_word(table, optarg, err);
        else if (code == '?' || code == ':')
            status = refused(flags, code, argv[optind - 1], err);
        else
            status = take_flag(flags, code, optarg, err);
    }
    for (; optind < argc && status == STATUS_OK; optind++) /* what follows "--" */
        status = take_word(table, argv[optind], err);
    return status;
}

/* ---- the environment ---- */

/* "max-model-len" is QUIRE_MAX_MODEL_LEN. */
static void name_of_variable(const char *flag, char *out, size_t size)
{
    snprintf(out, size, "QUIRE_%s", flag);
    for (char *at = out; *at; at++) *at = *at == '-' ? '_' : (char)toupper((unsigned char)*at);
}

static enum status take_environment(struct flags *flags, struct error *err)
{
    enum status status = STATUS_OK;
    for (int i = 0; i < flags->count && status == STATUS_OK; i++) {
        char variable[NAME_MAX_LENGTH + 8];
        const struct option_spec *spec = flags->specs[i];
        if (flags->from[i] != OPTION_FROM_DEFAULT || !spec->target) continue; /* --help has no target */
        name_of_variable(spec->name, variable, sizeof variable);
        const char *value = getenv(variable);
        if (!value || !*value) continue;
        flags->from[i] = OPTION_FROM_ENVIRONMENT;
        status = option_set_anywhere(spec, variable, value, err);
    }
    return status;
}

/* ---- the file of --config ---- */

static enum status unknown_entry(const struct flags *flags, const struct config_entry *entry, struct error *err)
{
    if (command_has_flag(entry->name)) return STATUS_OK; /* another command's: one file may serve all */
    const struct suggestion nearest = nearest_flag(flags, entry->name);
    return error_set(err, STATUS_INVALID, "%s: no command has a flag --%s%s%s%s; quire COMMAND --help-all lists them",
                     entry->label, entry->name, nearest.name ? ", did you mean " : "", nearest.name ? nearest.name : "",
                     nearest.name ? "?" : "");
}

static enum status take_entry(void *user, const struct config_entry *entry, struct error *err)
{
    struct flags *flags = user;
    int i = 0;
    while (i < flags->count && strcmp(flags->specs[i]->name, entry->name) != 0) i++;
    if (i == flags->count) return unknown_entry(flags, entry, err);
    if (i >= flags->count - NUM_EVERYWHERE_FLAGS)
        return error_set(err, STATUS_INVALID, "%s: --%s belongs on the command line, not into a file", entry->label,
                         entry->name);
    if (flags->from[i] > OPTION_FROM_FILE) return STATUS_OK;
    if (flags->from[i] == OPTION_FROM_FILE && !entry->again)
        return error_set(err, STATUS_INVALID, "%s: the file gives this flag twice; leave one of the two", entry->label);
    flags->from[i] = OPTION_FROM_FILE;
    return option_set_anywhere(flags->specs[i], entry->label, entry->value, err);
}

enum status options_parse(struct option_table *table, int argc, char **argv, bool *help, struct error *err)
{
    struct flags flags;
    *help = argc == 2 && strcmp(argv[1], "--help-table") == 0;
    if (*help) {
        table->help = OPTION_HELP_TABLE;
        return STATUS_OK;
    }
    list_flags(table, &flags);
    enum status status = parse_command_line(table, &flags, argc, argv, help, err);
    if (status == STATUS_OK && !*help) status = take_environment(&flags, err);
    if (status == STATUS_OK && !*help && flags.config)
        status =
            config_file_read(flags.config, table->config_values, sizeof table->config_values, take_entry, &flags, err);
    table->config = flags.config;
    memcpy(table->from, flags.from, (size_t)table->count * sizeof *table->from);
    return status;
}

bool options_origin(const struct option_table *table, const char *name, char *label, size_t size)
{
    int i = 0;
    while (i < table->count && strcmp(table->specs[i].name, name) != 0) i++;
    if (i == table->count || table->from[i] == OPTION_FROM_DEFAULT || table->from[i] == OPTION_FROM_FLAG) return false;
    if (table->from[i] == OPTION_FROM_ENVIRONMENT)
        name_of_variable(name, label, size);
    else
        snprintf(label, size, "%s: %s", table->config, name);
    return true;
}
