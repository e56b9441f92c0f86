/* quire chat: a conversation at the terminal, or with the lines of a pipe. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "runtime/chat/answer_view.h"
#include "runtime/commands.h"
#include "runtime/chat/conversation.h"
#include "runtime/interrupt.h"
#include "runtime/chat/line_editor.h"
#include "runtime/line_reader.h"
#include "runtime/options/engine_flags.h"
#include "runtime/options/model_folder.h"
#include "runtime/options/sampling_flags.h"
#include "runtime/options/template_flags.h"
#include "runtime/prompts.h"
#include "scheduler/sequence.h"

static const char COMMAND[] = "chat";
static const char USAGE[] = "chat [--prompt TEXT] [--system TEXT] [flags]";
static const char SUMMARY[] =
    "Talks with a chat model. At a terminal: a prompt, line editing, history, and several turns; Ctrl-C stops an "
    "answer, Ctrl-D leaves, /help lists commands. With a pipe on standard input every line is a turn, and the answers "
    "alone go to standard output.";

struct chat_options {
    struct engine_options engine;
    struct log log;
    struct sampling_flags sampling;
    struct template_flags template;
    const char *prompt, *system;
    const char *think;    /* "show", "dim" or "fold" */
    const char *hub_name; /* --model, if the model is in the Hugging Face cache; else NULL */
};

/* Counts and times of the last answer, for /stats. */
struct turn_stats {
    int32_t prompt_tokens, cached_tokens, output_tokens;
    double seconds, first_seconds; /* the whole answer, and until its first token */
};

struct chat {
    struct engine *engine;
    struct sampling_params params;
    const struct log *log;
    struct chat_setup setup;
    struct conversation conversation;
    int32_t turns;
    struct turn_stats stats;
    bool at_terminal;
    enum think_display think;
    int64_t line; /* of the pipe, from 1: where the question was read; 0: it was not read from a pipe */
    /* The current answer: */
    struct answer_view *view;
    bool no_memory;
    int write_error; /* errno of the write that failed, or 0 */
    double started;
    enum finish_reason finish_reason;
    struct error failure; /* with FINISH_ERROR */
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
    o->sampling.params.max_tokens = -1;
    choose_seed(o);
}

static void add_flags(struct option_table *table, struct chat_options *o)
{
    const struct option_spec specs[] = {
        {.heading = "Conversation:",
         .name = "prompt",
         .letter = 'p',
         .kind = OPTION_STRING,
         .target = &o->prompt,
         .argument = "TEXT",
         .help = "Answer this, and leave."},
        {.name = "system",
         .kind = OPTION_STRING,
         .target = &o->system,
         .argument = "TEXT",
         .help = "System message: what the model is told before the conversation. Default: none."},
        {.name = "think",
         .kind = OPTION_STRING,
         .target = &o->think,
         .choices = "show|dim|fold",
         .argument = "HOW",
         .help =
             "How a terminal shows the reasoning that an answer begins with, between <think> and </think>: as other "
             "text, dim, or folded into a line. Pipes and files always get it as it is. Default: dim."},
    };
    option_table_add(table, specs, (int)(sizeof specs / sizeof specs[0]));
    template_flags_add(table, &o->template, NULL);
    engine_flags_add(table, &o->engine, &o->log);
    sampling_flags_add(table, &o->sampling);
}

/* ---- one turn ---- */

static void deliver(void *user, const struct answer_piece *piece)
{
    struct chat *chat = user;
    if (!conversation_add_tokens(&chat->conversation, piece->token_ids, (size_t)piece->num_tokens) ||
        !conversation_add_text(&chat->conversation, piece->text, piece->text_length))
        chat->no_memory = true;
    if (!chat->write_error && !answer_view_add(chat->view, piece->text, piece->text_length, piece->num_tokens))
        chat->write_error = errno;
    struct turn_stats *stats = &chat->stats;
    stats->seconds = clock_seconds() - chat->started;
    if (stats->output_tokens == 0 && piece->output_tokens > 0) stats->first_seconds = stats->seconds;
    stats->prompt_tokens = piece->prompt_tokens;
    stats->cached_tokens = piece->cached_tokens;
    stats->output_tokens = piece->output_tokens;
    if (piece->finish_reason == FINISH_NONE) return;
    chat->finish_reason = piece->finish_reason;
    if (piece->error) chat->failure = *piece->error;
}

