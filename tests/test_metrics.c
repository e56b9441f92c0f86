/* What a server counts: histograms, tokens of the last second, and the text that Prometheus reads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/serve/metrics.h"

/* The number behind `beginning`, which begins a line. */
static double number_of(const struct text *page, const char *beginning)
{
    const char *line = page->data;
    while (line && strncmp(line, beginning, strlen(beginning)) != 0)
        line = (line = strchr(line, '\n')) ? line + 1 : NULL;
    if (!line) fail_msg("no %s in: %s", beginning, page->data);
    const char *value = line + strlen(beginning);
    assert_int_equal(*value, ' ');
    return strtod(value, NULL);
}

static void write_page(struct metrics *m, const char *model, struct text *out)
{
    static const struct batch_limits limits = {.block_size = 16};
    static const struct engine_info engine = {.limits = &limits};
    const struct metrics_facts facts = {.model = model,
                                        .engine = &engine,
                                        .stats = {.blocks_total = 8, .blocks_in_use = 2, .num_running = 3},
                                        .num_waiting = 5,
                                        .num_connections = 7};
    text_clear(out);
    assert_true(metrics_write(m, &facts, out));
}

#define LABELS "model_name=\"m\",engine=\"0\""
#define FIRST "vllm:time_to_first_token_seconds"

/* A value that equals a bound belongs to its bucket, and buckets count those below them. */
static void test_histogram(void **state)
{
    (void)state;
    static const double values[] = {0.0005, 0.001, 0.002, 0.3, 5000};
    struct metrics m;
    struct text page = {0};
    metrics_init(&m);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) metrics_observe(&m, METRICS_FIRST_TOKEN, values[i]);
    write_page(&m, "m", &page);
    assert_true(number_of(&page, FIRST "_bucket{" LABELS ",le=\"0.001\"}") == 2);
    assert_true(number_of(&page, FIRST "_bucket{" LABELS ",le=\"0.005\"}") == 3);
    assert_true(number_of(&page, FIRST "_bucket{" LABELS ",le=\"0.25\"}") == 3);
    assert_true(number_of(&page, FIRST "_bucket{" LABELS ",le=\"0.5\"}") == 4);
    assert_true(number_of(&page, FIRST "_bucket{" LABELS ",le=\"2560\"}") == 4);
    assert_true(number_of(&page, FIRST "_bucket{" LABELS ",le=\"+Inf\"}") == 5);
    assert_true(number_of(&page, FIRST "_count{" LABELS "}") == 5);
    assert_in_range((uintmax_t)number_of(&page, FIRST "_sum{" LABELS "}"), 5000, 5001);
    text_free(&page);
    metrics_destroy(&m);
}

/* Ten whole tenths of a second before now count, and neither older ones nor the one that runs. */
static void test_tokens_per_second(void **state)
{
    (void)state;
    struct metrics m;
    metrics_init(&m);
    const double start = m.started;
    assert_true(metrics_tokens_per_second(&m, start + 0.05) == 0);
    metrics_count_tokens(&m, start + 0.05, 1);
    metrics_count_tokens(&m, start + 0.55, 10);
    metrics_count_tokens(&m, start + 1.05, 100);
    assert_true(metrics_tokens_per_second(&m, start + 0.07) == 0);
    assert_true(metrics_tokens_per_second(&m, start + 1.07) == 11);
    assert_true(metrics_tokens_per_second(&m, start + 1.15) == 110);
    metrics_count_tokens(&m, start + 1.15, 1000); /* takes the place of the first */
    assert_true(metrics_tokens_per_second(&m, start + 1.25) == 1110);
    assert_true(metrics_tokens_per_second(&m, start + 2.25) == 0);
    assert_true(metrics_tokens_per_second(&m, start + 3600.05) == 0);
    metrics_destroy(&m);
}

static void test_page(void **state)
{
    (void)state;
    struct metrics m;
    struct text page = {0};
    metrics_init(&m);
    metrics_count_answer(&m, FINISH_STOP);
    metrics_count_answer(&m, FINISH_STOP);
    metrics_count_answer(&m, FINISH_ABORT);
    metrics_count_response(&m, "/a", 200);
    metrics_count_response(&m, "/b", 404);
    metrics_count_response(&m, "/a", 503);
    metrics_count_response(&m, "/a", 200);
    metrics_count_usage(&m, (struct api_usage){.prompt_tokens = 30, .completion_tokens = 4});
    write_page(&m, "m", &page);
    assert_true(number_of(&page, "vllm:request_success_total{" LABELS ",finished_reason=\"stop\"}") == 2);
    assert_true(number_of(&page, "vllm:request_success_total{" LABELS ",finished_reason=\"length\"}") == 0);
    assert_true(number_of(&page, "vllm:request_success_total{" LABELS ",finished_reason=\"abort\"}") == 1);
    assert_true(number_of(&page, "http_requests_total{handler=\"/a\",status=\"2xx\"}") == 2);
    assert_true(number_of(&page, "http_requests_total{handler=\"/a\",status=\"5xx\"}") == 1);
    assert_true(number_of(&page, "http_requests_total{handler=\"/b\",status=\"4xx\"}") == 1);
    assert_true(number_of(&page, "vllm:prompt_tokens_total{" LABELS "}") == 30);
    assert_true(number_of(&page, "vllm:kv_cache_usage_perc{" LABELS "}") == 0.25);
    assert_true(number_of(&page, "vllm:num_requests_running{" LABELS "}") == 3);
    assert_true(number_of(&page, "vllm:num_requests_waiting{" LABELS "}") == 5);
    assert_true(number_of(&page, "process_open_fds") > 0);
    assert_true(number_of(&page, "process_resident_memory_bytes") > 0);
    write_page(&m, "a\"b\\c\nd", &page);
    assert_true(number_of(&page, "vllm:num_requests_running{model_name=\"a\\\"b\\\\c\\nd\",engine=\"0\"}") == 3);
    text_free(&page);
    metrics_destroy(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_histogram),
        cmocka_unit_test(test_tokens_per_second),
        cmocka_unit_test(test_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
