/* The fields of a request that say which form its answers have: response_format as OpenAI has it, and
 * structured_outputs as vLLM has it.
 *
 *   "response_format": {"type": "text"}, {"type": "json_object"},
 *       {"type": "json_schema", "json_schema": {"name": "...", "schema": {...}}},
 *       {"type": "structural_tag", "format": {...}}, or the same with "structures" and "triggers"
 *   "structured_outputs": one of json, json_object, regex, choice, grammar, structural_tag; beside it
 *       disable_any_whitespace, disable_additional_properties */
#ifndef QUIRE_RUNTIME_STRUCTURED_JSON_H
#define QUIRE_RUNTIME_STRUCTURED_JSON_H

#include "base/json.h"
#include "runtime/engine/grammars.h"
#include "tokenizer/grammar/structured.h"

struct structured_fields {
    struct structured structured; /* STRUCTURED_NONE: any text. It refers to the object */
    char place[64];               /* of its value, for sentences: "structured_outputs.regex" */
};

/* Reads the fields of r's object. False: it has none of them. */
bool structured_json_read(struct json_reader *r, struct structured_fields *out);

/* What answers must be, a reference that is the caller's; NULL: any text. `grammars`: those of the engine that answers;
 * NULL: it has no tokenizer. The sentence begins with the place. */
enum status structured_fields_constraint(const struct structured_fields *fields, struct grammars *grammars,
                                         struct constraint **out, struct error *err);

#endif
