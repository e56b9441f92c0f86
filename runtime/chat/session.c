#include "runtime/chat/session.h"

#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/notice.h"
#include "runtime/drafts_report.h"
#include "runtime/options/command.h"
#include "runtime/interrupt.h"
#include "runtime/prompts/prompt.h"
#include "scheduler/sequence.h"

struct conversation *session_conversation(const struct session *s)
{
    return &branches_current(&s->branches)->conversation;
}

static int32_t max_length(const struct session *s)
{
    return engine_info(s->engine)->limits->max_model_len;
}

/* ---- what is said on stderr ---- */

void session_say(const struct session *s, const char *format, ...)
{
    struct text sentence = {0};
    va_list args;
    va_start(args, format);
    const bool ok = text_vprintf(&sentence, format, args);
    va_end(args);
    if (ok && s->at_terminal)
        notice_printf(stderr, "(%s)\n", sentence.data);
    else if (ok && s->line)
        notice_printf(stderr, "quire chat: line %lld: %s\n", (long long)s->line, sentence.data);
    else if (ok)
        notice_printf(stderr, "quire chat: %s\n", sentence.data);
    text_free(&sentence);
}

void session_fail(struct session *s, enum status status, struct error *err)
{
    char place[32];
    s->ended = status != STATUS_INVALID;
    if (s->ended || !s->at_terminal) s->exit_status = EXIT_STATUS_FAILURE;
    if (s->write_error == EPIPE) return; /* whoever closed the pipe knows */
    snprintf(place, sizeof place, "line %lld", (long long)s->line);
    if (s->line && status == STATUS_INVALID) error_prefix(err, status, place);
    if (err->text[0]) command_fail("chat", err, EXIT_STATUS_FAILURE);
}

/* Says which limit cut the answer: a reader of a pipe cannot tell a cut answer from a complete one. */
static void say_cut(struct session *s)
{
    const int32_t limit = max_length(s), output = s->stats.output_tokens;
    const bool context = s->stats.prompt_tokens + output >= limit;
    s->any_cut = true;
    if (context && !s->at_terminal)
        session_say(s, "the answer is cut: the conversation has reached --max-model-len, %d tokens", limit);
    else if (context)
        session_say(s,
                    "cut: the conversation has reached --max-model-len, %d tokens; with the next question quire offers "
                    "to drop the oldest turns",
                    limit);
    else if (s->at_terminal)
        session_say(s, "cut at --max-tokens");
    else
        session_say(s, "the answer is cut at --max-tokens, %d token%s", output, plural(output));
}

static bool is_nearly_full(const struct session *s, size_t tokens)
{
    return tokens * 10 > (size_t)max_length(s) * 9;
}

/* Warns once that there is little room left. */
static void say_nearly_full(struct session *s)
{
    struct branch *branch = branches_current(&s->branches);
    const size_t tokens = branch->conversation.ids.count, limit = (size_t)max_length(s);
    if (branch->warned || s->single_turns || s->context_shift || !is_nearly_full(s, tokens)) return;
    branch->warned = true;
    if (tokens < limit)
        session_say(s, "the conversation has %zu of %zu tokens; %s", tokens, limit,
                    s->at_terminal ? "when it is full, quire asks whether to drop the oldest turns"
                                   : "--context-shift drops the oldest turns when it is full");
}

/* A line of facts about the last answer. */
static void print_stats_line(const struct session *s)
{
    const struct turn_stats *t = &s->stats;
    char speed[64] = "";
    const double rest = t->seconds - t->first_seconds;
    if (t->output_tokens > 1 && rest > 0) snprintf(speed, sizeof speed, ", %.1f/s", (t->output_tokens - 1) / rest);
    session_say(s, "prompt: %d cached + %d computed; first token: %.3f s; %d token%s%s; blocks: %d of %d",
                t->cached_tokens, t->prompt_tokens - t->cached_tokens, t->first_seconds, t->output_tokens,
                plural(t->output_tokens), speed, t->blocks.blocks_in_use, t->blocks.blocks_total);
}