/* Steps until the answer is complete; Ctrl-C, a failed write or a lack of memory aborts it. */
static enum status run_answer(struct chat *chat, uint64_t request, struct error *err)
{
    bool aborted = false, worked = true;
    enum status status = STATUS_OK;
    while (status == STATUS_OK && engine_has_work(chat->engine)) {
        if (!aborted && (interrupt_pending() || chat->write_error || chat->no_memory)) {
            engine_abort(chat->engine, request);
            aborted = true;
        }
        if (chat->stats.output_tokens == 0)
            answer_view_reading(chat->view, engine_num_computed(chat->engine, request),
                                (int32_t)chat->conversation.ids.count);
        status = engine_step(chat->engine, &worked, err);
    }
    return status;
}

static enum status check_length(const struct chat *chat, struct error *err)
{
    size_t length = chat->conversation.ids.count, limit = (size_t)engine_limits(chat->engine)->max_model_len;
    if (length < limit) return STATUS_OK;
    return error_set(err, STATUS_INVALID,
                     "this would make the conversation %zu tokens long, and --max-model-len leaves room for %zu; %s",
                     length, limit - 1,
                     chat->at_terminal ? "/clear begins a new one" : "ask less, or begin a new conversation");
}

/* Some chat templates open the reasoning themselves: the prompt's last tokens say so. */
static const char *open_reasoning(const struct chat *chat, const struct token_list *prompt)
{
    enum { LAST_TOKENS = 16 };
    const size_t count = prompt->count < LAST_TOKENS ? prompt->count : LAST_TOKENS;
    struct text end = {0};
    struct error ignored;
    const char *closing = NULL;
    if (tokenizer_decode(engine_tokenizer(chat->engine), prompt->ids + prompt->count - count, count, true, &end,
                         &ignored) == STATUS_OK)
        closing = answer_view_open_reasoning(end.data, end.length);
    text_free(&end);
    return closing;
}

static struct answer_view *begin_view(const struct chat *chat, const struct token_list *prompt)
{
    struct answer_view_options options = answer_view_options_for(stdout, chat->think);
    options.reasoning_end = open_reasoning(chat, prompt);
    return answer_view_begin(stdout, &options);
}

static enum status start_answer(struct chat *chat, uint64_t *request, struct error *err)
{
    enum status status = check_length(chat, err);
    if (status != STATUS_OK) return status;
    chat->finish_reason = FINISH_NONE;
    chat->failure.text[0] = '\0';
    chat->stats = (struct turn_stats){0};
    chat->started = clock_seconds();
    interrupt_clear();
    const struct token_list *ids = &chat->conversation.ids;
    const struct engine_request added = {.prompt = ids->ids,
                                         .prompt_len = (int32_t)ids->count,
                                         .params = &chat->params,
                                         .at_start = true,
                                         .deliver = deliver,
                                         .user = chat};
    chat->view = begin_view(chat, ids);
    if (!chat->view) return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for an answer");
    status = engine_add(chat->engine, &added, request, err);
    if (status != STATUS_OK) answer_view_end(chat->view, true);
    return status;
}

/* Says on stderr which limit cut the answer: a reader of the pipe cannot tell a cut answer from a complete one. */
static void print_cut(const struct chat *chat)
{
    const int32_t limit = engine_limits(chat->engine)->max_model_len, output = chat->stats.output_tokens;
    const bool context = chat->stats.prompt_tokens + output >= limit;
    char place[32] = "";
    if (chat->line) snprintf(place, sizeof place, "line %lld: ", (long long)chat->line);
    if (chat->at_terminal && context)
        fprintf(stderr, "(the conversation has reached --max-model-len, %d tokens; /clear begins a new one)\n", limit);
    else if (chat->at_terminal)
        fputs("(cut at --max-tokens)\n", stderr);
    else if (context)
        fprintf(stderr, "quire chat: %sthe answer is cut: the conversation has reached --max-model-len, %d tokens\n",
                place, limit);
    else
        fprintf(stderr, "quire chat: %sthe answer is cut at --max-tokens, %d token%s\n", place, output, plural(output));
}

