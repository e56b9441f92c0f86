/* Answers whose text must be one of a grammar: they are, whatever the path, and those beside them stay what they are.
 * The model's weights are random, so that without masks no answer would fit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/engine/draft.h"
#include "runtime/engine/engine_pool.h"
#include "runtime/engine/grammars.h"
#include "tests/support/must.h"
#include "tests/support/run.h"
#include "tests/support/toy_model.h"
#include "tokenizer/grammar/structured.h"

/* ---- grammars ---- */

enum kind { FREE, DIGITS, LIST, CHOICE, FIXED, EMPTY_OR_X, NUM_KINDS };
static const char *const fixed_text =
    "The KV cache is divided into blocks, and each block holds the keys and values of a few tokens.";
static const char *const choices[] = {"yes", "no", "yes, and more", "maybe"};

static grammar_node bytes(struct grammar_builder *b, const char *text)
{
    return grammar_bytes(b, text, strlen(text));
}

static grammar_node digits(struct grammar_builder *b, int32_t least, int32_t most)
{
    const struct character_range range = {'0', '9'};
    return grammar_repeat(b, grammar_characters(b, &range, 1), least, most);
}

/* "[1, 22, 333]", of one to four numbers. */
static grammar_node list(struct grammar_builder *b)
{
    const grammar_node more[] = {bytes(b, ", "), digits(b, 1, 4)};
    const grammar_node parts[] = {bytes(b, "["), digits(b, 1, 4), grammar_repeat(b, grammar_sequence(b, more, 2), 0, 3),
                                  bytes(b, "]")};
    return grammar_sequence(b, parts, 4);
}

static grammar_node node_of(struct grammar_builder *b, enum kind kind)
{
    grammar_node parts[4];
    switch (kind) {
    case DIGITS:
        return digits(b, 3, 30);
    case LIST:
        return list(b);
    case CHOICE:
        for (int i = 0; i < 4; i++) parts[i] = bytes(b, choices[i]);
        return grammar_choice(b, parts, 4);
    case FIXED:
        return bytes(b, fixed_text);
    default:
        parts[0] = grammar_empty(b);
        parts[1] = bytes(b, "x");
        return grammar_choice(b, parts, 2);
    }
}

/* ---- what fits them ---- */

static size_t num_digits(const char *text)
{
    return strspn(text, "0123456789");
}

/* Whether the text is a list, or the beginning of one. */
static bool is_list(const char *text, bool whole)
{
    if (*text == 0) return !whole;
    if (*text++ != '[') return false;
    for (int i = 0; i < 4; i++) {
        const size_t count = num_digits(text);
        text += count;
        if (*text == 0) return !whole && count <= 4;
        if (count < 1 || count > 4) return false;
        if (strcmp(text, "]") == 0) return true;
        if (strcmp(text, ",") == 0 || strcmp(text, ", ") == 0) return !whole && i < 3;
        if (strncmp(text, ", ", 2) != 0) return false;
        text += 2;
    }
    return false;
}

static bool is_choice(const char *text, bool whole)
{
    for (int i = 0; i < 4; i++)
        if (whole ? strcmp(text, choices[i]) == 0 : strncmp(text, choices[i], strlen(text)) == 0) return true;
    return false;
}

/* Whether the text is one of the grammar or, unless whole, the beginning of one. */
static bool fits(enum kind kind, const char *text, bool whole)
{
    const size_t length = strlen(text);
    switch (kind) {
    case DIGITS:
        return num_digits(text) == length && length <= 30 && (!whole || length >= 3);
    case LIST:
        return is_list(text, whole);
    case CHOICE:
        return is_choice(text, whole);
    case FIXED:
        return whole ? strcmp(text, fixed_text) == 0 : strncmp(text, fixed_text, length) == 0;
    case EMPTY_OR_X:
        return strcmp(text, "") == 0 || strcmp(text, "x") == 0;
    default:
        return true;
    }
}

/* ---- an engine and its constraints ---- */

struct fixture {
    struct temp_folder folder;
    struct engine *engine;
    struct vocabulary *vocabulary;
    struct constraint *constraints[NUM_KINDS]; /* FREE: NULL */
};

