/* Drafts for answers with grammars (constrained.h), beside those of another drafter on the host. Where a grammar leaves
 * only one text, such as the next name of a JSON object, its tokens are the drafts: those that the tokenizer makes of
 * the text where it stands. Elsewhere the other drafter's are, up to the first that the grammar refuses.
 *
 *     the answer so far   {"city": "Rome"
 *     its only text       , "country": "
 *     drafts              the tokens of that text, as they are after `Rome"` */
#ifndef QUIRE_RUNTIME_DRAFT_GRAMMAR_H
#define QUIRE_RUNTIME_DRAFT_GRAMMAR_H

#include "runtime/engine/draft.h"
#include "tokenizer/tokenizer.h"

/* `other` drafts on the host, or is NULL; `owned`: it is destroyed with this drafter. The tokenizer outlives it. On
 * failure `other` stays the caller's. */
enum status draft_grammar_create(struct drafter *other, bool owned, const struct tokenizer *tokenizer,
                                 struct drafter **out, struct error *err);

#endif
