/* Requests of an API without a server and without a model: a body is read, and the test says what is answered. */
#ifndef QUIRE_TESTS_SUPPORT_API_CALL_H
#define QUIRE_TESTS_SUPPORT_API_CALL_H

#include "runtime/prompts/api.h"

/* Members of bodies, and a call of the tool. */
#define MESSAGES "\"messages\": [{\"role\": \"user\", \"content\": \"What is the weather?\"}]"
#define TOOLS                                                                                                          \
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"weather\", \"parameters\": {"                     \
    "\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\"}}}}}]"
#define CALL "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Aachen\"}}\n</tool_call>"

/* The rules of a server whose model writes tools as "hermes" and reasoning in <think>, with the tokenizer of
 * models/guide. Its names are "guide" and "other". */
struct api_world {
    struct tokenizer *tokenizer;
    struct prompt_rules prompts;
    struct api_rules rules;
};
void api_world_open(struct api_world *w);
void api_world_close(struct api_world *w);

/* The world of a program's tests, and its group's set-up and tear-down. */
extern struct api_world world;
int api_world_set_up(void **state);
int api_world_tear_down(void **state);

struct api_call {
    struct api_world *world;
    struct api_request request;
    struct api_response *response;
    struct text out;
};
/* Reads the body, which must be accepted, and begins the response, whose id is "id". */
void api_call_begin(struct api_call *c, struct api_world *w, enum api_form form, const char *body);
void api_call_end(struct api_call *c);

/* A token after another as one answer to a prompt: text[length] cut into the tokenizer's, special ones among them.
 * Token i has the log-probability -i/8, and the most probable tokens beside it are 5, 6, 7, ... with -1, -2, -3, ...
 * The first piece of answer 0 brings the prompt's log-probabilities, which are made in the same way, if they were asked
 * for. The last answer ends the request. */
void api_say(const struct tokenizer *t, const struct prompt *p, int32_t index, const char *text, enum finish_reason end,
             answer_function *deliver, void *user);
void api_call_say(struct api_call *c, int32_t prompt, int32_t index, const char *text, enum finish_reason end);

/* All that was sent, as an object, or as the list of a stream's events: without "[DONE]", which must end OpenAI's older
 * forms; in the others each event must be named as its type.
 * Fails the test if it is anything else. The caller owns it. */
json_t *api_call_object(const struct api_call *c);
json_t *api_call_events(const struct api_call *c);

/* The response to a body in which every answer is `text`, and ends for this reason. */
void api_call_answer(struct api_call *c, struct api_world *w, enum api_form form, const char *body, const char *text,
                     enum finish_reason end);
/* All of that, as an object or as the list of a stream's events. The caller owns it. */
json_t *api_object(struct api_world *w, enum api_form form, const char *body, const char *text, enum finish_reason end);
json_t *api_events(struct api_world *w, enum api_form form, const char *body, const char *text, enum finish_reason end);

/* Whether this function makes the body `expected` of a body, or refuses it with this sentence. */
typedef enum status api_translation(struct json_reader *body, json_t **chat);
void expect_translation(api_translation *translate, const char *body, const char *expected);
void expect_untranslatable(api_translation *translate, const char *body, const char *sentence);

#endif