/* Frees the builder. */
static struct constraint *constraint_of(struct grammar_builder *b, grammar_node node, const struct vocabulary *v)
{
    const int32_t rule = grammar_rule(b, "root");
    struct grammar *grammar;
    struct constraint *constraint;
    struct error err;
    grammar_define(b, rule, node);
    must(grammar_build(b, rule, &grammar, &err), &err);
    grammar_builder_free(b);
    must(constraint_create(grammar, v, &constraint, &err), &err);
    grammar_free(grammar);
    return constraint;
}

static struct constraint *make_constraint(const struct vocabulary *v, enum kind kind)
{
    struct grammar_builder *b = grammar_builder_create();
    return constraint_of(b, node_of(b, kind), v);
}

static struct engine_options toy_options(const char *folder, const struct run_variant *v, char *path, size_t size)
{
    struct engine_options o = run_variant_options(folder, 200, v, path, size);
    o.load_format = LOAD_FORMAT_DUMMY;
    o.skip_tokenizer = false;
    return o;
}

static void make_constraints(struct fixture *f, const struct engine_info *info)
{
    struct error err;
    int32_t eos = tokenizer_eos_id(info->tokenizer);
    const int32_t *ids = info->config->num_eos > 0 ? info->config->eos_token_ids : &eos;
    const int32_t num_ids = info->config->num_eos > 0 ? info->config->num_eos : 1;
    must(vocabulary_create(tokenizer_tokens(info->tokenizer), info->num_ids, ids, num_ids, &f->vocabulary, &err), &err);
    for (int k = FREE + 1; k < NUM_KINDS; k++) f->constraints[k] = make_constraint(f->vocabulary, (enum kind)k);
}

static void free_constraints(struct fixture *f)
{
    for (int k = 0; k < NUM_KINDS; k++) constraint_free(f->constraints[k]);
}

static void open_fixture(struct fixture *f, const struct engine_options *o)
{
    f->engine = run_engine(o);
    make_constraints(f, engine_info(f->engine));
}

static void close_fixture(struct fixture *f)
{
    free_constraints(f);
    engine_destroy(f->engine);
    vocabulary_free(f->vocabulary);
}

/* ---- requests ---- */

enum { NUM_REQUESTS = 14, MOST_ANSWERS = 3 };

struct asked {
    enum kind kind;
    struct sampling_params params;
};

static struct sampling_params sampled(double temperature, int32_t max_tokens)
{
    struct sampling_params p = sampling_params_default();
    p.temperature = temperature;
    p.max_tokens = max_tokens;
    p.has_seed = true;
    p.seed = 5;
    p.logprobs = 2;
    return p;
}

/* Greedy and random, of several answers, with what changes logits and what ends answers. */
static void make_requests(struct asked *asked)
{
    for (int i = 0; i < NUM_REQUESTS; i++)
        asked[i] = (struct asked){(enum kind)(i % NUM_KINDS), sampled(i % 2 ? 1 : 0, 100)};
    asked[1].params.n = 3;
    asked[1].params.temperature = 1.5;
    asked[2].params.repetition_penalty = 1.2;
    asked[3].params.temperature = 2;
    asked[3].params.top_k = 3;
    asked[3].params.n = 2;
    asked[6].params.max_tokens = 30;
    asked[7].params.max_tokens = 4; /* too few for most digits */
    asked[8].params.best_of = 3;
    asked[8].params.temperature = 1;
    asked[9].params.min_tokens = 3;
    asked[9].params.top_p = 0.5;
    asked[10].params.ignore_eos = true;
    asked[12].params.max_tokens = 50;
    asked[12].params.temperature = 1;
    assert_true(sampling_params_add_stop(&asked[13].params, "7"));
}

static void free_requests(struct asked *asked)
{
    for (int i = 0; i < NUM_REQUESTS; i++) sampling_params_free(&asked[i].params);
}

static void deliver(void *answers, const struct answer_piece *piece)
{
    run_answer_add((struct run_answer *)answers + piece->index, piece);
}

