#include "tokenizer/chat_template.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "base/words.h"
#include "tokenizer/jinja/jinja.h"
#include "tokenizer/tokenizer_config.h"

struct parsed_template {
    const char *name;
    struct jinja_template *jinja;
    bool takes_parts; /* it loops over the parts of a content */
    bool needs_parts; /* and shows no content that is a string */
};

struct chat_template {
    const struct tokenizer *tokenizer;
    struct parsed_template *items; /* [count] */
    size_t count;
};

static enum status out_of_memory(struct error *err)
{
    return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for the chat template");
}

/* --- choosing --- */

void chat_template_close(struct chat_template *c)
{
    if (!c) return;
    for (size_t i = 0; i < c->count; i++) jinja_template_free(c->items[i].jinja);
    free(c->items);
    free(c);
}

static const struct parsed_template *find(const struct chat_template *c, const char *name)
{
    for (size_t i = 0; i < c->count; i++)
        if (strcmp(c->items[i].name, name) == 0) return &c->items[i];
    return NULL;
}

static enum status choose(const struct chat_template *c, const struct chat_input *input,
                          const struct parsed_template **out, struct error *err)
{
    *out = input->tools ? find(c, "tool_use") : NULL;
    if (!*out) *out = find(c, "default");
    if (*out) return STATUS_OK;
    return error_set(err, STATUS_UNSUPPORTED,
                     "the checkpoint has chat templates with names such as \"%s\", but none of the name \"default\"; "
                     "give the one that is to be used",
                     c->items[0].name);
}

/* --- the input --- */

static enum status check_part(size_t message, const json_t *part, struct error *err)
{
    static const char others[] =
        "image image_url input_image image_embeds image_pil video video_url audio audio_url input_audio file";
    const char *type = json_string_value(json_object_get(part, "type"));
    if (json_is_string(json_object_get(part, "text")) && (!type || strcmp(type, "text") == 0)) return STATUS_OK;
    if (words_have(others, type))
        return error_set(err, STATUS_INVALID,
                         "message %zu has a part of type \"%s\"; quire reads text alone, also of models that were "
                         "trained with images or audio: leave the part out",
                         message, type);
    return error_set(err, STATUS_INVALID,
                     "message %zu has a part of its content that is not {\"type\": \"text\", \"text\": ...}; the model "
                     "takes text alone",
                     message);
}

static enum status check_message(size_t number, const json_t *message, struct error *err)
{
    const json_t *content = json_object_get(message, "content"), *part;
    size_t i;
    if (!json_is_map(message) || !json_is_string(json_object_get(message, "role")))
        return error_set(err, STATUS_INVALID, "message %zu must be an object with a string \"role\"", number);
    json_array_foreach((json_t *)content, i, part)
    {
        enum status status = check_part(number, part, err);
        if (status) return status;
    }
    if (!content || json_is_string(content) || json_is_null(content) || json_is_array(content)) return STATUS_OK;
    return error_set(err, STATUS_INVALID, "the \"content\" of message %zu must be a string or a list of parts", number);
}

static enum status check_list(const char *name, const json_t *list, struct error *err)
{
    const json_t *element;
    size_t i;
    bool ok = !list || json_is_array(list);
    json_array_foreach((json_t *)list, i, element) ok = ok && json_is_map(element);
    return ok ? STATUS_OK : error_set(err, STATUS_INVALID, "%s must be a list of objects", name);
}

static enum status check_kwargs(const json_t *kwargs, struct error *err)
{
    static const char *const taken[] = {"messages", "tools", "documents", "add_generation_prompt"};
    if (kwargs && !json_is_map(kwargs)) return error_set(err, STATUS_INVALID, "chat_template_kwargs must be an object");
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (json_object_get(kwargs, taken[i]))
            return error_set(err, STATUS_INVALID, "chat_template_kwargs must not have the name \"%s\"", taken[i]);
    return STATUS_OK;
}

