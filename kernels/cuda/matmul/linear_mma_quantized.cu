/* Matmuls of a quantized weight with a batch of tokens, on GPUs that have mma but not wgmma. The matmul is transposed,
 * out' [out_features, num_tokens] = weight x', so that the weight is A of the mma, which each warp decodes in registers
 * from the rows that it multiplies.
 *
 * A block has a tile of ROWS output features and N tokens and goes through the input features in steps. Its WARPS warps
 * have WARP_ROWS output features each, and all the tokens:
 *
 *                      N tokens
 *     warp 0   | row block 0: 16 rows |      a step:  weight [ROWS][STEP] encoded, x [N][STEP]
 *              | row block 1          |
 *     warp 1   | ...                  |
 *
 * Weights and x of a step are a stage of a ring in shared memory, which copies that run ahead fill. INT4 lies there as
 * in memory: a row of a step is 64 bytes, of which lane t of a quad needs the 16-byte piece t. Rows of the others have
 * 128 bytes, and tokens 256. The 16-byte pieces of a row are permuted, piece p of row r lies at p ^ r % 8, so that
 * eight rows of the same piece lie in different banks.
 *
 * Decoded elements are exact, because scales are applied to sums: those of a unit, which is a step or, if groups are
 * smaller than a step, a quarter of one. The scales of the next unit are loaded meanwhile.
 *
 * Where there are fewer tiles than the GPU has room for blocks, a tile is split along the input features. Each part
 * writes its sums to the workspace, and a second kernel adds them. */
#include "kernels/cuda/cache_policy.cuh"
#include "kernels/cuda/copy_async.cuh"
#include "kernels/cuda/matmul/encoded.cuh"
#include "kernels/cuda/matmul/kernels.cuh"
#include "kernels/cuda/matmul/tile.cuh"
#include "kernels/cuda/mma.cuh"

enum {
    WARPS = 4,
    THREADS = 32 * WARPS,
    ROW_BLOCKS = 2, /* of a warp, 16 rows each */
    WARP_ROWS = 16 * ROW_BLOCKS,
    ROWS = WARPS * WARP_ROWS, /* output features of a tile */
    ROUND = 16 * THREADS,     /* bytes that all threads copy at a time */
    TOKEN_ROW = 2 * STEP,     /* bytes of a token in a stage */
    SUMS_ROW = ROWS + 4,      /* floats of a token; the padding puts the tokens of a warp into different banks */
    MAX_STAGES = 4,
    ADD_THREADS = 256,
    ALIGNMENT = 256 /* of the sums in the workspace */
};

/* How tiles are split: the largest number of parts, and their least steps; and what costs as much as so many steps:
 * starting and ending a block, writing and reading the sums of 16 tokens of a part, launching the second kernel. */
enum { MAX_SPLITS = 16, MIN_PART = 4, START_STEPS = 3, SUMS_STEPS = 1, ADD_STEPS = 3 };

struct mma_call : tiled_matmul {
    float *partials;     /* [splits, num_tokens, partial_row], if splits > 1 */
    int32_t partial_row; /* out_features rounded up to a multiple of 4 */
    int32_t stages;
    int32_t groups;         /* of a row */
    int32_t units_of_group; /* a number larger than any for the whole row */
};

template <enum weight_format FORMAT, int N> struct mma_tiling {
    static constexpr int ROWS = ::ROWS, MMA_THREADS = THREADS;                /* for write_tile */
    static constexpr int ROW_BYTES = FORMAT == WEIGHT_INT4 ? STEP / 2 : STEP; /* of a row of a step of the weight */
    static constexpr int WEIGHT_BYTES = ROWS * ROW_BYTES, STAGE = WEIGHT_BYTES + N * TOKEN_ROW;
    static constexpr int PIECES = ROW_BYTES / 16, ROWS_OF_ROUND = THREADS / PIECES;
    static constexpr int TOKENS_OF_ROUND = ROUND / TOKEN_ROW;
    static constexpr int SUMS_BYTES = (int)sizeof(float) * N * SUMS_ROW;
    static constexpr int PLACES = N <= 32 ? 3 : 2; /* blocks of a multiprocessor that there are registers for */
};

/* Tiles of the same output features follow each other, because they read the same weights. */
template <int N> static __device__ __forceinline__ tile_part find_part(const mma_call &call)
{
    const int index = blockIdx.x / call.token_tiles;
    return find_part<N>(call, index / call.splits, blockIdx.x % call.token_tiles, index % call.splits);
}