/* Adds all requests, or one kind of two, at once, and steps until all is done. */
static void run_asked(struct fixture *f, const struct asked *asked, bool constrained, bool other, struct run *run)
{
    static const int32_t lengths[NUM_REQUESTS] = {1, 9, 20, 33, 5, 17, 40, 2, 12, 28, 3, 16, 50, 8};
    struct run_prompt *prompts = run_random_prompts(lengths, NUM_REQUESTS, engine_info(f->engine)->num_ids, 3);
    struct error err = {""};
    *run = (struct run){.num_prompts = NUM_REQUESTS, .n = MOST_ANSWERS};
    run->answers = calloc(NUM_REQUESTS * MOST_ANSWERS, sizeof *run->answers);
    for (int i = 0; i < NUM_REQUESTS; i++) {
        const bool is_free = asked[i].kind == FREE;
        for (int k = 0; k < MOST_ANSWERS; k++) run_answer_open(&run->answers[i * MOST_ANSWERS + k], 200);
        const struct engine_request request = {.prompt = prompts[i].ids,
                                               .prompt_len = prompts[i].length,
                                               .params = &asked[i].params,
                                               .at_start = true,
                                               .constraint = f->constraints[asked[i].kind],
                                               .deliver = deliver,
                                               .user = &run->answers[i * MOST_ANSWERS]};
        if (is_free ? other : constrained) must(engine_add(f->engine, &request, NULL, &err), &err);
    }
    for (bool worked = true; worked;) must(engine_step(f->engine, &worked, &err), &err);
    assert_false(engine_has_work(f->engine));
    run_prompts_free(prompts, NUM_REQUESTS);
}

/* What ended at a stop string is the beginning of a text. */
static void check_answer(const char *name, const struct asked *asked, int i, const struct run_answer *a)
{
    char text[512];
    assert_true(a->text.length < sizeof text);
    memcpy(text, a->text.data ? a->text.data : "", a->text.length);
    text[a->text.length] = 0;
    run_answer_check(a);
    if (a->error[0]) fail_msg("%s: request %d failed: %s", name, i, a->error);
    const bool whole = a->finish == FINISH_STOP && !a->stop_reason[0];
    if (!fits(asked[i].kind, text, whole))
        fail_msg("%s: request %d answered \"%s\"%s", name, i, text, whole ? "" : ", not to its end");
    if (asked[i].kind == FIXED) assert_int_equal(a->finish, FINISH_STOP);
}

static void check_answers(const char *name, const struct asked *asked, const struct run *run)
{
    int32_t ended = 0;
    for (int i = 0; i < NUM_REQUESTS; i++)
        for (int k = 0; k < asked[i].params.n; k++) {
            const struct run_answer *a = &run->answers[i * MOST_ANSWERS + k];
            if (asked[i].kind == FREE) continue;
            check_answer(name, asked, i, a);
            ended += a->finish == FINISH_STOP;
        }
    assert_true(ended >= NUM_REQUESTS / 2);
}

/* ---- the same answers whatever the path ---- */

static const struct run_variant alone = {"alone", 16, 1, 512, 0, false, 0, PREEMPTION_AUTO};
static const struct run_variant variants[] = {
    {"batched", 16, 32, 512, 0, true, 0, PREEMPTION_AUTO},
    {"two steps in flight", 16, 32, 512, 0, true, 1, PREEMPTION_AUTO},
    {"small chunks, in flight", 16, 8, 9, 0, false, 1, PREEMPTION_AUTO},
    {"preemption, in flight", 8, 16, 512, 30, true, 1, PREEMPTION_RECOMPUTE},
    {"swapping, in flight", 8, 16, 512, 30, true, 1, PREEMPTION_SWAP},
};

/* With ThreadSanitizer, which takes twenty times as long, those with most in flight are enough. */
static bool is_taken(const struct run_variant *v)
{
#if defined(__SANITIZE_THREAD__)
    return v->async && v->num_blocks > 0;
#else
    return v != NULL;
#endif
}

/* Several answers run at once. */
static struct run_variant at_least(const struct run_variant *v)
{
    struct run_variant own = *v;
    if (own.max_num_seqs < MOST_ANSWERS) own.max_num_seqs = MOST_ANSWERS;
    return own;
}

static void set_up(struct fixture *f)
{
    *f = (struct fixture){0};
    toy_model_make(&f->folder, QUIRE_GUIDE, false);
}

