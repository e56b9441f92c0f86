#include "runtime/prompts/chat_setup.h"

#include <stddef.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "tokenizer/tokenizer_config.h"

enum status chat_setup_read_kwargs(const struct chat_setup_options *options, json_t **out, struct error *err)
{
    *out = NULL;
    if (!options->kwargs) return STATUS_OK;
    return json_object_parse(options->kwargs, strlen(options->kwargs), 0, "--chat-template-kwargs", out, err);
}

static enum status open_given(const struct tokenizer *t, const struct chat_setup_options *options,
                              struct chat_template **out, struct error *err)
{
    const struct text *source = &options->source;
    if (utf8_valid_prefix(source->data, source->length) < source->length)
        return error_set(err, STATUS_INVALID, "%s: the chat template is not UTF-8", options->file);
    if (source->length == 0 || strlen(source->data) < source->length)
        return error_set(err, STATUS_INVALID, "%s: %s; expected a chat template (Jinja)", options->file,
                         source->length ? "there is a NUL byte in the file" : "the file is empty");
    const enum status status = chat_template_open(t, source->data, out, err);
    return status == STATUS_OK ? status : error_prefix(err, status, options->file);
}

enum status chat_setup_open(const struct tokenizer *t, const struct chat_setup_options *options, struct chat_setup *out,
                            struct error *err)
{
    *out = (struct chat_setup){.allow_special = options->allow_special};
    enum status status = chat_setup_read_kwargs(options, &out->kwargs, err);
    if (status == STATUS_OK && options->file)
        status = t ? open_given(t, options, &out->template, err)
                   : error_set(err, STATUS_INVALID, "--chat-template needs a tokenizer");
    else if (status == STATUS_OK && t)
        out->status = chat_template_open(t, NULL, &out->template, &out->reason);
    return status;
}

void chat_setup_close(struct chat_setup *setup)
{
    chat_template_close(setup->template);
    json_decref(setup->kwargs);
    *setup = (struct chat_setup){0};
}

json_t *chat_message(const char *role, const char *content, size_t length)
{
    return json_pack("{s:s, s:s%}", "role", role, "content", content, length);
}

enum status chat_setup_check(const struct chat_setup *setup, struct error *err)
{
    if (setup->status != STATUS_OK) *err = setup->reason;
    return setup->status;
}

static const struct {
    const char *name;
    size_t offset; /* of a const json_t * in struct chat_input */
} fields[] = {{"messages", offsetof(struct chat_input, messages)},
              {"tools", offsetof(struct chat_input, tools)},
              {"documents", offsetof(struct chat_input, documents)},
              {"chat_template_kwargs", offsetof(struct chat_input, kwargs)}};

struct chat_input chat_setup_input(const json_t *object)
{
    struct chat_input input = {0};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const json_t *value = json_object_get(object, fields[i].name);
        if (!json_is_null(value)) *(const json_t **)((char *)&input + fields[i].offset) = value;
    }
    return input;
}

bool chat_setup_has_field(const char *name)
{
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (strcmp(name, fields[i].name) == 0) return true;
    return false;
}

/* The setup's kwargs with those of one input over them. */
static json_t *merge_kwargs(const struct chat_setup *setup, const json_t *own)
{
    json_t *merged = setup->kwargs ? json_copy(setup->kwargs) : json_object();
    if (merged && json_is_object(own)) json_object_update(merged, (json_t *)own);
    return merged;
}

enum status chat_setup_render(const struct chat_setup *setup, struct chat_input input, struct marked_text *out,
                              struct error *err)
{
    enum status status = chat_setup_check(setup, err);
    if (status == STATUS_OK) status = chat_input_check(&input, err);
    if (status != STATUS_OK) return status;
    json_t *kwargs = merge_kwargs(setup, input.kwargs);
    if (!kwargs) return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for a conversation");
    input.kwargs = kwargs;
    input.allow_special = setup->allow_special;
    input.fit_form = true;
    status = chat_template_render(setup->template, &input, out, err);
    json_decref(kwargs);
    return status;
}

