/* quire chat: a conversation at the terminal, or with the lines of a pipe; or one answer. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/notice.h"
#include "runtime/chat/chat_commands.h"
#include "runtime/chat/line_editor.h"
#include "runtime/chat/question.h"
#include "runtime/chat/session.h"
#include "runtime/options/command.h"
#include "runtime/input.h"
#include "runtime/interrupt.h"
#include "runtime/line_reader.h"
#include "runtime/options/engine_flags.h"
#include "runtime/node.h"
#include "runtime/options/model_folder.h"
#include "runtime/options/sampling_flags.h"
#include "runtime/options/structured_flags.h"
#include "runtime/options/template_flags.h"
#include "runtime/prompts/prompt.h"

static const char COMMAND[] = "chat";
static const char SUMMARY[] =
    "Talks with a chat model. At a terminal: several turns; Ctrl-C stops an answer, Ctrl-D leaves, /help lists "
    "commands. With a QUESTION: answers it, and leaves; what is piped in goes below the question. Without one, every "
    "line that is piped in is a turn. Only answers go to standard output.";

struct chat_options {
    struct engine_options engine;
    struct log log;
    struct sampling_flags sampling;
    struct chat_setup_options template;
    struct structured_flags structured;
    const char *prompt, *word, *system;
    const char *think; /* "show", "dim" or "fold" */
    bool each, stats, context_shift, fail_on_length;
    const char *hub_name; /* --model, if the model is in the Hugging Face cache; else NULL */
};

/* The texts that the flags name. */
struct texts {
    struct text question, system;
    bool has_question;
};

/* ---- flags ---- */

/* A random seed, which --seed replaces, so that the same question gets different answers. */
static void choose_seed(struct chat_options *o)
{
    if (getrandom(&o->engine.seed, sizeof o->engine.seed, GRND_NONBLOCK) == (ssize_t)sizeof o->engine.seed) return;
    o->engine.seed = (uint64_t)(clock_seconds() * 1e9);
}

static void set_defaults(struct chat_options *o)
{
    *o = (struct chat_options){.engine = engine_options_default(),
                               .log = {LOG_WARNING},
                               .sampling.params = sampling_params_default(),
                               .think = "dim"};
    o->engine.log = &o->log;
    o->engine.max_num_seqs = 1;
    o->engine.cancel = interrupt_flag();
    o->sampling.params.max_tokens = -1;
    choose_seed(o);
}

static void add_flags(const struct command *c, struct option_table *table, void *options)
{
    (void)c;
    struct chat_options *o = options;
    set_defaults(o);
    const struct option_spec specs[] = {
        {"prompt", OPTION_STRING, &o->prompt, "TEXT|@FILE|-",
         .help = "Answer this, and leave, as with QUESTION: a text, what a file holds, or standard input. @@ begins a "
                 "text that begins with @.",
         .heading = "Conversation:", .letter = 'p', .common = true},
        {"system", OPTION_STRING, &o->system, "TEXT|@FILE|-",
         .help = "System message: what the model is told before the conversation. Default: none.", .common = true},
        {"each", OPTION_SWITCH, &o->each,
         .help = "Every line that is piped in is a conversation of its own; a question stands above each. Default: the "
                 "lines are one conversation."},
        {"context-shift", OPTION_SWITCH, &o->context_shift,
         .help = "When less than a quarter of --max-model-len is left for an answer, drop the oldest turns, until half "
                 "of it is free. The system message stays. Default: ask at a terminal, refuse the question elsewhere, "
                 "and only when it does not fit."},
        {"fail-on-length", OPTION_SWITCH, &o->fail_on_length,
         .help = "Exit with status 1 if an answer was cut by --max-tokens or --max-model-len."},
        {"think", OPTION_CHOICE, &o->think, "show|dim|fold",
         .help = "How a terminal shows the reasoning that an answer begins with, between <think> and </think>: as "
                 "other text, dim, or folded into a line. Pipes and files always get it as it is. Default: dim."},
        {"stats", OPTION_SWITCH, &o->stats,
         .help = "After each answer, a line on standard error: tokens, time to the first one, speed and blocks."},
    };
    table->word = &o->word;
    option_table_add(table, specs, (int)(sizeof specs / sizeof specs[0]));
    template_flags_add(table, &o->template, NULL);
    structured_flags_add(table, &o->structured, NULL);
    engine_flags_add(table, &o->engine, &o->log);
    sampling_flags_add(table, &o->sampling);
}