static void run_variant(struct fixture *f, const struct run_variant *v, const struct asked *asked, struct run *run)
{
    char path[512];
    const struct run_variant own = at_least(v);
    struct scheduler_stats stats;
    const struct engine_options o = toy_options(f->folder.path, &own, path, sizeof path);
    open_fixture(f, &o);
    run_asked(f, asked, true, true, run);
    engine_stats(f->engine, &stats);
    close_fixture(f);
    check_answers(v->name, asked, run);
    assert_int_equal(v->num_blocks > 0, stats.preemptions_recompute + stats.preemptions_swap > 0);
}

static void answers_fit_whatever_the_path(void **state)
{
    struct asked asked[NUM_REQUESTS];
    struct fixture f;
    struct run reference, other;
    int cut = 0;
    (void)state;
    run_need_device();
    set_up(&f);
    make_requests(asked);
    run_variant(&f, &alone, asked, &reference);
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        if (!is_taken(&variants[i])) continue;
        run_variant(&f, &variants[i], asked, &other);
        cut += run_assert_same(&reference, &other, variants[i].name);
        run_free(&other);
    }
    assert_true(cut <= 6);
    run_free(&reference);
    free_requests(asked);
    temp_folder_remove(&f.folder);
}

/* Requests that have no grammar get the same answers beside those that have one. */
static void free_answers_stay_what_they_are(void **state)
{
    char path[512];
    struct asked asked[NUM_REQUESTS];
    struct fixture f;
    struct run without, with;
    (void)state;
    run_need_device();
    set_up(&f);
    make_requests(asked);
    const struct engine_options o = toy_options(f.folder.path, &variants[1], path, sizeof path);
    open_fixture(&f, &o);
    run_asked(&f, asked, false, true, &without);
    run_asked(&f, asked, true, true, &with);
    for (int i = 0; i < NUM_REQUESTS; i += NUM_KINDS) {
        const struct run one = {&without.answers[i * MOST_ANSWERS], 1, 1},
                         two = {&with.answers[i * MOST_ANSWERS], 1, 1};
        assert_true(one.answers[0].count > 0);
        run_assert_same(&one, &two, "free answers");
    }
    close_fixture(&f);
    run_free(&without), run_free(&with);
    free_requests(asked);
    temp_folder_remove(&f.folder);
}

/* Of a real model: ranks make other dummy weights. */
static void run_shared(int32_t ranks, int32_t stages, const struct asked *asked, struct run *run)
{
    char path[512];
    struct fixture f = {.engine = NULL};
    struct engine_options o = toy_options(QUIRE_GUIDE, &variants[0], path, sizeof path);
    o.load_format = LOAD_FORMAT_AUTO;
    o.tensor_parallel_size = ranks;
    o.pipeline_parallel_size = stages;
    open_fixture(&f, &o);
    run_asked(&f, asked, true, true, run);
    close_fixture(&f);
    check_answers("ranks", asked, run);
}

static void ranks_and_stages_answer_alike(void **state)
{
    static const int32_t sharing[][2] = {{2, 1}, {1, 2}, {2, 2}};
    struct asked asked[NUM_REQUESTS];
    struct run reference, other;
    int cut = 0;
    (void)state;
    const int32_t most = run_max_ranks();
    make_requests(asked);
    run_shared(1, 1, asked, &reference);
    for (size_t i = 0; i < sizeof sharing / sizeof *sharing; i++) {
        if (sharing[i][0] * sharing[i][1] > most) continue;
        run_shared(sharing[i][0], sharing[i][1], asked, &other);
        cut += run_assert_same(&reference, &other, "ranks");
        run_free(&other);
    }
    assert_true(cut <= 6);
    run_free(&reference);
    free_requests(asked);
}

/* One request alone. */
static void ask(struct fixture *f, enum kind kind, const struct sampling_params *params, struct run_answer *answer)
{
    static const int32_t prompt[] = {5, 6, 7};
    const struct engine_request request = {.prompt = prompt,
                                           .prompt_len = 3,
                                           .params = params,
                                           .at_start = true,
                                           .constraint = f->constraints[kind],
                                           .deliver = deliver,
                                           .user = answer};
    struct error err = {""};
    run_answer_open(answer, 200);
    must(engine_add(f->engine, &request, NULL, &err), &err);
    for (bool worked = true; worked;) must(engine_step(f->engine, &worked, &err), &err);
    run_answer_check(answer);
}

