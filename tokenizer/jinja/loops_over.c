/* What loops of a template are over. */
#include "tokenizer/jinja/library.h"
#include "tokenizer/jinja/syntax.h"

/* Whether an expression is what `name` names, filtered, sliced, or one of several alternatives: x.name,
 * x['name'][1:], name | reverse, x.name or [], x.name if test else []. Expressions nest at most JINJA_MAX_DEPTH deep.
 */
static bool ends_in(const struct jinja_expr *e, const char *name)
{
    const struct jinja_expr *first = e->operands.first, *last = e->operands.last;
    switch (e->kind) {
    case JINJA_EXPR_NAME:
    case JINJA_EXPR_ATTRIBUTE:
        return jinja_string_is(&e->name->string, name);
    case JINJA_EXPR_ITEM:
        return last->kind == JINJA_EXPR_CONSTANT && last->value.kind == JINJA_STRING &&
               jinja_string_is(last->value.string, name);
    case JINJA_EXPR_FILTER:
    case JINJA_EXPR_SLICE:
        return ends_in(first, name);
    case JINJA_EXPR_OR:
        return ends_in(first, name) || ends_in(last, name);
    case JINJA_EXPR_CONDITION: /* the test is no alternative */
        return ends_in(first->next, name) || ends_in(last, name);
    default:
        return false;
    }
}

static bool body_loops_over(const struct jinja_body *body, const char *name);

/* Statements nest at most JINJA_MAX_DEPTH deep. */
static bool statement_loops_over(const struct jinja_statement *s, const char *name)
{
    if (s->kind == JINJA_FOR && ends_in(s->exprs.first, name)) return true;
    for (const struct jinja_branch *branch = s->branches; branch; branch = branch->next)
        if (body_loops_over(&branch->body, name)) return true;
    return body_loops_over(&s->body, name) || (s->loop && body_loops_over(&s->loop->otherwise, name)) ||
           (s->macro && body_loops_over(&s->macro->body, name));
}

static bool body_loops_over(const struct jinja_body *body, const char *name)
{
    for (const struct jinja_statement *s = body->first; s; s = s->next)
        if (statement_loops_over(s, name)) return true;
    return false;
}

bool jinja_template_loops_over(const struct jinja_template *t, const char *name)
{
    return body_loops_over(&t->body, name);
}