enum status chat_input_check(const struct chat_input *input, struct error *err)
{
    const json_t *message;
    size_t i;
    if (!json_is_array(input->messages))
        return error_set(err, STATUS_INVALID,
                         "messages must be a list of objects, each with a \"role\" and \"content\"");
    if (json_array_size(input->messages) == 0) return error_set(err, STATUS_INVALID, "messages is empty");
    json_array_foreach((json_t *)input->messages, i, message)
    {
        enum status status = check_message(i + 1, message, err);
        if (status) return status;
    }
    enum status status = check_list("tools", input->tools, err);
    if (!status) status = check_list("documents", input->documents, err);
    return status ? status : check_kwargs(input->kwargs, err);
}

/* --- the form of a content that a template expects --- */

static json_t *join_parts(const json_t *parts)
{
    struct text text = {0};
    const json_t *part;
    size_t i;
    bool ok = text_append(&text, "", 0);
    json_array_foreach((json_t *)parts, i, part)
    {
        const json_t *piece = json_object_get(part, "text");
        ok = ok && (i == 0 || text_append(&text, "\n", 1)) &&
             text_append(&text, json_string_value(piece), json_string_length(piece));
    }
    json_t *joined = ok ? json_stringn_nocheck(text.data, text.length) : NULL;
    text_free(&text);
    return joined;
}

/* A copy of the messages in which each content is a string, or a list of parts; NULL: memory ran out. */
static json_t *with_form(const json_t *messages, bool parts)
{
    json_t *copy = json_array();
    const json_t *message;
    size_t i;
    json_array_foreach((json_t *)messages, i, message)
    {
        json_t *content = json_object_get(message, "content"), *changed = json_copy((json_t *)message);
        if (parts && json_is_string(content))
            json_object_set_new(changed, "content", json_pack("[{s:s, s:O}]", "type", "text", "text", content));
        if (!parts && json_is_array(content)) json_object_set_new(changed, "content", join_parts(content));
        if (json_array_append_new(copy, changed) != 0) {
            json_decref(copy);
            return NULL;
        }
    }
    return copy;
}

static bool has_parts(const json_t *messages)
{
    const json_t *message;
    size_t i;
    json_array_foreach((json_t *)messages, i,
                       message) if (json_is_array(json_object_get(message, "content"))) return true;
    return false;
}

/* --- rendering --- */

/* The usual roles may be part of a special token; any other role is text that a person wrote. */
static bool is_marked(const char *key, const char *string, size_t length)
{
    static const char roles[] = "system user assistant tool developer ipython model function tools chatbot documents "
                                "context latest_reminder environment observation";
    return strcmp(key, "role") != 0 || !words_have_text(roles, string, length);
}

/* Fills variables[4 + tokens + kwargs]; returns how many there are. */
static size_t fill_variables(const struct chat_template *c, const struct chat_input *input, const json_t *messages,
                             struct jinja_variable *variables)
{
    size_t n = 0;
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)tokenizer_template_variables(c->tokenizer), name, value) variables[n++] =
        (struct jinja_variable){.name = name, .value = value};
    variables[n++] = (struct jinja_variable){"messages", messages, true, is_marked};
    variables[n++] = (struct jinja_variable){"tools", input->tools ? input->tools : json_null(), true, NULL};
    variables[n++] =
        (struct jinja_variable){"documents", input->documents ? input->documents : json_null(), true, NULL};
    variables[n++] =
        (struct jinja_variable){"add_generation_prompt", json_boolean(input->add_generation_prompt), false, NULL};
    json_object_foreach((json_t *)input->kwargs, name, value) variables[n++] =
        (struct jinja_variable){name, value, true, NULL};
    return n;
}

static enum status render(const struct chat_template *c, const struct parsed_template *template,
                          const struct chat_input *input, const json_t *messages, struct jinja_output *out,
                          struct error *err)
{
    const size_t room =
        4 + json_object_size(tokenizer_template_variables(c->tokenizer)) + json_object_size(input->kwargs);
    struct jinja_variable *variables = calloc(room, sizeof *variables);
    if (!variables) return out_of_memory(err);
    const struct jinja_context context = {.variables = variables,
                                          .num_variables = fill_variables(c, input, messages, variables),
                                          .now = input->now ? input->now : (int64_t)time(NULL)};
    enum status status = jinja_render(template->jinja, &context, out, err);
    free(variables);
    return status ? error_prefix(err, status, "the chat template") : status;
}

