#if QUIRE_X86
#include "kernels/cpu/vector_kernels.h"
#endif