/* The last part of a folder's path, or all of a name in the Hugging Face cache. The caller frees it. */
static char *model_name(const struct chat_options *o)
{
    const char *name = o->hub_name ? o->hub_name : o->engine.model, *end = name + strlen(name);
    while (end > name + 1 && end[-1] == '/') end--;
    if (!o->hub_name)
        for (const char *c = name; c < end - 1; c++)
            if (*c == '/') name = c + 1;
    return strndup(name, (size_t)(end - name));
}

/* ---- at the terminal ---- */

static void print_banner(const struct session *s)
{
    const struct engine_info *info = engine_info(s->engine);
    const char *gpu = info->device_description;
    notice_printf(stderr, "quire %s: %s on %s%s%s%s, %d tokens of context, ready in %.2f s\n", QUIRE_VERSION,
                  s->model_name, info->device, gpu ? " (" : "", gpu ? gpu : "", gpu ? ")" : "",
                  info->limits->max_model_len, info->start_seconds);
    notice_printf(stderr, "Ctrl-C stops an answer, Ctrl-D leaves, /help lists commands.\n");
}

/* A line that begins with one slash is a command; with two, a question that begins with one. */
static void take_line(struct session *s, const char *line, size_t length)
{
    const bool slash = line[0] == '/', two = length > 1 && line[0] == '/' && line[1] == '/';
    if (slash && !two)
        chat_commands_run(s, line, length);
    else
        session_ask(s, line + two, length - two);
}

/* Ctrl-C at the prompt leaves if one has stopped an answer within the second before. */
static bool leaves(void *user)
{
    struct session *s = user;
    const bool again = s->stopped > 0 && clock_seconds() - s->stopped < 1;
    if (again) interrupt_end(SIGINT);
    return again;
}

static void chat_at_terminal(struct session *s)
{
    const struct line_editor_options options = {.prompt = "> ",
                                                .interrupt_hint = "(Ctrl-D leaves)",
                                                .history = "history",
                                                .complete = chat_commands_complete,
                                                .leave = leaves,
                                                .user = s};
    s->editor = line_editor_open(&options);
    if (!s->editor) {
        struct error err;
        error_set(&err, STATUS_IO, "the terminal cannot be used for editing lines; give lines through a pipe");
        s->exit_status = command_fail(COMMAND, &err, EXIT_STATUS_FAILURE);
        return;
    }
    s->at_terminal = true;
    print_banner(s);
    while (!s->ended && !interrupt_ends()) {
        size_t length;
        interrupt_catch();
        const char *line = line_editor_read(s->editor, &length);
        if (!line && interrupt_pending() && !interrupt_ends()) continue; /* SIGINT from elsewhere: as at the prompt */
        if (!line) {
            fputc('\n', stderr);
            break;
        }
        if (!prompt_line_is_blank(line, length)) take_line(s, line, length);
    }
    line_editor_close(s->editor);
}

/* ---- on a pipe ---- */

/* Asks a line of the pipe; with --each as a conversation of its own, below the question if there is one. */
static void ask_line(struct session *s, const struct text *question, const char *line, size_t length)
{
    struct text whole = {0};
    if (s->single_turns) conversation_clear(session_conversation(s));
    if (question->length == 0) {
        session_ask(s, line, length);
    } else if (text_append(&whole, question->data, question->length) && question_add(&whole, line, length)) {
        session_ask(s, whole.data, whole.length);
    } else {
        struct error err;
        session_fail(s, error_set(&err, STATUS_OUT_OF_MEMORY, "out of memory for the question"), &err);
    }
    text_free(&whole);
}

static void chat_on_pipe(struct session *s, const struct text *question)
{
    struct line_reader reader;
    line_reader_init(&reader, STDIN_FILENO);
    while (!s->ended && !interrupt_ends()) {
        const char *line;
        size_t length;
        struct error err = {""};
        enum line_result kind = line_reader_next(&reader, true, &line, &length, &err);
        if (kind == LINE_END) break;
        if (kind == LINE_NOT_YET || (kind == LINE_READY && prompt_line_is_blank(line, length))) continue;
        s->line = kind == LINE_FAILED ? 0 : reader.line;
        if (kind == LINE_READY) ask_line(s, question, line, length);
        if (kind == LINE_TOO_LONG) {
            error_set(&err, STATUS_INVALID, "the question is longer than %u bytes", LINE_READER_MAX_LINE);
            session_fail(s, STATUS_INVALID, &err);
        }
        if (kind == LINE_FAILED) session_fail(s, error_prefix(&err, STATUS_IO, "standard input"), &err);
    }
    line_reader_free(&reader);
}