/* --- opening --- */

static enum status parse(const char *name, const char *source, struct parsed_template *out, struct error *err)
{
    enum status status = jinja_parse(source, strlen(source), &out->jinja, err);
    if (status != STATUS_OK) return error_prefix(err, status, "the chat template");
    out->name = name;
    out->takes_parts = jinja_template_loops_over(out->jinja, "content");
    return STATUS_OK;
}

static const char probe[] = "Which form?";

/* Whether a message of this content comes out with the text that is in it. */
static bool shows(const struct chat_template *c, const struct parsed_template *template, json_t *content)
{
    json_t *messages = json_pack("[{s:s, s:o}]", "role", "user", "content", content);
    const struct chat_input input = {.messages = messages, .add_generation_prompt = true};
    struct jinja_output output = {0};
    struct error ignored;
    const bool shown = messages && render(c, template, &input, messages, &output, &ignored) == STATUS_OK &&
                       output.text.data && strstr(output.text.data, probe) != NULL;
    jinja_output_free(&output);
    json_decref(messages);
    return shown;
}

/* A template of a model with images may show no text but that of parts. */
static void learn_form(const struct chat_template *c, struct parsed_template *template)
{
    template->needs_parts = template->takes_parts && !shows(c, template, json_string(probe)) &&
                            shows(c, template, json_pack("[{s:s, s:s}]", "type", "text", "text", probe));
}

enum status chat_template_open(const struct tokenizer *t, const char *source, struct chat_template **out,
                               struct error *err)
{
    *out = NULL;
    const struct named_template given = {"default", (char *)source}, *templates = &given;
    size_t count = 1;
    if (!source) templates = tokenizer_chat_templates(t, &count);
    if (count == 0)
        return error_set(err, STATUS_UNSUPPORTED,
                         "the checkpoint has no chat template: neither chat_template.jinja nor a chat_template in "
                         "tokenizer_config.json; give it plain prompts, or the template that the model was trained "
                         "with");
    struct chat_template *c = calloc(1, sizeof *c);
    if (c) c->items = calloc(count, sizeof *c->items);
    if (!c || !c->items) {
        free(c);
        return out_of_memory(err);
    }
    c->tokenizer = t;
    enum status status = STATUS_OK;
    for (; c->count < count && !status; c->count++)
        status = parse(templates[c->count].name, templates[c->count].source, &c->items[c->count], err);
    for (size_t i = 0; i < count && !status; i++) learn_form(c, &c->items[i]);
    if (status)
        chat_template_close(c);
    else
        *out = c;
    return status;
}

/* --- a conversation --- */

enum status chat_template_render(const struct chat_template *c, const struct chat_input *input, struct marked_text *out,
                                 struct error *err)
{
    const struct parsed_template *template;
    enum status status = chat_input_check(input, err);
    if (!status) status = choose(c, input, &template, err);
    if (status) return status;
    json_t *changed = NULL;
    if (input->fit_form && (template->needs_parts || (!template->takes_parts && has_parts(input->messages)))) {
        changed = with_form(input->messages, template->needs_parts);
        if (!changed) return out_of_memory(err);
    }
    struct jinja_output output = {0};
    status = render(c, template, input, changed ? changed : input->messages, &output, err);
    json_decref(changed);
    if (!status) status = json_check_characters("the prompt", output.text.data, output.text.length, err);
    if (status) {
        jinja_output_free(&output);
        return status;
    }
    if (input->allow_special) text_free(&output.marks);
    marked_text_free(out);
    *out = (struct marked_text){output.text, output.marks};
    return STATUS_OK;
}

enum status chat_template_encode(const struct chat_template *c, const struct chat_input *input, struct token_list *out,
                                 struct error *err)
{
    struct marked_text text = {0};
    enum status status = chat_template_render(c, input, &text, err);
    if (!status) status = tokenizer_encode_marked(c->tokenizer, &text, out, err);
    marked_text_free(&text);
    return status;
}