void session_print_stats(const struct session *s)
{
    const struct turn_stats *t = &s->stats;
    struct scheduler_stats now;
    engine_stats(s->engine, &now);
    const struct drafts_words drafts = drafts_words(engine_info(s->engine)->drafter, &now);
    if (t->output_tokens > 0) {
        const double rest = t->seconds - t->first_seconds;
        fprintf(stderr, "last answer: %d token%s, the first after %.3f s", t->output_tokens, plural(t->output_tokens),
                t->first_seconds);
        if (t->output_tokens > 1 && rest > 0) fprintf(stderr, ", then %.1f tokens/s", (t->output_tokens - 1) / rest);
        fprintf(stderr, "\nits prompt: %d token%s, %d of them from the cache\n", t->prompt_tokens,
                plural(t->prompt_tokens), t->cached_tokens);
        fprintf(stderr, "its blocks: %d of %d tokens each\n", t->blocks.blocks_in_use,
                engine_info(s->engine)->limits->block_size);
    }
    if (*drafts.text) fprintf(stderr, "speculation: %s\n", drafts.text);
    const int32_t turns = conversation_turns(session_conversation(s));
    fprintf(stderr, "conversation: %d turn%s, %zu of %d tokens\n", turns, plural(turns),
            conversation_tokens(session_conversation(s)), max_length(s));
    fprintf(stderr, "KV cache: %d block%s, %d of them with tokens of earlier prompts and answers\n", now.blocks_total,
            plural(now.blocks_total), now.blocks_cached);
}

/* ---- room ---- */

static enum status too_long(const struct session *s, size_t tokens, struct error *err)
{
    const int32_t turns = conversation_turns(session_conversation(s)); /* the question is one of them */
    const char *advice = turns > 1 && !s->at_terminal ? "--context-shift drops the oldest turns, or ask less"
                         : s->at_terminal             ? "ask less"
                                                      : "ask less, or raise it";
    return error_set(err, STATUS_INVALID,
                     "this would make the conversation %zu tokens long, and --max-model-len leaves room for %d; %s",
                     tokens, max_length(s) - 1, advice);
}

/* Reads a line that is typed. False: Ctrl-C, Ctrl-D or no. */
static bool read_agreement(void)
{
    char line[256];
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    ssize_t count = 0;
    int ready = 0;
    /* A signal that comes just before poll does not end it. */
    while (ready == 0 && !interrupt_pending()) ready = poll(&input, 1, 100);
    if (ready > 0) count = read(STDIN_FILENO, line, sizeof line);
    if (count <= 0) {
        fputc('\n', stderr);
        return false;
    }
    return line[0] == '\n' || tolower((unsigned char)line[0]) == 'y';
}

/* "2 turns and the question remain, 210 tokens" */
struct remaining {
    char text[96];
};
static struct remaining describe_remaining(const struct conversation_room *room)
{
    struct remaining r = {""};
    if (room->kept)
        snprintf(r.text, sizeof r.text, "%d turn%s and the question remain, %zu tokens", room->kept, plural(room->kept),
                 room->tokens);
    else
        snprintf(r.text, sizeof r.text, "only the question remains, %zu tokens", room->tokens);
    return r;
}

static bool agree_to_drop(const struct session *s, const struct conversation_room *room)
{
    line_editor_release(s->editor);
    tcflush(STDIN_FILENO, TCIFLUSH); /* what was typed before the question is no answer to it */
    interrupt_catch();
    notice_printf(stderr,
                  "This makes the conversation %zu tokens long; --max-model-len leaves room for %d.\n"
                  "Drop the oldest %d of %d earlier turn%s (%s)? [Y/n] ",
                  session_conversation(s)->ids.count, max_length(s) - 1, room->dropped, room->dropped + room->kept,
                  plural(room->dropped + room->kept), describe_remaining(room).text);
    fflush(stderr);
    const bool agreed = read_agreement();
    if (!agreed) session_say(s, "not asked; /undo takes back the last turn, /clear begins a new conversation");
    return agreed;
}

/* Tokens that an answer should have room for: a quarter of the context, or max_tokens if that is less. */
static size_t wanted_room(const struct session *s)
{
    const size_t quarter = (size_t)max_length(s) / 4, most = (size_t)s->params.max_tokens;
    return s->params.max_tokens > 0 && most < quarter ? most : quarter;
}

/* Sees to it that the prompt leaves room for an answer. Turns are dropped until half of the context is free, so that
 * the next questions find the rest in the prefix cache: what is dropped changes all that follows it. A question that is
 * longer than half gets the room that its answer should have. */
