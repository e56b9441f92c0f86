/* What a prompt may look like, and the request that it becomes. A prompt is either the text itself, or a JSON object:
 *
 *   {"prompt": "text"}                        encoded as the tokenizer does, bos included if it adds one
 *   {"prompt": [1, 2]}, {"prompt_token_ids": [1, 2]}                       token ids, taken as they are
 *   {"messages": [{"role": "user", "content": "text"}]}     through the model's chat template, ready for an answer;
 *                                             "tools", "documents" and "chat_template_kwargs" may stand beside it;
 *                                             with "continue_final_message": true the answer goes on with the text of
 *                                             the last message, and with "add_generation_prompt": false the prompt ends
 *                                             where that message does. "add_special_tokens": false is for texts: no bos
 *
 * with "id" (or "custom_id"), a string or an integer, which comes back with the answer, "cache_salt", a string, and
 * "priority", an integer (both as in struct engine_request), "response_format" or "structured_outputs" (the form of the
 * answers, structured_json.h), and any of the sampling fields of scheduler/sampling_params.h by their names. null
 * counts as not given, NaN does not; 5.0 is an integer, and a seed of -1 is none. Of equal names the last counts. A
 * field of another name is refused: a misspelt one would be ignored silently. Lines of OpenAI's batch files
 * (openai_batch.h) may stand among the others.
 *
 * The answer to a conversation may be as long as max_model_len lets it, unless the line or the rules give max_tokens.
 */
#ifndef QUIRE_RUNTIME_PROMPT_H
#define QUIRE_RUNTIME_PROMPT_H

#include <jansson.h>

#include "runtime/engine/engine.h"
#include "runtime/prompts/answer_parser.h"
#include "runtime/prompts/chat_setup.h"
#include "runtime/prompts/openai_request.h"
#include "runtime/prompts/structured_json.h"
#include "scheduler/sampling_params.h"
#include "tokenizer/tokenizer.h"

enum prompt_format {
    PROMPT_FORMAT_AUTO, /* JSON if the line's first character other than blanks is '{' */
    PROMPT_FORMAT_TEXT,
    PROMPT_FORMAT_JSONL
};
#define PROMPT_FORMAT_CHOICES "auto|text|jsonl" /* their names, for the flag --format */

/* What all lines of an input have in common. */
struct prompt_rules {
    const struct tokenizer *tokenizer; /* NULL: prompts are token ids */
    struct chat_setup chat;
    enum prompt_format format;
    bool as_chat;           /* a text is the question of a conversation */
    const char *system;     /* ... that begins with this system message, or NULL */
    bool warn_of_text;      /* a warning is due of texts that are no conversations (prompt_line.h) */
    const char *model_name; /* of the model in lines of a batch; NULL: any */
    /* How the model writes calls of tools and reasoning; NULL: such text is a part of the answer's. */
    const struct answer_format *tools, *reasoning;
    bool parses_tools, parses_reasoning; /* of every conversation; else only of lines of a batch that have tools */
    const struct structured_fields *structured; /* the form of answers to lines that give none; NULL: any text */
    struct grammars *grammars;                  /* the engine's, which make constraints of forms */
    struct sampling_params defaults;            /* for the fields that a line does not give */
    bool max_tokens_given;                      /* defaults.max_tokens counts for conversations, too */
    bool has_states;                    /* the model has recurrent layers, for which num_lasting of a prompt matters */
    int32_t vocab_size, num_ids, max_n; /* bounds of a prompt's token ids, of an answer's,
                                            and of a line's sequences */
};

/* What the flags of a command say of its prompts. What the pointers point to is referred to. */
struct prompt_options {
    const char *format;                        /* one of PROMPT_FORMAT_CHOICES */
    const struct sampling_params *sampling;    /* those of its fields that were given are the defaults of all prompts */
    uint64_t sampling_given;                   /* bit i: sampling_fields[i] was given */
    const struct chat_setup_options *template; /* NULL: the checkpoint's own templates */
    int as_chat;            /* texts are questions: 1, 0, or -1: they are not, and a warning says so if there is a chat
                               template */
    const char *system;     /* the system message of such a question, or NULL */
    const char *model_name; /* struct prompt_rules */
    const char *tool_parser, *reasoning_parser; /* names of formats (answer_parser.h), "none", or "auto": what the chat
                                                   template is made for; NULL: likewise, but only for lines of a batch
                                                   that have tools */
    const struct structured_fields *structured; /* the form of answers to lines that give none; NULL: any text */
};

/* INVALID: one of the two names of parsers is none. What can be known of them before there is a model. */
enum status prompt_parsers_check(const struct prompt_options *options, struct error *err);

/* The rules of a command: the model's tokenizer, chat template and limits, and its sampling defaults with the flags
 * that were given in their place. INVALID: the flags do not fit the model. Free with prompt_rules_free, also after a
 * failure. */
enum status prompt_rules_make(const struct engine_info *engine, const struct prompt_options *options,
                              struct prompt_rules *out, struct error *err);
void prompt_rules_free(struct prompt_rules *rules); /* safe on a zeroed struct */

struct prompt {
    json_t *id; /* a string or an integer; NULL: the line has none */
    struct token_list tokens;
    size_t num_lasting; /* of tokens, those that the conversation's next prompt begins with (chat_setup_lasting); 0:
                           unknown */
    bool is_chat;       /* made of messages, so that the answer begins a text */
    bool is_text;       /* made of a text as it stands */
    struct openai_request openai;
    json_t *echo;                       /* a text, where the answer is to begin with the prompt; else NULL */
    struct answer_parser_options parts; /* what its answers are taken apart into; it owns tool_list */
    struct sampling_params params;
    char *cache_salt; /* NULL: the line has none */
    int32_t priority;
    struct constraint *constraint; /* what the answers must be; NULL: any text */
};
void prompt_free(struct prompt *p); /* safe on a zeroed struct */

/* The request for the prompt, which it refers to; whoever adds it says where its pieces go. INVALID: the prompt has
 * more tokens than can be counted. */
enum status prompt_request(const struct prompt *p, struct engine_request *out, struct error *err);

/* A blank line is skipped. */
bool prompt_line_is_blank(const char *line, size_t length);
/* Its first character other than blanks is '{'. */
bool prompt_line_is_object(const char *line, size_t length);

/* Reads line[length], without its newline. On failure the sentence says what is wrong with the line, and out->id is set
 * if it could be read. *out is overwritten; free it with prompt_free either way. */
enum status prompt_parse(const struct prompt_rules *rules, const char *line, size_t length, struct prompt *out,
                         struct error *err);

/* Reads an object that is quire's own form, or native of out->openai. *out holds the rules' defaults of params, and
 * what was read of it before. */
enum status prompt_read_object(const json_t *object, const struct prompt_rules *rules, struct prompt *out,
                               struct error *err);
/* An empty prompt, with the rules' defaults. False: memory ran out. */
bool prompt_init(const struct prompt_rules *rules, struct prompt *out);

/* Whether text[length] can be given to a model: it is UTF-8 without NUL. If not, the sentence names the first byte that
 * is wrong. */
enum status prompt_check_text(const char *text, size_t length, struct error *err);

#endif
