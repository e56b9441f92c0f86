#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if QUIRE_X86
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "kernels/cpu/state.h"
#include "kernels/transfer.h"

#if QUIRE_X86
enum { HAS_VECTORS = 1 };
#else
enum { HAS_VECTORS = 0 };
#endif

const char *cpu_isa_name(enum cpu_isa isa)
{
    static const char *const names[] = {"scalar", "avx2", "avx512", "avx512vnni", "amx"};
    return names[isa];
}

#if QUIRE_X86
/* clang 14 does not know the name "f16c". */
static bool supports_f16c(void)
{
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
}

static bool has_amx_bf16(void)
{
    enum { AVX512_BF16 = 1 << 5, AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24 };
    unsigned eax, ebx, ecx, edx;
    if (!__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) || !(eax & AVX512_BF16)) return false;
    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (edx & AMX_BF16) && (edx & AMX_TILE);
}

/* Linux gives a process the tile registers when it asks for them (Documentation/arch/x86/xstate.rst). The processor has
 * AVX-512, and so the instruction xgetbv. */
static bool may_use_amx(void)
{
    enum { TILE_STATE = 3 << 17, ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    unsigned low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & TILE_STATE) == TILE_STATE && syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}
#endif

bool cpu_isa_supported(enum cpu_isa isa)
{
#if QUIRE_X86
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && supports_f16c();
    if (isa == CPU_AVX2) return avx2;
    bool avx512 = avx2 && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("avx512f") &&
                  __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
    if (isa == CPU_AVX512) return avx512;
    const bool vnni = avx512 && __builtin_cpu_supports("avx512vnni");
    if (isa == CPU_AVX512_VNNI) return vnni;
    if (isa == CPU_AMX) return vnni && has_amx_bf16() && may_use_amx();
#endif
    return isa == CPU_SCALAR;
}

/* What the processor has of the extensions that kernels use or could use. */
static void append_features(char *text, size_t size)
{
#if QUIRE_X86
    const struct {
        const char *name;
        bool there;
    } features[] = {{"sse4.2", __builtin_cpu_supports("sse4.2")},
                    {"avx", __builtin_cpu_supports("avx")},
                    {"avx2", __builtin_cpu_supports("avx2")},
                    {"fma", __builtin_cpu_supports("fma")},
                    {"f16c", supports_f16c()},
                    {"avx512f", __builtin_cpu_supports("avx512f")},
                    {"avx512bw", __builtin_cpu_supports("avx512bw")},
                    {"avx512dq", __builtin_cpu_supports("avx512dq")},
                    {"avx512vl", __builtin_cpu_supports("avx512vl")},
                    {"avx512_vnni", __builtin_cpu_supports("avx512vnni")},
                    {"amx_bf16", has_amx_bf16()}};
    for (size_t i = 0; i < sizeof features / sizeof features[0]; i++) {
        const size_t length = strlen(text);
        if (features[i].there) snprintf(text + length, size - length, " %s", features[i].name);
    }
#else
    (void)text, (void)size;
#endif
}

static enum cpu_isa widest_isa(void)
{
    enum cpu_isa widest = CPU_SCALAR;
    for (enum cpu_isa i = CPU_SCALAR; i < CPU_ISA_COUNT; i++)
        if (cpu_isa_supported(i)) widest = i;
    return widest;
}

void backend_describe_cpu(char *text, size_t size)
{
    text[0] = '\0';
    for (enum cpu_isa i = CPU_SCALAR; i < CPU_ISA_COUNT; i++) {
        const size_t length = strlen(text);
        if (HAS_VECTORS || i == CPU_SCALAR)
            snprintf(text + length, size - length, "%s%s", i == CPU_SCALAR ? "" : ", ", cpu_isa_name(i));
    }
    const size_t length = strlen(text);
    snprintf(text + length, size - length, "; here %s is used%s", cpu_isa_name(widest_isa()),
             HAS_VECTORS ? ", the processor has" : "");
    append_features(text, size);
}

void backend_cpu_set_isa(struct backend *b, enum cpu_isa isa)
{
    struct cpu_state *s = cpu_state(b);
    s->isa = isa;
    b->isa = cpu_isa_name(isa);
    s->tables = cpu_tables_of(isa);
    s->kernels = s->tables->kernels;
}

