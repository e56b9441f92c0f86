/* struct memory_profile for people and for programs: the report of quire profile. */
#ifndef QUIRE_RUNTIME_MEMORY_REPORT_H
#define QUIRE_RUNTIME_MEMORY_REPORT_H

#include <jansson.h>
#include <stdbool.h>

#include "model/memory_profile.h"

/* Prints two tables on stdout: where the memory goes, and the blocks. False if it could not be written. */
bool memory_report_print(const struct memory_profile *p);

/* Sets the same as fields of `json`, sizes in bytes: device, dtype, total_memory, ..., num_gpu_blocks, max_concurrency.
 */
void memory_report_add(json_t *json, const struct memory_profile *p);

#endif
