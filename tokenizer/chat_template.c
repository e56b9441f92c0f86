#include "tokenizer/chat_template.h"

#include <string.h>

#include "base/array.h"
#include "tokenizer/template_text.h"

/* A conversation being written. The first failure is kept, and later writes do nothing. */
struct writer {
    const struct tokenizer *t;
    struct token_list *out;
    enum status status;
    struct error *err;
};

enum role { ROLE_SYSTEM, ROLE_USER, ROLE_ASSISTANT, ROLE_UNKNOWN };

static const char *const role_names[] = {"system", "user", "assistant"};

/* --- which form a template is --- */

static const char bos_first[] = "{{ bos_token }}";
static const char guide_text[] = "{% for message in messages %}"
                                 "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
                                 "{% endfor %}"
                                 "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}";
static const char prompt_off[] = "{% if not add_generation_prompt is defined %}"
                                 "{% set add_generation_prompt = false %}"
                                 "{% endif %}";
static const char chatml_text[] =
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
static const char llama2_text[] =
    "{% if messages[0]['role'] == 'system' %}"
    "{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}"
    "{% else %}"
    "{% set loop_messages = messages %}{% set system_message = false %}"
    "{% endif %}"
    "{% for message in loop_messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}"
    "{% endif %}"
    "{% if loop.index0 == 0 and system_message != false %}"
    "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}"
    "{% else %}{% set content = message['content'] %}{% endif %}"
    "{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}"
    "{% endif %}"
    "{% endfor %}";

/* The templates whose rendering chat_render writes, in the parts that they consist of. */
static const struct {
    enum chat_format format;
    const char *parts[3];
} known_templates[] = {
    {CHAT_FORMAT_GUIDE, {bos_first, guide_text}},
    {CHAT_FORMAT_CHATML, {chatml_text}},
    {CHAT_FORMAT_CHATML, {bos_first, chatml_text}},
    {CHAT_FORMAT_CHATML, {prompt_off, chatml_text}},
    {CHAT_FORMAT_CHATML, {bos_first, prompt_off, chatml_text}},
    {CHAT_FORMAT_CHATML, {prompt_off, bos_first, chatml_text}},
    {CHAT_FORMAT_LLAMA2, {llama2_text}},
};

enum { NUM_PARTS = sizeof known_templates->parts / sizeof *known_templates->parts };

static bool has_canonical_text(const char *const *parts, const struct text *expected)
{
    struct text text = {0};
    bool ok = true;
    for (int i = 0; i < NUM_PARTS && parts[i] && ok; i++) ok = template_text_canonical(parts[i], &text);
    ok = ok && text.length == expected->length && memcmp(text.data, expected->data, text.length) == 0;
    text_free(&text);
    return ok;
}

enum chat_format chat_format_detect(const char *chat_template)
{
    struct text text = {0};
    enum chat_format format = CHAT_FORMAT_UNKNOWN;
    const bool ok = chat_template && template_text_canonical(chat_template, &text) && text.length > 0;
    for (size_t i = 0; ok && i < sizeof known_templates / sizeof *known_templates; i++)
        if (has_canonical_text(known_templates[i].parts, &text)) format = known_templates[i].format;
    text_free(&text);
    return format;
}

/* --- the parts that all forms are made of --- */

static void put_id(struct writer *w, int32_t id)
{
    if (!w->status && !token_list_append(w->out, &id, 1))
        w->status =
            error_set(w->err, STATUS_OUT_OF_MEMORY, "out of memory for a conversation of %zu tokens", w->out->count);
}

static void put_special(struct writer *w, const char *text)
{
    int32_t id = tokenizer_special_id(w->t, text);
    if (id >= 0)
        put_id(w, id);
    else if (!w->status)
        w->status = error_set(w->err, STATUS_INVALID,
                              "the chat template needs the special token %s, which the tokenizer does not have; check "
                              "that tokenizer.model and tokenizer_config.json belong together",
                              text);
}

/* bos or eos, which a template names by their role and not by their text. */
static void put_named(struct writer *w, const char *name, int32_t id)
{
    if (id >= 0)
        put_id(w, id);
    else if (!w->status)
        w->status = error_set(w->err, STATUS_INVALID,
                              "the chat template needs a %s, which the tokenizer does not have; name it in "
                              "tokenizer_config.json",
                              name);
}

static void put_text(struct writer *w, const char *text, size_t length, unsigned flags)
{
    if (!w->status) w->status = tokenizer_encode(w->t, text, length, flags, w->out, w->err);
}

static void check_memory(struct writer *w, bool ok)
{
    if (!ok && !w->status) w->status = error_set(w->err, STATUS_OUT_OF_MEMORY, "out of memory for a chat message");
}

static enum role role_of(const struct chat_message *message)
{
    for (int role = ROLE_SYSTEM; role < ROLE_UNKNOWN; role++)
        if (message->role && strcmp(message->role, role_names[role]) == 0) return (enum role)role;
    return ROLE_UNKNOWN;
}

/* --- GUIDE --- */

