#include "runtime/commands.h"

#include <string.h>

#include "runtime/options/flag_lines.h"

/* Text for troff: '-' is a minus that can be copied, and no line begins with a request. */
static void append_escaped(struct text *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '\\')
            text_append_string(out, "\\e");
        else if (*text == '-')
            text_append_string(out, "\\-");
        else if (*text == '\'')
            text_append_string(out, "\\(aq");
        else
            text_append(out, text, 1);
    }
}

static void append_flag(struct text *out, const struct flag_line *flag)
{
    text_append_string(out, ".TP\n\\fB");
    if (*flag->letters) text_printf(out, "\\-%s\\fR, \\fB", flag->letters);
    text_append_string(out, "\\-\\-");
    append_escaped(out, flag->name);
    text_append_string(out, "\\fR");
    if (*flag->negation) {
        text_append_string(out, ", \\fB\\-\\-no\\-");
        append_escaped(out, flag->name);
        text_append_string(out, "\\fR");
    }
    if (*flag->value) {
        text_append_string(out, " \\fI");
        append_escaped(out, flag->value);
        text_append_string(out, "\\fR");
    }
    text_append_string(out, "\n\\&");
    append_escaped(out, flag->help);
    text_append_string(out, "\n");
}

/* The groups of flags that have been written, and the one that is being read. */
struct page {
    struct text done, group;
    char heading[64];
};

/* Writes the group. One that another command has word for word is written once. */
static void end_group(struct page *page)
{
    const char *same = page->group.length > 0 && page->done.data ? strstr(page->done.data, page->group.data) : NULL;
    if (page->group.length == 0) return;
    text_append_string(&page->done, ".PP\n.B ");
    append_escaped(&page->done, *page->heading ? page->heading : "Flags:");
    text_append_string(&page->done, "\n");
    if (same)
        text_append_string(&page->done, "as in the group of that name above.\n");
    else
        text_append(&page->done, page->group.data, page->group.length);
    text_clear(&page->group);
    page->heading[0] = '\0';
}

static void add_line(struct page *page, const struct flag_line *line)
{
    if (strcmp(line->kind, "flag") == 0) {
        append_flag(&page->group, line);
        return;
    }
    end_group(page);
    if (strcmp(line->kind, "heading") == 0) {
        snprintf(page->heading, sizeof page->heading, "%s", line->name);
    } else if (strcmp(line->kind, "usage") == 0) {
        text_append_string(&page->done, ".SS quire ");
        append_escaped(&page->done, line->name);
        text_append_string(&page->done, "\n");
    } else if (strcmp(line->kind, "summary") == 0) {
        text_append_string(&page->done, "\\&");
        append_escaped(&page->done, line->name);
        text_append_string(&page->done, "\n");
    }
}

static void print_head(FILE *out)
{
    fputs(".TH QUIRE 1 \"\" \"quire " QUIRE_VERSION "\" \"User Commands\"\n"
          ".SH NAME\nquire \\- an LLM runtime with a paged KV cache\n"
          ".SH SYNOPSIS\n.B quire\n.I COMMAND\n.RI [ flags ]\n.br\n.B quire \\-\\-help\n.br\n.B quire \\-\\-version\n"
          ".SH DESCRIPTION\nquire loads a checkpoint as its authors published it (config.json, safetensors and a "
          "tokenizer) and answers\nprompts with it, on the CPU or on an NVIDIA GPU. It downloads nothing.\n",
          out);
    for (int i = 0; i < COMMAND_COUNT; i++)
        fprintf(out, ".TP\n.B %s\n%s\n", command_list[i]->name, command_list[i]->summary);
    fputs(".SH COMMANDS\n", out);
}

static void print_tail(FILE *out)
{
    fputs(".SH CONFIGURATION\nA flag's value comes from the first of these that has one: the flag, the environment, "
          "the file of\n\\fB\\-\\-config\\fR, the default. The file has lines \\fIname: value\\fR or \\fIname = "
          "value\\fR, with the flags' names\n(flat YAML: comments after #, booleans, numbers, quoted texts, and lists "
          "for flags that may be given several times), or is one JSON object. A name that is\na flag of another "
          "command is skipped, so that one file serves all; a name that no command has is refused.\n"
          ".SH ENVIRONMENT\n.TP\n.B QUIRE_NAME\nThe value of the flag \\-\\-name, in capitals and with _ for \\-: "
          "QUIRE_MODEL, QUIRE_MAX_MODEL_LEN. Flags without a value take\ntrue or false. An empty variable counts as "
          "not set; one that names no flag gets a warning.\n"
          ".TP\n.BR HF_HUB_CACHE \", \" HF_HOME\nWhere models named org/name are looked for; ~/.cache/huggingface/hub "
          "by default.\n"
          ".TP\n.B NO_COLOR\nIf set, no colours.\n"
          ".SH EXIT STATUS\n.TP\n.B 0\nDone.\n.TP\n.B 1\nFailed, or incomplete: a line of the input could not be "
          "answered.\n.TP\n.B 2\nWrong usage: a flag, a value, a word too many. Nothing was done.\n.TP\n.B 130, 143, "
          "129\nEnded by Ctrl\\-C, SIGTERM or SIGHUP (128 + the number of the signal, as the shell counts), after what "
          "was\nfinished had been written. A second Ctrl\\-C ends quire at once.\n"
          ".SH EXAMPLES\n.nf\nquire chat \\-\\-model org/name\nquire generate \\-m org/name \\-i prompts.jsonl \\-o "
          "answers.jsonl\nquire profile \\-m org/name \\-\\-max\\-model\\-len 8192\n"
          "quire bench \\-\\-compare before.json after.json\n.fi\n",
          out);
}

bool manual_print(FILE *out)
{
    struct text tables = {0};
    struct page page = {.heading = ""};
    struct flag_line line;
    bool ok = command_append_flags(&tables);
    char *at = tables.data;
    while (ok && flag_line_next(&at, &line)) add_line(&page, &line);
    end_group(&page);
    if (ok) {
        print_head(out);
        fwrite(page.done.data, 1, page.done.length, out);
        print_tail(out);
    }
    text_free(&tables);
    text_free(&page.done);
    text_free(&page.group);
    return ok;
}