static enum status make_room(struct session *s, struct error *err)
{
    struct conversation *c = session_conversation(s);
    const size_t tokens = c->ids.count, limit = (size_t)max_length(s), roomy = limit - wanted_room(s);
    if (tokens <= roomy || (!s->context_shift && tokens < limit)) return STATUS_OK;
    if (!s->context_shift && !s->at_terminal) return too_long(s, tokens, err);
    struct conversation_room room;
    enum status status = conversation_find_room(c, limit / 2, &room, err);
    if (status == STATUS_OK && room.tokens > limit / 2) status = conversation_find_room(c, roomy, &room, err);
    if (status != STATUS_OK) return status;
    if (room.tokens >= limit) return too_long(s, room.tokens, err);
    if (room.dropped == 0) return STATUS_OK;
    if (!s->context_shift && !agree_to_drop(s, &room)) return error_set(err, STATUS_INVALID, "%s", "");
    status = conversation_drop(c, room.dropped, err);
    if (status != STATUS_OK) return status;
    branches_current(&s->branches)->warned = false;
    session_say(s, "dropped the oldest %d turn%s: %s", room.dropped, plural(room.dropped),
                describe_remaining(&room).text);
    if (!s->context_shift) s->started = clock_seconds(); /* the time to agree is the user's */
    return STATUS_OK;
}

/* ---- one answer ---- */

static void deliver(void *user, const struct answer_piece *piece)
{
    struct session *s = user;
    struct conversation *c = session_conversation(s);
    if (!conversation_add_tokens(c, piece->token_ids, (size_t)piece->num_tokens) ||
        !conversation_add_text(c, piece->text, piece->text_length))
        s->no_memory = true;
    if (!s->write_error && !answer_view_add(s->view, piece->text, piece->text_length, piece->num_tokens))
        s->write_error = errno;
    struct turn_stats *stats = &s->stats;
    stats->seconds = clock_seconds() - s->started;
    if (stats->output_tokens == 0 && piece->output_tokens > 0) stats->first_seconds = stats->seconds;
    stats->prompt_tokens = piece->prompt_tokens;
    stats->cached_tokens = piece->cached_tokens;
    stats->output_tokens = piece->output_tokens;
    if (piece->finish_reason == FINISH_NONE) return;
    s->finish_reason = piece->finish_reason;
    if (piece->error) s->failure = *piece->error;
}

/* Some chat templates open the reasoning themselves: the prompt's last tokens say so. */
static const char *open_reasoning(const struct session *s, const struct token_list *prompt)
{
    enum { LAST_TOKENS = 16 };
    const size_t count = prompt->count < LAST_TOKENS ? prompt->count : LAST_TOKENS;
    struct text end = {0};
    struct error ignored;
    const char *closing = NULL;
    if (tokenizer_decode(engine_info(s->engine)->tokenizer, prompt->ids + prompt->count - count, count, true, &end,
                         &ignored) == STATUS_OK)
        closing = answer_view_open_reasoning(end.data, end.length);
    text_free(&end);
    return closing;
}

static struct answer_view *begin_view(const struct session *s, const struct token_list *prompt)
{
    struct answer_view_options options = answer_view_options_for(stdout, s->think);
    options.reasoning_end = open_reasoning(s, prompt);
    return answer_view_begin(stdout, &options);
}

/* Ends the display of the answer; `failed`: there is none. */
static void end_view(struct session *s, bool failed)
{
    if (!answer_view_end(s->view, failed) && !s->write_error) s->write_error = errno;
    s->view = NULL;
}

static enum status start_answer(struct session *s, uint64_t *request, struct error *err)
{
    struct sampling_params params = s->params; /* the lists stay those of s->params */
    params.seed += s->retries;
    s->finish_reason = FINISH_NONE;
    s->failure.text[0] = '\0';
    s->stats = (struct turn_stats){0};
    if (s->at_terminal) interrupt_catch();
    const struct conversation *c = session_conversation(s);
    const struct token_list *ids = &c->ids;
    const bool has_states = engine_info(s->engine)->limits->num_state_slots > 0;
    const struct engine_request added = {.prompt = ids->ids,
                                         .prompt_len = (int32_t)ids->count,
                                         .num_lasting = has_states ? (int32_t)conversation_lasting(c) : 0,
                                         .params = &params,
                                         .at_start = true,
                                         .constraint = s->constraint,
                                         .deliver = deliver,
                                         .user = s};
    s->view = begin_view(s, ids);
    if (!s->view) return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for an answer");
    return engine_add(s->engine, &added, request, err);
}