/* ---- start and end ---- */

static enum status open_conversation(struct session *s, const struct texts *texts, struct error *err)
{
    struct conversation conversation;
    const char *system = texts->system.length ? texts->system.data : NULL;
    if (conversation_init(&conversation, engine_info(s->engine)->tokenizer, &s->setup, system) &&
        branches_init(&s->branches, "main", &conversation))
        return STATUS_OK;
    conversation_free(&conversation);
    return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for a conversation");
}

static enum status open_sampling(struct session *s, const struct chat_options *o, struct error *err)
{
    s->usual = engine_info(s->engine)->default_sampling;
    if (engine_info(s->engine)->config->generation.max_new_tokens < 0) s->usual.max_tokens = -1;
    if (!sampling_params_copy(&s->usual, &s->params))
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the sampling fields");
    const enum status status = sampling_flags_apply(&o->sampling, &s->params, err);
    return status ? status : sampling_params_check(&s->params, engine_info(s->engine)->num_ids, err);
}

static enum status start(struct session *s, struct chat_options *o, const struct texts *texts, struct error *err)
{
    enum status status = engine_create(&o->engine, &s->engine, err);
    if (status != STATUS_OK) return status;
    s->log = o->engine.log;
    status = chat_setup_open(engine_info(s->engine)->tokenizer, &o->template, &s->setup, err);
    if (status != STATUS_OK) return status;
    struct error reason;
    status = chat_setup_check(&s->setup, &reason);
    if (status != STATUS_OK)
        return error_set(err, status, "%s: %s (quire generate takes plain prompts; --chat-template names a template)",
                         o->engine.model, reason.text);
    status = structured_fields_constraint(&o->structured.fields, engine_info(s->engine)->grammars, &s->constraint, err);
    if (status == STATUS_OK) status = open_conversation(s, texts, err);
    return status == STATUS_OK ? open_sampling(s, o, err) : status;
}

static void talk(struct session *s, const struct chat_options *o, const struct texts *texts)
{
    const bool terminal = isatty(STDIN_FILENO) && (isatty(STDERR_FILENO) || isatty(STDOUT_FILENO));
    if (o->each || texts->has_question || !terminal) interrupt_catch_to_end();
    if (!o->each && texts->has_question)
        session_ask(s, texts->question.data, texts->question.length);
    else if (!o->each && terminal)
        chat_at_terminal(s);
    else
        chat_on_pipe(s, &texts->question);
}

static int run(struct chat_options *o, const struct texts *texts)
{
    struct session s = {.show_stats = o->stats,
                        .context_shift = o->context_shift,
                        .single_turns = o->each || texts->has_question,
                        .think = o->think[0] == 's'   ? THINK_SHOW
                                 : o->think[0] == 'd' ? THINK_DIM
                                                      : THINK_FOLD,
                        .model_name = model_name(o)};
    struct error err = {""};
    if (!s.model_name)
        s.exit_status = EXIT_STATUS_FAILURE;
    else if (start(&s, o, texts, &err) != STATUS_OK)
        s.exit_status = command_fail(COMMAND, &err, EXIT_STATUS_FAILURE);
    else
        talk(&s, o, texts);
    if (o->fail_on_length && s.any_cut && s.exit_status == EXIT_STATUS_OK) s.exit_status = EXIT_STATUS_FAILURE;
    branches_free(&s.branches);
    chat_setup_close(&s.setup);
    sampling_params_free(&s.params);
    sampling_params_free(&s.usual);
    constraint_free(s.constraint);
    engine_leave(s.engine);
    free(s.model_name);
    free(s.file);
    return s.exit_status;
}

/* ---- the command line ---- */

static bool is_standard(const char *argument)
{
    return argument && strcmp(argument, "-") == 0;
}

/* A text is standard input, so that nothing else is read from it. */
static bool takes_input(const struct chat_options *o)
{
    return is_standard(o->system) || is_standard(o->prompt) || is_standard(o->word);
}

/* Standard input can be one thing. */
static enum status check_input(const struct chat_options *o, struct error *err)
{
    const bool question = is_standard(o->prompt) || is_standard(o->word);
    if (o->each && takes_input(o))
        return error_set(err, STATUS_INVALID, "--each answers the lines of standard input, so no text can be -");
    if (is_standard(o->system) && question)
        return error_set(err, STATUS_INVALID, "--system and the question cannot both be -, standard input");
    if (is_standard(o->system) && !o->prompt && !o->word && !isatty(STDIN_FILENO))
        return error_set(err, STATUS_INVALID, "--system - takes standard input: give the question as an argument");
    return STATUS_OK;
}

