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

/* Appends the ids of messages[count] to *out and, with add_generation_prompt, what precedes an answer. Errors name the
 * message: an unknown role, or a system message that is not the first; in LLAMA2 also a user or assistant message out
 * of turn, or a missing question before an answer. For an UNKNOWN format the error is that of chat_format_check. After
 * a failure *out is as it was. */
enum status chat_render(const struct tokenizer *t, enum chat_format format, const struct chat_message *messages,
                        size_t count, bool add_generation_prompt, struct token_list *out, struct error *err);

/* Appends the ids of a new turn to a conversation whose ids end with the model's answer, so that a conversation is
 * never encoded again and its K and V in the cache stay valid. `answer_ended`: the model wrote the end marker itself;
 * otherwise it was stopped before, and the marker is appended first.
 *
 * The result equals chat_render of the whole conversation, provided that encoding the answer's text gives the ids that
 * the model sampled (in CHATML with TOKENIZER_CONTINUES, because the text follows "assistant\n"). In LLAMA2 the
 * template puts a space before eos, and a model that ends its answer itself does not write it. */
enum status chat_render_turn(const struct tokenizer *t, enum chat_format format, const struct chat_message *user,
                             bool answer_ended, struct token_list *out, struct error *err);

#endif
