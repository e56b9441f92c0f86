#include "runtime/options/options.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/edit_distance.h"
#include "base/notice.h"
#include "runtime/options/flag_lines.h"
#include "runtime/options/config_file.h"
#include "runtime/options/foreign_flags.h"
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
    const char *of_all; /* lines with the flags of all commands */
    struct option_spec everywhere[NUM_EVERYWHERE_FLAGS];
    const char *config; /* --config */
};

static void list_flags(const struct option_table *table, struct flags *out)
{
    *out = (struct flags){.of_all = table->flags_of_all, .config = table->config};
    for (int i = 0; i < table->count; i++) out->specs[out->count++] = &table->specs[i];
    for (int i = 0; i < NUM_EVERYWHERE_FLAGS; i++) {
        out->everywhere[i] = everywhere_flags[i];
        out->specs[out->count++] = &out->everywhere[i];
    }
    out->everywhere[FLAG_CONFIG].target = &out->config;
    memcpy(out->from, table->from, (size_t)table->count * sizeof *out->from);
}

/* ---- names ---- */

enum { NAME_MAX_LENGTH = EDIT_DISTANCE_MAX_LENGTH, LABEL_SIZE = NAME_MAX_LENGTH + 8 };

/* A flag as it was written. */
struct written {
    char name[NAME_MAX_LENGTH + 1]; /* without dashes before it, and with '-' for '_'; cut if it is longer */
    const char *word;               /* all of it; [shown] without the value */
    int shown;
    const char *value; /* behind '='; NULL: there is none */
};

static struct written read_name(const char *word)
{
    struct written w = {.word = word, .shown = (int)strcspn(word, "=")};
    if (word[w.shown]) w.value = word + w.shown + 1;
    snprintf(w.name, sizeof w.name, "%.*s", w.shown - 2, word + 2);
    for (char *at = w.name; *at; at++)
        if (*at == '_') *at = '-';
    return w;
}

/* What a name means: a flag, or its negation. */
struct match {
    int index; /* -1: no flag */
    bool negated;
    char first[NAME_MAX_LENGTH], second[NAME_MAX_LENGTH]; /* flags that begin with the name; "" where there are fewer */
};

/* A name may be cut short where no other begins with the same letters. */
static struct match find_flag(const struct flags *flags, const char *name)
{
    struct match found = {.index = -1};
    for (int i = 0; i < 2 * flags->count; i++) {
        const struct option_spec *spec = flags->specs[i / 2];
        const bool negated = i % 2;
        char known[NAME_MAX_LENGTH];
        if (negated && !option_is_switch(spec)) continue;
        snprintf(known, sizeof known, "%s%s", negated ? "no-" : "", spec->name);
        if (strcmp(known, name) == 0) return (struct match){.index = i / 2, .negated = negated};
        if (strncmp(known, name, strlen(name)) != 0) continue;
        if (*found.first) {
            if (!*found.second) memcpy(found.second, known, sizeof known);
            found.index = -1;
        } else {
            memcpy(found.first, known, sizeof known);
            found.index = i / 2;
            found.negated = negated;
        }
    }
    return found;
}

/* The index of the flag with exactly that name; -1: there is none. */
static int find_exactly(const struct flags *flags, const char *name)
{
    for (int i = 0; i < flags->count; i++)
        if (strcmp(flags->specs[i]->name, name) == 0) return i;
    return -1;
}

/* The index of the flag with that letter, or that short name of several letters; -1: there is none. */
static int find_letters(const struct flags *flags, const char *letters, size_t length)
{
    for (int i = 0; i < flags->count; i++) {
        const struct option_spec *spec = flags->specs[i];
        if (length == 1 && spec->letter == *letters) return i;
        if (spec->letters && strlen(spec->letters) == length && memcmp(spec->letters, letters, length) == 0) return i;
    }
    return -1;
}

/* ---- unknown flags ---- */

