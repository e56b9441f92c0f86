/* models/guide, the chat model that ships: its prompts and answers are those of transformers (and its logits, in
 * test_golden), a conversation computes only what is new, and its draft model knows its answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "tests/support/golden.h"
#include "tests/support/run.h"
#include "tokenizer/chat_template.h"

static const char DATA[] = QUIRE_TEST_DATA "/guide";

struct questions {
    struct golden golden;
    json_t *root; /* the same cases with their messages */
};

static void load(struct questions *q)
{
    struct error err;
    json_error_t where;
    if (golden_load(DATA, &q->golden, &err) != STATUS_OK) fail_msg("%s", err.text);
    q->root = json_load_file(QUIRE_TEST_DATA "/guide/golden.json", 0, &where);
    assert_non_null(q->root);
}

static void unload(struct questions *q)
{
    golden_free(&q->golden);
    json_decref(q->root);
}

/* With the draft model that ships with it, or without drafts. */
static struct engine *guide_engine(bool with_drafts)
{
    char path[512];
    struct engine_options o = run_options(QUIRE_GUIDE, path, sizeof path);
    if (with_drafts) {
        o.speculative.method = DRAFT_MODEL;
        snprintf(o.speculative.model, sizeof o.speculative.model, "%s/draft", QUIRE_GUIDE);
        o.fixed_drafts = true;
    }
    o.skip_tokenizer = false;
    o.kv_cache_space = 0.5;
    o.max_num_seqs = 64;
    o.max_num_batched_tokens = 2048;
    return run_engine(&o);
}

/* The prompt for the answer to the last of the messages. */
static void render(const struct tokenizer *t, const json_t *messages, struct token_list *out)
{
    const struct chat_input input = {.messages = messages, .add_generation_prompt = true};
    struct chat_template *c;
    struct error err;
    if (chat_template_open(t, NULL, &c, &err) != STATUS_OK) fail_msg("%s", err.text);
    out->count = 0;
    if (chat_template_encode(c, &input, out, &err) != STATUS_OK) fail_msg("%s", err.text);
    chat_template_close(c);
}

static void add_message(json_t *messages, const char *role, const char *content)
{
    json_t *message = json_pack("{s:s, s:s}", "role", role, "content", content);
    assert_non_null(message);
    assert_int_equal(json_array_append_new(messages, message), 0);
}

static void test_prompts(void **state)
{
    (void)state;
    struct questions q;
    struct tokenizer *t;
    struct error err;
    load(&q);
    if (tokenizer_open(QUIRE_GUIDE, &t, &err) != STATUS_OK) fail_msg("%s", err.text);
    for (int32_t i = 0; i < q.golden.num_cases; i++) {
        const struct golden_case *c = &q.golden.cases[i];
        const json_t *cases = json_object_get(q.root, "cases");
        struct token_list ids = {0};
        render(t, json_object_get(json_array_get(cases, (size_t)i), "messages"), &ids);
        assert_int_equal(ids.count, c->num_prompt);
        assert_memory_equal(ids.ids, c->prompt, ids.count * sizeof *ids.ids);
        token_list_free(&ids);
    }
    tokenizer_close(t);
    unload(&q);
}

/* The engine gives the greedy answers, token for token. */
static void check_answers(struct engine *e)
{
    struct questions q;
    load(&q);
    const int32_t n = q.golden.num_cases;
    struct run_prompt *prompts = calloc((size_t)n, sizeof *prompts);
    struct run_answer *expected = calloc((size_t)n, sizeof *expected);
    for (int32_t i = 0; i < n; i++) {
        const struct golden_case *c = &q.golden.cases[i];
        prompts[i] = (struct run_prompt){c->prompt, c->num_prompt};
        expected[i] = (struct run_answer){.tokens = c->greedy, .gaps = c->gaps, .count = c->num_greedy};
    }
    struct sampling_params params;
    params = engine_info(e)->default_sampling;
    assert_true(params.temperature == 0); /* generation_config.json asks for greedy answers */
    params.max_tokens = 160;
    struct run run;
    run_prompts(e, prompts, n, &params, &run);
    const struct run reference = {.answers = expected, .num_prompts = n, .n = 1};
    const int cut = run_assert_same(&reference, &run, "the guide's answers");
    assert_true(cut <= 2);
    for (int32_t i = 0; i < n; i++) {
        assert_int_equal(run.answers[i].finish, FINISH_STOP);
        assert_true(run.answers[i].text.length > 0);
        assert_null(strstr(run.answers[i].text.data, "<|")); /* no special token is shown */
    }
    run_free(&run);
    free(prompts);
    free(expected);
    unload(&q);
}

static void test_answers(void **state)
{
    (void)state;
    struct engine *e = guide_engine(false);
    check_answers(e);
    engine_destroy(e);
}

/* Its draft model says what it says. The drafts behind the end of an answer are wrong. */
static void test_draft_model_agrees(void **state)
{
    (void)state;
    struct engine *e = guide_engine(true);
    struct scheduler_stats stats;
    check_answers(e);
    engine_stats(e, &stats);
    assert_true(stats.runs > 0 && stats.drafts_accepted > 4 * stats.runs);
    engine_destroy(e);
}

struct answer {
    struct token_list ids;
    int32_t prompt_tokens, cached_tokens;
    bool done;
};

static void collect(void *user, const struct answer_piece *piece)
{
    struct answer *a = user;
    assert_true(token_list_append(&a->ids, piece->token_ids, (size_t)piece->num_tokens));
    a->prompt_tokens = piece->prompt_tokens;
    a->cached_tokens = piece->cached_tokens;
    a->done = piece->request_finished;
}

