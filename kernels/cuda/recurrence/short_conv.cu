/* short_conv. A thread computes N channels. Decodes: all tokens of a chain. Prefills: a tile of tokens of an entry; the
 * thread of the first tile writes the state after the entry, too, so that a state that is read and written, if it is
 * the same, is read and written by one thread. */
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/recurrence/short_conv.cuh"

enum { THREADS = 128, TILE = 32, AT_ONCE = 4 };

template <class T, int N, int WIDTH>
static __global__ void __launch_bounds__(THREADS)
    conv_chains_kernel(const __grid_constant__ struct short_conv_args args)
{
    const struct state_batch &batch = args.batch;
    const int32_t first = (blockIdx.x * THREADS + threadIdx.x) * N;
    int32_t i = blockIdx.y;
    let_next_start();
    const int32_t source = batch.sources[i], start = batch.query_start[i];
    int32_t end = batch.query_start[i + 1], slot = batch.slots[i];
    if (first >= args.channels || source == STATE_CONTINUES) {
        wait_for_previous();
        return;
    }
    conv_channels<T, N, WIDTH> conv;
    conv.load_weights(args, first);
    wait_for_previous();
    conv.load_state(args, first, source);
    for (int32_t t = start;;) {
        for (; t < end; t++) conv.token(args, first, t, load_conv_inputs<T, N>(args, first, t));
        conv.store_state(args, first, slot);
        i++;
        if (i >= batch.num_seqs || batch.sources[i] != STATE_CONTINUES) break;
        end = batch.query_start[i + 1], slot = batch.slots[i];
    }
}

/* The tokens [start, end), whose window is loaded. */
template <class T, int N, int WIDTH>
static __device__ __forceinline__ void conv_tokens(conv_channels<T, N, WIDTH> &conv, const struct short_conv_args &args,
                                                   int32_t first, int32_t start, int32_t end)
{
    int32_t t = start;
    for (; t + AT_ONCE <= end; t += AT_ONCE) {
        conv_inputs<T, N> inputs[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) inputs[j] = load_conv_inputs<T, N>(args, first, t + j);
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) conv.token(args, first, t + j, inputs[j]);
    }
    for (; t < end; t++) conv.token(args, first, t, load_conv_inputs<T, N>(args, first, t));
}

/* Entry blockIdx.y, its tile blockIdx.z. */
template <class T, int N, int WIDTH>
static __global__ void __launch_bounds__(THREADS) conv_tiles_kernel(const __grid_constant__ struct short_conv_args args)
{
    const struct state_batch &batch = args.batch;
    const int32_t first = (blockIdx.x * THREADS + threadIdx.x) * N;
    const int32_t begin = batch.query_start[blockIdx.y], end = batch.query_start[blockIdx.y + 1];
    const int32_t start = begin + blockIdx.z * TILE;
    let_next_start();
    wait_for_previous();
    if (first >= args.channels || (start >= end && start > begin)) return;
    conv_channels<T, N, WIDTH> conv;
    conv.load_weights(args, first);
    if (start > begin) {
        conv.load_window(args, first, start);
        conv_tokens(conv, args, first, start, start + TILE < end ? start + TILE : end);
        return;
    }
    conv.load_state(args, first, batch.sources[blockIdx.y]);
    conv_channels<T, N, WIDTH> last = conv;
    last.advance(args, first, begin, end);
    last.store_state(args, first, batch.slots[blockIdx.y]);
    conv_tokens(conv, args, first, begin, begin + TILE < end ? begin + TILE : end);
}

template <class T, int N, int WIDTH> static void launch(struct backend *b, const struct short_conv_args *args)
{
    const struct cuda_state *s = cuda_use(b);
    const unsigned blocks = (unsigned)cuda_div_up(args->channels, N * THREADS);
    const struct state_batch &batch = args->batch;
    if (batch.num_decodes > 0) {
        struct short_conv_args decodes = *args;
        decodes.batch.num_seqs = batch.num_decodes;
        cuda_launch_dependent(s, conv_chains_kernel<T, N, WIDTH>, {dim3(blocks, batch.num_decodes), THREADS}, decodes);
    }
    if (batch.num_seqs > batch.num_decodes) {
        struct short_conv_args prefills = *args;
        prefills.batch = prefills_of(batch);
        const unsigned tiles = (unsigned)cuda_div_up(batch.max_query_len > 0 ? batch.max_query_len : 1, TILE);
        cuda_launch_dependent(s, conv_tiles_kernel<T, N, WIDTH>,
                              {dim3(blocks, prefills.batch.num_seqs, tiles), THREADS}, prefills);
    }
}

template <class T, int N> static void launch_width(struct backend *b, const struct short_conv_args *args)
{
    switch (args->width) {
    case 3:
        launch<T, N, 3>(b, args);
        break;
    case 4:
        launch<T, N, 4>(b, args);
        break;
    default:
        launch<T, 1, CONV_ANY_WIDTH>(b, args);
    }
}

void cuda_short_conv(struct backend *b, const struct short_conv_args *args)
{
    enum { N = 4 };
    if (args->batch.num_seqs <= 0) return;
    if (args->width > CONV_ANY_WIDTH) {
        cuda_fail(b, "short_conv: there is no kernel for a width of %d", args->width);
        return;
    }
    cuda_dispatch(b, "short_conv", args->dtype, [&](auto zero) {
        using T = decltype(zero);
        const bool vectors = args->channels % N == 0 && args->x_stride % N == 0 && cuda_is_aligned(args->out) &&
                             conv_input_is_aligned<T, N>(args->x) && conv_input_is_aligned<T, N>(args->input_gate) &&
                             conv_input_is_aligned<T, N>(args->output_gate);
        if (vectors)
            launch_width<T, N>(b, args);
        else
            launch<T, 1, CONV_ANY_WIDTH>(b, args);
    });
    cuda_check_launch(b, "short_conv");
}
