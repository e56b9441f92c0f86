/* The matmuls of experts for few tokens by quantized weights, decoded in registers, and on Hopper by 16-bit floats,
 * with mma (mma.cuh): 16 rows of a weight by up to 8 rows of x. Memory sets their speed, so each matrix is read once,
 * and a warp has many loads under way.
 *
 * A warp goes through the input features in pieces of 16 bytes of each lane, four pieces of a row (a quad) at a time.
 * Lane (i, j) has piece j of row i of each band, 8 rows of the weight, and the same input features of row i of x; in
 * which order the mma gets them does not matter. FP8 and INT8: 16 features that follow each other, a word to a step;
 * floats: 8, two words to a step. INT4 and MXFP4: as weight_prepare has put them (quantized.cuh). The words of a piece
 * of MXFP4 are the quad's part of a group each.
 *
 * A warp has a ring of quads in shared memory, which it fills by asynchronous copies: a stage holds a quad of each
 * band, and the quad's input features of x. The scales of four groups are in registers, one in each lane of four, and
 * those of the next four are under way. So nothing that a quad needs is waited for when it is multiplied. MXFP4 has no
 * ring: its quads come into registers. FP8 is multiplied as float16, which an instruction makes of it, so its x is
 * float16, too, times a power of two of each row, and lies behind the ring (few_experts_x.cuh).
 *
 * experts_gate_up: the first band are gates, and the second the ups that belong to them, so a lane ends with both; or
 * features of the first half, and of the second. Blocks take tiles of these pairs for up to 8 rows of an expert in
 * turn; the warps of a tile share its input features.
 *
 * experts_down: a block computes some output features of all tokens, as many as give each multiprocessor a block. Its
 * warps take the experts in turn, or shares of their input features, and leave sums in shared memory, from where they
 * are added in the order of each token's experts. */
#include <type_traits>

#include "kernels/cuda/cache_policy.cuh"
#include "kernels/cuda/copy_async.cuh"
#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/experts/few_experts.cuh"
#include "kernels/cuda/experts/few_experts_x.cuh"
#include "kernels/cuda/matmul/quantized.cuh"
#include "kernels/cuda/mma.cuh"

enum {
    BAND = 8,        /* rows of a weight, */
    TILE = 2 * BAND, /* of which the mma takes so many */
    ROWS = FEW_EXPERTS_X_ROWS,
    DOWN_BANDS = 3, /* of a block of experts_down, at most */
    MAX_ROWS = FEW_EXPERTS_MAX_TOKENS * FEW_EXPERTS_MAX_TOP_K,
    BAND_BYTES = 512 /* of a stage: a piece of each lane */
};

/* Stages of a warp's ring. A block of experts_down has a multiprocessor for itself. Other devices have less shared
 * memory, and less bandwidth to keep busy. */
template <enum weight_format F> static constexpr int HOPPER_STAGES = F == WEIGHT_FP8 ? 6 : 5;
template <enum weight_format F> static constexpr int HOPPER_DOWN_STAGES = F == WEIGHT_FP8 ? 7 : 8;
static constexpr int OTHER_STAGES = 3;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
template <enum weight_format F> static constexpr int GATE_STAGES = HOPPER_STAGES<F>;
template <enum weight_format F> static constexpr int DOWN_STAGES = HOPPER_DOWN_STAGES<F>;
#else
template <enum weight_format F> static constexpr int GATE_STAGES = OTHER_STAGES;
template <enum weight_format F> static constexpr int DOWN_STAGES = OTHER_STAGES;
#endif

/* 16-bit floats of x's type, whichever it is. */
static constexpr enum weight_format FLOATS = WEIGHT_BFLOAT16;

/* Shares of the input features of a tile, each a warp's, of experts_gate_up, and tiles of a block at a time. */
template <enum weight_format F> static constexpr int SHARES = F == FLOATS ? 8 : 4;
template <enum weight_format F> static constexpr int GATE_TILES = FEW_EXPERTS_WARPS / SHARES<F>;

/* Blocks of experts_gate_up on a multiprocessor. Pieces of MXFP4 take registers. */
template <enum weight_format F> static constexpr int PLACES = F == WEIGHT_MXFP4 ? 2 : 3;

/* Warps of a block of experts_down, of which a multiprocessor has 16: MXFP4 needs fewer for enough bytes under way, and
 * with two blocks to a multiprocessor the tiles of a matrix are shared out better. */
template <enum weight_format F> static constexpr int DOWN_WARPS = F == WEIGHT_MXFP4 ? 8 : 16;

/* Pieces of MXFP4 under way, of each of two rows. */
static constexpr int AT_ONCE = 6;

/* The weights of experts, one behind the other. */
struct quantized_matrices {
    const uint8_t *data;
    const void *scales, *bias;
    const uint8_t *zeros;
    enum dtype scale_dtype;
    int32_t out_features, in_features, row_bytes;
    int32_t scale_rows, scale_bytes, groups; /* groups 1: a scale for a whole row */
    uint32_t groups_of_quad;                 /* times 2^31, rounded up */
};

/* Input features of four pieces, a quad's. */
template <enum weight_format F> static constexpr int QUAD_FEATURES = IS_PACKED<F> ? 128 : F == FLOATS ? 32 : 64;

/* The group of a quad. */
static __device__ __forceinline__ int group_of(const quantized_matrices &w, int quad)
{
    return (int)((uint64_t)(uint32_t)quad * w.groups_of_quad >> 31);
}

/* What INT4 with this zero is decoded with. */
template <class T> static __device__ __forceinline__ uint32_t offset_of(float zero)
{
    return pair_of<T>(INT4_OFFSET<T> + zero);
}

/* multiply_piece of FP8, of whose x there is a float16 each. Two sums, because each mma waits for the one before with
 * the same sums. */
