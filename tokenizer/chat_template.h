/* A conversation to token ids, in three forms. A chat template is Jinja; quire does not run it. It knows the text of a
 * few templates (white space and spelling apart: template_text.h) and writes what they render; any other template is
 * refused, because a model answers badly to a prompt that differs from the ones that it was trained with. The text of a
 * message is never searched for special tokens, so that no one can speak as another by writing "<|end|>". */
#ifndef QUIRE_TOKENIZER_CHAT_TEMPLATE_H
#define QUIRE_TOKENIZER_CHAT_TEMPLATE_H

#include "tokenizer/tokenizer.h"

enum chat_format {
    CHAT_FORMAT_UNKNOWN,
    CHAT_FORMAT_GUIDE,  /* <s><|user|>...<|end|><|assistant|>: models/guide; each role has a token */
    CHAT_FORMAT_CHATML, /* <|im_start|>user\n...<|im_end|>\n<|im_start|>assistant\n; a bos first if the template has it
                         */
    CHAT_FORMAT_LLAMA2  /* <s>[INST] <<SYS>>\n...\n<</SYS>>\n\n... [/INST] answer </s>; messages are trimmed */
};

/* The form that the template renders; UNKNOWN for NULL and for every template whose text is not a known one. */
enum chat_format chat_format_detect(const char *chat_template);
/* STATUS_UNSUPPORTED for UNKNOWN: the sentence says why, which templates are known, and to give plain prompts. */
enum status chat_format_check(const struct tokenizer *t, enum chat_format format, struct error *err);

struct chat_message {
    const char *role; /* "system", "user" or "assistant" */
    const char *content;
    size_t length; /* bytes of content */
};

/* Appends the ids of messages[count] to *out, then, with add_generation_prompt, what comes before an answer. Errors
 * name the message: an unknown role, a system message that is not the first, roles that do not alternate where the
 * format needs it (LLAMA2; it also ends with a user message where an answer is to follow), or an UNKNOWN format (then
 * the sentence says which templates are known, and to give plain prompts). After a failure *out is as it was. */
enum status chat_render(const struct tokenizer *t, enum chat_format format, const struct chat_message *messages,
                        size_t count, bool add_generation_prompt, struct token_list *out, struct error *err);

/* Appends only what a later turn adds after an answer whose tokens are already there (the answer's end marker included
 * if `answer_ended` is false, that is, the model was stopped before it wrote one), so that a conversation's ids are
 * never encoded again: earlier ids + answer ids + this = what a cache already holds, plus the new turn. Those are the
 * ids that chat_render gives for the whole conversation, if the answer's ids are those that encoding gives its text (in
 * CHATML with TOKENIZER_CONTINUES, since it goes on after "assistant\n"). In LLAMA2 the published end marker is a space
 * and an eos; an answer that the model ended itself has the eos alone. */
enum status chat_render_turn(const struct tokenizer *t, enum chat_format format, const struct chat_message *user,
                             bool answer_ended, struct token_list *out, struct error *err);

#endif