/* Why the answer ended early. */
static void explain_end(struct chat *chat)
{
    if (chat->write_error) return;
    if (chat->finish_reason == FINISH_LENGTH) print_cut(chat);
    if (chat->finish_reason == FINISH_ABORT && chat->at_terminal) fputs("(stopped)\n", stderr);
}

/* Asks, and streams the answer. INVALID: this question cannot be answered, and the conversation is as before. */
static enum status take_turn(struct chat *chat, const char *text, size_t length, struct error *err)
{
    enum status status = prompt_check_text(text, length, err);
    if (status != STATUS_OK) return error_prefix(err, status, "the question");
    status = conversation_ask(&chat->conversation, text, length, err);
    if (status != STATUS_OK) return status;
    if (chat->conversation.rewritten)
        log_write(chat->log, LOG_DEBUG,
                  "the chat template, or encoding the answer's text, changed the last %zu tokens of the earlier turns: "
                  "they are computed again",
                  chat->conversation.rewritten);
    uint64_t request = 0;
    status = start_answer(chat, &request, err);
    if (status != STATUS_OK) {
        conversation_undo(&chat->conversation);
        return status;
    }
    status = run_answer(chat, request, err);
    const bool failed = status != STATUS_OK || chat->finish_reason == FINISH_ERROR;
    if (!answer_view_end(chat->view, failed) && !chat->write_error) chat->write_error = errno;
    if (status != STATUS_OK) return status;
    if (chat->no_memory) return error_set(err, STATUS_OUT_OF_MEMORY, "no memory for a longer conversation");
    if (chat->finish_reason == FINISH_ERROR) {
        conversation_undo(&chat->conversation);
        *err = chat->failure;
        return STATUS_INVALID;
    }
    if (!conversation_end(&chat->conversation))
        return error_set(err, STATUS_OUT_OF_MEMORY, "no memory for a longer conversation");
    chat->turns++;
    explain_end(chat);
    if (!chat->write_error) return STATUS_OK;
    return error_set(err, STATUS_IO, "cannot write the answer: %s", strerror(chat->write_error));
}

/* ---- at the terminal ---- */

static void print_banner(const struct chat *chat, const struct chat_options *o)
{
    const char *name = o->hub_name ? o->hub_name : o->engine.model, *end = name + strlen(name);
    while (end > name + 1 && end[-1] == '/') end--;
    if (!o->hub_name)
        for (const char *c = name; c < end - 1; c++)
            if (*c == '/') name = c + 1;
    const char *gpu = engine_device_description(chat->engine);
    fprintf(stderr, "quire %s: %.*s on %s%s%s%s, %d tokens of context, ready in %.2f s\n", QUIRE_VERSION,
            (int)(end - name), name, engine_device(chat->engine), gpu ? " (" : "", gpu ? gpu : "", gpu ? ")" : "",
            engine_limits(chat->engine)->max_model_len, engine_start_seconds(chat->engine));
    fputs("Ctrl-C stops an answer, Ctrl-D leaves, /help lists commands.\n", stderr);
}

static void print_help(void)
{
    fputs("/help   this list\n"
          "/clear  begin a new conversation\n"
          "/stats  tokens, speed, and what came from the cache\n"
          "/quit   leave (as does Ctrl-D)\n",
          stderr);
}

static void print_stats(const struct chat *chat)
{
    const struct turn_stats *s = &chat->stats;
    if (chat->turns > 0) {
        double rest = s->seconds - s->first_seconds;
        fprintf(stderr, "last answer: %d token%s, the first after %.3f s", s->output_tokens, plural(s->output_tokens),
                s->first_seconds);
        if (s->output_tokens > 1 && rest > 0) fprintf(stderr, ", then %.1f tokens/s", (s->output_tokens - 1) / rest);
        fprintf(stderr, "\nits prompt: %d token%s, %d of them from the cache\n", s->prompt_tokens,
                plural(s->prompt_tokens), s->cached_tokens);
    }
    fprintf(stderr, "conversation: %d turn%s, %zu of %d tokens\n", chat->turns, plural(chat->turns),
            chat->conversation.ids.count, engine_limits(chat->engine)->max_model_len);
}