template <bool TWO>
static __device__ __forceinline__ void multiply_fp8(float (&sums)[4], const uint4 &low, const uint4 &high,
                                                    const void *x)
{
    const uint32_t l[4] = {low.x, low.y, low.z, low.w}, h[4] = {high.x, high.y, high.z, high.w};
    const uint4 first = ((const uint4 *)x)[0], second = ((const uint4 *)x)[1];
    const uint32_t in[8] = {first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w};
    float odd[4] = {};
#pragma unroll
    for (int w = 0; w < 4; w++) {
        uint32_t a[4] = {};
        fp8_halves(l[w], a[0], a[2]);
        if (TWO) fp8_halves(h[w], a[1], a[3]);
        multiply_add<__half>(w % 2 ? odd : sums, a, in[2 * w], in[2 * w + 1]);
    }
#pragma unroll
    for (int k = 0; k < 4; k++) sums[k] += odd[k];
}

/* sums += a piece of two rows of the weight by x. x: where the lane's first input feature of the quad's piece is. TWO:
 * there is a second row. */
template <class T, enum weight_format F, bool TWO>
static __device__ __forceinline__ void multiply_piece(float (&sums)[4], const uint4 &low, const uint4 &high, const T *x,
                                                      const uint32_t (&offsets)[2])
{
    if constexpr (F == WEIGHT_FP8) {
        multiply_fp8<TWO>(sums, low, high, x);
        return;
    }
    const uint32_t l[4] = {low.x, low.y, low.z, low.w}, h[4] = {high.x, high.y, high.z, high.w};
    if constexpr (F == WEIGHT_INT4) {
#pragma unroll
        for (int w = 0; w < 4; w++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const uint32_t a[4] = {int4_pair<T>(l[w], 2 * half, offsets[0]),
                                       TWO ? int4_pair<T>(h[w], 2 * half, offsets[1]) : 0,
                                       int4_pair<T>(l[w], 2 * half + 1, offsets[0]),
                                       TWO ? int4_pair<T>(h[w], 2 * half + 1, offsets[1]) : 0};
                const uint32_t *from = (const uint32_t *)(x + 32 * w + 16 * half);
                multiply_add<T>(sums, a, from[0], from[4]);
            }
    } else if constexpr (F == FLOATS) {
        const uint4 piece = *(const uint4 *)x;
        const uint32_t first[4] = {l[0], TWO ? h[0] : 0, l[1], TWO ? h[1] : 0};
        const uint32_t second[4] = {l[2], TWO ? h[2] : 0, l[3], TWO ? h[3] : 0};
        multiply_add<T>(sums, first, piece.x, piece.y);
        multiply_add<T>(sums, second, piece.z, piece.w);
    } else {
        const uint4 first = ((const uint4 *)x)[0], second = ((const uint4 *)x)[1];
        const uint32_t in[8] = {first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w};
#pragma unroll
        for (int w = 0; w < 4; w++) {
            uint32_t a[4] = {};
            int8_pairs<T>(l[w], a[0], a[2]);
            if (TWO) int8_pairs<T>(h[w], a[1], a[3]);
            /* Elements 0 and 2, 1 and 3 of four. */
            multiply_add<T>(sums, a, __byte_perm(in[2 * w], in[2 * w + 1], 0x5410),
                            __byte_perm(in[2 * w], in[2 * w + 1], 0x7632));
        }
    }
}

/* Quads of a row that a share has. half: the first share, which has the fewest, also has the half of one at the end of
 * a row of MXFP4. */
struct row_share {
    int begin, end;
    bool half;
};

template <enum weight_format F>
static __device__ __forceinline__ row_share share_of(const quantized_matrices &w, int share, int shares)
{
    const int quads = w.in_features / QUAD_FEATURES<F>;
    return {quads * share / shares, quads * (share + 1) / shares, share == 0 && w.in_features % QUAD_FEATURES<F> > 0};
}

/* ---- the rings ---- */

/* A stage: the pieces of each band, then rows of x, behind each of which may be room that puts the next one into other
 * banks. */
template <enum weight_format F> static constexpr int X_ROW = QUAD_FEATURES<F> + (F == FLOATS ? 0 : 8); /* elements */

/* Whether x lies in stages, or else behind the ring. */
template <enum weight_format F> static constexpr bool STAGES_HAVE_X = F != WEIGHT_FP8;

/* A warp's. */
struct quad_ring {
    uint8_t *data;
    int32_t stage_bytes;
};

/* Bytes of a ring, with the x behind it. */
template <enum weight_format F> static __host__ __device__ __forceinline__ int ring_bytes(int stages, int stage_bytes)
{
    return stages * stage_bytes + (STAGES_HAVE_X<F> ? 0 : (int)sizeof(half_rows));
}

/* The rows of the weight that a lane multiplies, one of each band, of which there are `count`. */
template <int BANDS> struct lane_rows {
    int64_t rows[BANDS]; /* of all experts' */
    int count;
};

/* What a lane copies next, and what of it is left. */
template <class T, int BANDS> struct quad_source {
    const uint8_t *data[BANDS];
    const T *x; /* the first of the lane's 8 elements */
    int bands, quads;
    bool has_x;
};

template <class T, enum weight_format F, int BANDS>
static __device__ __forceinline__ quad_source<T, BANDS> source_of(const quantized_matrices &w,
                                                                  const lane_rows<BANDS> &rows, const rows_of_x<T> &x,
                                                                  const row_share &share)
{
    const int i = threadIdx.x % 32 / 4, j = threadIdx.x % 4;
    quad_source<T, BANDS> source = {
        {}, x.rows + x.own + share.begin * QUAD_FEATURES<F> + 8 * j, rows.count, share.end - share.begin, i < x.count};
#pragma unroll
    for (int b = 0; b < BANDS; b++) source.data[b] = w.data + rows.rows[b] * w.row_bytes + share.begin * 64 + 16 * j;
    return source;
}