/* The tile's first output feature. */
static __device__ __forceinline__ int first_feature(const tile_part &part)
{
    return part.tile * ROWS;
}

/* ---- the ring ---- */

/* What a thread copies of each step: pieces of every ROWS_OF_ROUND-th row of the weight, and of every
 * TOKENS_OF_ROUND-th token. `to` goes on from step to step, because ptxas 13.0 makes an illegal instruction of a copy
 * with a policy to the sum of a stage's address, which all threads share, and a thread's own place in it. */
struct tile_copies {
    const uint8_t *weight, *x;        /* the first of the next step */
    uint32_t weight_stride, x_stride; /* bytes from one to the next */
    int rows, tokens;                 /* how many there are */
    int weight_features, x_features;  /* input features from the next step's on */
    uint32_t to;                      /* where the first of the next step's weights goes */
    int x_to;                         /* where x goes, from there on */
    uint64_t policy;
};

template <enum weight_format FORMAT, int N>
static __device__ __forceinline__ tile_copies copies_of(const mma_call &call, const tile_part &part, uint32_t ring)
{
    using L = mma_tiling<FORMAT, N>;
    const matmul &m = call.matmul;
    const int density = FORMAT == WEIGHT_INT4 ? 2 : 1, row_bytes = (int)m.in_features / density;
    const int row = threadIdx.x / L::PIECES, piece = threadIdx.x % L::PIECES;
    const int token = threadIdx.x / (TOKEN_ROW / 16), x_piece = threadIdx.x % (TOKEN_ROW / 16);
    const int last_row = (int)m.out_features - 1 - first_feature(part), last_token = part.num_tokens - 1;
    tile_copies c;
    c.weight = (const uint8_t *)m.weight +
               (int64_t)(part.first_row + first_feature(part) + min(row, last_row)) * row_bytes +
               part.begin * L::ROW_BYTES + piece * 16;
    c.x = (const uint8_t *)m.x + (part.first_token + min(token, last_token)) * m.x_stride * 2 + part.begin * TOKEN_ROW +
          x_piece * 16;
    c.weight_stride = L::ROWS_OF_ROUND * row_bytes;
    c.x_stride = L::TOKENS_OF_ROUND * 2 * (int)m.x_stride;
    c.rows = row > last_row ? 1 : (last_row - row) / L::ROWS_OF_ROUND + 1;
    c.tokens = token > last_token ? 0 : (last_token - token) / L::TOKENS_OF_ROUND + 1;
    c.weight_features = (int)m.in_features - part.begin * STEP - piece * 16 * density;
    c.x_features = (int)m.in_features - part.begin * STEP - x_piece * 8;
    c.to = ring + row * L::ROW_BYTES + (FORMAT == WEIGHT_INT4 ? piece : piece ^ row % 8) * 16;
    c.x_to = (int)(ring + L::WEIGHT_BYTES + token * TOKEN_ROW + (x_piece ^ token % 8) * 16 - c.to);
    c.policy = evict_first_policy();
    return c;
}

/* Starts the copies of the next step's weights, to `to` and on. Rows that there are not become copies of one that there
 * is, whose sums nobody reads; input features beyond the last become zeros. */
template <enum weight_format FORMAT, int N>
static __device__ __forceinline__ void copy_weights(tile_copies &c, uint32_t to)
{
    using L = mma_tiling<FORMAT, N>;
    const bool is_there = FORMAT == WEIGHT_INT4 || c.weight_features > 0;
    static_assert(L::ROWS_OF_ROUND % 8 == 0, "the rows that a thread copies are permuted alike");
#pragma unroll
    for (int i = 0; i < L::WEIGHT_BYTES / ROUND; i++)
        copy_async(to + i * ROUND, c.weight + c.weight_stride * min(i, c.rows - 1), is_there, c.policy);
    c.weight += L::ROW_BYTES;
    c.weight_features -= STEP;
}

