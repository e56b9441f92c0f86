/* The table of inner loops on floats, for the instruction set that the including file is compiled for. */
#include "kernels/cpu/vector_attention.h"
#include "kernels/cpu/vector_linear.h"
#include "kernels/cpu/vector_recurrence.h"

const struct cpu_kernels ISA(cpu_kernels) = {
    .to_float = to_float,
    .from_float = from_float,
    .sum_squares = sum_squares,
    .scale = scale,
    .silu_and_mul = silu_and_mul,
    .gelu_tanh_and_mul = gelu_tanh_and_mul,
    .multiply_add = multiply_add,
    .rotate = rotate,
    .maximum = maximum,
    .exponentials = exponentials,
    .softplus = softplus,
    .dot = dot_all,
    .columns = columns,
    .recurrence = recurrence,
    .scores = scores,
    .weighted_values = weighted_values,
};