static int32_t common_prefix(const struct token_list *a, const struct token_list *b)
{
    size_t same = 0;
    while (same < a->count && same < b->count && a->ids[same] == b->ids[same]) same++;
    return (int32_t)same;
}

/* Answers the conversation; *ids is then its prompt and the answer, of which *known tokens were computed. */
static void take_turn(struct engine *e, json_t *messages, const struct sampling_params *params, struct token_list *ids,
                      int32_t *known)
{
    const struct tokenizer *t = engine_info(e)->tokenizer;
    struct token_list prompt = {0};
    struct answer answer = {.done = false};
    struct text text = {0};
    struct error err;
    bool worked;
    render(t, messages, &prompt);
    const int32_t same = common_prefix(&prompt, ids), computed = same < *known ? same : *known;
    const struct engine_request request = {.prompt = prompt.ids,
                                           .prompt_len = (int32_t)prompt.count,
                                           .params = params,
                                           .at_start = true,
                                           .deliver = collect,
                                           .user = &answer};
    assert_int_equal(engine_add(e, &request, NULL, &err), STATUS_OK);
    while (engine_has_work(e)) assert_int_equal(engine_step(e, &worked, &err), STATUS_OK);
    assert_true(answer.done);
    /* A step that was in flight when the answer ended has computed its last token too. */
    if (answer.cached_tokens != computed / 16 * 16)
        assert_true(same > *known && answer.cached_tokens == same / 16 * 16);
    assert_int_equal(tokenizer_decode(t, answer.ids.ids, answer.ids.count, false, &text, &err), STATUS_OK);
    add_message(messages, "assistant", text.length ? text.data : "");
    assert_true(token_list_append(&prompt, answer.ids.ids, answer.ids.count));
    *known = (int32_t)prompt.count - 1; /* the last token was sampled, not computed */
    token_list_free(ids);
    *ids = prompt;
    token_list_free(&answer.ids);
    text_free(&text);
}

/* Twenty turns: each finds in the cache all full blocks of the ones before, which its template leaves as they were. */
static void test_conversation_computes_what_is_new(void **state)
{
    (void)state;
    static const char *const questions[] = {"hello", "What is a block?", "tell me more", "what is 3 + 4?",
                                            "What is copy-on-write?"};
    struct engine *e = guide_engine(false);
    struct token_list ids = {0};
    struct sampling_params params;
    json_t *messages = json_array();
    int32_t known = 0; /* tokens whose K and V have been computed */
    params = engine_info(e)->default_sampling;
    params.max_tokens = 80;
    for (int turn = 0; turn < 20; turn++) {
        struct token_list before = ids, prompt = {0};
        add_message(messages, "user", questions[turn % 5]);
        render(engine_info(e)->tokenizer, messages, &prompt);
        assert_true((size_t)common_prefix(&prompt, &before) + 4 > before.count);
        token_list_free(&prompt);
        take_turn(e, messages, &params, &ids, &known);
    }
    token_list_free(&ids);
    json_decref(messages);
    engine_destroy(e);
}

static void test_stop_strings(void **state)
{
    (void)state;
    struct engine *e = guide_engine(false);
    const struct tokenizer *t = engine_info(e)->tokenizer;
    static const char question[] = "What is a block table?";
    json_t *messages = json_array();
    struct token_list ids = {0};
    struct sampling_params params;
    char stop[2][SAMPLING_PARAMS_MAX_STOP_BYTES] = {"never in this text"};
    struct run whole, run;
    add_message(messages, "user", question);
    render(t, messages, &ids);
    json_decref(messages);
    const struct run_prompt prompt = {ids.ids, (int32_t)ids.count};
    params = engine_info(e)->default_sampling;
    params.max_tokens = 80;
    run_prompts(e, &prompt, 1, &params, &whole);
    const char *text = whole.answers[0].text.data;
    assert_true(strlen(text) > 30);
    /* Every piece of the answer, from inside words and across tokens, stops it exactly where it first occurs. */
    for (size_t from = 5; from + 9 < strlen(text) && from < 60; from += 6) {
        params.num_stop = 2;
        params.stop = stop;
        snprintf(stop[1], sizeof stop[1], "%.9s", text + from);
        const size_t expected = (size_t)(strstr(text, stop[1]) - text);
        for (int include = 0; include < 2; include++) {
            params.include_stop_str_in_output = include;
            run_prompts(e, &prompt, 1, &params, &run);
            assert_int_equal(run.answers[0].finish, FINISH_STOP);
            assert_string_equal(run.answers[0].stop_reason, stop[1]);
            assert_int_equal(run.answers[0].text.length, expected + (include ? 9 : 0));
            assert_memory_equal(run.answers[0].text.data, text, expected);
            run_free(&run);
        }
    }
    run_free(&whole);
    token_list_free(&ids);
    engine_destroy(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompts),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_draft_model_agrees),
        cmocka_unit_test(test_conversation_computes_what_is_new),
        cmocka_unit_test(test_stop_strings),
    };
    const struct CMUnitTest gpu_tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_draft_model_agrees),
        cmocka_unit_test(test_conversation_computes_what_is_new),
    };
    const int failed = cmocka_run_group_tests_name("cpu", tests, NULL, NULL);
    run_set_device("cuda");
    return failed + cmocka_run_group_tests_name("cuda", gpu_tests, NULL, NULL);
}