/* ---- drafts ---- */

/* Guesses tokens that a grammar here may allow or not. */
static void guess(struct drafter *drafter, struct draft_query *queries, int32_t count)
{
    (void)drafter;
    for (int32_t i = 0; i < count; i++)
        for (queries[i].num_drafts = 0; queries[i].num_drafts < queries[i].most; queries[i].num_drafts++)
            queries[i].drafts[queries[i].num_drafts] = (queries[i].seq->num_tokens * 31 + queries[i].num_drafts) % 300;
}

static void run_drafted(const struct fixture *folder, const struct run_variant *v, struct drafter *own,
                        const struct asked *asked, struct run *run, struct scheduler_stats *stats)
{
    char path[512];
    struct fixture f = {.folder = folder->folder};
    struct engine_options o = toy_options(f.folder.path, v, path, sizeof path);
    o.speculative.method = DRAFT_NGRAM;
    o.speculative.num_speculative_tokens = 5;
    o.drafter = own;
    o.fixed_drafts = true;
    open_fixture(&f, &o);
    run_asked(&f, asked, true, true, run);
    engine_stats(f.engine, stats);
    close_fixture(&f);
    check_answers(v->name, asked, run);
}

/* With any drafts, right or wrong, the answers are those of plain decoding. */
static void drafts_change_no_answer(void **state)
{
    struct asked asked[NUM_REQUESTS];
    struct drafter guesser = {.name = "guess", .propose = guess};
    struct fixture f;
    struct run reference, other;
    struct scheduler_stats stats;
    int cut = 0;
    (void)state;
    run_need_device();
    set_up(&f);
    make_requests(asked);
    run_variant(&f, &variants[0], asked, &reference);
    for (int i = 0; i < 4; i++) {
        const struct run_variant *v = &variants[i == 3 ? 3 : i % 2];
        if (!is_taken(v)) continue;
        run_drafted(&f, v, i % 2 ? &guesser : NULL, asked, &other, &stats);
        print_message("%s: %d of %d drafts accepted\n", v->name, (int)stats.drafts_accepted, (int)stats.drafts);
        assert_true(stats.drafts > 50 && stats.drafts_accepted > 0);
        cut += run_assert_same(&reference, &other, v->name);
        run_free(&other);
    }
    assert_true(cut <= 6);
    run_free(&reference);
    free_requests(asked);
    temp_folder_remove(&f.folder);
}

/* Sequences with a grammar take no drafts of a model on the device; those beside them do. */
static void a_draft_model_leaves_them_alone(void **state)
{
    char path[512];
    struct asked asked[NUM_REQUESTS];
    struct fixture f;
    struct run reference, other;
    struct scheduler_stats stats;
    (void)state;
    run_need_device();
    set_up(&f);
    make_requests(asked);
    run_variant(&f, &variants[0], asked, &reference);
    struct engine_options o = toy_options(f.folder.path, &variants[0], path, sizeof path);
    o.speculative.method = DRAFT_MODEL;
    snprintf(o.speculative.model, sizeof o.speculative.model, "%s", f.folder.path);
    open_fixture(&f, &o);
    run_asked(&f, asked, true, true, &other);
    engine_stats(f.engine, &stats);
    close_fixture(&f);
    check_answers("draft model", asked, &other);
    assert_true(stats.drafts > 0);
    run_assert_same(&reference, &other, "draft model");
    run_free(&reference), run_free(&other);
    free_requests(asked);
    temp_folder_remove(&f.folder);
}

