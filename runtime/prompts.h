/* What `quire generate` and `quire profile` read: one line, one request. A line is either the prompt itself, or a JSON
 * object:
 *
 *   {"prompt": "text"}                        encoded as the tokenizer does, bos included if it adds one
 *   {"prompt": [1, 2]}, {"prompt_token_ids": [1, 2]}                       token ids, taken as they are
 *   {"messages": [{"role": "user", "content": "text"}]}     through the model's chat template, ready for an answer;
 *                                             "tools", "documents" and "chat_template_kwargs" may stand beside it
 *
 * with "id" (or "custom_id"), a string or an integer, which comes back with the answer, "cache_salt", a string, and
 * "priority", an integer (both as in struct engine_request), and any of the sampling fields of
 * scheduler/sampling_params.h by their names. null counts as not given. A field of another name is refused: a
 * misspelt one would be ignored silently. */
#ifndef QUIRE_RUNTIME_PROMPTS_H
#define QUIRE_RUNTIME_PROMPTS_H

#include <jansson.h>

#include "runtime/chat_setup.h"
#include "runtime/engine/engine.h"
#include "runtime/line_reader.h"
#include "runtime/options/sampling_flags.h"
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
    struct sampling_params defaults;    /* for the fields that a line does not give */
    int32_t vocab_size, num_ids, max_n; /* bounds of a prompt's token ids, of an answer's,
                                            and of a line's sequences */
};

/* The rules of a command: the engine's tokenizer, chat template and limits, and its sampling defaults with the flags
 * that were given in their place. `format` is one of PROMPT_FORMAT_CHOICES; template: NULL for no flags. INVALID: the
 * flags do not fit the model. Free with prompt_rules_free, also after a failure. */
enum status prompt_rules_make(const struct engine *e, const char *format, const struct sampling_flags *flags,
                              const struct template_flags *template, struct prompt_rules *out, struct error *err);
void prompt_rules_free(struct prompt_rules *rules); /* safe on a zeroed struct */

struct prompt {
    json_t *id; /* a string or an integer; NULL: the line has none */
    struct token_list tokens;
    bool is_chat; /* made of messages, so that the answer begins a text */
    struct sampling_params params;
    char *cache_salt; /* NULL: the line has none */
    int32_t priority;
};
void prompt_free(struct prompt *p); /* safe on a zeroed struct */

/* A blank line is skipped. */
bool prompt_line_is_blank(const char *line, size_t length);

/* Reads line[length], without its newline. On failure the sentence says what is wrong with the line, and out->id is set
 * if it could be read. *out is overwritten; free it with prompt_free either way. */
enum status prompt_parse(const struct prompt_rules *rules, const char *line, size_t length, struct prompt *out,
                         struct error *err);

/* As prompt_parse, of what line_reader_next gave as LINE_READY or LINE_TOO_LONG; of the latter `line` is not read. */
enum status prompt_read(const struct prompt_rules *rules, enum line_result kind, const char *line, size_t length,
                        struct prompt *out, struct error *err);

/* Whether text[length] can be given to a model: it is UTF-8 without NUL. If not, the sentence names the first byte that
 * is wrong. */
enum status prompt_check_text(const char *text, size_t length, struct error *err);

#endif