static void guide_message(struct writer *w, const struct chat_message *message)
{
    static const char *const markers[] = {"<|system|>", "<|user|>", "<|assistant|>"};
    put_special(w, markers[role_of(message)]);
    put_text(w, message->content, message->length, 0);
    put_special(w, "<|end|>");
}

static void guide_render(struct writer *w, const struct chat_message *messages, size_t count, bool prompt)
{
    put_named(w, "bos_token", tokenizer_bos_id(w->t));
    for (size_t i = 0; i < count; i++) guide_message(w, &messages[i]);
    if (prompt) put_special(w, "<|assistant|>");
}

static void guide_turn(struct writer *w, const struct chat_message *user, bool answer_ended)
{
    if (!answer_ended) put_special(w, "<|end|>");
    guide_message(w, user);
    put_special(w, "<|assistant|>");
}

/* --- CHATML --- */

static void chatml_end(struct writer *w)
{
    put_special(w, "<|im_end|>");
    put_text(w, "\n", 1, 0);
}

static void chatml_prompt(struct writer *w)
{
    put_special(w, "<|im_start|>");
    put_text(w, "assistant\n", strlen("assistant\n"), 0);
}

static void chatml_message(struct writer *w, const struct chat_message *message)
{
    enum role role = role_of(message);
    if (role == ROLE_ASSISTANT) { /* in two parts, because the model writes the second */
        chatml_prompt(w);
        put_text(w, message->content, message->length, TOKENIZER_CONTINUES);
    } else {
        struct text text = {0};
        put_special(w, "<|im_start|>");
        check_memory(w, text_append_string(&text, role_names[role]) && text_append(&text, "\n", 1) &&
                            text_append(&text, message->content, message->length));
        put_text(w, text.data, text.length, 0);
        text_free(&text);
    }
    chatml_end(w);
}

static void chatml_render(struct writer *w, const struct chat_message *messages, size_t count, bool prompt)
{
    const char *source = tokenizer_chat_template(w->t);
    if (source && strstr(source, "bos_token")) put_named(w, "bos_token", tokenizer_bos_id(w->t));
    for (size_t i = 0; i < count; i++) chatml_message(w, &messages[i]);
    if (prompt) chatml_prompt(w);
}

static void chatml_turn(struct writer *w, const struct chat_message *user, bool answer_ended)
{
    if (answer_ended)
        put_text(w, "\n", 1, 0); /* the model writes <|im_end|>, never what follows it */
    else
        chatml_end(w);
    chatml_message(w, user);
    chatml_prompt(w);
}

/* --- LLAMA2 --- */

/* Bytes of the white space character at the start of text[length], as Python's str.strip() counts white space; 0: there
 * is none. */
static size_t space_length(const char *text, size_t length)
{
    static const char *const wide[] = {"\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\x80", "\xe2\x80\x81",
                                       "\xe2\x80\x82", "\xe2\x80\x83", "\xe2\x80\x84", "\xe2\x80\x85", "\xe2\x80\x86",
                                       "\xe2\x80\x87", "\xe2\x80\x88", "\xe2\x80\x89", "\xe2\x80\x8a", "\xe2\x80\xa8",
                                       "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80"};
    if (length == 0) return 0;
    if ((*text >= '\t' && *text <= '\r') || (*text >= 0x1c && *text <= ' ')) return 1;
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        size_t size = strlen(wide[i]);
        if (size <= length && memcmp(text, wide[i], size) == 0) return size;
    }
    return 0;
}

static void trim(const char **text, size_t *length)
{
    for (size_t size; (size = space_length(*text, *length)); *length -= size) *text += size;
    for (size_t size = 1; size <= 3 && size <= *length;) {
        if (space_length(*text + *length - size, size) == size) {
            *length -= size;
            size = 1;
        } else {
            size++;
        }
    }
}

static bool append_system(struct text *out, const struct chat_message *system)
{
    return !system || (text_append_string(out, "<<SYS>>\n") && text_append(out, system->content, system->length) &&
                       text_append_string(out, "\n<</SYS>>\n\n"));
}

/* <s>[INST] user [/INST]; the first one contains the system message. */
static void llama2_question(struct writer *w, const struct chat_message *system, const struct chat_message *user)
{
    struct text body = {0}, whole = {0};
    check_memory(w, append_system(&body, system) && text_append(&body, user->content, user->length));
    const char *text = body.data;
    size_t length = body.length;
    trim(&text, &length);
    check_memory(w, text_append_string(&whole, "[INST] ") && text_append(&whole, text, length) &&
                        text_append_string(&whole, " [/INST]"));
    put_named(w, "bos_token", tokenizer_bos_id(w->t));
    put_text(w, whole.data, whole.length, 0);
    text_free(&body);
    text_free(&whole);
}

static void llama2_end(struct writer *w)
{
    put_text(w, " ", 1, TOKENIZER_CONTINUES);
    put_named(w, "eos_token", tokenizer_eos_id(w->t));
}

static void llama2_answer(struct writer *w, const struct chat_message *answer)
{
    const char *text = answer->content;
    size_t length = answer->length;
    trim(&text, &length);
    if (length > 0)
        put_text(w, text, length, 0); /* the dummy prefix gives the space after [/INST] */
    else
        put_text(w, " ", 1, TOKENIZER_CONTINUES);
    llama2_end(w);
}

