/* The sampling fields of a JSON object: those of the table in scheduler/sampling_params.h, by their names. */
#ifndef QUIRE_RUNTIME_SAMPLING_JSON_H
#define QUIRE_RUNTIME_SAMPLING_JSON_H

#include "base/json.h"
#include "scheduler/sampling_params.h"

/* Puts the fields that r->object has into *params, which holds the defaults. A list replaces the default list. Types
 * are checked here, r->status says how it went; ranges are left to sampling_params_check. */
void sampling_json_read(struct json_reader *r, struct sampling_params *params);

/* The value of a field, as sampling_json_read takes it; null: a seed that was not given. The caller owns it. NULL:
 * memory ran out. */
json_t *sampling_json_value(const struct sampling_field *field, const struct sampling_params *params);

#endif
