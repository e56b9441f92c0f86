/* quire template: what the chat template makes of a conversation. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/visible.h"
#include "runtime/options/command.h"
#include "runtime/input.h"
#include "runtime/options/engine_flags.h"
#include "runtime/options/model_folder.h"
#include "runtime/options/template_flags.h"

static const char COMMAND[] = "template";

struct template_options {
    const char *model, *revision, *word, *messages;
    struct chat_setup_options flags;
    bool ids, generation_prompt;
};

static void add_flags(const struct command *c, struct option_table *table, void *options)
{
    (void)c;
    struct template_options *o = options;
    o->generation_prompt = true;
    model_flags_add(table, &o->model, &o->revision, "Template:");
    const struct option_spec specs[] = {
        {"messages", OPTION_STRING, &o->messages, "FILE",
         .help = "The conversation as a file; -: standard input. Default: the word beside the flags, or -.",
         .common = true, .not_empty = true},
        {"add-generation-prompt", OPTION_SWITCH, &o->generation_prompt,
         .help = "End where the model's answer begins. Default: on.", .common = true},
        {"ids", OPTION_SWITCH, &o->ids, .help = "Print the token ids. Default: off.", .common = true},
    };
    option_table_add(table, specs, (int)(sizeof specs / sizeof specs[0]));
    table->word = &o->word;
    template_flags_add(table, &o->flags, NULL);
}

/* ---- the conversation ---- */

/* A misspelt name would be ignored silently. */
static enum status check_names(const char *shown, const json_t *conversation, struct error *err)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)conversation, name, value)
    {
        if (!chat_setup_has_field(name))
            return error_set(err, STATUS_INVALID,
                             "%s: unknown field \"%s\"; a conversation has messages, tools, documents and "
                             "chat_template_kwargs",
                             shown, show_string(name).text);
    }
    return STATUS_OK;
}

/* Parses the conversation; a list becomes {"messages": list}. */
static enum status read_conversation(const struct template_options *o, json_t **out, struct error *err)
{
    struct text source = {0};
    const char *name = o->messages ? o->messages : "-";
    const enum input_place place = o->word ? input_place(o->word, &name) : INPUT_FILE;
    const bool standard = strcmp(name, "-") == 0;
    const char *shown = standard ? "standard input" : place == INPUT_TEXT ? "the conversation" : name;
    if (standard) input_note_terminal(COMMAND, "a conversation");
    enum status status = o->word ? input_read_text(o->word, &source, err) : input_read_file(name, &source, err);
    if (status == STATUS_OK) status = json_value_parse(source.data, source.length, 0, shown, out, err);
    text_free(&source);
    if (status != STATUS_OK) return status;
    if (json_is_array(*out)) *out = json_pack("{s:o}", "messages", *out);
    return *out ? check_names(shown, *out, err) : error_set(err, STATUS_OUT_OF_MEMORY, "%s: out of memory", shown);
}

/* ---- what is printed ---- */

/* At a terminal the template's own text is dim, and the messages' is not. */
static void print_text(const struct marked_text *text)
{
    const bool coloured = isatty(STDOUT_FILENO);
    for (size_t i = 0, end; i < text->text.length; i = end) {
        const char mark = text->marks.length ? text->marks.data[i] : 0;
        for (end = i + 1; end < text->text.length && text->marks.length && text->marks.data[end] == mark;) end++;
        if (!text->marks.length) end = text->text.length;
        if (coloured) fputs(mark ? "\033[1m" : "\033[2;36m", stdout);
        visible_write(stdout, text->text.data + i, end - i);
        if (coloured) fputs("\033[0m", stdout);
    }
    if (coloured && text->text.length && text->text.data[text->text.length - 1] != '\n') putchar('\n');
}

static enum status print_ids(const struct tokenizer *t, const struct marked_text *text, struct error *err)
{
    struct token_list ids = {0};
    enum status status = tokenizer_encode_marked(t, text, &ids, err);
    for (size_t i = 0; i < ids.count; i++) printf("%s%d", i ? " " : "", ids.ids[i]);
    if (status == STATUS_OK) putchar('\n');
    token_list_free(&ids);
    return status;
}

static enum status render(const struct tokenizer *t, const struct template_options *o, const json_t *conversation,
                          struct error *err)
{
    struct chat_input input = chat_setup_input(conversation);
    input.add_generation_prompt = o->generation_prompt;
    struct chat_setup setup = {0};
    struct marked_text text = {0};
    enum status status = chat_setup_open(t, &o->flags, &setup, err);
    if (status == STATUS_OK) status = chat_setup_render(&setup, input, &text, err);
    if (status == STATUS_OK && o->ids) status = print_ids(t, &text, err);
    if (status == STATUS_OK && !o->ids) print_text(&text);
    marked_text_free(&text);
    chat_setup_close(&setup);
    return status;
}

static enum status show(struct template_options *o, struct error *err)
{
    struct tokenizer *t = NULL;
    json_t *conversation = NULL;
    char model[PATH_MAX];
    enum status status = read_conversation(o, &conversation, err);
    if (status == STATUS_OK) status = model_folder_resolve(&o->model, o->revision, false, model, sizeof model, err);
    if (status == STATUS_OK) status = tokenizer_open(o->model, &t, err);
    if (status == STATUS_OK) status = render(t, o, conversation, err);
    json_decref(conversation);
    tokenizer_close(t);
    return status;
}

static int run(void *options)
{
    struct template_options *o = options;
    struct error err;
    if (o->word && o->messages) {
        error_set(&err, STATUS_INVALID, "the conversation is given twice: '%s', and --messages", o->word);
        return command_fail(COMMAND, &err, EXIT_STATUS_USAGE);
    }
    if (template_flags_check(&o->flags, &err) != STATUS_OK) return command_fail(COMMAND, &err, EXIT_STATUS_USAGE);
    enum status status = template_flags_read(&o->flags, &err);
    if (status == STATUS_OK) status = show(o, &err);
    return status == STATUS_OK ? EXIT_STATUS_OK : command_fail(COMMAND, &err, EXIT_STATUS_FAILURE);
}

static void free_options(void *options)
{
    template_flags_free(&((struct template_options *)options)->flags);
}

const struct command command_template = {
    .name = COMMAND,
    .summary = "show what the chat template makes of a conversation",
    .usage = "template [JSON|@FILE|-] [flags]",
    .help = "Renders a conversation through the model's chat template. It is a list of messages, or an object with "
            "\"messages\" and, if need be, \"tools\", \"documents\" and \"chat_template_kwargs\". At a terminal the "
            "template's own text and that of the messages look different.",
    .options_size = sizeof(struct template_options),
    .add = add_flags,
    .run = run,
    .free = free_options,
};
