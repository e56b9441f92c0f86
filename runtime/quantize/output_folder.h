/* The folder that quire quantize writes: whose it is, and all of it but the shards.
 *
 * quantize.quire in it says what it is made from, before anything else is written, as a JSON object: {"quire": "1.0",
 * "source": HASH, "quantization": "int4", "max_shard_size": 5.0}. It stays, so that the same command finds its own
 * folder again; another one is refused. config.json is written last: without it no program takes the folder for a
 * checkpoint. */
#ifndef QUIRE_RUNTIME_QUANTIZE_OUTPUT_FOLDER_H
#define QUIRE_RUNTIME_QUANTIZE_OUTPUT_FOLDER_H

#include "runtime/fingerprint.h"
#include "runtime/quantize/plan.h"

struct output_folder {
    const char *path, *model; /* where the checkpoint lies that is quantized */
    const char *quantization;
    double max_shard_size; /* GB */
    int fd;                /* of the folder, locked against other runs; -1: not open */
};

/* Makes the folder, or opens the one that a run with the same settings has begun or finished. INVALID: it is the
 * model's, or holds something else. IO: it cannot be made or written, or another run is writing it. After a failure,
 * output_folder_close may follow. */
enum status output_folder_open(struct output_folder *folder, struct error *err);
void output_folder_close(struct output_folder *folder);

/* IO: the disk has no room for that many bytes more. */
enum status output_folder_check_room(const struct output_folder *folder, uint64_t bytes, struct error *err);

/* Once all shards are there: copies the model's other files and writes the index of several shards, and config.json
 * with its quantization_config. Weights in any format, their indices and hidden files are not copied. */
enum status output_folder_finish(const struct output_folder *folder, const struct quantize_plan *plan,
                                 struct error *err);

#endif