/* The steps of a greedy answer from the model whose tokens it is: how the tokenizer writes the only text. */
static int64_t steps_of_fixed(const char *folder, enum draft_method method, int32_t *num_tokens)
{
    char path[512];
    struct fixture f = {.engine = NULL};
    struct run_answer a;
    struct scheduler_stats stats;
    const struct sampling_params params = sampled(0, 120);
    struct engine_options o = toy_options(folder, &variants[0], path, sizeof path);
    o.load_format = LOAD_FORMAT_AUTO;
    o.speculative.method = method;
    o.fixed_drafts = true;
    open_fixture(&f, &o);
    ask(&f, FIXED, &params, &a);
    engine_stats(f.engine, &stats);
    *num_tokens = a.count;
    run_answer_free(&a);
    close_fixture(&f);
    return stats.steps;
}

/* The only text of a grammar is drafted as the tokenizer encodes it, so that a model which writes it so gets it in
 * fewer steps than tokens. */
static void the_only_text_is_drafted(void **state)
{
    int32_t plain_tokens, num_tokens;
    (void)state;
    run_need_device();
    const int64_t plain = steps_of_fixed(QUIRE_GUIDE, DRAFT_NONE, &plain_tokens);
    const int64_t with_others = steps_of_fixed(QUIRE_GUIDE, DRAFT_NGRAM, &num_tokens);
    assert_true(with_others * 3 < plain * 2);
    const int64_t drafted = steps_of_fixed(QUIRE_GUIDE, DRAFT_GRAMMAR, &num_tokens);
    print_message("%d tokens in %d steps, and in %d without drafts\n", num_tokens, (int)drafted, (int)plain);
    assert_int_equal(num_tokens, plain_tokens);
    assert_true(plain >= num_tokens);
    assert_true(drafted * 3 < plain * 2);
}

/* ---- ends ---- */

/* The token that completes the only text is the last one: no step draws an end of sequence. */
static void an_answer_ends_with_its_text(void **state)
{
    char path[512];
    struct fixture f;
    (void)state;
    run_need_device();
    set_up(&f);
    const struct engine_options o = toy_options(f.folder.path, &variants[1], path, sizeof path);
    open_fixture(&f, &o);
    for (int pass = 0; pass < 4; pass++) {
        struct sampling_params params = sampled(pass % 2, 120);
        struct run_answer a;
        params.ignore_eos = pass >= 2;
        ask(&f, FIXED, &params, &a);
        assert_int_equal(a.finish, FINISH_STOP);
        assert_int_equal(a.stop_token, -1);
        assert_int_equal(a.text.length, strlen(fixed_text));
        size_t length;
        tokenizer_token_bytes(engine_info(f.engine)->tokenizer, a.tokens[a.count - 1], false, &length);
        assert_true(length > 0);
        run_answer_free(&a);
        params.max_tokens = a.count; /* also where it is the last one that the request may have */
        ask(&f, FIXED, &params, &a);
        assert_int_equal(a.finish, FINISH_STOP);
        run_answer_free(&a);
    }
    close_fixture(&f);
    temp_folder_remove(&f.folder);
}

/* "x" and nothing else may come where min_tokens wants a token, and an end where it wants one more. */
static void min_tokens_and_a_grammar(void **state)
{
    char path[512];
    struct fixture f;
    (void)state;
    run_need_device();
    set_up(&f);
    const struct engine_options o = toy_options(f.folder.path, &variants[0], path, sizeof path);
    open_fixture(&f, &o);
    for (int32_t least = 1; least < 3; least++) {
        struct sampling_params params = sampled(1, 10);
        struct run_answer a;
        params.min_tokens = least;
        ask(&f, EMPTY_OR_X, &params, &a);
        assert_int_equal(a.finish, FINISH_STOP);
        assert_int_equal(a.count, 1);
        assert_memory_equal(a.text.data, "x", 1);
        run_answer_free(&a);
    }
    close_fixture(&f);
    temp_folder_remove(&f.folder);
}

/* A vocabulary in which no token but special ones has a "q". */
static struct vocabulary *vocabulary_without_q(const struct engine_info *info, int32_t num_stop_ids)
{
    const int32_t eos = tokenizer_eos_id(info->tokenizer);
    struct token_table table = *tokenizer_tokens(info->tokenizer);
    struct token *tokens = malloc((size_t)table.count * sizeof *tokens);
    struct vocabulary *vocabulary;
    struct error err;
    assert_non_null(tokens);
    for (int32_t id = 0; id < table.count; id++) {
        tokens[id] = table.tokens[id];
        if (memchr(table.bytes.data + tokens[id].offset, 'q', tokens[id].length)) tokens[id].flags |= TOKEN_SPECIAL;
    }
    table.tokens = tokens;
    must(vocabulary_create(&table, info->num_ids, &eos, num_stop_ids, &vocabulary, &err), &err);
    free(tokens);
    return vocabulary;
}

