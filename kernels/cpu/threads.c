/* Operations divide their work among the threads of the pool. */
#include "kernels/cpu/state.h"

struct call {
    const struct cpu_state *s;
    cpu_body *body;
    const void *args;
};

static void run_call(void *context, int64_t index, int thread)
{
    const struct call *call = context;
    call->body(call->s, call->args, index, thread);
}

void cpu_for(const struct cpu_state *s, int64_t work, int64_t count, cpu_body *body, const void *args)
{
    struct call call = {.s = s, .body = body, .args = args};
    pool_run(s->pool, cpu_threads_for(s, work), count, run_call, &call);
}
