/* The golden checkpoints that a test takes which computes with each of them. */
#ifndef QUIRE_TESTS_SUPPORT_GOLDEN_CHOICE_H
#define QUIRE_TESTS_SUPPORT_GOLDEN_CHOICE_H

#include "model/config.h"

enum { GOLDEN_MOST = 256 };

struct golden_choice {
    const char *names[GOLDEN_MOST]; /* [count] of golden_checkpoints */
    int count;
};

/* All that the device of this test computes. With a sanitizer, under which they take ten times as long, those that have
 * something which none before them has: a kind of layer, of router, or of tensor in the file. */
struct golden_choice golden_choose(void);

/* The config of a golden checkpoint; free it. */
struct model_config *golden_config(const char *name);

#endif
