/* One picture of a run, fit for a slide: memory by purpose on the left, blocks and running requests over the steps on
 * the right, and below them the state slots of a model that has them. Drawn by cairo, 1600 x 900. */
#ifndef QUIRE_RUNTIME_PICTURE_H
#define QUIRE_RUNTIME_PICTURE_H

#include <stdio.h>

#include "base/status.h"
#include "model/memory_profile.h"
#include "runtime/profile/series.h"

enum { PICTURE_WIDTH = 1600, PICTURE_HEIGHT = 900 };

struct picture {
    const char *model;  /* its name; made visible (base/visible.h) */
    const char *device; /* "NVIDIA H200"; NULL: profile->device says enough */
    const struct memory_profile *memory;
    int32_t block_size;
    int64_t num_prompts, num_preemptions;
    const struct series *series;
};

enum picture_format { PICTURE_SVG, PICTURE_PNG };

/* Writes the picture to a stream that is at its beginning. IO: the stream refused. */
enum status picture_write(const struct picture *p, enum picture_format format, FILE *out, struct error *err);

/* Writes a size as the picture has it. Sizes that stand in one column have one unit, that of `whole`, their sum. */
void picture_size(char out[32], int64_t bytes, int64_t whole);

#endif
