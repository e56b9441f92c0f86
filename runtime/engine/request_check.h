/* What is wrong with a request, as far as it can be known before it runs. */
#ifndef QUIRE_RUNTIME_REQUEST_CHECK_H
#define QUIRE_RUNTIME_REQUEST_CHECK_H

#include "runtime/engine/loaded_model.h"

/* What engine_add refuses; `o` are the options that the model was loaded with. `l` may be an
 * outline (loaded_model_outline). */
enum status request_check(const struct engine_options *o, const struct loaded_model *l, const struct engine_request *r,
                          struct error *err);

#endif