/* What to do instead of the flag `name`, which there is not: "; did you mean --max-model-len?". */
struct instead {
    char text[256];
};
static struct instead what_instead(const struct flags *flags, const char *name, const struct foreign_flag *foreign)
{
    struct instead out = {""};
    char command[32];
    if (foreign && foreign->sentence) snprintf(out.text, sizeof out.text, ": %s", foreign->sentence);
    if (foreign && foreign->flag && find_exactly(flags, foreign->flag) >= 0)
        snprintf(out.text, sizeof out.text, "; did you mean --%s?", foreign->flag);
    if (foreign) return out;
    if (flag_lines_find(flags->of_all, name, command, sizeof command)) {
        snprintf(out.text, sizeof out.text, ": it is one of quire %s", command);
        return out;
    }
    struct nearest nearest = nearest_begin(name), positive = nearest_begin(strncmp(name, "no-", 3) ? "" : name + 3);
    for (int i = 0; i < flags->count; i++) {
        const struct option_spec *spec = flags->specs[i];
        nearest_consider(&nearest, spec->name);
        if (*positive.typed && option_is_switch(spec)) nearest_consider(&positive, spec->name);
    }
    const bool negated = positive.word && positive.distance < nearest.distance;
    const char *word = negated ? positive.word : nearest.word;
    if (word) snprintf(out.text, sizeof out.text, "; did you mean --%s%s?", negated ? "no-" : "", word);
    return out;
}

static enum status unknown_flag(const struct flags *flags, const char *name, const char *word, int shown,
                                struct error *err)
{
    const bool one_letter = word[1] == '-' && !name[1]; /* --n is not llama.cpp's -n */
    const struct instead instead = what_instead(flags, name, one_letter ? NULL : foreign_flag_find(name));
    return error_set(err, STATUS_INVALID, "there is no flag %.*s%s%s", shown, word, instead.text,
                     instead.text[0] == ':'   ? ""
                     : instead.text[0] == ';' ? " --help-all lists the flags"
                                              : "; --help-all lists the flags");
}

/* ---- the command line ---- */

struct command_line {
    struct option_table *table;
    struct flags *flags;
    int argc, at; /* of the next word */
    char **argv;
    bool within; /* a word of several letters, of which one is read that is not the last */
    bool help;   /* --help or --help-all was read */
};

