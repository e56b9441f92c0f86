/* The evaluator: evaluate.c has expressions, execute.c statements, loops.c and macros.c what these two are called for.
 */
#ifndef QUIRE_TOKENIZER_JINJA_EVALUATOR_H
#define QUIRE_TOKENIZER_JINJA_EVALUATOR_H

#include "tokenizer/jinja/syntax.h"

/* The variables of one activation of a function. A slot without a value is JINJA_UNDEFINED, all zero. */
struct frame {
    struct frame *outer; /* the activation that the function was defined in */
    struct jinja_value slots[];
};

struct evaluator {
    struct jinja_run run;
    const struct jinja_template *t;
    struct frame *frame;
    struct jinja_builder *out;   /* what is printed goes there */
    struct jinja_value captured; /* for JINJA_EXPR_CAPTURED */
    int levels;                  /* of statements and expressions that are being evaluated */
    struct jinja_value *globals; /* [t->num_names] variables of the rendering and global functions ... */
    bool *known;                 /* ... [t->num_names] that were looked up */
};

/* What a statement did; all but the first end the statements around it. */
enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE, FLOW_STOP /* after a failure */ };

/* One level deeper in the tree, which bounds C's stack: a template is at most JINJA_MAX_DEPTH statements and as many
 * expressions deep, but macros evaluate it within itself. */
bool evaluator_enter(struct evaluator *e);

struct jinja_value evaluate(struct evaluator *e, const struct jinja_expr *expr);
enum flow execute(struct evaluator *e, const struct jinja_body *body);
/* The string that the body prints. */
struct jinja_value execute_captured(struct evaluator *e, const struct jinja_body *body, enum flow *flow);
void assign(struct evaluator *e, const struct jinja_expr *target, struct jinja_value value);
struct jinja_value *slot_at(struct evaluator *e, struct jinja_place place);

struct frame *new_frame(struct evaluator *e, struct frame *outer, uint32_t num_slots);
void enter_scope(struct evaluator *e, const struct jinja_scope *scope);
void leave_scope(struct evaluator *e, const struct jinja_scope *scope);

enum flow execute_for(struct evaluator *e, const struct jinja_statement *s);
struct jinja_value make_macro(struct evaluator *e, const struct jinja_macro *m);
struct jinja_value evaluate_call(struct evaluator *e, const struct jinja_expr *expr, const struct jinja_value *caller);

#endif