static bool is_word(const char *text, size_t length, const char *word)
{
    return length == strlen(word) && memcmp(text, word, length) == 0;
}

/* Runs a line that begins with a slash: its first word is the command, the others are ignored. False: leave. */
static bool do_command(struct chat *chat, const char *line, size_t length)
{
    size_t word = 0;
    while (word < length && line[word] != ' ' && line[word] != '\t') word++;
    if (is_word(line, word, "/quit") || is_word(line, word, "/exit")) return false;
    if (is_word(line, word, "/help")) {
        print_help();
    } else if (is_word(line, word, "/clear")) {
        if (!conversation_clear(&chat->conversation)) chat->no_memory = true;
        chat->turns = 0;
        fputs("(a new conversation)\n", stderr);
    } else if (is_word(line, word, "/stats")) {
        print_stats(chat);
    } else {
        fprintf(stderr,
                "there is no command %.*s; /help lists them (to say it to the model, begin the line with a space)\n",
                (int)word, line);
    }
    return true;
}

/* Prints the error, with the line of the pipe that it is about. */
static int fail_line(const struct chat *chat, struct error *err)
{
    char place[32];
    snprintf(place, sizeof place, "line %lld", (long long)chat->line);
    if (chat->line) error_prefix(err, STATUS_INVALID, place);
    return command_fail(COMMAND, err, EXIT_STATUS_FAILURE);
}

/* *go_on is false after a failure that ends the command. A question that cannot be answered does not end it. */
static int answer_line(struct chat *chat, const char *line, size_t length, bool *go_on)
{
    struct error err = {""};
    enum status status = take_turn(chat, line, length, &err);
    *go_on = status == STATUS_OK || status == STATUS_INVALID;
    if (status == STATUS_OK) return EXIT_STATUS_OK;
    if (chat->write_error == EPIPE) return EXIT_STATUS_FAILURE; /* no message: whoever closed the pipe knows */
    return status == STATUS_INVALID ? fail_line(chat, &err) : command_fail(COMMAND, &err, EXIT_STATUS_FAILURE);
}

static int chat_at_terminal(struct chat *chat, const struct chat_options *o)
{
    chat->at_terminal = true;
    const struct line_editor_options options = {
        .prompt = "> ", .interrupt_hint = "(Ctrl-D leaves)", .history = "history"};
    struct line_editor *editor = line_editor_open(&options);
    if (!editor) {
        struct error err;
        error_set(&err, STATUS_IO, "the terminal cannot be used for editing lines; give lines through a pipe");
        return command_fail(COMMAND, &err, EXIT_STATUS_FAILURE);
    }
    print_banner(chat, o);
    interrupt_catch();
    int exit_status = EXIT_STATUS_OK;
    bool go_on = true;
    while (go_on) {
        size_t length;
        interrupt_clear();
        const char *line = line_editor_read(editor, &length);
        if (!line && interrupt_pending()) continue; /* SIGINT from elsewhere: as Ctrl-C at the prompt */
        if (!line) {
            fputc('\n', stderr);
            break;
        }
        if (prompt_line_is_blank(line, length)) continue;
        if (line[0] == '/') {
            go_on = do_command(chat, line, length);
            continue;
        }
        int turn_status = answer_line(chat, line, length, &go_on);
        if (!go_on) exit_status = turn_status;
    }
    line_editor_close(editor);
    return exit_status;
}

/* ---- on a pipe ---- */

static int chat_on_pipe(struct chat *chat)
{
    struct line_reader reader;
    line_reader_init(&reader, STDIN_FILENO);
    int exit_status = EXIT_STATUS_OK;
    bool go_on = true;
    while (go_on) {
        const char *line;
        size_t length;
        struct error err = {""};
        enum line_result kind = line_reader_next(&reader, true, &line, &length, &err);
        if (kind == LINE_END) break;
        if (kind == LINE_NOT_YET || (kind == LINE_READY && prompt_line_is_blank(line, length))) continue;
        chat->line = kind == LINE_FAILED ? 0 : reader.line;
        if (kind == LINE_TOO_LONG)
            error_set(&err, STATUS_INVALID, "the question is longer than %u bytes", LINE_READER_MAX_LINE);
        if (kind == LINE_FAILED) error_prefix(&err, STATUS_IO, "standard input");
        int turn_status = kind == LINE_READY ? answer_line(chat, line, length, &go_on) : fail_line(chat, &err);
        if (kind == LINE_FAILED) go_on = false;
        if (turn_status != EXIT_STATUS_OK) exit_status = turn_status;
    }
    line_reader_free(&reader);
    return exit_status;
}