/* "aq", and "a" if it is optional. */
static struct constraint *need_q(const struct vocabulary *v, bool optional)
{
    struct grammar_builder *b = grammar_builder_create();
    const grammar_node parts[] = {bytes(b, "aq"), optional ? bytes(b, "a") : grammar_never(b)};
    return constraint_of(b, grammar_choice(b, parts, 2), v);
}

struct dead_end {
    int32_t num_stop_ids, min_tokens;
    bool optional;
    enum finish_reason finish;
    const char *error;
};

/* After "a" the vocabulary has nothing but, where it has that, the end of the sequence. */
static void check_dead_end(struct fixture *f, const struct dead_end *d)
{
    struct vocabulary *vocabulary = vocabulary_without_q(engine_info(f->engine), d->num_stop_ids);
    struct constraint *kept = f->constraints[DIGITS];
    struct sampling_params params = sampled(1, 10);
    struct run_answer a;
    params.min_tokens = d->min_tokens;
    f->constraints[DIGITS] = need_q(vocabulary, d->optional);
    ask(f, DIGITS, &params, &a);
    assert_int_equal(a.finish, d->finish);
    assert_int_equal(a.text.length, 1);
    if (d->error ? !strstr(a.error, d->error) : a.error[0] != 0) fail_msg("\"%s\"", a.error);
    run_answer_free(&a);
    constraint_free(f->constraints[DIGITS]);
    f->constraints[DIGITS] = kept;
    vocabulary_free(vocabulary);
}

static void an_answer_that_cannot_go_on_ends(void **state)
{
    static const struct dead_end cases[] = {
        {1, 0, false, FINISH_ERROR, "no token of the vocabulary goes on with the answer as its grammar wants"},
        {0, 0, true, FINISH_STOP, NULL},
        {1, 0, true, FINISH_STOP, NULL},
        {1, 5, true, FINISH_ERROR, "min_tokens is 5, but the grammar lets the answer end only, after 1"},
    };
    char path[512];
    struct fixture f;
    (void)state;
    run_need_device();
    set_up(&f);
    for (int async = 0; async < 2; async++) {
        const struct engine_options o = toy_options(f.folder.path, &variants[async], path, sizeof path);
        open_fixture(&f, &o);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_dead_end(&f, &cases[i]);
        close_fixture(&f);
    }
    temp_folder_remove(&f.folder);
}

static void what_cannot_follow_a_grammar_is_refused(void **state)
{
    char path[512];
    struct fixture f;
    struct error err;
    static const int32_t prompt[] = {5};
    (void)state;
    run_need_device();
    set_up(&f);
    struct engine_options o = toy_options(f.folder.path, &variants[0], path, sizeof path);
    open_fixture(&f, &o);
    struct sampling_params params = sampling_params_default();
    params.temperature = 0;
    params.beam_width = 2;
    const struct engine_request request = {
        .prompt = prompt, .prompt_len = 1, .params = &params, .constraint = f.constraints[DIGITS], .deliver = deliver};
    assert_int_equal(engine_add(f.engine, &request, NULL, &err), STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.text, "beam_width is 2"));
    struct grammars *const grammars = engine_info(f.engine)->grammars;
    assert_non_null(grammars_cache(grammars));
    assert_ptr_equal(grammars_cache(grammars), grammars_cache(grammars));
    close_fixture(&f);
    o.skip_tokenizer = true;
    f.engine = run_engine(&o);
    assert_null(engine_info(f.engine)->grammars);
    engine_destroy(f.engine);
    temp_folder_remove(&f.folder);
}