static enum status take_word(const struct option_table *table, const char *word, struct error *err)
{
    struct option_words *words = table->words;
    if (words) {
        if (!array_reserve(&words->list, &words->capacity, words->count + 1, sizeof *words->list))
            return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the names");
        words->list[words->count++] = word;
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

/* "true" or "false" as a word of its own behind a switch, as vLLM's users write it; NULL: no such word follows. */
static const char *take_truth(struct command_line *line)
{
    const char *next = line->at < line->argc ? line->argv[line->at] : "";
    if (line->within || (strcasecmp(next, "true") != 0 && strcasecmp(next, "false") != 0)) return NULL;
    line->at++;
    return next;
}

/* The flag at `index`, with the value behind its '=' or its letter, or NULL. */
static enum status take_flag(struct command_line *line, int index, bool negated, const char *value, struct error *err)
{
    const struct flags *flags = line->flags;
    const struct option_spec *spec = flags->specs[index];
    char label[LABEL_SIZE];
    snprintf(label, sizeof label, "--%s%s", negated ? "no-" : "", spec->name);
    line->flags->from[index] = OPTION_FROM_FLAG;
    if (option_takes_value(spec)) {
        if (!value && line->at < line->argc) value = line->argv[line->at++];
        return value ? option_set(spec, label, value, err) : option_value_missing(spec, label, err);
    }
    if (value && (negated || !spec->target))
        return error_set(err, STATUS_INVALID, "%s takes no value, but was written %s=%s", label, label, value);
    if (spec == &flags->everywhere[FLAG_HELP] || spec == &flags->everywhere[FLAG_HELP_ALL]) {
        line->table->help_all = spec == &flags->everywhere[FLAG_HELP_ALL];
        line->help = true;
        return STATUS_OK;
    }
    if (!value && !negated && option_is_switch(spec)) value = take_truth(line);
    return value ? option_set_anywhere(spec, label, value, err) : option_set_switch(spec, negated, err);
}

/* "--name" or "--name=value" */
static enum status take_long(struct command_line *line, const char *word, struct error *err)
{
    const struct written w = read_name(word);
    const struct match found = find_flag(line->flags, w.name);
    if (*found.second && !flag_lines_find(line->flags->of_all, w.name, NULL, 0))
        return error_set(err, STATUS_INVALID, "%.*s could mean --%s or --%s; write the whole name", w.shown, word,
                         found.first, found.second);
    if (found.index < 0 || w.shown - 2 > NAME_MAX_LENGTH) return unknown_flag(line->flags, w.name, word, w.shown, err);
    return take_flag(line, found.index, found.negated, w.value, err);
}

/* "-v", "-vv", "-mPATH", "-m=PATH", "-tp" or "-tp=1". llama.cpp, too, has flags of two to five letters behind one
 * dash. */
static enum status take_short(struct command_line *line, const char *word, struct error *err)
{
    enum { FOREIGN_MAX = 5 };
    char name[FOREIGN_MAX + 1];
    const size_t length = strcspn(word + 1, "=");
    const char *value = word[1 + length] ? word + length + 2 : NULL;
    int index = length > 1 ? find_letters(line->flags, word + 1, length) : -1;
    if (index >= 0) return take_flag(line, index, false, value, err);
    snprintf(name, sizeof name, "%s", word + 1);
    if (length > 1 && length <= FOREIGN_MAX && !value && foreign_flag_find(name))
        return unknown_flag(line->flags, name, word, (int)length + 1, err);
    for (const char *at = word + 1; *at; at++) {
        index = find_letters(line->flags, at, 1);
        snprintf(name, sizeof name, "%c", *at);
        if (index < 0 && foreign_flag_find(name)) return unknown_flag(line->flags, name, word, (int)length + 1, err);
        if (index < 0) return error_set(err, STATUS_INVALID, "there is no flag -%c; --help-all lists the flags", *at);
        if (at[1] == '=') return take_flag(line, index, false, at + 2, err);
        if (option_takes_value(line->flags->specs[index]))
            return take_flag(line, index, false, at[1] ? at + 1 : NULL, err);
        line->within = at[1] != '\0';
        const enum status status = take_flag(line, index, false, NULL, err);
        if (status != STATUS_OK || line->help) return status;
    }
    return STATUS_OK;
}

static enum status parse_command_line(struct command_line *line, struct error *err)
{
    enum status status = STATUS_OK;
    bool words_only = false; /* after "--" */
    while (line->at < line->argc && status == STATUS_OK && !line->help) {
        const char *word = line->argv[line->at++];
        line->within = false;
        if (words_only || word[0] != '-' || !word[1])
            status = take_word(line->table, word, err);
        else if (strcmp(word, "--") == 0)
            words_only = true;
        else
            status = word[1] == '-' ? take_long(line, word, err) : take_short(line, word, err);
    }
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
    if (flag_lines_find(flags->of_all, entry->name, NULL, 0))
        return STATUS_OK; /* another command's: one file may serve all */
    const struct instead instead = what_instead(flags, entry->name, foreign_flag_find(entry->name));
    return error_set(err, STATUS_INVALID, "%s: no command has a flag --%s%s%s", entry->label, entry->name, instead.text,
                     instead.text[0] ? "" : "; quire COMMAND --help-all lists them");
}

static enum status take_entry(void *user, const struct config_entry *entry, struct error *err)
{
    struct flags *flags = user;
    const int i = find_exactly(flags, entry->name);
    if (i < 0) return unknown_entry(flags, entry, err);
    if (i >= flags->count - NUM_EVERYWHERE_FLAGS)
        return error_set(err, STATUS_INVALID, "%s: --%s belongs on the command line, not into a file", entry->label,
                         entry->name);
    if (flags->from[i] > OPTION_FROM_FILE) return STATUS_OK;
    if (flags->from[i] == OPTION_FROM_FILE && !entry->again)
        return error_set(err, STATUS_INVALID, "%s: the file gives this flag twice; leave one of the two", entry->label);
    flags->from[i] = OPTION_FROM_FILE;
    if (entry->again && !flags->specs[i]->repeats)
        return error_set(err, STATUS_INVALID, "%s: a list, but --%s takes one value", entry->label, entry->name);
    return option_set_anywhere(flags->specs[i], entry->label, entry->value, err);
}

static void print_notes(const struct option_table *table)
{
    for (int i = 0; i < table->count; i++)
        if (table->specs[i].note && *(const bool *)table->specs[i].target)
            notice_printf(stderr, "note: --%s: %s\n", table->specs[i].name, table->specs[i].note);
}

enum status options_parse(struct option_table *table, int argc, char **argv, bool *help, struct error *err)
{
    struct flags flags;
    list_flags(table, &flags);
    struct command_line line = {.table = table, .flags = &flags, .argc = argc, .at = 1, .argv = argv};
    enum status status = parse_command_line(&line, err);
    *help = line.help;
    if (status == STATUS_OK && !*help) status = take_environment(&flags, err);
    table->config = flags.config;
    memcpy(table->from, flags.from, (size_t)table->count * sizeof *table->from);
    return status;
}

enum status options_read_config(struct option_table *table, struct error *err)
{
    struct flags flags;
    list_flags(table, &flags);
    enum status status = STATUS_OK;
    if (table->config)
        status =
            config_file_read(table->config, table->config_values, sizeof table->config_values, take_entry, &flags, err);
    memcpy(table->from, flags.from, (size_t)table->count * sizeof *table->from);
    if (status == STATUS_OK) print_notes(table);
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