/* Copies the next quad to a stage, if there is one, as one group of copies. own: where the lane's pieces are there. */
template <class T, enum weight_format F, int BANDS>
static __device__ __forceinline__ void copy_quad(uint32_t own, quad_source<T, BANDS> &source, uint64_t policy)
{
    const int lane = threadIdx.x % 32, i = lane / 4, j = lane % 4;
    const uint32_t to_x = own - lane * 16 + source.bands * BAND_BYTES + (i * X_ROW<F> + 8 * j) * (int)sizeof(T);
    if (source.quads > 0) {
#pragma unroll
        for (int b = 0; b < BANDS; b++)
            if (b < source.bands) copy_async(own + b * BAND_BYTES, source.data[b], true, policy);
#pragma unroll
        for (int k = 0; k < QUAD_FEATURES<F> && STAGES_HAVE_X<F>; k += 32)
            if (source.has_x) copy_async(to_x + k * (int)sizeof(T), source.x + k, true);
    }
    copy_async_commit();
#pragma unroll
    for (int b = 0; b < BANDS; b++) source.data[b] += 64;
    source.x += QUAD_FEATURES<F>, source.quads--;
}

/* Where the scales and zeros of a lane's rows are, and those of a group as they lie there. */
template <int BANDS> struct scale_source {
    const uint8_t *scales[BANDS], *zeros[BANDS]; /* of group 0 */
};
template <int BANDS> struct raw_scales {
    uint32_t scales[BANDS], zeros[BANDS];
};

template <int BANDS>
static __device__ __forceinline__ scale_source<BANDS> scales_of(const quantized_matrices &w,
                                                                const lane_rows<BANDS> &rows)
{
    scale_source<BANDS> source;
#pragma unroll
    for (int b = 0; b < BANDS; b++) {
        const int64_t scale_row = (int)rows.rows[b] / w.scale_rows;
        source.scales[b] = (const uint8_t *)w.scales + scale_row * w.groups * w.scale_bytes;
        source.zeros[b] = w.zeros ? w.zeros + rows.rows[b] * w.groups : NULL;
    }
    return source;
}

/* A scale is loaded as the word that it lies in, so that it is not waited for here. */
template <enum weight_format F, int BANDS>
static __device__ __forceinline__ void load_scales(raw_scales<BANDS> &raw, const quantized_matrices &w,
                                                   const scale_source<BANDS> &source, int group)
{
    const int there = min(group, w.groups - 1);
#pragma unroll
    for (int b = 0; b < BANDS; b++) {
        const uintptr_t p = (uintptr_t)(source.scales[b] + there * w.scale_bytes);
        raw.scales[b] = __ldg((const uint32_t *)(p & ~(uintptr_t)3));
        raw.zeros[b] = F == WEIGHT_INT4 && source.zeros[b] ? __ldg(source.zeros[b] + there) : 8;
    }
}

template <int BANDS>
static __device__ __forceinline__ float scale_in(const raw_scales<BANDS> &raw, const quantized_matrices &w,
                                                 const scale_source<BANDS> &source, int band, int group)
{
    const uintptr_t p = (uintptr_t)(source.scales[band] + min(group, w.groups - 1) * w.scale_bytes);
    const uint32_t bits = raw.scales[band] >> 8 * (p & 3);
    return to_scale(w.scale_dtype == DTYPE_E8M0 ? bits & 255 : bits, w.scale_dtype);
}

/* The scales of a group, and what INT4 is decoded with. */
template <int BANDS> struct band_scales {
    float scales[BANDS];
    uint32_t offsets[BANDS];
};

template <class T, enum weight_format F, int BANDS>
static __device__ __forceinline__ band_scales<BANDS> convert_scales(const raw_scales<BANDS> &raw,
                                                                    const quantized_matrices &w,
                                                                    const scale_source<BANDS> &source, int group)
{
    band_scales<BANDS> out;
#pragma unroll
    for (int b = 0; b < BANDS; b++) {
        out.scales[b] = scale_in(raw, w, source, b, group);
        out.offsets[b] = F == WEIGHT_INT4 ? offset_of<T>((float)raw.zeros[b]) : 0;
    }
    return out;
}

/* Those that lane `from` of the four has. */
template <enum weight_format F, int BANDS>
static __device__ __forceinline__ band_scales<BANDS> take_scales(const band_scales<BANDS> &all, int from)
{
    band_scales<BANDS> out;
#pragma unroll
    for (int b = 0; b < BANDS; b++) {
        out.scales[b] = __shfl_sync(~0u, all.scales[b], from, 4);
        out.offsets[b] = F == WEIGHT_INT4 ? __shfl_sync(~0u, all.offsets[b], from, 4) : 0;
    }
    return out;
}

/* sums += the quad in a stage, times its scales if they are those of groups. own: the lane's pieces; x: its row. */
template <class T, enum weight_format F, bool GROUPED, int BANDS>
static __device__ __forceinline__ void multiply_quad(float (&sums)[(BANDS + 1) / 2][4], const uint8_t *own,
                                                     const band_scales<BANDS> &scales, int bands, const T *x)
{
    const int j = threadIdx.x % 4;
    x += F == WEIGHT_INT4 ? 2 * j : F == FLOATS ? 8 * j : 16 * j;
#pragma unroll
    for (int b = 0; b < BANDS; b += 2) {
        constexpr int LAST = BANDS - 1;
        const bool two = b < LAST && b + 1 < bands;
        const uint32_t offsets[2] = {scales.offsets[b], scales.offsets[min(b + 1, LAST)]};
        float part[4] = {};
        if (b >= bands) continue;
        const uint4 low = *(const uint4 *)(own + b * BAND_BYTES);
        const uint4 high = two ? *(const uint4 *)(own + (b + 1) * BAND_BYTES) : uint4{};
        if (b == LAST)
            multiply_piece<T, F, false>(part, low, high, x, offsets);
        else
            multiply_piece<T, F, true>(part, low, high, x, offsets);
#pragma unroll
        for (int k = 0; k < 4; k++) sums[b / 2][k] += GROUPED ? scales.scales[min(b + k / 2, LAST)] * part[k] : part[k];
    }
}

