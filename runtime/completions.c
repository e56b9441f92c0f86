#include "runtime/commands.h"

#include <ctype.h>
#include <string.h>

#include "runtime/options/flag_lines.h"

/* ---- values ---- */

/* "auto|cpu|cuda|cuda:N" has values to choose from; those with capitals stand for others. */
static bool has_choices(const char *value)
{
    return strchr(value, '|') && !isupper((unsigned char)value[0]);
}

static bool is_file(const char *value)
{
    const char *file = strstr(value, "FILE");
    return (file && (file == value || file[-1] != '@')) || strstr(value, "PATH");
}

/* The choices, `between` them. */
static void print_choices(const char *value, const char *between, FILE *out)
{
    bool first = true;
    while (*value) {
        const size_t length = strcspn(value, "|");
        bool literal = true;
        for (size_t i = 0; i < length; i++) literal = literal && !isupper((unsigned char)value[i]);
        if (literal) fprintf(out, "%s%.*s", first ? "" : between, (int)length, value);
        first = first && !literal;
        value += length + (value[length] == '|');
    }
}

/* The first sentence of a help text, without what a shell's quotes or brackets would read. */
static void print_help(const char *help, FILE *out)
{
    for (; *help && !(help[0] == '.' && (help[1] == ' ' || !help[1])); help++)
        if (!strchr("'\"`[]\\$:", *help)) fputc(*help, out);
}

/* ---- bash ---- */

static void bash_line(const struct flag_line *line, FILE *out)
{
    if (strcmp(line->kind, "page") == 0) fprintf(out, "      ;;\n    '%s')\n", line->name);
    if (strcmp(line->kind, "flag") != 0) return;
    fprintf(out, "      flags+=' --%s", line->name);
    if (*line->negation) fprintf(out, " --no-%s", line->name);
    fputs("'\n", out);
    if (!*line->value) return;
    fprintf(out, "      [[ $before == --%s", line->name);
    if (*line->letters) fprintf(out, " || $before == -%s", line->letters);
    fputs(" ]] && kind=", out);
    if (has_choices(line->value))
        print_choices(line->value, "\\ ", out);
    else
        fputs(is_file(line->value) ? "FILE" : "NONE", out);
    fputc('\n', out);
}

static void bash(char *tables, FILE *out)
{
    struct flag_line line;
    fputs(
        "# bash completion for quire\n_quire() {\n"
        "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} page=${COMP_WORDS[1]} flags= kind=\n"
        "  COMPREPLY=()\n"
        "  if ((COMP_CWORD == 1)); then\n    COMPREPLY=($(compgen -W '",
        out);
    for (int i = 0; i < COMMAND_COUNT; i++) fprintf(out, "%s ", command_list[i]->name);
    fputs("--help --version' -- \"$word\"))\n    return\n  fi\n", out);
    for (int i = 0; i < COMMAND_COUNT; i++) {
        if (!command_list[i]->parts) continue;
        fprintf(out, "  if [[ $page == %s ]]; then\n    if ((COMP_CWORD == 2)); then\n      COMPREPLY=($(compgen -W '",
                command_list[i]->name);
        for (const struct command *const *part = command_list[i]->parts; *part; part++)
            fprintf(out, "%s ", (*part)->name);
        fputs("' -- \"$word\"))\n      return\n    fi\n    page+=\" ${COMP_WORDS[2]}\"\n  fi\n", out);
    }
    fputs("  case $page in\n    '')\n", out);
    while (flag_line_next(&tables, &line)) bash_line(&line, out);
    fputs("      ;;\n  esac\n"
          "  if [[ $kind == FILE ]]; then\n    compopt -o filenames 2>/dev/null\n"
          "    COMPREPLY=($(compgen -f -- \"$word\"))\n"
          "  elif [[ $kind == NONE ]]; then\n    return\n"
          "  else\n    COMPREPLY=($(compgen -W \"${kind:-$flags}\" -- \"$word\"))\n  fi\n}\n"
          "complete -o default -F _quire quire\n",
          out);
}

/* ---- zsh ---- */

static void zsh_value(const char *value, FILE *out)
{
    if (!*value) return;
    fputs(":value:", out);
    if (has_choices(value)) {
        fputc('(', out);
        print_choices(value, " ", out);
        fputc(')', out);
    } else if (is_file(value)) {
        fputs("_files", out);
    } else {
        fputc(' ', out);
    }
}

static void zsh_flag(const char *dashes, const char *negation, const char *name, const struct flag_line *line,
                     FILE *out)
{
    fprintf(out, "        '%s%s%s[", dashes, negation, name);
    print_help(line->help, out);
    fputc(']', out);
    zsh_value(line->value, out);
    fputs("' \\\n", out);
}

