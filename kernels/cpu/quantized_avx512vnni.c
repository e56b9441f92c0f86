#if QUIRE_X86
#include "kernels/cpu/vector_quantized.h"
#include "kernels/cpu/vector_tiles.h"
#endif
