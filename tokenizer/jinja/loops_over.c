/* What loops of a template are over. */
#include <string.h>

#include "tokenizer/jinja/syntax.h"

static bool is(const struct jinja_string *s, const char *name)
{
    return s->length == strlen(name) && memcmp(s->bytes, name, s->length) == 0;
}

/* Whether an expression is what `name` names, filtered or sliced: x.name, x['name'][1:] or name | reverse. */
static bool ends_in(const struct jinja_expr *e, const char *name)
{
    while (e && (e->kind == JINJA_EXPR_FILTER || e->kind == JINJA_EXPR_SLICE)) e = e->operands.first;
    if (!e) return false;
    if (e->kind == JINJA_EXPR_NAME || e->kind == JINJA_EXPR_ATTRIBUTE) return is(&e->name->string, name);
    if (e->kind != JINJA_EXPR_ITEM) return false;
    const struct jinja_expr *key = e->operands.last;
    return key->kind == JINJA_EXPR_CONSTANT && key->value.kind == JINJA_STRING && is(key->value.string, name);
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
