/* What sequences would reserve if each had its K and V in one contiguous piece, as systems before paged attention had
 * them, beside blocks (Kwon et al., 2023, section 3.1 and figures 2 and 3): in pieces of the longest sequence, and in
 * pieces of powers of two from a buddy allocator.
 *
 *   internal waste   slots of a reserved piece that the sequence never fills
 *   external waste   memory of the pool that is left and holds no further sequence */
#ifndef QUIRE_RUNTIME_RESERVATION_H
#define QUIRE_RUNTIME_RESERVATION_H

#include <stddef.h>
#include <stdint.h>

#include "base/batch.h"

struct reservation {
    int64_t reserved, used; /* bytes, of all sequences together */
    int64_t at_once;        /* sequences in the pool: the given ones in their order, again and again from the first,
                               until one has no room */
    int64_t external_waste; /* bytes of the pool then; internal waste is reserved - used */
};

/* Sequences of lengths[count] tokens, each at least 1, whose K and V take token_bytes each, and a pool of pool_bytes. A
 * piece never lets go of tokens that a window has passed. */
struct reservation reserve_maximum(const int32_t *lengths, size_t count, int32_t max_model_len, int64_t token_bytes,
                                   int64_t pool_bytes);
/* A piece is the smallest power of two that holds the sequence. The pool is cut into the powers of two that it is the
 * sum of, largest first. */
struct reservation reserve_powers(const int32_t *lengths, size_t count, int64_t token_bytes, int64_t pool_bytes);
/* Blocks of every KV cache group, nothing shared. Tokens that a window has passed are not counted as used. There is no
 * external waste: any sequence can take any free block, and a sequence begins before all of its blocks are free. */
struct reservation reserve_blocks(const int32_t *lengths, size_t count, const struct batch_limits *limits,
                                  int64_t block_bytes, int32_t num_blocks);

#endif