/* The same for x; tokens that there are not become zeros. */
template <enum weight_format FORMAT, int N>
static __device__ __forceinline__ void copy_tokens(tile_copies &c, uint32_t to)
{
    using L = mma_tiling<FORMAT, N>;
    const bool is_there = FORMAT == WEIGHT_INT4 || c.x_features > 0;
    static_assert(L::TOKENS_OF_ROUND % 8 == 0, "the tokens that a thread copies are permuted alike");
#pragma unroll
    for (int i = 0; i < N / L::TOKENS_OF_ROUND; i++) {
        const bool reads = i < c.tokens;
        copy_async(to + c.x_to + i * ROUND, c.x + c.x_stride * (reads ? i : 0), reads && is_there);
    }
    c.x += TOKEN_ROW;
    c.x_features -= STEP;
}

/* Waits until the oldest of stages - 1 steps has arrived. */
static __device__ __forceinline__ void wait_oldest(int stages)
{
    static_assert(MAX_STAGES == 4, "all numbers of stages are here");
    if (stages == 4) return copy_async_wait<2>();
    if (stages == 3) return copy_async_wait<1>();
    copy_async_wait<0>();
}

/* Starts the copies of the first stages - 1 steps; from compute capability 9.0 on those of the weights before the
 * previous kernel has ended. */
template <enum weight_format FORMAT, int N>
static __device__ __forceinline__ void fill_ring(tile_copies &c, const mma_call &call, const tile_part &part)
{
    using L = mma_tiling<FORMAT, N>;
#if __CUDA_ARCH__ >= 900
    const bool early = true;
#else
    const bool early = false;
#endif
    const int count = call.stages - 1, steps = min(count, part.end - part.begin);
    uint32_t to = c.to;
    for (int i = 0; i < steps && early; i++, to += L::STAGE) copy_weights<FORMAT, N>(c, to);
    wait_for_previous();
    for (int i = 0; i < count; i++, c.to += L::STAGE) {
        if (i < steps && !early) copy_weights<FORMAT, N>(c, c.to);
        if (i < steps) copy_tokens<FORMAT, N>(c, c.to);
        copy_async_commit();
    }
}

/* ---- scales ---- */

/* Of a unit: of the two rows that a thread has in each of its row blocks. */
struct unit_scales {
    float scales[ROW_BLOCKS][2];
    uint32_t offsets[ROW_BLOCKS][2]; /* what is subtracted from INT4, as a pair of T */
};

/* Where the scales of a thread's rows are, and those of its next unit as they lie in memory. */
struct scale_reader {
    int group, units_left;         /* of the next unit; of its group, this unit included */
    uint32_t first[ROW_BLOCKS][2]; /* where the row's scales, and zeros, begin */
    uint32_t scales[ROW_BLOCKS][2], zeros[ROW_BLOCKS][2];
};

template <enum weight_format FORMAT>
static __device__ __forceinline__ void load_scales(scale_reader &r, const mma_call &call)
{
    const matmul &m = call.matmul;
#pragma unroll
    for (int i = 0; i < ROW_BLOCKS; i++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const uint32_t at = r.first[i][j] + r.group;
            r.scales[i][j] = m.scale_dtype == DTYPE_FLOAT32 ? __ldg((const uint32_t *)m.scales + at)
                                                            : __ldg((const uint16_t *)m.scales + at);
            if (FORMAT == WEIGHT_INT4 && m.zeros) r.zeros[i][j] = __ldg(m.zeros + at);
        }
}

template <enum weight_format FORMAT>
static __device__ __forceinline__ scale_reader read_scales(const mma_call &call, const tile_part &part,
                                                           int units_of_step)
{
    const matmul &m = call.matmul;
    const int unit = part.begin * units_of_step, first = first_feature(part) + threadIdx.x / 32 * WARP_ROWS;
    scale_reader r;
    r.group = unit / call.units_of_group;
    r.units_left = call.units_of_group - unit % call.units_of_group;
#pragma unroll
    for (int i = 0; i < ROW_BLOCKS; i++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const int row = first + i * 16 + j * 8 + threadIdx.x % 32 / 4;
            const int feature = part.first_row + min(row, (int)m.out_features - 1);
            r.first[i][j] = (FORMAT == WEIGHT_INT4 ? feature : feature / (int)m.scale_rows) * call.groups;
            r.zeros[i][j] = 8;
        }
    load_scales<FORMAT>(r, call);
    return r;
}

/* One unit of a step has no branches, so that the compiler can mix this with what follows. Branches keep it from mixing
 * several units, which takes more registers than there are. */
