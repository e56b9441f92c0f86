/* clip: queries, keys and values of a step, which are one row of elements. */
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/operations.h"

/* A comparison with NaN is false, so NaN stays. */
struct clip_within {
    float limit;

    template <class T> __device__ __forceinline__ float value(float x) const
    {
        const float above = x < -limit ? -limit : x;
        return above > limit ? limit : above;
    }
};

void cuda_clip(struct backend *b, const struct clip_args *args)
{
    cuda_elementwise(b, "clip", args->dtype, args->x, args->x, args->count, clip_within{args->limit});
}