/* What goes through a warp's ring: where the next quad comes from, and the scales. */
template <class T, int BANDS> struct quad_stream {
    quad_source<T, BANDS> source;
    scale_source<BANDS> scale_source;
    raw_scales<BANDS> raw;
    band_scales<BANDS> four;
    uint64_t policy;
    uint32_t own;               /* the shared address of the lane's pieces in stage 0 */
    int first_group, next_four; /* groups of the first quad, and of the next scales behind that */
    int at, before;             /* bytes from stage 0 to the stage of the next quad, and to that of the one before it */
};

/* The scales of four groups from `group` on, and those of the next four are loaded. */
template <class T, enum weight_format F, bool GROUPED, int BANDS>
static __device__ __forceinline__ void next_scales(quad_stream<T, BANDS> &s, const quantized_matrices &w)
{
    const int first = s.first_group + s.next_four + (GROUPED ? threadIdx.x % 4 : 0);
    s.four = convert_scales<T, F>(s.raw, w, s.scale_source, first);
    s.next_four += 4;
    if (GROUPED) load_scales<F>(s.raw, w, s.scale_source, first + 4);
}

template <class T, enum weight_format F, bool GROUPED, int STAGES, int BANDS>
static __device__ __forceinline__ void start_stream(quad_stream<T, BANDS> &s, const quantized_matrices &w,
                                                    const lane_rows<BANDS> &rows, const quad_ring &ring, int first_quad)
{
    s.first_group = GROUPED ? group_of(w, first_quad) : 0;
    s.policy = evict_first_policy();
    s.own = (uint32_t)__cvta_generic_to_shared(ring.data) + threadIdx.x % 32 * 16;
    asm volatile("" : "+r"(s.own)); /* so that it is not computed again for each quad */
    __syncwarp();                   /* no lane reads what the ring had before */
#pragma unroll 1
    for (int k = 0; k < STAGES - 1; k++) copy_quad<T, F>(s.own + k * ring.stage_bytes, s.source, s.policy);
    s.scale_source = scales_of(w, rows);
    if (F != FLOATS) load_scales<F>(s.raw, w, s.scale_source, s.first_group + (GROUPED ? (int)threadIdx.x % 4 : 0));
    s.at = 0, s.before = (STAGES - 1) * ring.stage_bytes, s.next_four = 0;
}

/* sums += quads [begin, end). x: the lane's row of them or, if stages have x, that row of the stage's first quad. */
template <class T, enum weight_format F, bool GROUPED, int STAGES, int BANDS>
static __device__ __forceinline__ void multiply_quads(float (&sums)[(BANDS + 1) / 2][4], quad_stream<T, BANDS> &s,
                                                      const quantized_matrices &w, const quad_ring &ring, int begin,
                                                      int end, const uint8_t *x)
{
#pragma unroll 1
    for (int quad = begin; quad < end; quad++) {
        const int group = GROUPED ? group_of(w, quad) - s.first_group : 0;
        copy_async_wait<STAGES - 2>();
        __syncwarp(); /* what all lanes copied is there, and no lane reads stage `before` any more */
        copy_quad<T, F>(s.own + s.before, s.source, s.policy);
        if (F != FLOATS && group == s.next_four) next_scales<T, F, GROUPED>(s, w);
        multiply_quad<T, F, GROUPED>(sums, (const uint8_t *)__cvta_shared_to_generic(s.own + s.at),
                                     GROUPED ? take_scales<F>(s.four, group & 3) : s.four, s.source.bands,
                                     (const T *)(STAGES_HAVE_X<F> ? x + s.at : x));
        if (!STAGES_HAVE_X<F>) x += QUAD_FEATURES<F> * sizeof(T);
        s.before = s.at;
        s.at = s.at == (STAGES - 1) * ring.stage_bytes ? 0 : s.at + ring.stage_bytes;
    }
}

/* multiply_rows of the formats with rings. */
template <class T, enum weight_format F, bool GROUPED, int STAGES, int BANDS>
static __device__ __forceinline__ void multiply_ringed_rows(float (&sums)[(BANDS + 1) / 2][4],
                                                            const quantized_matrices &w, const lane_rows<BANDS> &rows,
                                                            const rows_of_x<T> &x, const row_share &share,
                                                            const quad_ring &ring)
{
    constexpr int TILES = (BANDS + 1) / 2;
    const int x_row = min((int)threadIdx.x % 32 / 4, x.count - 1);
    quad_stream<T, BANDS> stream = {source_of<T, F>(w, rows, x, share)};
    start_stream<T, F, GROUPED, STAGES>(stream, w, rows, ring, share.begin);
    if constexpr (STAGES_HAVE_X<F>) {
        const uint8_t *own = ring.data + rows.count * BAND_BYTES + x_row * X_ROW<F> * sizeof(T);
        multiply_quads<T, F, GROUPED, STAGES>(sums, stream, w, ring, share.begin, share.end, own);
    } else {
        half_rows &halves = *(half_rows *)(ring.data + STAGES * ring.stage_bytes);
        const int at_once = half_rows_quads(x.count);
#pragma unroll 1
        for (int begin = share.begin; begin < share.end; begin += at_once) {
            const int end = min(begin + at_once, share.end);
            float part[TILES][4] = {};
            make_half_rows(halves, x, begin, end - begin);
            multiply_quads<T, F, GROUPED, STAGES>(part, stream, w, ring, begin, end, half_row(halves, x_row, x.count));
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const float scale = half_row_scale<T>(halves, k % 2, x.count);
#pragma unroll
                for (int t = 0; t < TILES; t++) sums[t][k] += scale * part[t][k];
            }
        }
    }