template <class T, enum weight_format FORMAT, int UNITS>
static __device__ __forceinline__ float scale_of(uint32_t bits, enum dtype dtype)
{
    const bool is_float = dtype == DTYPE_FLOAT32, is_half = dtype == DTYPE_FLOAT16;
    const float half = __half2float(__ushort_as_half((uint16_t)bits));
    const float other = __uint_as_float(bits << (is_float ? 0 : 16)); /* a bfloat16 is the upper half of a float32 */
    const float scale = UNITS == 1 ? (is_half ? half : other)
                        : is_float ? __uint_as_float(bits)
                        : is_half  ? half
                                   : __uint_as_float(bits << 16);
    return FORMAT == WEIGHT_FP8 && std::is_same_v<T, __half> ? scale * FP8_FACTOR<T> : scale;
}

/* The next unit's; starts to load those of the unit after it. */
template <class T, enum weight_format FORMAT, int UNITS>
static __device__ __forceinline__ unit_scales next_scales(scale_reader &r, const mma_call &call)
{
    unit_scales s;
#pragma unroll
    for (int i = 0; i < ROW_BLOCKS; i++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            s.scales[i][j] = scale_of<T, FORMAT, UNITS>(r.scales[i][j], call.matmul.scale_dtype);
            s.offsets[i][j] = INT4_BITS<T> + r.zeros[i][j] * 0x10001;
        }
    if (--r.units_left == 0) {
        r.group = min(r.group + 1, call.groups - 1);
        r.units_left = call.units_of_group;
        load_scales<FORMAT>(r, call);
    }
    return s;
}

/* ---- a step ---- */

/* A thread's sums: C of the mma for each row block and eight tokens. */
template <int N> using tile_sums = float[ROW_BLOCKS][N / 8][4];

/* Where a thread is in a stage. */
struct stage_place {
    uint32_t weight; /* the stage */
    int row;         /* of row block 0 */
    uint32_t x[4];   /* rows of ldmatrix for the first four times 16 input features; others are 128 bytes behind */
};

/* Matrix q of ldmatrix is of tokens q / 2 * 8 .. + 7 and of input features q % 2 * 8 .. + 7 of 16, so that the four are
 * b0 and b1 of two times eight tokens. */
template <enum weight_format FORMAT, int N> static __device__ __forceinline__ stage_place first_place(uint32_t ring)
{
    const int lane = threadIdx.x % 32, token = lane / 16 * 8 + lane % 8, piece = lane / 8 % 2;
    stage_place at;
    at.weight = ring;
    at.row = threadIdx.x / 32 * WARP_ROWS + lane / 4;
#pragma unroll
    for (int i = 0; i < 4; i++)
        at.x[i] = mma_tiling<FORMAT, N>::WEIGHT_BYTES + token * TOKEN_ROW + ((2 * i + piece) ^ lane % 8) * 16;
    return at;
}

template <class T, enum weight_format FORMAT>
static __device__ __forceinline__ void decode_block(uint32_t (&a)[4], encoded<FORMAT> &from, int k,
                                                    const uint32_t (&offsets)[2])
{
    from.template decode<T>(a, k / 2, k % 2, offsets[0], offsets[1]);
    if constexpr (FORMAT == WEIGHT_FP8 && std::is_same_v<T, __nv_bfloat16>) /* else sums would be subnormal */
#pragma unroll
        for (int i = 0; i < 4; i++) a[i] = multiply_pairs<T>(a[i], pair_of<T>(FP8_FACTOR<T>));
}