/* Whether the answer is to end now: Ctrl-C, a failed write or a lack of memory. */
static bool should_stop(const struct session *s)
{
    return interrupt_pending() || s->write_error || s->no_memory;
}

static void note_blocks(struct session *s)
{
    struct scheduler_stats now;
    engine_stats(s->engine, &now);
    if (now.blocks_in_use >= s->stats.blocks.blocks_in_use) s->stats.blocks = now;
}

/* Steps until the answer is complete or should_stop says so. Ctrl-C also cancels the step itself where the CPU computes
 * it (engine_options.cancel). */
static enum status run_answer(struct session *s, uint64_t request, struct error *err)
{
    bool aborted = false, worked = true;
    enum status status = STATUS_OK;
    while (status == STATUS_OK && engine_has_work(s->engine)) {
        if (!aborted && should_stop(s)) {
            engine_abort(s->engine, request);
            aborted = true;
            s->stopped = clock_seconds();
        }
        if (s->stats.output_tokens == 0)
            answer_view_reading(s->view, engine_num_computed(s->engine, request),
                                (int32_t)session_conversation(s)->ids.count);
        status = engine_step(s->engine, &worked, err);
        note_blocks(s);
    }
    if (!aborted && interrupt_pending()) s->stopped = clock_seconds();
    return status;
}

/* Why the answer ended early, and what else there is to say of it. */
static void explain_end(struct session *s)
{
    if (s->write_error) return;
    if (s->finish_reason == FINISH_LENGTH) say_cut(s);
    if (s->finish_reason == FINISH_ABORT && s->at_terminal) session_say(s, "stopped");
    say_nearly_full(s);
    if (s->show_stats) print_stats_line(s);
}

/* Streams the answer to the conversation's prompt. */
static enum status answer(struct session *s, struct error *err)
{
    struct conversation *c = session_conversation(s);
    uint64_t request = 0;
    if (c->rewritten)
        log_write(s->log, LOG_DEBUG,
                  "the chat template, or encoding the answer's text, changed the last %zu token%s of the earlier "
                  "turns, which are computed again",
                  c->rewritten, plural((int64_t)c->rewritten));
    enum status status = make_room(s, err);
    if (status == STATUS_OK) status = start_answer(s, &request, err);
    if (status == STATUS_OK) status = run_answer(s, request, err);
    end_view(s, status != STATUS_OK || s->finish_reason == FINISH_ERROR);
    if (status != STATUS_OK) return status;
    if (s->finish_reason == FINISH_ERROR) {
        *err = s->failure;
        return STATUS_INVALID;
    }
    if (s->finish_reason == FINISH_ABORT && c->answer.length == 0 && !s->write_error && !s->no_memory) {
        if (s->at_terminal) session_say(s, "stopped before the answer began: the question is taken back");
        return error_set(err, STATUS_INVALID, "%s", "");
    }
    if (s->no_memory || !conversation_end(c))
        return error_set(err, STATUS_OUT_OF_MEMORY, "no memory for a longer conversation");
    explain_end(s);
    if (!s->write_error) return STATUS_OK;
    return error_set(err, STATUS_IO, "cannot write the answer: %s", strerror(s->write_error));
}

/* ---- turns ---- */

/* Answers the prompt that was made with `status`, or puts back the messages from before it (a reference that this
 * takes). */
static bool take_turn(struct session *s, json_t *before, enum status status, struct error *err)
{
    if (status == STATUS_OK) status = answer(s, err);
    if (status == STATUS_OK) {
        json_decref(before);
        return true;
    }
    conversation_restore(session_conversation(s), before);
    session_fail(s, status, err);
    return false;
}

bool session_ask(struct session *s, const char *text, size_t length)
{
    struct error err = {""};
    struct conversation *c = session_conversation(s);
    enum status status = prompt_check_text(text, length, &err);
    s->started = clock_seconds();
    if (status != STATUS_OK) {
        error_prefix(&err, status, "the question");
        session_fail(s, status, &err);
        return false;
    }
    s->retries = 0;
    json_t *before = json_incref(c->messages);
    status = conversation_ask(c, text, length, &err);
    return take_turn(s, before, status, &err);
}

void session_retry(struct session *s)
{
    struct error err = {""};
    struct conversation *c = session_conversation(s);
    s->started = clock_seconds();
    s->retries++;
    json_t *before = json_incref(c->messages);
    take_turn(s, before, conversation_ask_again(c, &err), &err);
}
