#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/prompts/answer_parts.h"
#include "runtime/prompts/api.h"
#include "runtime/prompts/messages_request.h"
#include "runtime/prompts/responses_request.h"

struct choice {
    struct answer_parser *parser; /* NULL: all is content */
    int32_t prompt, output_tokens, num_tools;
    bool in_reasoning; /* its newest part is reasoning, or the prompt ends in some */
    bool spoke;        /* the piece that is being taken has made a part */
    bool ended;
    struct api_response *response; /* that it is of */
};

struct api_response {
    const struct api_rules *rules;
    const struct api_request *request;
    char *id;
    uint64_t tool_seed;
    struct api_head head;
    struct api_writer *writer;
    struct choice *choices;      /* [head.num_choices] */
    struct api_usage *of_prompt; /* [request->num_prompts]: tokens of the prompts; 0 where nothing has come yet */
    struct api_usage usage;      /* of all */
    int32_t num_open;            /* choices that have not ended */
    int status;
    bool begun, whole, ok;
    struct text *out; /* of the call that takes a piece */
};

/* ---- its life ---- */

void api_response_free(struct api_response *r)
{
    if (!r) return;
    for (int32_t i = 0; r->choices && i < r->head.num_choices; i++) answer_parser_free(r->choices[i].parser);
    api_writer_free(r->writer);
    free(r->choices);
    free(r->of_prompt);
    free(r->id);
    free(r);
}

static struct api_head make_head(const struct api_rules *rules, const struct api_request *request, const char *id)
{
    const struct prompt *first = &request->prompts[0];
    const struct openai_request *o = &first->openai;
    return (struct api_head){.id = id,
                             .model = rules->model_names[0],
                             .created = (int64_t)time(NULL),
                             .metadata = o->metadata,
                             .repeated = request->repeated,
                             .tokenizer = rules->prompts->tokenizer,
                             .stream = o->stream,
                             .include_usage = o->include_usage,
                             .continuous_usage = o->continuous_usage,
                             .has_logprobs = first->params.logprobs >= 0,
                             .has_token_ids = o->return_token_ids || rules->return_token_ids,
                             .names_tokens = o->names_tokens,
                             .echo = o->echo,
                             .only_echo = o->only_echo,
                             .num_choices = request->num_prompts * request->n};
}

static answer_part_function take_part;

static enum status create_choice(struct api_response *r, int32_t index, struct error *err)
{
    struct choice *c = &r->choices[index];
    c->prompt = index / r->request->n;
    const struct answer_parser_options *parts = &r->request->prompts[c->prompt].parts;
    c->response = r;
    c->in_reasoning = parts->in_reasoning;
    if (!parts->tools && !parts->reasoning) return STATUS_OK;
    return answer_parser_create(parts, take_part, c, &c->parser, err);
}

static struct api_writer *create_writer(enum api_form form, const struct api_head *head)
{
    if (form == API_MESSAGES) return messages_writer_create(head);
    if (form == API_RESPONSES) return responses_writer_create(head);
    return form == API_CHAT ? chat_writer_create(head) : completion_writer_create(head);
}

enum status api_response_create(const struct api_rules *rules, const struct api_request *request, const char *id,
                                struct api_response **out, struct error *err)
{
    struct api_response *r = *out = calloc(1, sizeof *r);
    if (!r) return error_set(err, STATUS_OUT_OF_MEMORY, "no memory for a response");
    *r = (struct api_response){.rules = rules, .request = request, .status = 200, .id = strdup(id), .ok = true};
    r->head = make_head(rules, request, r->id);
    r->num_open = r->head.num_choices;
    r->choices = calloc((size_t)r->num_open, sizeof *r->choices);
    r->of_prompt = calloc((size_t)request->num_prompts, sizeof *r->of_prompt);
    r->writer = create_writer(request->form, &r->head);
    if (request->prompts[0].parts.tools) r->tool_seed = tool_id_seed(id, &request->prompts[0].tokens);
    const bool ok = r->id && r->choices && r->of_prompt && r->writer;
    enum status status = ok ? STATUS_OK : error_set(err, STATUS_OUT_OF_MEMORY, "no memory for a response");
    for (int32_t i = 0; i < r->num_open && status == STATUS_OK; i++) status = create_choice(r, i, err);
    if (status == STATUS_OK) return STATUS_OK;
    api_response_free(r);
    *out = NULL;
    return status;
}

/* ---- events ---- */

static void send(struct api_response *r, struct api_event event)
{
    event.usage = r->usage;
    r->ok = r->ok && r->writer->take(r->writer, &event, r->out);
}

/* Whether the request wants this part. */
static bool is_wanted(const struct choice *c, const struct answer_part *part)
{
    const struct openai_request *o = &c->response->request->prompts[c->prompt].openai;
    if (part->kind == PART_REASONING) return !o->hides_reasoning;
    return part->kind == PART_CONTENT || part->tool == 0 || !o->one_call;
}

static void take_part(void *user, const struct answer_part *part)
{
    struct choice *c = user;
    struct answer_part known = *part;
    const int32_t index = (int32_t)(c - c->response->choices);
    struct tool_id id;
    c->in_reasoning = part->kind == PART_REASONING;
    if (part->kind == PART_TOOL_CALL) c->num_tools++;
    if (part->kind == PART_TOOL_CALL && !part->id) {
        id = tool_id_make(c->response->tool_seed, index, part->tool);
        known.id = id.text;
    }
    if (!is_wanted(c, part)) return;
    c->spoke = true;
    send(c->response, (struct api_event){.kind = API_PART, .choice = index, .part = &known});
}

