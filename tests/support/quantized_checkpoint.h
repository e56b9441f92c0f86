/* Checkpoints whose matrices are quantized, written from numbers that are known by what each format is defined to be,
 * one element at a time. */
#ifndef QUIRE_TESTS_QUANTIZED_CHECKPOINT_H
#define QUIRE_TESTS_QUANTIZED_CHECKPOINT_H

#include "model/tensors.h"
#include "tests/support/temp_folder.h"

/* One scale for each row and group, of a block, of the matrix, or of each part of a merged matrix. */
enum scale_form { SCALE_COLUMN, SCALE_VECTOR, SCALE_SCALAR, SCALE_1, SCALE_1_1, SCALE_PARTS };

/* How all matrices of the layers are stored. */
struct quantized_form {
    const char *name;
    struct weight_scheme scheme;
    enum dtype scale_dtype;
    enum scale_form scales;
    bool inverse;     /* the scales are called weight_scale_inv */
    bool lm_head;     /* it is quantized, too */
    bool merged;      /* the file has qkv_proj and gate_up_proj */
    bool zeros_are_7; /* stored zero points of a symmetric GPTQ file are less one, though the scheme does not say so */
    bool no_sorting;  /* there is a g_idx, but it changes nothing */
    bool experts; /* the layer has experts alone, which are quantized; the file has them in one tensor, interleaved */
    bool own_orders; /* k and up have another g_idx than q, v and gate */
    bool by_head;    /* merged: q, k and v lie head by head */
};

/* What is wrong with the file. */
struct quantized_change {
    const char *skip;    /* the tensor that is missing, or NULL */
    const char *reshape; /* the one that has a row more */
    const char *retype;  /* the one that has type U8, or I8 in place of it */
    const char *patch;   /* the one with another first word */
    uint32_t word;
};

/* A model of one layer: q has 128 rows of 256 input features, k and v 64 or, with wide heads, 128; gate and up 384. */
void quantized_spec(const struct quantized_form *form, bool wide, struct model_spec *spec);

/* Writes the weights as one file or, if sharded, two with an index. */
void quantized_write(const struct temp_folder *folder, const struct quantized_form *form, const struct model_spec *spec,
                     bool sharded, const struct quantized_change *change);

/* What element [row][i] of a quantized matrix stands for. i is an input feature, whatever the order of columns. */
float quantized_element(const struct quantized_form *form, const struct tensor *t, int64_t row, int64_t i);

#endif