#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int k = 0; k < 4 && F != FLOATS && !GROUPED; k++)
            sums[t][k] *= stream.four.scales[min(2 * t + k / 2, BANDS - 1)];
}

/* ---- MXFP4 ---- */

/* A lane's piece of two rows, and the scales of its words, a byte each. */
struct mxfp4_pieces {
    uint4 low, high;
    uint32_t low_scales, high_scales;
};

/* The scales of so many words of a quad, two at a time: the scales of a row are at an even address. */
template <int WORDS> static __device__ __forceinline__ uint32_t load_scales(const uint8_t *scales, int quad)
{
    const uint16_t *two = (const uint16_t *)(scales + 4 * quad);
    return __ldg(two) | (WORDS == 4 ? (uint32_t)__ldg(two + 1) << 16 : 0);
}

/* sums += WORDS words of the pieces by x, as in multiply_piece. */
template <class T, int WORDS>
static __device__ __forceinline__ void multiply_mxfp4(float (&sums)[4], const mxfp4_pieces &p, const T *x)
{
    const uint32_t l[4] = {p.low.x, p.low.y, p.low.z, p.low.w}, h[4] = {p.high.x, p.high.y, p.high.z, p.high.w};
    const uint32_t factor = pair_of<T>(MXFP4_FACTOR<T>);
#pragma unroll
    for (int w = 0; w < WORDS; w++) {
        const float low_scale = mxfp4_scale(p.low_scales, w), high_scale = mxfp4_scale(p.high_scales, w);
        float part[4] = {};
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t a[4];
            mxfp4_operand<T>(a, l[w], h[w], half);
#pragma unroll
            for (int i = 0; i < 4; i++) a[i] = multiply_pairs<T>(a[i], factor);
            const uint32_t *from = (const uint32_t *)(x + 32 * w + 16 * half);
            multiply_add<T>(part, a, from[0], from[4]);
        }
        sums[0] += low_scale * part[0], sums[1] += low_scale * part[1];
        sums[2] += high_scale * part[2], sums[3] += high_scale * part[3];
    }
}

/* multiply_rows of MXFP4, whose scales are those of a word. */
template <class T>
static __device__ __forceinline__ void multiply_mxfp4_rows(float (&sums)[4], const quantized_matrices &w,
                                                           int64_t low_row, int64_t high_row, const T *x,
                                                           const row_share &share)
{
    constexpr int QUAD = QUAD_FEATURES<WEIGHT_MXFP4>, N = AT_ONCE;
    const int j = threadIdx.x % 4, whole = w.in_features / QUAD;
    const uint8_t *low = w.data + low_row * w.row_bytes, *high = w.data + high_row * w.row_bytes;
    const uint8_t *low_scales = (const uint8_t *)w.scales + low_row * w.groups,
                  *high_scales = (const uint8_t *)w.scales + high_row * w.groups;
    const T *own_x = x + 2 * j;
#pragma unroll 1
    for (int first = share.begin; first < share.end; first += N) {
        mxfp4_pieces p[N];
#pragma unroll
        for (int k = 0; k < N; k++) {
            const int quad = min(first + k, share.end - 1);
            p[k] = {load_once(low + quad * 64 + 16 * j), load_once(high + quad * 64 + 16 * j),
                    load_scales<4>(low_scales, quad), load_scales<4>(high_scales, quad)};
        }
#pragma unroll
        for (int k = 0; k < N; k++)
            if (first + k < share.end) multiply_mxfp4<T, 4>(sums, p[k], own_x + (first + k) * QUAD);
    }
    if (!share.half) return;
    const uint2 l = *(const uint2 *)(low + whole * 64 + 8 * j), h = *(const uint2 *)(high + whole * 64 + 8 * j);
    const mxfp4_pieces p = {
        {l.x, l.y}, {h.x, h.y}, load_scales<2>(low_scales, whole), load_scales<2>(high_scales, whole)};
    multiply_mxfp4<T, 2>(sums, p, own_x + whole * QUAD);
}

/* sums = a share of the lane's rows of the weights by its row of x, a tile for each two bands. */
template <class T, enum weight_format F, bool GROUPED, int STAGES, int BANDS>
static __device__ __forceinline__ void multiply_rows(float (&sums)[(BANDS + 1) / 2][4], const quantized_matrices &w,
                                                     const lane_rows<BANDS> &rows, const rows_of_x<T> &x,
                                                     const row_share &share, const quad_ring &ring)
{
    if constexpr (F == WEIGHT_MXFP4)
        multiply_mxfp4_rows<T>(sums[0], w, rows.rows[0], rows.rows[1], x.rows + x.own, share);
    else
        multiply_ringed_rows<T, F, GROUPED, STAGES>(sums, w, rows, x, share, ring);
}

/* ---- gate and up ---- */

struct gate_up_call {
    gated_rows to;
    const void *x;
    quantized_matrices weights;
    int32_t num_rows, num_experts;
    int32_t stage_bytes;
};

/* A block computes GATE_TILES tiles at a time, PARTS warps each. Item i is tiles i % groups * GATE_TILES and on, of
 * the rows that row i / groups leads. Shared memory: the rings of the warps. */