enum status backend_choose_isa(struct backend *b, const char *name, struct error *err)
{
    enum cpu_isa isa = CPU_SCALAR;
    if (!b->isa || strcmp(name, "auto") == 0) return STATUS_OK;
    while (isa < CPU_ISA_COUNT && strcmp(name, cpu_isa_name(isa)) != 0) isa++;
    if (isa == CPU_ISA_COUNT)
        return error_set(err, STATUS_INVALID,
                         "instruction set '%s' is not known: give 'auto', 'scalar', 'avx2', 'avx512', 'avx512vnni' or "
                         "'amx'",
                         name);
    if (!cpu_isa_supported(isa))
        return error_set(err, STATUS_UNSUPPORTED,
                         "instruction set '%s' was asked for, but this processor has none wider than '%s'", name,
                         cpu_isa_name(widest_isa()));
    backend_cpu_set_isa(b, isa);
    return STATUS_OK;
}

enum cpu_isa backend_cpu_isa(const struct backend *b)
{
    const struct cpu_state *s = b->state;
    return s->isa;
}

static int64_t workspace_bytes(struct backend *b, const struct workspace_query *query)
{
    const struct cpu_state *s = cpu_state(b);
    int64_t linear = cpu_linear_workspace(s, query), sample = cpu_sample_workspace(s, query);
    return max_i64(cpu_attention_workspace(s, query), max_i64(linear, sample));
}

static void workspace_set(struct backend *b, void *workspace, int64_t bytes)
{
    struct cpu_state *s = cpu_state(b);
    s->workspace = workspace;
    s->workspace_bytes = workspace ? bytes : 0;
}

static void destroy(struct backend *b)
{
    pool_close(cpu_state(b)->pool);
    cpu_group_leave(cpu_state(b));
    transfer_end_close(b);
    free(cpu_state(b));
}

static const struct backend operations = {
    .name = "cpu",
    .memory_info = cpu_memory_info,
    .memory_alloc = cpu_memory_alloc,
    .memory_free = cpu_memory_free,
    .copy = cpu_copy,
    .copy_many = cpu_copy_many,
    .call_host = cpu_call_host,
    .fill = cpu_fill,
    .workspace_bytes = workspace_bytes,
    .workspace_set = workspace_set,
    .embedding = cpu_embedding,
    .rms_norm = cpu_rms_norm,
    .fused_add_rms_norm = cpu_fused_add_rms_norm,
    .rotary_embedding = cpu_rotary_embedding,
    .reshape_and_cache = cpu_reshape_and_cache,
    .calculate_kv_scales = cpu_calculate_kv_scales,
    .paged_attention_v1 = cpu_paged_attention,
    .paged_attention_v2 = cpu_paged_attention_v2,
    .paged_attention_prefill = cpu_paged_attention,
    .short_conv = cpu_short_conv,
    .recurrence = cpu_recurrence,
    .gated_norm = cpu_gated_norm,
    .all_norm = cpu_all_norm,
    .gather_columns = cpu_gather_columns,
    .latent_cache = cpu_latent_cache,
    .latent_attention = cpu_latent_attention,
    .heads_linear = cpu_heads_linear,
    .act_and_mul = cpu_act_and_mul,
    .activate = cpu_activate,
    .clip = cpu_clip,
    .scale_queries = cpu_scale_queries,
    .scale_columns = cpu_scale_columns,
    .output_gate = cpu_output_gate,
    .linear = cpu_linear,
    .linear_parts = cpu_linear_parts,
    .route_experts = cpu_route_experts,
    .experts_gate_up = cpu_experts_gate_up,
    .experts_down = cpu_experts_down,
    .gather_rows = cpu_gather_rows,
    .scale_logits = cpu_scale_logits,
    .scatter_logits = cpu_scatter_logits,
    .update_block_tables = cpu_update_block_tables,
    .copy_blocks = cpu_copy_blocks,
    .swap_blocks = cpu_swap_blocks,
    .sample = cpu_sample,
    .destroy = destroy,
};

enum status backend_cpu_open(int threads, struct backend **out, struct error *err)
{
    *out = NULL;
    if (threads < 0)
        return error_set(err, STATUS_INVALID, "%d threads were asked for: give 1 or more, or 0 for all allowed",
                         threads);
    struct cpu_state *s = calloc(1, sizeof *s);
    if (!s) return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory opening the CPU backend");
    s->backend = operations;
    s->backend.state = s;
    cpu_stream_init(&s->backend);
    if (threads == 0) s->pool = pool_open_allowed();
    const enum status status = threads > 0 ? pool_open(threads, &s->pool, err) : STATUS_OK;
    if (status != STATUS_OK) {
        free(s);
        return status;
    }
    s->threads = pool_threads(s->pool);
    backend_cpu_set_isa(&s->backend, widest_isa());
    *out = &s->backend;
    return STATUS_OK;
}
