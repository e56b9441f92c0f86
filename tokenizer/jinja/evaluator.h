/* The evaluator: evaluate.c has expressions, execute.c statements, loops.c loops and macros.c macros. The last three
 * are one recursive unit: a statement may be a loop, whose body is statements. */
#ifndef QUIRE_TOKENIZER_JINJA_EVALUATOR_H
#define QUIRE_TOKENIZER_JINJA_EVALUATOR_H

#include "tokenizer/jinja/syntax.h"

/* The variables of one activation of a function. A slot without a value is JINJA_UNDEFINED, all zero. */
struct frame {
    struct jinja_object base; /* no template sees it */
    struct frame *outer;      /* the activation that the function was defined in */
    size_t num_slots;
    struct jinja_value slots[];
};

/* What is printed. */
struct output {
    struct output *outer; /* what is printed to after this one */
    struct jinja_builder text;
};

/* Values that C code needs after it has evaluated something else. */
struct held {
    struct held *outer;
    const struct jinja_value *values; /* [count] */
    size_t count;
};

struct evaluator {
    struct jinja_run run;
    const struct jinja_template *t;
    struct frame *frame;
    struct output *out;
    struct held *held;
    int library_calls;           /* that wait for an evaluation: they hold values that nobody knows of */
    struct jinja_value captured; /* for JINJA_EXPR_CAPTURED */
    int levels;                  /* of statements and expressions that are being evaluated */
    struct jinja_value *globals; /* [t->num_names] variables of the rendering and global functions ... */
    bool *known;                 /* ... [t->num_names] that were looked up */
};

/* What a statement did; all but the first end the statements around it. */
enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE, FLOW_STOP /* after a failure */ };

/* One level deeper in the tree, which bounds C's stack: a template is at most JINJA_MAX_DEPTH statements and as many
 * expressions deep, but macros evaluate it within itself. Here values that are not in use are freed: what a caller of
 * evaluate or execute needs afterwards must be in a variable, printed, or held. */
bool evaluator_enter(struct evaluator *e);
/* Keeps values[count] until they are released; those held last are released first. */
void hold(struct evaluator *e, struct held *held, const struct jinja_value *values, size_t count);
void release(struct evaluator *e, const struct held *held);

/* Errors that follow are about this place. */
static inline void evaluator_at(struct evaluator *e, const struct jinja_expr *expr)
{
    if (jinja_failed(&e->run)) return;
    e->run.line = expr->line;
    e->run.column = expr->column;
}

struct jinja_value evaluate(struct evaluator *e, const struct jinja_expr *expr);
enum flow execute(struct evaluator *e, const struct jinja_body *body);
/* The string that the body prints. */
struct jinja_value execute_captured(struct evaluator *e, const struct jinja_body *body, enum flow *flow);
void assign(struct evaluator *e, const struct jinja_expr *target, struct jinja_value value);
struct jinja_value *slot_at(struct evaluator *e, struct jinja_place place);

void begin_output(struct evaluator *e, struct output *out);
/* The string that was printed. */
struct jinja_value end_output(struct evaluator *e, struct output *out);

struct frame *new_frame(struct evaluator *e, struct frame *outer, uint32_t num_slots);
struct jinja_value frame_value(struct frame *frame); /* NULL is allowed */
void enter_scope(struct evaluator *e, const struct jinja_scope *scope);
void leave_scope(struct evaluator *e, const struct jinja_scope *scope);

enum flow execute_for(struct evaluator *e, const struct jinja_statement *s);
struct jinja_value make_macro(struct evaluator *e, const struct jinja_macro *m);
struct jinja_value evaluate_call(struct evaluator *e, const struct jinja_expr *expr, const struct jinja_value *caller);

#endif