template <class T, enum weight_format F, bool GROUPED>
static __global__ void __launch_bounds__(FEW_EXPERTS_WARPS * 32, PLACES<F>)
    gate_up_kernel(const __grid_constant__ gate_up_call call)
{
    extern __shared__ uint4 dynamic[];
    __shared__ float shares[FEW_EXPERTS_WARPS][32][4];
    constexpr int PARTS = SHARES<F>, FEATURES = GATE_TILES<F> * TILE / 2;
    const int groups = (call.to.pairs + FEATURES - 1) / FEATURES, items = call.num_rows * groups;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, i = lane / 4, j = lane % 4;
    const row_share share = share_of<F>(call.weights, warp % PARTS, PARTS);
    const quad_ring ring = {(uint8_t *)dynamic + warp * ring_bytes<F>(GATE_STAGES<F>, call.stage_bytes),
                            call.stage_bytes};
    let_next_start();
    wait_for_previous();
    for (int item = blockIdx.x; item < items; item += gridDim.x) {
        const int token = max(call.to.plan.tokens[min(item / groups + i, call.num_rows - 1)], 0);
        const expert_rows rows = rows_led_by<ROWS>(call.to.plan.starts, call.num_experts, item / groups);
        if (rows.count == 0) continue;
        const int feature = item % groups * FEATURES + warp / PARTS * (TILE / 2) + i,
                  there = min(feature, call.to.pairs - 1);
        const int64_t gate_row = (int64_t)rows.expert * 2 * call.to.pairs + there;
        const rows_of_x<T> x = {(const T *)call.x, token * call.weights.in_features, rows.count};
        float sums[1][4] = {};
        multiply_rows<T, F, GROUPED, GATE_STAGES<F>, 2>(sums, call.weights, {{gate_row, gate_row + call.to.pairs}, 2},
                                                        x, share, ring);
        *(piece<float, 4> *)shares[warp][lane] = {sums[0][0], sums[0][1], sums[0][2], sums[0][3]};
        __syncthreads();
        if (warp % PARTS == 0) {
#pragma unroll
            for (int k = 1; k < PARTS; k++)
#pragma unroll
                for (int n = 0; n < 4; n++) sums[0][n] += shares[warp + k][lane][n];
#pragma unroll
            for (int n = 0; n < 2; n++)
                if (2 * j + n < rows.count && feature < call.to.pairs)
                    finish_pair<T>(call.to, rows.expert, rows.first + 2 * j + n, feature, sums[0][n], sums[0][2 + n]);
        }
        __syncthreads();
    }
}

/* ---- down ---- */

struct down_call {
    void *out; /* [num_tokens, out_features] */
    const void *x;
    quantized_matrices weights;
    const void *base;
    const float *base_gate;
    expert_plan plan;
    int32_t num_tokens, num_experts, top_k;
    bool weights_first;
    int32_t features, shares; /* of a block, and of the input features of a row */
    int32_t stage_bytes;
};

/* The plan's rows and weights of the tokens' experts. */
struct plan_copy {
    int32_t rows[MAX_ROWS];
    float weights[MAX_ROWS];
};

/* Copies them asynchronously, so that the weights' copies start at once. */
static __device__ __forceinline__ void copy_plan(const down_call &call, plan_copy &to)
{
    for (int k = threadIdx.x; k < call.num_tokens * call.top_k; k += blockDim.x) {
        copy_async_4((uint32_t)__cvta_generic_to_shared(&to.rows[k]), &call.plan.rows[k]);
        if (call.weights_first)
            to.weights[k] = 1.0f;
        else
            copy_async_4((uint32_t)__cvta_generic_to_shared(&to.weights[k]), &call.plan.weights[k]);
    }
}

/* What result `at` of a block begins with; a block's results are those of token 0, of token 1, ... Where it is loaded
 * it is not waited for. */
template <class T> struct base_of_result {
    T x;
    float gate;
};

template <class T> static __device__ __forceinline__ base_of_result<T> load_base(const down_call &call, int at)
{
    const int token = at / call.features, feature = (int)blockIdx.x * call.features + at % call.features;
    if (!call.base || token >= call.num_tokens || feature >= call.weights.out_features) return {from_float<T>(0), 0};
    return {((const T *)call.base)[(int64_t)token * call.weights.out_features + feature],
            call.base_gate ? call.base_gate[token] : 1.0f};
}

/* Adds a token's rows of sums, in their order, to its base. sums: [shares, rows, features]. */
template <class T>
static __device__ __forceinline__ void add_rows(const down_call &call, const plan_copy &plan, const float *sums, int at,
                                                const base_of_result<T> &base)
{
    const int token = at / call.features, column = at % call.features;
    const int feature = (int)blockIdx.x * call.features + column, num_rows = call.num_tokens * call.top_k;
    if (feature >= call.weights.out_features) return;
    float sum = to_float(base.x) * base.gate;
    for (int k = token * call.top_k; k < (token + 1) * call.top_k; k++) {
        float of_row = 0;
        if (plan.rows[k] < 0) continue;
        for (int share = 0; share < call.shares; share++)
            of_row += sums[(share * num_rows + plan.rows[k]) * call.features + column];
        sum += plan.weights[k] * of_row;
    }
    ((T *)call.out)[(int64_t)token * call.weights.out_features + feature] = from_float<T>(sum);
}

/* Leaves a share of the block's features of the expert whose rows row `row` leads. */
template <class T, enum weight_format F, bool GROUPED>
static __device__ __forceinline__ void multiply_features(const down_call &call, const quad_ring &ring, float *shared,
                                                         int row, int share)
{
    constexpr int BANDS = F == WEIGHT_MXFP4 ? 2 : DOWN_BANDS;
    const quantized_matrices &w = call.weights;
    const int lane = threadIdx.x % 32, i = lane / 4, j = lane % 4, num_rows = call.num_tokens * call.top_k;
    const int first = (int)blockIdx.x * call.features, count = min(call.features, w.out_features - first);
    const expert_rows rows = rows_led_by<ROWS>(call.plan.starts, call.num_experts, row);
    if (rows.count == 0) return;
    const int64_t first_row = (int64_t)rows.expert * w.out_features + first;
    const T *bias = (const T *)w.bias;
    lane_rows<BANDS> of_lane = {{}, (count + BAND - 1) / BAND};
    float sums[(BANDS + 1) / 2][4] = {};
#pragma unroll
    for (int b = 0; b < BANDS; b++) of_lane.rows[b] = first_row + min(BAND * b + i, count - 1);
    const rows_of_x<T> x = {(const T *)call.x, (row + min(i, rows.count - 1)) * w.in_features, rows.count};
    multiply_rows<T, F, GROUPED, DOWN_STAGES<F>>(sums, w, of_lane, x, share_of<F>(w, share, call.shares), ring);
    float *to = shared + (share * num_rows + row) * call.features;
#pragma unroll
    for (int b = 0; b < BANDS; b++) {
        const int column = BAND * b + i;
        if (column >= count) continue;
        const float more = bias && share == 0 ? to_float(bias[first_row + column]) : 0.0f;
#pragma unroll
        for (int n = 0; n < 2; n++)
            if (2 * j + n < rows.count) to[(2 * j + n) * call.features + column] = sums[b / 2][b % 2 * 2 + n] + more;
    }
}

