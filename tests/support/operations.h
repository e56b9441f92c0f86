/* The arguments of operations on whole tensors: types come from the tensors, sizes from their counts, and everything is
 * contiguous. A test changes what it wants to be different. */
#ifndef QUIRE_TESTS_SUPPORT_OPERATIONS_H
#define QUIRE_TESTS_SUPPORT_OPERATIONS_H

#include "tests/support/kernel_test.h"

/* w holds out_features rows of in_features; bias may be NULL. */
struct weight weight_of(const struct tensor *w, int64_t in_features, const struct tensor *bias);
struct linear_args linear_of(const struct tensor *out, const struct tensor *x, const struct weight *w);

/* linear_parts does nothing and returns false, or, if it is to take these matmuls of x, writes what linear of each
 * does, to the bit. A backend without it passes. */
void check_linear_parts(struct test_backend *tb, const struct weight *const weights[], int count,
                        const struct tensor *x, bool is_taken);

struct norm_params norm_of(const struct tensor *gain); /* eps is 1e-5 */
struct rms_norm_args rms_norm_of(const struct tensor *out, const struct tensor *x, const struct tensor *gain);
struct fused_add_rms_norm_args fused_add_rms_norm_of(const struct tensor *out, const struct tensor *x,
                                                     const struct tensor *residual, const struct tensor *gain);

/* num_tokens rows; silu. */
struct act_and_mul_args act_and_mul_of(const struct tensor *out, const struct tensor *gate_up, int32_t num_tokens);
/* num_tokens rows; silu. */
struct activate_args activate_of(const struct tensor *out, const struct tensor *x, int32_t num_tokens);

/* int32 indices, as tensor_bytes makes them. */
struct gather_rows_args gather_rows_of(const struct tensor *out, const struct tensor *x, const struct tensor *indices);
struct embedding_args embedding_of(const struct tensor *out, const struct tensor *ids,
                                   const struct tensor *last_sampled, const struct weight *table);

#endif
