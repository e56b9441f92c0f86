/* The grammars of an engine's answers: its vocabulary as grammars see it, and those that were made of late. Both are
 * made when the first grammar is wanted. Any thread may use it. */
#ifndef QUIRE_RUNTIME_GRAMMARS_H
#define QUIRE_RUNTIME_GRAMMARS_H

#include "runtime/engine/loaded_model.h"
#include "tokenizer/grammar/structured.h"

struct grammars;

/* The model outlives it. */
enum status grammars_create(const struct loaded_model *l, struct grammars **out, struct error *err);
void grammars_free(struct grammars *g); /* NULL is allowed */

/* NULL: there is no tokenizer, or memory ran out. */
struct structured_cache *grammars_cache(struct grammars *g);

#endif
