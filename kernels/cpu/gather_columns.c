/* Columns of all ranks, in an order: each rank writes its own as floats, all_gather brings those of the others. */
#include "kernels/cpu/state.h"

static void put_token(const struct cpu_state *s, const void *gather_args, int64_t token, int thread)
{
    const struct gather_columns_args *args = gather_args;
    (void)thread;
    s->kernels->to_float(args->all + token * args->total + args->first,
                         cpu_element(args->x, args->dtype, token * args->columns), args->dtype, args->columns);
}

static void take_token(const struct cpu_state *s, const void *gather_args, int64_t token, int thread)
{
    const struct gather_columns_args *args = gather_args;
    const float *all = args->all + token * args->total;
    float piece[CPU_PIECE];
    (void)thread;
    for (int64_t i = 0; i < args->size; i += CPU_PIECE) {
        const int64_t n = min_i64(CPU_PIECE, args->size - i);
        for (int64_t j = 0; j < n; j++) piece[j] = all[args->order[i + j]];
        s->kernels->from_float(cpu_element_out(args->out, args->dtype, token * args->size + i), piece, args->dtype, n);
    }
}

void cpu_gather_columns(struct backend *b, const struct gather_columns_args *args)
{
    const struct all_gather_args all = {.x = args->all,
                                        .rows = args->num_tokens,
                                        .stride = args->total,
                                        .total = args->total,
                                        .first = args->first,
                                        .columns = args->columns};
    cpu_for(cpu_state(b), args->num_tokens * args->columns, args->num_tokens, put_token, args);
    b->all_gather(b, &all);
    cpu_for(cpu_state(b), args->num_tokens * args->size, args->num_tokens, take_token, args);
}