static void llama2_render(struct writer *w, const struct chat_message *messages, size_t count)
{
    const struct chat_message *system = NULL;
    for (size_t i = 0; i < count; i++) {
        enum role role = role_of(&messages[i]);
        if (role == ROLE_SYSTEM) {
            system = &messages[i];
        } else if (role == ROLE_USER) {
            llama2_question(w, system, &messages[i]);
            system = NULL;
        } else {
            llama2_answer(w, &messages[i]);
        }
    }
}

static void llama2_turn(struct writer *w, const struct chat_message *user, bool answer_ended)
{
    if (!answer_ended) llama2_end(w);
    llama2_question(w, NULL, user);
}

/* --- what a conversation may be --- */

enum status chat_format_check(const struct tokenizer *t, enum chat_format format, struct error *err)
{
    if (format == CHAT_FORMAT_GUIDE || format == CHAT_FORMAT_CHATML || format == CHAT_FORMAT_LLAMA2) return STATUS_OK;
    return error_set(err, STATUS_UNSUPPORTED,
                     "the checkpoint has no chat template that quire knows: %s; give it plain prompts, or put one of "
                     "the known templates (models/guide's, plain ChatML, Llama 2) into tokenizer_config.json if the "
                     "model was trained with it",
                     tokenizer_chat_template(t) ? "what tokenizer_config.json or chat_template.jinja has does more "
                                                  "than those that quire can render exactly"
                                                : "neither tokenizer_config.json nor chat_template.jinja has any");
}

static enum status check_message(const struct chat_message *messages, size_t i, struct error *err)
{
    enum role role = role_of(&messages[i]);
    if (role == ROLE_UNKNOWN)
        return error_set(err, STATUS_INVALID, "message %zu has the role \"%s\"; expected system, user or assistant",
                         i + 1, messages[i].role ? messages[i].role : "");
    if (role == ROLE_SYSTEM && i > 0)
        return error_set(err, STATUS_INVALID, "message %zu is a system message; only the first may be one", i + 1);
    return STATUS_OK;
}

static enum status check_alternation(const struct chat_message *messages, size_t count, bool prompt, struct error *err)
{
    enum role expected = ROLE_USER;
    for (size_t i = 0; i < count; i++) {
        enum role role = role_of(&messages[i]);
        if (role == ROLE_SYSTEM) continue;
        if (role != expected)
            return error_set(err, STATUS_INVALID,
                             "message %zu is from the %s; in the Llama 2 form user and assistant take turns, the user "
                             "first",
                             i + 1, role_names[role]);
        expected = role == ROLE_USER ? ROLE_ASSISTANT : ROLE_USER;
    }
    bool unasked = count > 0 && role_of(&messages[count - 1]) == ROLE_SYSTEM;
    if (expected == ROLE_USER && (prompt || unasked))
        return error_set(err, STATUS_INVALID,
                         "message %zu must be from the user: in the Llama 2 form an answer needs a question",
                         count + 1);
    return STATUS_OK;
}

static enum status check_messages(const struct tokenizer *t, enum chat_format format,
                                  const struct chat_message *messages, size_t count, bool prompt, struct error *err)
{
    enum status status = chat_format_check(t, format, err);
    for (size_t i = 0; i < count && !status; i++) status = check_message(messages, i, err);
    if (!status && format == CHAT_FORMAT_LLAMA2) status = check_alternation(messages, count, prompt, err);
    return status;
}

/* --- the two functions --- */

enum status chat_render(const struct tokenizer *t, enum chat_format format, const struct chat_message *messages,
                        size_t count, bool add_generation_prompt, struct token_list *out, struct error *err)
{
    size_t before = out->count;
    struct writer w = {.t = t, .out = out, .err = err};
    w.status = check_messages(t, format, messages, count, add_generation_prompt, err);
    if (w.status) return w.status;
    if (format == CHAT_FORMAT_GUIDE)
        guide_render(&w, messages, count, add_generation_prompt);
    else if (format == CHAT_FORMAT_CHATML)
        chatml_render(&w, messages, count, add_generation_prompt);
    else
        llama2_render(&w, messages, count);
    if (w.status) out->count = before;
    return w.status;
}

enum status chat_render_turn(const struct tokenizer *t, enum chat_format format, const struct chat_message *user,
                             bool answer_ended, struct token_list *out, struct error *err)
{
    size_t before = out->count;
    struct writer w = {.t = t, .out = out, .err = err};
    w.status = chat_format_check(t, format, err);
    if (!w.status && role_of(user) != ROLE_USER)
        w.status = error_set(err, STATUS_INVALID, "a new turn has the role \"%s\"; expected user",
                             user->role ? user->role : "");
    if (w.status) return w.status;
    if (format == CHAT_FORMAT_GUIDE)
        guide_turn(&w, user, answer_ended);
    else if (format == CHAT_FORMAT_CHATML)
        chatml_turn(&w, user, answer_ended);
    else
        llama2_turn(&w, user, answer_ended);
    if (w.status) out->count = before;
    return w.status;
}