static void zsh_line(const struct flag_line *line, FILE *out)
{
    if (strcmp(line->kind, "page") == 0)
        fprintf(out, "        && return\n      ;;\n    '%s')\n      _arguments \\\n", line->name);
    if (strcmp(line->kind, "flag") != 0) return;
    zsh_flag("--", "", line->name, line, out);
    if (*line->negation) zsh_flag("--", "no-", line->name, line, out);
    if (*line->letters) zsh_flag("-", "", line->letters, line, out);
}

static void zsh(char *tables, FILE *out)
{
    struct flag_line line;
    fputs("#compdef quire\n_quire() {\n  local page=$words[2]\n  if ((CURRENT == 2)); then\n    local -a names=(\n",
          out);
    for (int i = 0; i < COMMAND_COUNT; i++)
        fprintf(out, "      '%s:%s'\n", command_list[i]->name, command_list[i]->summary);
    fputs("    )\n    _describe command names\n    return\n  fi\n", out);
    for (int i = 0; i < COMMAND_COUNT; i++) {
        if (!command_list[i]->parts) continue;
        fprintf(out, "  if [[ $page == %s ]]; then\n    if ((CURRENT == 3)); then\n      compadd",
                command_list[i]->name);
        for (const struct command *const *part = command_list[i]->parts; *part; part++)
            fprintf(out, " %s", (*part)->name);
        fputs("\n      return\n    fi\n    page+=\" $words[3]\"\n    shift words\n    ((CURRENT--))\n  fi\n", out);
    }
    fputs("  shift words\n  ((CURRENT--))\n  case $page in\n    '')\n      true \\\n", out);
    while (flag_line_next(&tables, &line)) zsh_line(&line, out);
    fputs("        && return\n      ;;\n  esac\n}\n_quire \"$@\"\n", out);
}

/* ---- fish ---- */

/* The condition "the command is PAGE": "chat", or "bench latency". */
static void fish_flag(const char *page, const char *negation, const struct flag_line *line, FILE *out)
{
    fprintf(out, "complete -c quire -n '__fish_quire_page \"%s\"' -l %s%s", page, negation, line->name);
    if (*line->letters && !*negation) fprintf(out, " -%c %s", line->letters[1] ? 'o' : 's', line->letters);
    if (*line->value) fputs(has_choices(line->value) ? " -x" : " -r", out);
    if (*line->value && is_file(line->value)) fputs(" -F", out);
    if (has_choices(line->value)) {
        fputs(" -a '", out);
        print_choices(line->value, " ", out);
        fputc('\'', out);
    }
    fputs(" -d '", out);
    print_help(line->help, out);
    fputs("'\n", out);
}

static void fish(char *tables, FILE *out)
{
    struct flag_line line;
    const char *page = "";
    fputs("# fish completion for quire\nfunction __fish_quire_page\n"
          "    set -l words (commandline -opc)\n    set -l asked (string split ' ' -- $argv[1])\n"
          "    for i in (seq (count $asked))\n        set -l at (math $i + 1)\n"
          "        test \"$words[$at]\" = \"$asked[$i]\"; or return 1\n    end\nend\n"
          "complete -c quire -f\n",
          out);
    for (int i = 0; i < COMMAND_COUNT; i++) {
        fprintf(out, "complete -c quire -n __fish_use_subcommand -a %s -d '%s'\n", command_list[i]->name,
                command_list[i]->summary);
        for (const struct command *const *part = command_list[i]->parts; part && *part; part++)
            fprintf(out,
                    "complete -c quire -n '__fish_quire_page %s; and test (count (commandline -opc)) -eq 2' -a %s\n",
                    command_list[i]->name, (*part)->name);
    }
    while (flag_line_next(&tables, &line)) {
        if (strcmp(line.kind, "page") == 0) page = line.name;
        if (strcmp(line.kind, "flag") != 0) continue;
        fish_flag(page, "", &line, out);
        if (*line.negation) fish_flag(page, "no-", &line, out);
    }
}

bool completions_print(const char *shell, FILE *out)
{
    static const struct {
        const char *name;
        void (*print)(char *tables, FILE *out);
    } shells[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};
    struct text tables = {0};
    bool done = false;
    for (size_t i = 0; i < sizeof shells / sizeof shells[0]; i++) {
        if (strcmp(shells[i].name, shell) != 0 || !command_append_flags(&tables)) continue;
        shells[i].print(tables.data, out);
        done = true;
    }
    text_free(&tables);
    return done;
}
