/* The instruction sets that the CPU backend was written for. The widest one that the processor has is chosen when the
 * backend is opened; tests and benchmarks may take a narrower one. */
#ifndef QUIRE_KERNELS_CPU_CPU_H
#define QUIRE_KERNELS_CPU_CPU_H

#include <stdbool.h>

#include "kernels/backend.h"

enum cpu_isa {
    CPU_SCALAR, /* plain C: the reference, and any processor that is not an x86-64 */
    CPU_AVX2,   /* with FMA and F16C */
    CPU_AVX512, /* F, BW, DQ and VL */
    CPU_ISA_COUNT
};

const char *cpu_isa_name(enum cpu_isa isa);
bool cpu_isa_supported(enum cpu_isa isa); /* by this build on this processor */

/* `b` is a backend of backend_cpu_open; `isa` must be supported. Not while an operation runs. */
void backend_cpu_set_isa(struct backend *b, enum cpu_isa isa);
enum cpu_isa backend_cpu_isa(const struct backend *b);

#endif