/* What is wrong whatever the files hold. */
static enum status check_flags(const struct chat_options *o, struct error *err)
{
    enum status one = engine_flags_check_one(&o->engine, "one conversation runs on one engine", err);
    if (one != STATUS_OK) return one;
    const char *question = o->prompt ? o->prompt : o->word;
    if (o->prompt && o->word)
        return error_set(err, STATUS_INVALID, "the question is given twice: '%s', and --prompt", o->word);
    if (question && prompt_line_is_blank(question, strlen(question)))
        return error_set(err, STATUS_INVALID, "%s is empty; give it a text to answer",
                         o->prompt ? "--prompt" : "the question");
    if (o->each && isatty(STDIN_FILENO))
        return error_set(err, STATUS_INVALID, "--each answers the lines of a pipe or file: quire chat --each <FILE");
    enum status status = check_input(o, err);
    if (status == STATUS_OK) status = sampling_flags_check(&o->sampling, err);
    return status == STATUS_OK ? template_flags_check(&o->template, err) : status;
}

static enum status read_argument(const char *argument, const char *name, struct text *out, struct error *err)
{
    if (is_standard(argument)) input_note_terminal(COMMAND, name);
    const enum status status = input_read_message(argument, out, err);
    return status == STATUS_OK ? status : error_prefix(err, status, name);
}

/* Reads the texts that the flags name, and for a question standard input. */
static enum status read_texts(struct chat_options *o, struct texts *texts, struct error *err)
{
    const char *question = o->prompt ? o->prompt : o->word;
    enum status status = structured_flags_read(&o->structured, err);
    if (status == STATUS_OK) status = template_flags_read(&o->template, err);
    if (status == STATUS_OK && o->system) status = read_argument(o->system, "--system", &texts->system, err);
    if (status == STATUS_OK && o->prompt) status = read_argument(o->prompt, "--prompt", &texts->question, err);
    if (status == STATUS_OK && o->word) status = read_argument(o->word, "the question", &texts->question, err);
    texts->has_question = o->prompt || o->word;
    if (status != STATUS_OK || !texts->has_question) return status;
    if (!o->each && !takes_input(o) && !isatty(STDIN_FILENO)) status = question_add_input(&texts->question, err);
    if (status == STATUS_OK && prompt_line_is_blank(texts->question.data, texts->question.length))
        return error_set(err, STATUS_INVALID, "%s is empty", is_standard(question) ? "standard input" : question);
    return status;
}

static int find_model_and_run(struct chat_options *o, const struct texts *texts)
{
    struct error err;
    char model[4096];
    const char *given = o->engine.model;
    if (model_folder_of_engine(&o->engine, model, sizeof model, &err) != STATUS_OK ||
        node_prepare(&o->engine, &err) != STATUS_OK)
        return command_fail(COMMAND, &err, EXIT_STATUS_FAILURE);
    if (node_serves(&o->engine)) return node_run(&o->engine, COMMAND);
    o->hub_name = given != o->engine.model ? given : NULL;
    return run(o, texts);
}

static int check_and_run(void *options)
{
    struct chat_options *o = options;
    struct texts texts = {0};
    struct error err;
    if (check_flags(o, &err) != STATUS_OK) return command_fail(COMMAND, &err, EXIT_STATUS_USAGE);
    if (node_find(&o->engine, &err) != STATUS_OK) return command_fail(COMMAND, &err, EXIT_STATUS_FAILURE);
    const enum status status = node_serves(&o->engine) ? STATUS_OK : read_texts(o, &texts, &err);
    const int exit_status =
        status == STATUS_OK
            ? find_model_and_run(o, &texts)
            : command_fail(COMMAND, &err, status == STATUS_INVALID ? EXIT_STATUS_USAGE : EXIT_STATUS_FAILURE);
    text_free(&texts.question);
    text_free(&texts.system);
    return exit_status;
}

static void free_options(void *options)
{
    struct chat_options *o = options;
    sampling_flags_free(&o->sampling);
    template_flags_free(&o->template);
    structured_flags_free(&o->structured);
}

const struct command command_chat = {
    .name = COMMAND,
    .summary = "talk with a model in the terminal",
    .usage = "chat [QUESTION|@FILE|-] [flags]",
    .help = SUMMARY,
    .options_size = sizeof(struct chat_options),
    .add = add_flags,
    .run = check_and_run,
    .free = free_options,
};
