#include "runtime/profile/reservation.h"

enum { NUM_ORDERS = 62 };

struct reservation reserve_maximum(const int32_t *lengths, size_t count, int32_t max_model_len, int64_t token_bytes,
                                   int64_t pool_bytes)
{
    struct reservation r = {0};
    const int64_t piece = max_model_len * token_bytes;
    for (size_t i = 0; i < count; i++) r.used += lengths[i] * token_bytes;
    r.reserved = (int64_t)count * piece;
    r.at_once = pool_bytes / piece;
    r.external_waste = pool_bytes - r.at_once * piece;
    return r;
}

/* The order of the smallest power of two that holds so many tokens. */
static int order_of(int64_t tokens)
{
    int order = 0;
    while (((int64_t)1 << order) < tokens) order++;
    return order;
}

/* Takes a piece of 2^order tokens out of the pool, which has free_pieces[NUM_ORDERS]; splits a larger one if need be.
 * 0: there is none. */
static int take_piece(int64_t *free_pieces, int order)
{
    int from = order;
    while (from < NUM_ORDERS && free_pieces[from] == 0) from++;
    if (from == NUM_ORDERS) return 0;
    free_pieces[from]--;
    while (from > order) free_pieces[--from]++; /* a half stays, the other is split on or taken */
    return 1;
}

struct reservation reserve_powers(const int32_t *lengths, size_t count, int64_t token_bytes, int64_t pool_bytes)
{
    struct reservation r = {0};
    const int64_t pool = pool_bytes / token_bytes; /* tokens */
    int64_t free_pieces[NUM_ORDERS];
    for (int order = 0; order < NUM_ORDERS; order++) free_pieces[order] = pool >> order & 1;
    for (size_t i = 0; i < count; i++) {
        r.used += lengths[i] * token_bytes;
        r.reserved += ((int64_t)1 << order_of(lengths[i])) * token_bytes;
    }
    r.external_waste = pool_bytes;
    if (count == 0) return r;
    for (size_t i = 0; take_piece(free_pieces, order_of(lengths[i])); i = (i + 1) % count) {
        r.at_once++;
        r.external_waste -= ((int64_t)1 << order_of(lengths[i])) * token_bytes;
    }
    return r;
}

/* What the tokens of a sequence that blocks hold at its end take in them, of all groups. */
static int64_t held_bytes(const struct batch_limits *limits, int32_t length, int64_t block_bytes)
{
    int64_t sum = 0;
    for (int32_t g = 0; g < limits->num_groups; g++) {
        const int32_t window = limits->windows[g], tokens = window > 0 && window < length ? window : length;
        sum += tokens * (block_bytes / batch_block_size(limits, g));
    }
    return sum;
}

struct reservation reserve_blocks(const int32_t *lengths, size_t count, const struct batch_limits *limits,
                                  int64_t block_bytes, int32_t num_blocks)
{
    struct reservation r = {0};
    int64_t left = num_blocks;
    for (size_t i = 0; i < count; i++) {
        r.used += held_bytes(limits, lengths[i], block_bytes);
        r.reserved += batch_sequence_blocks(limits, lengths[i]) * block_bytes;
    }
    for (size_t i = 0; count > 0 && left >= batch_sequence_blocks(limits, lengths[i]); i = (i + 1) % count) {
        left -= batch_sequence_blocks(limits, lengths[i]);
        r.at_once++;
    }
    return r;
}
