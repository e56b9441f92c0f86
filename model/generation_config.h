/* generation_config.json: what its authors recommend for sampling. It decides nothing that an answer cannot do without,
 * so a bad value in it is warned of, and ignored. */
#ifndef QUIRE_MODEL_GENERATION_CONFIG_H
#define QUIRE_MODEL_GENERATION_CONFIG_H

#include "base/json.h"
#include "model/config.h"

/* What stands for no file. */
struct generation_config generation_config_none(void);

/* Fills *out. A warning names the keys that would change answers and that quire does not use. max_length: the most
 * tokens of a sequence, as model_spec_max_length gives it. */
void generation_config_read(struct json_reader *r, int32_t max_length, struct generation_config *out);

/* Undoes a failure of the reader, whose sentence becomes a warning. */
void generation_config_forgive(struct json_reader *r);

#endif
