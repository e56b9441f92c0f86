/* struct memory_profile for people and for programs: the report of quire profile. */
#ifndef QUIRE_RUNTIME_MEMORY_REPORT_H
#define QUIRE_RUNTIME_MEMORY_REPORT_H

#include <jansson.h>
#include <stdbool.h>

#include "base/array.h"
#include "model/memory_profile.h"
#include "runtime/engine/engine.h"

/* Prints two tables on stdout: where the memory goes, with a bar for each row's part of the device, or with a column
 * for each of several ranks; and the blocks. weights_note: words beside the weights, or "". False if it could not be
 * written. */
bool memory_report_print(const struct engine_info *info, const char *weights_note);

/* For other reports: appends "1 of 8 layers, no window; 5 of 8 layers, window 1024", the KV cache groups; false if
 * memory ran out. And the blocks of a request of max_model_len tokens, if windows let go of none. */
bool memory_report_groups(struct text *out, const struct memory_profile *p, const struct batch_limits *limits);
int32_t memory_report_unwindowed_blocks(const struct batch_limits *limits);

/* Sets the same as fields of `json`, sizes in bytes: device, dtype, total_memory, ..., num_gpu_blocks, max_concurrency.
 * With several ranks they are those of the rank with room for the fewest blocks, and `ranks` has an object for each:
 * its device, and the fields that say what its memory is used for. */
void memory_report_add(json_t *json, const struct engine_info *info);

/* What an engine on the CPU reserved for each purpose, and how much of it is in memory now: as a table on stdout (false
 * if it could not be written), and as an object of {"reserved", "resident"} by the names above. */
bool residence_print(const struct engine *e);
json_t *residence_json(const struct engine *e);

#endif