/* Grid: x the block's features. Shared memory: the rings of the warps, and sums. */
template <class T, enum weight_format F, bool GROUPED>
static __global__ void __launch_bounds__(DOWN_WARPS<F> * 32, 16 / DOWN_WARPS<F>)
    down_kernel(const __grid_constant__ down_call call)
{
    extern __shared__ uint4 dynamic[];
    __shared__ plan_copy plan;
    const int items = call.num_tokens * call.top_k * call.shares, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int bytes = ring_bytes<F>(DOWN_STAGES<F>, call.stage_bytes);
    const quad_ring ring = {(uint8_t *)dynamic + warp * bytes, call.stage_bytes};
    float *sums = (float *)((uint8_t *)dynamic + warps * bytes);
    let_next_start();
    wait_for_previous();
    copy_plan(call, plan);
    const base_of_result<T> base = load_base<T>(call, threadIdx.x);
    for (int item = warp; item < items; item += warps)
        multiply_features<T, F, GROUPED>(call, ring, sums, item / call.shares, item % call.shares);
    copy_async_wait_all();
    __syncthreads();
    for (int at = threadIdx.x; at < call.num_tokens * call.features; at += blockDim.x)
        add_rows<T>(call, plan, sums, at, at == (int)threadIdx.x ? base : load_base<T>(call, at));
}

/* ---- the host's side ---- */

/* The most tokens for which, on Hopper, the kernels of row segments are not faster. Those of floats are as fast at
 * reading, and save the gathering and the addition of rows: that is more only where a token's matrices are small. */
static int32_t most_on_hopper(const struct weight *w, enum dtype dtype, int32_t top_k)
{
    enum { MOST = 4, MOST_BYTES = 24 << 20 };
    const bool as_e4m3 = w->format == WEIGHT_MXFP4 && dtype == DTYPE_BFLOAT16; /* linear_wgmma_mxfp4_rows.cu */
    const bool is_small = top_k * w->out_features * weight_row_bytes(w) <= MOST_BYTES;
    return as_e4m3 ? 0 : weight_is_quantized(w) ? MOST : is_small ? 1 : 0;
}

/* Rows of whole quads, INT4 as weight_prepare makes it, groups of whole quads. Of MXFP4 what weight_prepare reorders.
 */
static bool takes_format(const struct weight *w, enum dtype dtype)
{
    const int quad = w->format == WEIGHT_INT4 ? QUAD_FEATURES<WEIGHT_INT4> : QUAD_FEATURES<WEIGHT_FP8>;
    if (!weight_is_quantized(w))
        return w->format == weight_format_of(dtype) && w->in_features % QUAD_FEATURES<FLOATS> == 0;
    if (w->format == WEIGHT_MXFP4)
        return weight_is_prepared(w) && w->scale_dtype == DTYPE_E8M0 && w->scale_rows == 1 &&
               (uintptr_t)w->scales % 2 == 0;
    return (w->format == WEIGHT_FP8 || w->format == WEIGHT_INT8 || w->format == WEIGHT_INT4) &&
           w->in_features % quad == 0 && (w->group_size >= w->in_features || w->group_size % quad == 0);
}

static bool takes(struct backend *b, const struct weight *w, enum dtype dtype, int32_t num_tokens, int32_t top_k,
                  int32_t num_experts, const void *x)
{
    const bool has_wgmma = cuda_state(b)->has_wgmma;
    const int most_tokens = has_wgmma ? most_on_hopper(w, dtype, top_k) : FEW_EXPERTS_MAX_TOKENS;
    return (has_wgmma || weight_is_quantized(w)) && takes_format(w, dtype) && num_tokens <= most_tokens &&
           top_k <= FEW_EXPERTS_MAX_TOP_K && (dtype == DTYPE_BFLOAT16 || dtype == DTYPE_FLOAT16) &&
           (!w->bias || w->bias_dtype == dtype) && w->in_features < INT32_MAX / MAX_ROWS &&
           w->out_features < INT32_MAX / num_experts && !w->input_order && cuda_is_aligned(w->data) &&
           cuda_is_aligned(x);
}

static quantized_matrices matrices_of(const struct weight *w)
{
    const bool is_quantized = weight_is_quantized(w);
    const uint32_t quad = w->format == WEIGHT_INT4 ? QUAD_FEATURES<WEIGHT_INT4> : QUAD_FEATURES<WEIGHT_FP8>;
    const int32_t groups = (int32_t)weight_groups(w);
    const int64_t quads = w->group_size / quad; /* of a group; MXFP4 does not ask for its groups */
    return {(const uint8_t *)w->data,
            w->scales,
            w->bias,
            w->zeros,
            w->scale_dtype,
            (int32_t)w->out_features,
            (int32_t)w->in_features,
            (int32_t)weight_row_bytes(w),
            is_quantized ? (int32_t)w->scale_rows : 1,
            is_quantized ? (int32_t)dtype_size(w->scale_dtype) : 0,
            groups,
            groups > 1 && quads > 0 ? (uint32_t)cuda_div_up((int64_t)1 << 31, quads) : 0};
}

static int stages_of(const struct cuda_state *s, int of_hopper)
{
    return s->compute_capability == 90 ? of_hopper : OTHER_STAGES;
}