/* Multiplies a unit, of which a step has UNITS: 16 input features at a time, from 16 * first of the step on. */
template <class T, enum weight_format FORMAT, int N, int UNITS>
static __device__ __forceinline__ void multiply_unit(tile_sums<N> &total, encoded<FORMAT> (&from)[ROW_BLOCKS],
                                                     const stage_place &at, int first, const unit_scales &s)
{
    tile_sums<N> sums = {};
#pragma unroll
    for (int k = first; k < first + STEP / 16 / UNITS; k++) {
        uint32_t a[ROW_BLOCKS][4];
#pragma unroll
        for (int m = 0; m < ROW_BLOCKS; m++) decode_block<T, FORMAT>(a[m], from[m], k, s.offsets[m]);
#pragma unroll
        for (int n = 0; n < N / 8; n += 2) {
            uint32_t b[4];
            load_matrices(b, at.weight + at.x[k % 4] + k / 4 * 128 + n * 8 * TOKEN_ROW);
#pragma unroll
            for (int m = 0; m < ROW_BLOCKS; m++) {
                multiply_add<T>(sums[m][n], a[m], b[0], b[1]);
                multiply_add<T>(sums[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }
#pragma unroll
    for (int m = 0; m < ROW_BLOCKS; m++)
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) total[m][n][i] += s.scales[m][i / 2] * sums[m][n][i];
}

template <class T, enum weight_format FORMAT, int N, int UNITS>
static __device__ __forceinline__ void multiply_step(tile_sums<N> &total, const stage_place &at, scale_reader &scales,
                                                     const mma_call &call)
{
    encoded<FORMAT> from[ROW_BLOCKS];
#pragma unroll
    for (int m = 0; m < ROW_BLOCKS; m++) from[m].load(at.weight, at.row + 16 * m, threadIdx.x % 4);
#pragma unroll
    for (int u = 0; u < UNITS; u++)
        multiply_unit<T, FORMAT, N, UNITS>(total, from, at, u * (STEP / 16 / UNITS),
                                           next_scales<T, FORMAT, UNITS>(scales, call));
}

template <class T, enum weight_format FORMAT, int N, int UNITS>
static __device__ __forceinline__ void multiply_part(tile_sums<N> &total, const mma_call &call, const tile_part &part,
                                                     uint32_t ring)
{
    constexpr int STAGE = mma_tiling<FORMAT, N>::STAGE;
    const int ahead = call.stages - 1;
    const uint32_t ring_end = ring + call.stages * STAGE;
    tile_copies copies = copies_of<FORMAT, N>(call, part, ring);
    scale_reader scales = read_scales<FORMAT>(call, part, UNITS);
    stage_place at = first_place<FORMAT, N>(ring);
    fill_ring<FORMAT, N>(copies, call, part);
#pragma unroll 1
    for (int i = part.begin; i < part.end; i++) {
        wait_oldest(call.stages);
        __syncthreads();
        if (i + ahead < part.end) {
            copy_weights<FORMAT, N>(copies, copies.to);
            copy_tokens<FORMAT, N>(copies, copies.to);
        }
        copy_async_commit();
        multiply_step<T, FORMAT, N, UNITS>(total, at, scales, call);
        copies.to += STAGE;
        if (copies.to >= ring_end) copies.to -= call.stages * STAGE;
        at.weight += STAGE;
        if (at.weight == ring_end) at.weight = ring;
    }
}

/* ---- the end of a tile ---- */

/* Writes a thread's sums over the ring. */
template <int N> static __device__ __forceinline__ void share_sums(const tile_sums<N> &total, float *shared_sums)
{
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * WARP_ROWS + lane / 4, token = lane % 4 * 2;
#pragma unroll
    for (int m = 0; m < ROW_BLOCKS; m++)
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                shared_sums[(n * 8 + token + i % 2) * SUMS_ROW + row + m * 16 + i / 2 * 8] = total[m][n][i];
}

/* Writes a tile that is not split. */
template <class T, class Out, class L>
static __device__ __forceinline__ void write_whole_tile(const mma_call &call, const tile_part &part,
                                                        const float *shared_sums)
{
    write_tile<T, L, Out, false, 4, 4>(call, part, shared_sums, SUMS_ROW, 1, call.fours);
}

static __device__ __forceinline__ void write_partials(const mma_call &call, const tile_part &part,
                                                      const float *shared_sums)
{
    const int row = threadIdx.x % 32 * 4, first = part.rank * call.matmul.num_tokens + part.first_token;
    if (first_feature(part) + row >= call.partial_row) return;
    float *to = call.partials + (int64_t)first * call.partial_row + first_feature(part) + row;
#pragma unroll 4
    for (int token = threadIdx.x / 32; token < part.num_tokens; token += WARPS)
        *(float4 *)(to + (int64_t)token * call.partial_row) = *(const float4 *)(shared_sums + token * SUMS_ROW + row);
}

template <class T, enum weight_format FORMAT, int N, int UNITS>
static __global__ void __launch_bounds__(THREADS, (mma_tiling<FORMAT, N>::PLACES))
    linear_mma_quantized_kernel(const __grid_constant__ mma_call call)
{
    extern __shared__ uint4 mma_ring[];
    float *shared_sums = (float *)mma_ring;
    let_next_start();
    const tile_part part = find_part<N>(call);
    if (part.num_tokens == 0) return;
    tile_sums<N> total = {};
    multiply_part<T, FORMAT, N, UNITS>(total, call, part, shared_address(mma_ring));
    __syncthreads(); /* no warp reads the ring any more */
    share_sums<N>(total, shared_sums);
    __syncthreads();
    if (call.splits > 1) return write_partials(call, part, shared_sums);
    if (call.matmul.out_is_float) return write_whole_tile<T, float, mma_tiling<FORMAT, N>>(call, part, shared_sums);
    write_whole_tile<T, T, mma_tiling<FORMAT, N>>(call, part, shared_sums);
}

/* Adds the sums of all parts, four output features of a token a thread. */
template <class T, class Out>
static __global__ void __launch_bounds__(ADD_THREADS) add_partials_kernel(const __grid_constant__ mma_call call)
{
    const matmul &m = call.matmul;
    const int fours = call.partial_row / 4, i = blockIdx.x * ADD_THREADS + threadIdx.x, all = m.num_tokens * fours;
    const int token = i / fours, feature = i % fours * 4, count = min(4, (int)m.out_features - feature);
    biases<T, 4> bias = {};
    let_next_start();
    if (i < all) bias = load_biases<T, 4>(m, feature, count);
    wait_for_previous();
    if (i >= all) return;
    const out_run<Out> run = {(Out *)m.out + token * m.out_stride + feature, count, call.fours};
    const piece<T, 4> before = load_before<T, 4>(m, run);
    piece<float, 4> y = {};
#pragma unroll 4
    for (int split = 0; split < call.splits; split++) {
        const piece<float, 4> part = ((const piece<float, 4> *)call.partials)[(int64_t)split * all + i];
#pragma unroll
        for (int k = 0; k < 4; k++) y.values[k] += part.values[k];
    }
    finish_sums<T>(m, run, y, bias, before);
}

/* ---- the choice of the split, and the launches ---- */

/* The shared memory that each of so many blocks of a multiprocessor can have. */
static int32_t room_of(const struct cuda_state *s, int32_t blocks)
{
    return (s->max_shared_bytes + 1024) / blocks - 1024; /* the system's share of a block is 1 KiB */
}

/* Sets the stages of the ring; returns how many blocks then fit on a multiprocessor. More blocks are better than more
 * stages, down to three stages, or else two. 0: not even those fit. */
template <class L> static int32_t plan_ring(const struct cuda_state *s, struct mma_call *call)
{
    for (int32_t least = 3; least >= 2; least--)
        for (int32_t blocks = L::PLACES; blocks >= (least == 3 ? 2 : 1); blocks--) {
            const int32_t stages = room_of(s, blocks) / L::STAGE;
            call->stages = stages < MAX_STAGES ? stages : (int32_t)MAX_STAGES;
            if (stages >= least) return blocks;
        }
    return 0;
}

/* In steps. */
template <int N> static int64_t cost_of(int64_t places, int64_t tiles, int64_t steps, int64_t splits)
{
    const int64_t rounds = cuda_div_up(tiles * splits, places), sums = splits > 1 ? SUMS_STEPS * N / 16 : 0;
    return rounds * (cuda_div_up(steps, splits) + START_STEPS + sums) + (splits > 1 ? ADD_STEPS : 0);
}

/* The most splits whose sums fit into the workspace, where they begin behind x if that is there. */
static int32_t most_splits(const struct cuda_state *s, struct mma_call *call)
{
    const struct matmul *m = &call->matmul;
    if (m->segments.count > 0) return 1; /* the second kernel does not know which rows belong to a weight */
    const struct cuda_region *region = &s->regions[CUDA_USER_DEQUANTIZE];
    const int64_t x_bytes = m->x == region->data ? m->num_tokens * m->x_stride * dtype_size(m->dtype) : 0;
    const int64_t start = cuda_div_up(x_bytes, ALIGNMENT) * ALIGNMENT;
    const int64_t sums = (int64_t)m->num_tokens * call->partial_row * (int64_t)sizeof(float);
    if (!region->data || region->bytes <= start) return 1;
    call->partials = (float *)(region->data + start);
    const int64_t fit = (region->bytes - start) / sums, parts = call->steps / MIN_PART;
    const int64_t most = fit < parts ? fit : parts;
    return most > MAX_SPLITS ? MAX_SPLITS : most < 1 ? 1 : (int32_t)most;
}

template <int N> static void plan_splits(const struct cuda_state *s, struct mma_call *call, int32_t blocks)
{
    const int64_t places = (int64_t)(blocks < 2 ? blocks : 2) * s->num_sms;
    const int64_t tiles = cuda_div_up(call->matmul.out_features, ROWS) * call->token_tiles;
    const int32_t most = most_splits(s, call);
    call->splits = 1;
    for (int32_t splits = 2; splits <= most; splits++)
        if (cost_of<N>(places, tiles, call->steps, splits) < cost_of<N>(places, tiles, call->steps, call->splits))
            call->splits = splits;
}

template <class T> static void add_partials(struct backend *b, const char *operation, const struct mma_call *call)
{
    const struct matmul *m = &call->matmul;
    const dim3 grid((unsigned)cuda_div_up((int64_t)m->num_tokens * call->partial_row / 4, ADD_THREADS));
    auto *kernel = m->out_is_float ? add_partials_kernel<T, float> : add_partials_kernel<T, T>;
    cuda_run_dependent(b, operation, kernel, {grid, ADD_THREADS}, *call);
}

template <class T, enum weight_format FORMAT, int N, int UNITS>
static bool launch(struct backend *b, const char *operation, struct mma_call *call)
{
    using L = mma_tiling<FORMAT, N>;
    static_assert(L::SUMS_BYTES <= 2 * L::STAGE, "the ring holds the sums at the end");
    const struct cuda_state *s = cuda_use(b);
    call->token_tiles = token_tiles_of(&call->matmul.segments, call->matmul.num_tokens, N);
    const int32_t blocks = plan_ring<L>(s, call), shared_bytes = call->stages * L::STAGE;
    if (blocks == 0) return false;
    plan_splits<N>(s, call, blocks);
    auto *kernel = linear_mma_quantized_kernel<T, FORMAT, N, UNITS>;
    if (!cuda_allow_shared(b, operation, kernel, shared_bytes)) return true;
    const int64_t tiles = cuda_div_up(call->matmul.out_features, ROWS);
    const dim3 grid((unsigned)(tiles * call->splits * call->token_tiles));
    cuda_launch_dependent(s, kernel, {grid, THREADS, shared_bytes}, *call);
    if (cuda_check_launch(b, operation) && call->splits > 1) add_partials<T>(b, operation, call);
    return true;
}

template <class T, enum weight_format FORMAT>
static bool launch_tokens(struct backend *b, const char *operation, struct mma_call *call)
{
    const struct matmul *m = &call->matmul;
    const bool small_groups = call->groups > 1 && m->group_size < STEP;
    if (matmul_weight_tokens(m) <= 32)
        return small_groups ? launch<T, FORMAT, 32, 4>(b, operation, call)
                            : launch<T, FORMAT, 32, 1>(b, operation, call);
    return small_groups ? launch<T, FORMAT, 64, 4>(b, operation, call) : launch<T, FORMAT, 64, 1>(b, operation, call);
}

template <class T> static bool launch_format(struct backend *b, const char *operation, struct mma_call *call)
{
    return call->matmul.format == WEIGHT_INT4   ? launch_tokens<T, WEIGHT_INT4>(b, operation, call)
           : call->matmul.format == WEIGHT_INT8 ? launch_tokens<T, WEIGHT_INT8>(b, operation, call)
                                                : launch_tokens<T, WEIGHT_FP8>(b, operation, call);
}

bool linear_mma_quantized(struct backend *b, const char *operation, const struct matmul *m)
{
    const int64_t unit = m->group_size < STEP ? 32 : STEP;
    struct mma_call call = {};
    call.matmul = *m;
    call.tile_rows = ROWS;
    call.partial_row = (int32_t)cuda_div_up(m->out_features, 4) * 4;
    call.steps = (int32_t)cuda_div_up(m->in_features, STEP);
    call.groups = (int32_t)cuda_div_up(m->in_features, m->group_size);
    call.units_of_group = call.groups == 1 ? INT32_MAX : (int32_t)(m->group_size / unit);
    call.fours = m->out_features % 4 == 0 && m->out_stride % 4 == 0 && cuda_is_aligned(m->out);
    return m->dtype == DTYPE_FLOAT16 ? launch_format<__half>(b, operation, &call)
                                     : launch_format<__nv_bfloat16>(b, operation, &call);
}
