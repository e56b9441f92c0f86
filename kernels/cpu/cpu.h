/* The instruction sets of the CPU backend. It uses the widest that the processor has, or a narrower one that
 * is chosen. */
#ifndef QUIRE_KERNELS_CPU_CPU_H
#define QUIRE_KERNELS_CPU_CPU_H

#include <stdbool.h>

#include "kernels/backend.h"

enum cpu_isa {
    CPU_SCALAR, /* plain C: the reference, and any processor that is not an x86-64 */
    CPU_AVX2,   /* with FMA and F16C */
    CPU_AVX512, /* F, BW, DQ and VL */
    CPU_AVX512_VNNI,
    CPU_AMX, /* these, AVX512-BF16, and AMX's tiles of bfloat16 */
    CPU_ISA_COUNT
};

const char *cpu_isa_name(enum cpu_isa isa);
bool cpu_isa_supported(enum cpu_isa isa); /* by this build on this processor */

/* b comes from backend_cpu_open and runs no operation; isa must be supported. */
void backend_cpu_set_isa(struct backend *b, enum cpu_isa isa);
enum cpu_isa backend_cpu_isa(const struct backend *b);

#endif