/* ---- pieces ---- */

/* The text becomes parts. Where ids are asked for, a piece without text makes an empty one. */
static void take_text(struct api_response *r, struct choice *c, const struct answer_piece *piece)
{
    const size_t length = c->parser ? answer_parts_length(r->head.tokenizer, piece) : piece->text_length;
    const struct answer_part content = {.kind = PART_CONTENT, .text = piece->text, .length = length};
    const struct answer_part nothing = {.kind = PART_CONTENT, .text = ""};
    c->spoke = false;
    if (c->parser && !answer_parser_add(c->parser, piece->text, length)) r->ok = false;
    if (!c->parser && length > 0) take_part(c, &content);
    if (c->in_reasoning) r->usage.reasoning_tokens += piece->num_tokens;
    if (c->parser && piece->finish_reason != FINISH_NONE && !answer_parser_finish(c->parser)) r->ok = false;
    if (!c->spoke && piece->num_tokens > 0 && r->head.has_token_ids && piece->finish_reason == FINISH_NONE)
        send(r, (struct api_event){.kind = API_PART, .choice = (int32_t)(c - r->choices), .part = &nothing});
}

static void begin(struct api_response *r, int32_t prompt, const struct answer_piece *piece)
{
    struct api_usage *of = &r->of_prompt[prompt];
    if (!r->begun) send(r, (struct api_event){.kind = API_BEGIN});
    r->begun = true;
    const bool first = of->prompt_tokens == 0;
    r->usage.prompt_tokens += piece->prompt_tokens - of->prompt_tokens;
    r->usage.cached_tokens += piece->cached_tokens - of->cached_tokens;
    of->prompt_tokens = piece->prompt_tokens;
    of->cached_tokens = piece->cached_tokens;
    if (first)
        send(r, (struct api_event){.kind = API_PROMPT,
                                   .choice = prompt * r->request->n,
                                   .num_choices = r->request->n,
                                   .prompt = &r->request->prompts[prompt],
                                   .piece = piece});
}

static void finish(struct api_response *r, struct choice *c, const struct answer_piece *piece)
{
    c->ended = true;
    send(r,
         (struct api_event){
             .kind = API_FINISH, .choice = (int32_t)(c - r->choices), .piece = piece, .has_tools = c->num_tools > 0});
    if (--r->num_open > 0) return;
    send(r, (struct api_event){.kind = API_END});
    r->whole = true;
}

/* A completion of no tokens: the one that was computed is not shown. */
static void take_echo_only(struct api_response *r, struct choice *c, const struct answer_piece *piece)
{
    struct answer_piece end = *piece;
    if (piece->finish_reason == FINISH_NONE) return;
    if (piece->finish_reason == FINISH_STOP) end.finish_reason = FINISH_LENGTH;
    end.stop_reason = NULL;
    end.stop_token = -1;
    finish(r, c, &end);
}

static void take_piece(struct api_response *r, struct choice *c, const struct answer_piece *piece)
{
    r->usage.completion_tokens += piece->output_tokens - c->output_tokens;
    c->output_tokens = piece->output_tokens;
    if (piece->num_tokens > 0 && (r->head.has_token_ids || r->head.has_logprobs))
        send(r, (struct api_event){.kind = API_TOKEN, .choice = (int32_t)(c - r->choices), .piece = piece});
    take_text(r, c, piece);
    if (piece->finish_reason != FINISH_NONE) finish(r, c, piece);
}

bool api_response_take(struct api_response *r, int32_t prompt, const struct answer_piece *piece, struct text *out)
{
    struct choice *c = &r->choices[prompt * r->request->n + piece->index];
    if (r->whole || c->ended) return true;
    if (piece->finish_reason == FINISH_ERROR) {
        struct api_refusal refusal;
        api_refuse(r->rules, STATUS_INTERNAL, piece->error, &refusal);
        return api_response_fail(r, &refusal, out);
    }
    r->out = out;
    begin(r, prompt, piece);
    if (r->head.only_echo)
        take_echo_only(r, c, piece);
    else
        take_piece(r, c, piece);
    r->out = NULL;
    return r->ok;
}

bool api_response_fail(struct api_response *r, const struct api_refusal *refusal, struct text *out)
{
    const bool is_openai = r->request->form == API_CHAT || r->request->form == API_COMPLETION,
               in_stream = r->begun && r->head.stream;
    if (r->whole) return true;
    r->whole = true;
    if (!in_stream) {
        r->status = refusal->http_status;
        return api_refusal_write(r->request->form, refusal, out);
    }
    return text_append_string(out, is_openai ? "data: " : "event: error\ndata: ") &&
           api_refusal_write(r->request->form, refusal, out) &&
           text_append_string(out, is_openai ? "\n\ndata: [DONE]\n\n" : "\n\n");
}

bool api_response_is_whole(const struct api_response *r)
{
    return r->whole;
}

int api_response_status(const struct api_response *r)
{
    return r->status;
}

bool api_response_is_stream(const struct api_response *r)
{
    return r->head.stream && r->status == 200;
}

struct api_usage api_response_usage(const struct api_response *r)
{
    return r->usage;
}