/* The text of the last message is *key of the object that is returned; NULL: there is none. */
static json_t *find_last_text(const json_t *messages, const char **key)
{
    json_t *owner = json_array_get(messages, json_array_size(messages) - 1);
    const json_t *content = json_object_get(owner, "content");
    *key = "content";
    if (json_is_array(content)) {
        owner = json_array_get(content, json_array_size(content) - 1);
        *key = "text";
    }
    return json_is_string(json_object_get(owner, *key)) ? owner : NULL;
}

/* A copy of the messages whose last text, which there is, has `mark` behind it. NULL: memory ran out. */
static json_t *mark_end(const json_t *messages, const char *mark)
{
    const char *key;
    json_t *copy = json_deep_copy(messages), *owner = find_last_text(copy, &key);
    const json_t *whole = json_object_get(owner, key);
    struct text text = {0};
    const bool ok = owner && text_append(&text, json_string_value(whole), json_string_length(whole)) &&
                    text_append_string(&text, mark) &&
                    json_object_set_new(owner, key, json_stringn_nocheck(text.data, text.length)) == 0;
    text_free(&text);
    if (ok) return copy;
    json_decref(copy);
    return NULL;
}

/* Cuts the text before the last `mark`. A template that takes the spaces off a text has taken those before it, too. */
static bool cut_at(struct marked_text *text, const char *mark)
{
    char *at = NULL, *next = text->text.data;
    while (next && (next = strstr(next, mark)) != NULL) at = next++;
    if (!at) return false;
    text->text.length = (size_t)(at - text->text.data);
    text->text.data[text->text.length] = '\0';
    if (text->marks.length > text->text.length) text->marks.length = text->text.length;
    return true;
}

enum status chat_setup_render_unfinished(const struct chat_setup *setup, struct chat_input input,
                                         struct marked_text *out, struct error *err)
{
    static const char mark[] = "<<<the answer goes on here>>>";
    enum status status = chat_setup_check(setup, err);
    if (status == STATUS_OK) status = chat_input_check(&input, err);
    if (status != STATUS_OK) return status;
    const char *key;
    if (!find_last_text(input.messages, &key))
        return error_set(err, STATUS_INVALID, "continue_final_message needs a last message whose content is text");
    json_t *messages = mark_end(input.messages, mark);
    if (!messages) return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for a conversation");
    input.messages = messages;
    input.add_generation_prompt = false;
    status = chat_setup_render(setup, input, out, err);
    json_decref(messages);
    if (status == STATUS_OK && !cut_at(out, mark))
        return error_set(err, STATUS_INVALID,
                         "continue_final_message: the chat template does not show the last message as it is");
    return status;
}

size_t chat_setup_answer_start(const struct marked_text *text)
{
    size_t at = text->text.length;
    if (text->marks.length < at) return at; /* nothing is marked */
    while (at > 0 && text->marks.data[at - 1]) at--;
    return at;
}

const char *chat_setup_source(const struct tokenizer *t, const struct chat_setup_options *options, bool with_tools)
{
    if (options->file) return options->source.data;
    size_t count = 0;
    const struct named_template *templates = t ? tokenizer_chat_templates(t, &count) : NULL;
    const char *source = NULL;
    for (size_t i = 0; i < count; i++) {
        if (with_tools && strcmp(templates[i].name, "tool_use") == 0) return templates[i].source;
        if (strcmp(templates[i].name, "default") == 0) source = templates[i].source;
    }
    return source;
}

enum status chat_setup_encode(const struct chat_setup *setup, const struct tokenizer *t, struct chat_input input,
                              struct token_list *out, struct error *err)
{
    struct marked_text text = {0};
    enum status status = chat_setup_render(setup, input, &text, err);
    if (status == STATUS_OK) status = tokenizer_encode_marked(t, &text, out, err);
    marked_text_free(&text);
    return status;
}

size_t chat_setup_lasting(const struct chat_setup *setup, const struct tokenizer *t, struct chat_input input,
                          const struct token_list *prompt)
{
    struct token_list ids = {0};
    struct error ignored;
    size_t same = 0;
    input.add_generation_prompt = false;
    if (chat_setup_encode(setup, t, input, &ids, &ignored) == STATUS_OK)
        while (same < ids.count && same < prompt->count && ids.ids[same] == prompt->ids[same]) same++;
    token_list_free(&ids);
    return same;
}
