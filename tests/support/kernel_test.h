/* Shared by the tests of kernels: the backends to test, tensors between guard words, and the comparison with float64.
 * All inputs go through the backend's own memory and copies, so the same tests run on any backend. */
#ifndef QUIRE_TESTS_SUPPORT_KERNEL_TEST_H
#define QUIRE_TESTS_SUPPORT_KERNEL_TEST_H

#include "kernels/backend.h"
#include "tests/support/reference.h"

enum { MAX_TEST_BACKENDS = 8 };

struct test_backend {
    struct backend *b;
    char name[32];      /* "cpu avx2", "cuda:0" */
    uint8_t *workspace; /* with guards; NULL: none yet */
    int64_t workspace_bytes;
    struct random *random; /* the test's */
    bool widest;           /* of the CPU backends, the one that quire chooses on this machine */
    int num_cases;         /* that kernel_test_takes was asked about */
};

struct kernel_test {
    int num_backends;
    struct test_backend backends[MAX_TEST_BACKENDS];
    struct random random;
};

/* Opens the CPU backend once for each instruction set of this machine, and a CUDA device if there is one; else it says
 * "skipped". Prints the seed: QUIRE_TEST_SEED, or from the clock where that is "fresh"; without it, 1. */
int kernel_test_setup(void **state);
int kernel_test_teardown(void **state);
/* Whether the next case runs on the backend. A GPU and the widest instruction set of this machine take all, with
 * AddressSanitizer two of seven; the other instruction sets, whose loops are the same source, and with ThreadSanitizer
 * any, because all divide their work among threads alike, take every seventh. Where the parameters of cases repeat
 * after 2 to 6, every seventh meets each of them. QUIRE_TEST_CASES=all in the environment: every backend takes all. */
bool kernel_test_takes(struct test_backend *tb);
/* The CUDA device; skips the calling test if there is none. */
struct test_backend *kernel_test_gpu(struct kernel_test *test);

/* Gives the backend a workspace for shapes up to those of `query`, and checks and frees the one before. */
void use_workspace(struct test_backend *tb, const struct workspace_query *query);
/* Fails the test if something was written outside the workspace. */
void check_workspace(const struct test_backend *tb);

/* A tensor on the device between guard words, and a copy of it on the host. */
struct tensor {
    struct backend *b;
    enum dtype dtype;
    int64_t count, bytes; /* elements; and their bytes */
    void *data;           /* on the device */
    uint8_t *host;        /* [bytes] what was uploaded, or downloaded last */
};

/* Every byte 0xff: NaN in every float type. */
struct tensor tensor_poison(struct backend *b, enum dtype dtype, int64_t count);
/* Uniform in [-amplitude, amplitude), rounded to dtype. */
struct tensor tensor_random(struct backend *b, enum dtype dtype, int64_t count, double amplitude,
                            struct random *random);
/* Any bytes at all, e.g. int32 arrays. */
struct tensor tensor_bytes(struct backend *b, const void *bytes, int64_t count);
/* Random bits of `mask` in every byte. */
struct tensor tensor_random_bytes(struct backend *b, int64_t count, uint8_t mask, struct random *random);
/* logits [count, vocab_size] in rows of *stride, which is up to 8 more. The padding of a row holds FLT_MAX and NaN, so
 * that sampling cannot use it unnoticed. */
struct tensor tensor_padded_logits(const struct test_backend *tb, const float *logits, int64_t count,
                                   int64_t vocab_size, int64_t *stride);
void tensor_upload(struct tensor *t);
void tensor_download(struct tensor *t); /* waits for the device; checks the guards */
void tensor_free(struct tensor *t);     /* checks the guards */
double tensor_get(const struct tensor *t, int64_t i);
void tensor_set(struct tensor *t, int64_t i, double value); /* on the host */
double *tensor_doubles(const struct tensor *t);             /* [count], the caller frees it */

/* The first `columns` elements of each row of a tensor whose rows are `stride` elements apart. The caller frees it. */
double *tensor_rows(const struct tensor *t, int64_t rows, int64_t columns, int64_t stride);
/* Removes the padding between rows from the host's copy of an output, after checking that it is still poison. */
void tensor_close_up(const struct test_backend *tb, struct tensor *t, int64_t rows, int64_t columns, int64_t stride);

/* ||out - reference|| / ||reference|| for elements [0, count) of the host copy, which must be finite; fails the test
 * above the tolerance, where differences of 1e-30, near the underflow of float32, do not count. `what` and the backend
 * name are for the message. */
void check_within(const struct test_backend *tb, const char *what, const struct tensor *out, const double *reference,
                  int64_t count, double tolerance);
/* The tolerance of `dtype`: 1e-5 for float32, 1e-2 for the shorter ones. */
void check_close(const struct test_backend *tb, const char *what, const struct tensor *out, const double *reference,
                 int64_t count, enum dtype dtype);

#endif