/* One constraint serves the requests of several engines. */
static void engines_of_a_pool_share_constraints(void **state)
{
    enum { REQUESTS = 6 };
    char path[512];
    static const int32_t prompt[] = {5, 6, 7, 8};
    struct fixture f = {.engine = NULL};
    struct engine_pool *pool;
    struct run_answer answers[REQUESTS];
    struct error err = {""};
    const struct sampling_params params = sampled(0, 100);
    (void)state;
    if (strcmp(run_need_device(), "cpu") != 0) skip(); /* a pool needs a GPU for each engine */
    set_up(&f);
    struct engine_options o = toy_options(f.folder.path, &variants[0], path, sizeof path);
    o.data_parallel_size = 2;
    must(engine_pool_create(&o, &pool, &err), &err);
    make_constraints(&f, engine_pool_info(pool));
    for (int i = 0; i < REQUESTS; i++) {
        const struct engine_request request = {.prompt = prompt,
                                               .prompt_len = 4,
                                               .params = &params,
                                               .constraint = f.constraints[i % 2 ? FIXED : DIGITS],
                                               .deliver = deliver,
                                               .user = &answers[i]};
        run_answer_open(&answers[i], 200);
        must(engine_pool_add(pool, &request, NULL, &err), &err);
    }
    for (bool worked = true; engine_pool_has_work(pool);) must(engine_pool_step(pool, &worked, &err), &err);
    for (int i = 0; i < REQUESTS; i++) {
        assert_int_equal(answers[i].finish, FINISH_STOP);
        if (i > 1) assert_int_equal(answers[i].count, answers[i - 2].count);
        run_answer_free(&answers[i]);
    }
    assert_non_null(grammars_cache(engine_pool_info(pool)->grammars));
    free_constraints(&f);
    engine_pool_destroy(pool);
    vocabulary_free(f.vocabulary);
    temp_folder_remove(&f.folder);
}

/* Requests are ended at any step, and an engine with some is destroyed. */
static void aborts_and_destruction(void **state)
{
    char path[512];
    struct fixture f;
    struct run_answer answers[6];
    static const int32_t prompt[] = {5, 6, 7, 8};
    (void)state;
    run_need_device();
    set_up(&f);
    const struct engine_options o = toy_options(f.folder.path, &variants[1], path, sizeof path);
    open_fixture(&f, &o);
    const struct sampling_params params = sampled(1, 100);
    for (int steps = 0; steps < 6; steps++) {
        const struct engine_request request = {.prompt = prompt,
                                               .prompt_len = 4,
                                               .params = &params,
                                               .constraint = f.constraints[FIXED],
                                               .deliver = deliver,
                                               .user = &answers[steps]};
        uint64_t id;
        bool worked;
        struct error err;
        run_answer_open(&answers[steps], 200);
        must(engine_add(f.engine, &request, &id, &err), &err);
        for (int i = 0; i < steps; i++) must(engine_step(f.engine, &worked, &err), &err);
        if (steps == 5) break;
        engine_abort(f.engine, id);
        for (worked = true; worked;) must(engine_step(f.engine, &worked, &err), &err);
        assert_int_equal(answers[steps].finish, FINISH_ABORT);
    }
    close_fixture(&f);
    for (int i = 0; i < 6; i++) run_answer_free(&answers[i]);
    temp_folder_remove(&f.folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_fit_whatever_the_path),
        cmocka_unit_test(free_answers_stay_what_they_are),
        cmocka_unit_test(ranks_and_stages_answer_alike),
        cmocka_unit_test(an_answer_ends_with_its_text),
        cmocka_unit_test(drafts_change_no_answer),
        cmocka_unit_test(the_only_text_is_drafted),
        cmocka_unit_test(a_draft_model_leaves_them_alone),
        cmocka_unit_test(engines_of_a_pool_share_constraints),
        cmocka_unit_test(min_tokens_and_a_grammar),
        cmocka_unit_test(an_answer_that_cannot_go_on_ends),
        cmocka_unit_test(what_cannot_follow_a_grammar_is_refused),
        cmocka_unit_test(aborts_and_destruction),
    };
    cmocka_set_test_filter(getenv("QUIRE_TEST_FILTER"));
    const int failed = cmocka_run_group_tests_name("cpu", tests, NULL, NULL);
    run_set_device("cuda");
    return failed + cmocka_run_group_tests_name("cuda", tests, NULL, NULL);
}
