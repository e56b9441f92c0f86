/* The lines of an input as prompts, for `quire generate` and `quire profile`: one line, one prompt. */
#ifndef QUIRE_RUNTIME_PROMPT_LINE_H
#define QUIRE_RUNTIME_PROMPT_LINE_H

#include "runtime/line_reader.h"
#include "runtime/prompts/prompt.h"

/* Reads what inputs_next gave as LINE_READY or LINE_TOO_LONG, as prompt_parse does; of the latter `line` is not read. A
 * line that should be an object (inputs_is_object) is no text. */
enum status prompt_read(const struct prompt_rules *rules, enum line_result kind, bool is_object, const char *line,
                        size_t length, struct prompt *out, struct error *err);

/* What a run says only once, however many prompts give reason for it. */
struct prompt_warnings {
    bool said_text, said_model;
};
/* Whether the prompt is the first that gives reason for a warning, which *sentence then is. To be called until it is
 * false. */
bool prompt_warning(struct prompt_warnings *said, const struct prompt_rules *rules, const struct prompt *p,
                    struct error *sentence);

#endif
