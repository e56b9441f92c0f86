/* What sequences reserve in contiguous caches and in blocks, against numbers counted by hand; and thinned series. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/profile/bar.h"
#include "runtime/profile/reservation.h"
#include "runtime/profile/series.h"

/* Tokens of 10 bytes; a pool of 1000 bytes and a half token more. */
enum { TOKEN = 10, POOL = 1005 };

static void check(struct reservation r, int64_t reserved, int64_t used, int64_t at_once, int64_t external_waste)
{
    assert_int_equal(r.reserved, reserved);
    assert_int_equal(r.used, used);
    assert_int_equal(r.at_once, at_once);
    assert_int_equal(r.external_waste, external_waste);
}

static void pieces_of_the_longest(void **state)
{
    const int32_t lengths[] = {5, 30, 17};
    (void)state;
    /* Three pieces of 30 tokens hold 52; three fit in 100 tokens, and 10 tokens and 5 bytes are left. */
    check(reserve_maximum(lengths, 3, 30, TOKEN, POOL), 900, 520, 3, 105);
    check(reserve_maximum(lengths, 3, 101, TOKEN, POOL), 3030, 520, 0, 1005);
    check(reserve_maximum(lengths, 0, 30, TOKEN, POOL), 0, 0, 3, 105);
}

static void pieces_of_powers_of_two(void **state)
{
    const int32_t lengths[] = {5, 30, 17}, ones[] = {1}, exact[] = {32, 4};
    (void)state;
    /* 8 + 32 + 32 tokens. The pool of 100 is 64 + 32 + 4: 5 takes 8 of the 32, which leaves 16 and 8 of it; 30 and 17
     * take 32 of the 64 each; the next 5 takes the 8; 30 has no room. 16 + 4 tokens and 5 bytes are left. */
    check(reserve_powers(lengths, 3, TOKEN, POOL), 720, 520, 4, 205);
    /* 32, 4 from the 4; 32 and 4 from the 64, whose halves are then 16 and 8 and 4; no 32 is left. */
    check(reserve_powers(exact, 2, TOKEN, POOL), 360, 360, 4, 285);
    check(reserve_powers(ones, 1, TOKEN, POOL), 10, 10, 100, 5);
    check(reserve_powers(ones, 0, TOKEN, POOL), 0, 0, 0, 1005);
}

static void blocks(void **state)
{
    const int32_t lengths[] = {5, 30, 17};
    const struct batch_limits limits = {
        .max_num_tokens = 8, .max_num_seqs = 4, .max_model_len = 64, .block_size = 8, .num_groups = 1};
    (void)state;
    /* 1 + 4 + 3 blocks of 80 bytes. Of 12: 8, then 1 of the first again; 4 for the second do not fit in 3. */
    check(reserve_blocks(lengths, 3, &limits, 80, 12), 640, 520, 4, 0);
    /* Exactly: 13 take the second, too. */
    check(reserve_blocks(lengths, 3, &limits, 80, 13), 640, 520, 5, 0);
    check(reserve_blocks(lengths, 0, &limits, 80, 13), 0, 0, 0, 0);
}

/* A group that keeps all, and one with a window of 8: a sequence of 30 tokens and steps of 8 holds at most
 * (8 - 1 + 8 + 8 - 2) / 8 + 1 = 3 blocks of it. */
static void blocks_of_windows(void **state)
{
    const int32_t lengths[] = {30};
    const struct batch_limits limits = {.max_num_tokens = 8,
                                        .max_num_seqs = 4,
                                        .max_model_len = 64,
                                        .block_size = 8,
                                        .num_groups = 2,
                                        .windows = {0, 8}};
    (void)state;
    check(reserve_blocks(lengths, 1, &limits, 80, 14), (4 + 3) * 80, (30 + 8) * 10, 2, 0);
}

/* ---- series ---- */

static struct scheduler_stats stats_of(int64_t step, int32_t in_use, int32_t running, int64_t preempted)
{
    return (struct scheduler_stats){.steps = step,
                                    .blocks_total = 20,
                                    .blocks_in_use = in_use,
                                    .blocks_free = 20 - in_use,
                                    .num_running = running,
                                    .tokens = 10 * step,
                                    .preemptions_recompute = preempted};
}

static void thinning_keeps_peaks_and_sums(void **state)
{
    const int32_t in_use[] = {3, 9, 4, 5, 2}, running[] = {1, 1, 3, 2, 0};
    const int64_t preempted[] = {0, 0, 1, 1, 3};
    struct series s = {0};
    struct error err;
    struct series_row rows[8];
    (void)state;
    for (int i = 0; i < 5; i++) {
        const struct scheduler_stats stats = stats_of(i + 1, in_use[i], running[i], preempted[i]);
        assert_int_equal(series_add(&s, &stats, i, &err), STATUS_OK);
    }
    assert_int_equal(s.preemptions, 3);
    assert_int_equal(series_thin(&s, rows, 8), 5);
    assert_int_equal(rows[4].num_preemptions, 2);
    assert_int_equal(rows[4].num_tokens, 10);
    /* Two of them: steps 1 and 2, and 3 to 5. */
    assert_int_equal(series_thin(&s, rows, 2), 2);
    assert_int_equal(rows[0].blocks_in_use, 9);
    assert_int_equal(rows[0].num_tokens, 20);
    assert_int_equal(rows[1].blocks_in_use, 5);
    assert_int_equal(rows[1].num_running, 3);
    assert_int_equal(rows[1].num_preemptions, 3);
    assert_int_equal(rows[1].num_tokens, 30);
    series_free(&s);
}

static void bars(void **state)
{
    char bar[BAR_TEXT_SIZE];
    (void)state;
    bar_text(bar, 0.5, 10, false);
    assert_string_equal(bar, "#####");
    bar_text(bar, 0.001, 10, false);
    assert_string_equal(bar, "#");
    bar_text(bar, 0, 10, true);
    assert_string_equal(bar, "");
    bar_text(bar, 0.25, 3, true); /* 6 eighths */
    assert_string_equal(bar, "▊");
    bar_text(bar, 0.375, 3, true); /* 9 eighths */
    assert_string_equal(bar, "█▏");
    bar_text(bar, 1.7, 3, true);
    assert_string_equal(bar, "███");
    bar_text(bar, 1, BAR_MAX_WIDTH, true);
    assert_int_equal(strlen(bar), 3 * BAR_MAX_WIDTH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_of_the_longest),
        cmocka_unit_test(pieces_of_powers_of_two),
        cmocka_unit_test(blocks),
        cmocka_unit_test(blocks_of_windows),
        cmocka_unit_test(thinning_keeps_peaks_and_sums),
        cmocka_unit_test(bars),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
