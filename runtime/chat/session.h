/* One run of quire chat: the engine, the branches of the conversation, and a turn of it. */
#ifndef QUIRE_RUNTIME_CHAT_SESSION_H
#define QUIRE_RUNTIME_CHAT_SESSION_H

#include "runtime/chat/answer_view.h"
#include "runtime/chat/branches.h"
#include "runtime/chat/line_editor.h"
#include "runtime/engine/engine.h"

/* Counts and times of the last answer, for /stats. */
struct turn_stats {
    int32_t prompt_tokens, cached_tokens, output_tokens;
    double seconds, first_seconds; /* the whole answer, and until its first token */
    struct scheduler_stats blocks; /* when most of them were in use */
};

struct session {
    struct engine *engine;
    char *model_name;                     /* as the banner shows it */
    struct sampling_params params, usual; /* `usual`: the model's own, with no limit of max_tokens */
    struct constraint *constraint;        /* what answers must be; NULL: any text */
    const struct log *log;
    struct chat_setup setup;
    struct branches branches;
    struct turn_stats stats; /* output_tokens 0: there was no answer yet */
    bool at_terminal;
    struct line_editor *editor; /* at the terminal; else NULL */
    bool single_turns;          /* every question begins a new conversation: nothing is said about its length */
    bool show_stats;            /* a line after each answer */
    bool context_shift;         /* drop the oldest turns without asking */
    bool any_cut;               /* some answer was cut by a limit */
    char *file;                 /* the last one that was saved or loaded, which /save may overwrite; NULL: none */
    int64_t line;               /* of the pipe, from 1: where the question was read; 0: it was not read from a pipe */
    bool ended;                 /* the command ends: /exit, or a failure after which the engine cannot go on */
    int exit_status;
    enum think_display think;
    double stopped; /* when Ctrl-C stopped an answer last (clock_seconds) */
    /* The current answer: */
    struct answer_view *view;
    bool no_memory;
    int write_error; /* errno of the write that failed, or 0 */
    double started;
    uint64_t retries; /* of the last question */
    enum finish_reason finish_reason;
    struct error failure; /* with FINISH_ERROR */
};

struct conversation *session_conversation(const struct session *s);

/* Asks the question, streams the answer to stdout, and says on stderr what there is to say. A question that cannot be
 * answered leaves the conversation as it was, and so does an answer that Ctrl-C stops before its first text: these
 * return false. */
bool session_ask(struct session *s, const char *text, size_t length);
/* Answers the last question again, with other random numbers. There must be a question. */
void session_retry(struct session *s);

/* Prints the sentence, with the line of the pipe that it is about, and makes the exit status a failure, unless a person
 * at the terminal can go on. An empty sentence: the user knows already. */
void session_fail(struct session *s, enum status status, struct error *err);

/* A remark on stderr: in brackets at the terminal, else with the command's name and the line of the pipe. `format` ends
 * without a newline. */
void session_say(const struct session *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* All facts about the last answer, for /stats. */
void session_print_stats(const struct session *s);

#endif
