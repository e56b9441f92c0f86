/* Messages to the token ids that a chat model was trained on. The checkpoint says how in Jinja (tokenizer_config.json's
 * chat_template, or chat_template.jinja); three forms are known here, told apart by the template's text. The text of a
 * message is never searched for special tokens. */
#ifndef QUIRE_TOKENIZER_CHAT_TEMPLATE_H
#define QUIRE_TOKENIZER_CHAT_TEMPLATE_H

#include "tokenizer/tokenizer.h"

enum chat_format {
    CHAT_FORMAT_UNKNOWN,
    CHAT_FORMAT_GUIDE,  /* <s><|user|>...<|end|><|assistant|>: models/guide; each role has a token */
    CHAT_FORMAT_CHATML, /* <|im_start|>user\n...<|im_end|>\n<|im_start|>assistant\n */
    CHAT_FORMAT_LLAMA2  /* <s>[INST] <<SYS>>\n...\n<</SYS>>\n\n... [/INST] answer </s> */
};

enum chat_format chat_format_detect(const char *chat_template); /* NULL gives UNKNOWN */

struct chat_message {
    const char *role; /* "system", "user" or "assistant" */
    const char *content;
    size_t length; /* bytes of content */
};

/* Appends the ids of messages[count] to *out, then, with add_generation_prompt, what comes before an answer. Errors
 * name the message: an unknown role, a system message that is not the first, roles that do not alternate where the
 * format needs it, or an UNKNOWN format (then the sentence says which templates are known, and to give plain prompts).
 */
enum status chat_render(const struct tokenizer *t, enum chat_format format, const struct chat_message *messages,
                        size_t count, bool add_generation_prompt, struct token_list *out, struct error *err);

/* Appends only what a later turn adds after an answer whose tokens are already there (the answer's end marker included
 * if `answer_ended` is false, that is, the model was stopped before it wrote one), so that a conversation's ids are
 * never encoded again: earlier ids + answer ids + this = what a cache already holds, plus the new turn. */
enum status chat_render_turn(const struct tokenizer *t, enum chat_format format, const struct chat_message *user,
                             bool answer_ended, struct token_list *out, struct error *err);

#endif