/* ---- start and end ---- */

static enum status start(struct chat *chat, struct chat_options *o, struct error *err)
{
    enum status status = engine_create(&o->engine, &chat->engine, err);
    if (status != STATUS_OK) return status;
    const struct tokenizer *tokenizer = engine_tokenizer(chat->engine);
    chat->log = o->engine.log;
    chat->think = o->think[0] == 's' ? THINK_SHOW : o->think[0] == 'd' ? THINK_DIM : THINK_FOLD;
    status = chat_setup_open(tokenizer, &o->template, &chat->setup, err);
    if (status != STATUS_OK) return status;
    struct error reason;
    status = chat_setup_check(&chat->setup, &reason);
    if (status != STATUS_OK)
        return error_set(err, status, "%s: %s (quire generate takes plain prompts; --chat-template names a template)",
                         o->engine.model, reason.text);
    if (!conversation_init(&chat->conversation, tokenizer, &chat->setup, o->system))
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for a conversation");
    engine_default_sampling(chat->engine, &chat->params);
    chat->params.max_tokens = -1;
    status = sampling_flags_apply(&o->sampling, &chat->params, err);
    return status ? status : sampling_params_check(&chat->params, engine_num_ids(chat->engine), err);
}

static int run(struct chat_options *o)
{
    struct chat chat = {0};
    struct error err = {""};
    int exit_status;
    bool go_on;
    if (start(&chat, o, &err) != STATUS_OK)
        exit_status = command_fail(COMMAND, &err, EXIT_STATUS_FAILURE);
    else if (o->prompt)
        exit_status = answer_line(&chat, o->prompt, strlen(o->prompt), &go_on);
    else if (isatty(STDIN_FILENO) && (isatty(STDERR_FILENO) || isatty(STDOUT_FILENO)))
        exit_status = chat_at_terminal(&chat, o);
    else
        exit_status = chat_on_pipe(&chat);
    conversation_free(&chat.conversation);
    chat_setup_close(&chat.setup);
    sampling_params_free(&chat.params);
    engine_leave(chat.engine);
    return exit_status;
}

static int parse_and_chat(struct chat_options *o, int argc, char **argv)
{
    struct option_table table = {.count = 0};
    struct error err;
    char model[4096];
    bool help;
    add_flags(&table, o);
    enum status status = options_parse(&table, argc, argv, &help, &err);
    if (status == STATUS_OK && help) {
        options_print_help(&table, USAGE, SUMMARY, stdout);
        return EXIT_STATUS_OK;
    }
    if (status == STATUS_OK) status = sampling_flags_check(&o->sampling, &err);
    if (status == STATUS_OK) status = template_flags_check(&o->template, &err);
    if (status == STATUS_OK && o->prompt && prompt_line_is_blank(o->prompt, strlen(o->prompt))) {
        status = error_set(&err, STATUS_INVALID, "--prompt is empty; give it a text to answer");
    }
    if (status == STATUS_OK && o->system) {
        status = prompt_check_text(o->system, strlen(o->system), &err);
        if (status != STATUS_OK) error_prefix(&err, status, "--system");
    }
    if (status != STATUS_OK) return command_fail(COMMAND, &err, EXIT_STATUS_USAGE);
    const char *given = o->engine.model;
    if (model_folder_of_engine(&o->engine, model, sizeof model, &err) != STATUS_OK) {
        return command_fail(COMMAND, &err, EXIT_STATUS_FAILURE);
    }
    o->hub_name = given != o->engine.model ? given : NULL;
    return run(o);
}

int command_chat(int argc, char **argv)
{
    struct chat_options o;
    set_defaults(&o);
    const int exit_status = parse_and_chat(&o, argc, argv);
    sampling_flags_free(&o.sampling);
    return exit_status;
}