/* Bytes of a stage with so many bands. An expert has at most as many rows as there are tokens. */
template <class T, enum weight_format F> static int stage_bytes_of(int bands, int num_tokens)
{
    const int rows = !STAGES_HAVE_X<F> ? 0 : num_tokens < ROWS ? num_tokens : ROWS;
    return F == WEIGHT_MXFP4 ? 0 : bands * BAND_BYTES + rows * X_ROW<F> * (int)sizeof(T);
}

/* Calls f with a value of the type, and constants of the format and of whether there are groups. */
template <class Function> static void dispatch(const struct weight *w, enum dtype dtype, Function f)
{
    auto with_groups = [&](auto zero, auto format) {
        if constexpr (decltype(format)::value == WEIGHT_MXFP4) {
            f(zero, format, std::true_type());
        } else if constexpr (decltype(format)::value == FLOATS) {
            f(zero, format, std::false_type());
        } else if (weight_groups(w) > 1) {
            f(zero, format, std::true_type());
        } else {
            f(zero, format, std::false_type());
        }
    };
    auto with_type = [&](auto zero) {
        if (!weight_is_quantized(w)) {
            with_groups(zero, std::integral_constant<enum weight_format, FLOATS>());
        } else if (w->format == WEIGHT_INT4) {
            with_groups(zero, std::integral_constant<enum weight_format, WEIGHT_INT4>());
        } else if (w->format == WEIGHT_INT8) {
            with_groups(zero, std::integral_constant<enum weight_format, WEIGHT_INT8>());
        } else if (w->format == WEIGHT_MXFP4) {
            with_groups(zero, std::integral_constant<enum weight_format, WEIGHT_MXFP4>());
        } else {
            with_groups(zero, std::integral_constant<enum weight_format, WEIGHT_FP8>());
        }
    };
    if (dtype == DTYPE_FLOAT16) {
        with_type(__half());
    } else {
        with_type(__nv_bfloat16());
    }
}

bool few_experts_mma_gate_up(struct backend *b, const struct experts_gate_up_args *args)
{
    const struct weight *w = args->gate_up.weights;
    const int32_t rows = args->num_tokens * args->top_k;
    if (!takes(b, w, args->dtype, args->num_tokens, args->top_k, args->num_experts, args->x) || w->out_features % 2)
        return false;
    const struct cuda_state *s = cuda_use(b);
    gate_up_call call = {gated_rows_of(args), args->x, matrices_of(w), rows, args->num_experts, 0};
    dispatch(w, args->dtype, [&](auto zero, auto format, auto grouped) {
        constexpr enum weight_format F = decltype(format)::value;
        constexpr bool GROUPED = decltype(grouped)::value;
        const int64_t blocks = rows * cuda_div_up(w->out_features / 2, GATE_TILES<F> * TILE / 2);
        cuda_launch launch = few_experts_launch(s, PLACES<F>, blocks);
        call.stage_bytes = stage_bytes_of<decltype(zero), F>(2, args->num_tokens);
        launch.shared_bytes = FEW_EXPERTS_WARPS * ring_bytes<F>(stages_of(s, HOPPER_STAGES<F>), call.stage_bytes);
        cuda_run_dependent(b, "experts_gate_up", gate_up_kernel<decltype(zero), F, GROUPED>, launch, call);
    });
    return true;
}

/* Output features of a block of experts_down: as many blocks as multiprocessors, or a multiple of that. */
template <enum weight_format F> static int32_t down_features(const struct cuda_state *s, int64_t out_features)
{
    if (F == WEIGHT_MXFP4) return TILE;
    const int64_t rounds = cuda_div_up(out_features, s->num_sms * DOWN_BANDS * BAND);
    const int64_t features = cuda_div_up(out_features, s->num_sms * rounds);
    return (int32_t)(features < BAND ? BAND : features);
}

/* Launches down_kernel with as many warps as have room for their rings, and with enough shares for all of them. */
template <class T, enum weight_format F, bool GROUPED> static void run_down(struct backend *b, down_call *call)
{
    const struct cuda_state *s = cuda_use(b);
    const int num_rows = call->num_tokens * call->top_k, static_bytes = (int)sizeof(plan_copy);
    call->features = down_features<F>(s, call->weights.out_features);
    call->stage_bytes = stage_bytes_of<T, F>((int)cuda_div_up(call->features, BAND), call->num_tokens);
    int warps = DOWN_WARPS<F>, bytes = 0;
    for (;; warps -= 4) {
        call->shares = 1;
        while (num_rows * call->shares * 2 <= warps) call->shares *= 2;
        bytes = warps * ring_bytes<F>(stages_of(s, HOPPER_DOWN_STAGES<F>), call->stage_bytes) +
                call->shares * num_rows * call->features * (int)sizeof(float);
        if (warps == 4 || bytes + static_bytes <= s->max_shared_bytes) break;
    }
    const dim3 grid((unsigned)cuda_div_up(call->weights.out_features, call->features));
    cuda_run_dependent(b, "experts_down", down_kernel<T, F, GROUPED>, {grid, warps * 32, bytes}, *call);
}

bool few_experts_mma_down(struct backend *b, const struct experts_down_args *args)
{
    const struct weight *w = args->down.weights;
    if (!takes(b, w, args->dtype, args->num_tokens, args->top_k, args->num_experts, args->x)) return false;
    down_call call = {args->out,
                      args->x,
                      matrices_of(w),
                      args->base,
                      args->base_gate,
                      args->plan,
                      args->num_tokens,
                      args->num_experts,
                      args->top_k,
                      args->weights_first,
                      0,
                      0,
                      0};
    dispatch(w, args->dtype, [&](auto zero, auto format, auto grouped) {
        run_down<decltype(zero), decltype(format)::value, decltype(grouped)::value>(b, &call);
    });
    return true;
}
