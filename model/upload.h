/* Copies tensors from files or host memory to a device with several threads: while one chunk is on its way to the
 * device, the next is read, and converted where the types differ. Dummy weights are made by the device where it can.
 * Without a device, the threads read matrices into host memory.
 */
#ifndef QUIRE_MODEL_UPLOAD_H
#define QUIRE_MODEL_UPLOAD_H

#include "kernels/backend.h"
#include "model/checkpoint/weight_source.h"

/* One contiguous piece: `count` elements of type `from`, stored on the device as `to`. Bytes that are no numbers have
 * the same type of one byte in both. */
struct transfer {
    const void *source;
    const struct tensor_file *file; /* that the source points into; NULL: memory */
    void *destination;              /* on the device */
    int64_t count;
    enum dtype from, to;
    /* Where this is set, the transfer is of the `count` rows of a matrix, and only this and `rows` are used: where the
     * parts that are read go; and, for floats, `from` and `to`. */
    const struct weight_source *matrix;
    struct weight_rows rows;
    /* Where `out` is set, the device makes the data itself; count is 1, and nothing else is used. */
    struct fill_dummy_args dummy;
};

struct upload;

/* Starts the threads. Takes over `transfers`, which were allocated with malloc, also on failure. What they point to
 * must last until upload_finish. */
enum status upload_begin(struct backend *b, struct transfer *transfers, size_t count, struct upload **out,
                         struct error *err);
/* Waits until everything is on the device, and frees the upload. The first failure of any thread is reported. */
enum status upload_finish(struct upload *upload, struct error *err);

/* Reads transfers that are matrices into host memory, to which their `rows` point, on all processors. The
 * caller keeps `transfers`. The first failure of any thread is reported. */
enum status upload_to_host(struct transfer *transfers, size_t count, struct error *err);

#endif
