/* The facts of quire inspect as JSON: the keys of config.json and vLLM's names where they have one. */
#ifndef QUIRE_RUNTIME_INSPECT_JSON_H
#define QUIRE_RUNTIME_INSPECT_JSON_H

#include <jansson.h>

#include "runtime/inspect/inspection.h"

/* One object; NULL if memory ran out. The caller owns it. */
json_t *inspection_json(const struct inspection *i);

#endif
