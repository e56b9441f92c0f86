/* Which variable a name is.
 *
 * A scope is resolved in two walks. The first collects the names that it uses and assigns, without the scopes within
 * it, and decides for each whether the scope gets a variable of its own, a *binding*. The second gives each name its
 * place, and goes into the scopes within, which see these bindings. */
#include "tokenizer/jinja/syntax.h"

/* A variable of a scope. Each name has a list of its visible bindings, the innermost first. */
struct jinja_binding {
    struct jinja_binding *outer; /* of the same name */
    struct jinja_binding *next;  /* of the same scope */
    struct jinja_name *name;
    struct scope *scope;
    struct jinja_load load;
};

struct function {
    struct function *outer;
    uint32_t num_slots;
    uint32_t depth; /* functions around it */
};

struct scope {
    struct scope *outer;
    struct function *function;
    struct jinja_binding *bindings, **end;
    size_t count;
    int conditional; /* around the scope */
};

struct resolver {
    struct jinja_run *run;
    struct jinja_template *t;
    struct function *function;
    struct scope *scope;
    bool placing;    /* the second walk */
    int conditional; /* ifs around this in the scope: code that may not run */
};

/* --- bindings --- */

static struct jinja_binding *bind(struct resolver *r, struct jinja_name *name)
{
    struct jinja_binding *b = jinja_alloc(r->run, sizeof *b);
    if (!b) return NULL;
    *b = (struct jinja_binding){.outer = name->binding, .name = name, .scope = r->scope};
    b->load.name = name;
    b->load.slot = r->function->num_slots++;
    *r->scope->end = b;
    r->scope->end = &b->next;
    r->scope->count++;
    name->binding = b;
    return b;
}

static bool is_bound_here(const struct resolver *r, const struct jinja_name *name)
{
    return name->binding && name->binding->scope == r->scope;
}

static struct jinja_place place_of(const struct resolver *r, const struct jinja_binding *b)
{
    return (struct jinja_place){.up = r->function->depth - b->scope->function->depth, .slot = b->load.slot};
}

/* The name is read. One that is bound nowhere is a variable of the rendering. */
static void note_load(struct resolver *r, struct jinja_name *name)
{
    if (name->binding) return;
    struct jinja_binding *b = bind(r, name);
    if (b) b->load.how = JINJA_LOAD_GLOBAL;
}

/* The name is assigned: the scope has a variable of its own, which begins as a copy of an outer one. */
static void note_store(struct resolver *r, struct jinja_name *name)
{
    if (is_bound_here(r, name)) return;
    const struct jinja_binding *outer = name->binding;
    struct jinja_binding *b = bind(r, name);
    if (!b) return;
    if (outer) {
        b->load.how = JINJA_LOAD_OUTER;
        b->load.outer = place_of(r, outer);
    } else {
        /* What is assigned first in any case is undefined until then, even if the rendering has such a variable. */
        b->load.how = r->conditional ? JINJA_LOAD_GLOBAL : JINJA_LOAD_UNDEFINED;
    }
}

/* The name is a parameter or a loop's target. Returns its slot. */
static uint32_t declare(struct resolver *r, struct jinja_name *name)
{
    struct jinja_binding *b = is_bound_here(r, name) ? name->binding : bind(r, name);
    if (!b) return 0;
    b->load.how = JINJA_LOAD_NOTHING;
    return b->load.slot;
}

static void open_scope(struct resolver *r, struct scope *scope)
{
    *scope = (struct scope){.outer = r->scope, .function = r->function, .conditional = r->conditional};
    scope->end = &scope->bindings;
    r->scope = scope;
    r->conditional = 0;
}

static void close_scope(struct resolver *r, struct jinja_scope *out)
{
    struct scope *scope = r->scope;
    out->loads = jinja_alloc(r->run, scope->count * sizeof *out->loads);
    for (struct jinja_binding *b = scope->bindings; b; b = b->next) {
        if (out->loads) out->loads[out->count++] = b->load;
        b->name->binding = b->outer;
    }
    r->scope = scope->outer;
    r->conditional = scope->conditional;
}

static void open_function(struct resolver *r, struct function *f)
{
    *f = (struct function){.outer = r->function, .depth = r->function ? r->function->depth + 1 : 0};
    r->function = f;
}

static uint32_t close_function(struct resolver *r)
{
    const uint32_t num_slots = r->function->num_slots;
    r->function = r->function->outer;
    return num_slots;
}

/* --- expressions: in the first walk their names are noted, in the second placed --- */

static void place_name(struct resolver *r, struct jinja_expr *e)
{
    if (e->name->binding) e->place = place_of(r, e->name->binding);
}

/* A filter or test must exist, unless it stands where it may never be used. */
static void check_function(struct resolver *r, const struct jinja_expr *e, bool optional)
{
    if (e->function || optional || jinja_failed(r->run)) return;
    const struct jinja_string *name = e->called.string;
    r->run->line = e->line;
    r->run->column = e->column;
    jinja_fail(r->run, "there is no %s \"%.*s\"", e->kind == JINJA_EXPR_FILTER ? "filter" : "test", (int)name->length,
               name->bytes);
}

static void walk(struct resolver *r, struct jinja_expr *e, bool optional)
{
    if (e->kind == JINJA_EXPR_NAME && r->placing) place_name(r, e);
    if (e->kind == JINJA_EXPR_NAME && !r->placing) note_load(r, e->name);
    if (e->kind == JINJA_EXPR_CONDITION) optional = true;
    if ((e->kind == JINJA_EXPR_FILTER || e->kind == JINJA_EXPR_TEST) && r->placing) check_function(r, e, optional);
    for (struct jinja_expr *part = e->operands.first; part; part = part->next) walk(r, part, optional);
    for (struct jinja_expr *part = e->args.positional.first; part; part = part->next) walk(r, part, optional);
    for (struct jinja_named_expr *k = e->args.keywords; k; k = k->next) walk(r, k->value, optional);
    if (e->args.more_positional) walk(r, e->args.more_positional, optional);
    if (e->args.more_keywords) walk(r, e->args.more_keywords, optional);
}

static void walk_list(struct resolver *r, struct jinja_expr_list *list)
{
    for (struct jinja_expr *e = list->first; e; e = e->next) walk(r, e, r->conditional > 0);
}

/* Names that are assigned to. */
static void walk_target(struct resolver *r, struct jinja_expr *e, bool is_parameter)
{
    if (e->kind == JINJA_EXPR_ATTRIBUTE || r->placing)
        walk(r, e, true);
    else if (e->kind == JINJA_EXPR_NAME && is_parameter)
        declare(r, e->name);
    else if (e->kind == JINJA_EXPR_NAME)
        note_store(r, e->name);
    else
        for (struct jinja_expr *part = e->operands.first; part; part = part->next) walk_target(r, part, is_parameter);
}

static void walk_targets(struct resolver *r, struct jinja_expr_list *list, bool is_parameter)
{
    for (struct jinja_expr *e = list->first; e; e = e->next) walk_target(r, e, is_parameter);
}

/* --- the first walk --- */

static void collect(struct resolver *r, struct jinja_body *body)
{
    for (struct jinja_statement *s = body->first; s; s = s->next) {
        switch (s->kind) {
        case JINJA_IF:
            for (struct jinja_branch *b = s->branches; b; b = b->next) {
                if (b->test) walk(r, b->test, true);
                r->conditional++;
                collect(r, &b->body);
                r->conditional--;
            }
            break;
        case JINJA_SET:
            walk_list(r, &s->exprs);
            walk_targets(r, &s->targets, false);
            break;
        case JINJA_SET_BLOCK:
            walk_targets(r, &s->targets, false);
            break; /* its filters see the scope of its body */
        case JINJA_MACRO_STATEMENT:
            note_store(r, s->macro->name);
            break;
        default:
            walk_list(r, &s->exprs);
            break;
        }
    }
}

/* --- the second walk --- */

static void place_body(struct resolver *r, struct jinja_body *body);

/* A scope that is complete: parameters are declared, names collected. Places what it holds. */
static void place_in(struct resolver *r, struct jinja_body *body, struct jinja_scope *out)
{
    r->placing = true;
    place_body(r, body);
    close_scope(r, out);
}

/* The scope of a body with nothing declared; `filters` is what is applied to its text. */
static void resolve_block(struct resolver *r, struct jinja_body *body, struct jinja_expr_list *filters,
                          struct jinja_scope *out)
{
    struct scope scope;
    open_scope(r, &scope);
    r->placing = false;
    collect(r, body);
    if (filters) walk_list(r, filters);
    r->placing = true;
    if (filters) walk_list(r, filters);
    place_in(r, body, out);
}

/* The scope of a statement's body and targets, which is open. */
static void resolve_targets(struct resolver *r, struct jinja_statement *s)
{
    r->placing = false;
    walk_targets(r, &s->targets, true);
    collect(r, &s->body);
    r->placing = true;
    walk_targets(r, &s->targets, true);
    place_in(r, &s->body, &s->scope);
}

static void resolve_with(struct resolver *r, struct jinja_statement *s)
{
    struct scope scope;
    walk_list(r, &s->exprs); /* the values see the scope around */
    open_scope(r, &scope);
    resolve_targets(r, s);
}

static void resolve_test(struct resolver *r, struct jinja_for *loop)
{
    struct scope scope;
    open_scope(r, &scope);
    for (int i = 0; i < 2; i++) {
        r->placing = i == 1;
        walk_target(r, loop->test_target, true);
        walk(r, loop->test, false);
    }
    close_scope(r, &loop->test_scope);
}

static void resolve_for(struct resolver *r, struct jinja_statement *s)
{
    struct scope scope;
    struct function function;
    walk_list(r, &s->exprs);
    if (s->loop->test) resolve_test(r, s->loop);
    if (s->loop->recursive) open_function(r, &function);
    open_scope(r, &scope);
    s->loop->loop_slot = declare(r, r->t->loop);
    resolve_targets(r, s);
    resolve_block(r, &s->loop->otherwise, NULL, &s->loop->else_scope);
    if (s->loop->recursive) s->loop->num_slots = close_function(r);
}

static void walk_defaults(struct resolver *r, struct jinja_macro *m)
{
    for (struct jinja_parameter *p = m->parameters; p; p = p->next)
        if (p->fallback) walk(r, p->fallback, false);
}

static void resolve_macro(struct resolver *r, struct jinja_macro *m)
{
    struct scope scope;
    struct function function;
    if (m->name && m->name->binding) m->place = place_of(r, m->name->binding);
    open_function(r, &function);
    open_scope(r, &scope);
    r->placing = false;
    for (struct jinja_parameter *p = m->parameters; p; p = p->next) p->slot = declare(r, p->name);
    if (m->uses_caller && !m->explicit_caller) m->caller_slot = declare(r, r->t->caller);
    if (m->uses_kwargs) m->kwargs_slot = declare(r, r->t->kwargs);
    if (m->uses_varargs) m->varargs_slot = declare(r, r->t->varargs);
    walk_defaults(r, m);
    collect(r, &m->body);
    r->placing = true;
    walk_defaults(r, m);
    place_in(r, &m->body, &m->scope);
    m->num_slots = close_function(r);
}

/* A statement that has a scope, or several, of its own. */
static void resolve_statement(struct resolver *r, struct jinja_statement *s)
{
    switch (s->kind) {
    case JINJA_FOR:
        resolve_for(r, s);
        break;
    case JINJA_WITH:
        resolve_with(r, s);
        break;
    case JINJA_SET_BLOCK:
        walk_targets(r, &s->targets, false);
        resolve_block(r, &s->body, &s->exprs, &s->scope);
        break;
    case JINJA_FILTER_BLOCK:
        resolve_block(r, &s->body, &s->exprs, &s->scope);
        break;
    case JINJA_SCOPE:
        resolve_block(r, &s->body, NULL, &s->scope);
        break;
    case JINJA_CALL_BLOCK:
        walk_list(r, &s->exprs);
        resolve_macro(r, s->macro);
        break;
    case JINJA_MACRO_STATEMENT:
    case JINJA_GENERATION:
        resolve_macro(r, s->macro);
        break;
    default:
        walk_list(r, &s->exprs);
        walk_targets(r, &s->targets, false);
        break;
    }
}

static void place_body(struct resolver *r, struct jinja_body *body)
{
    for (struct jinja_statement *s = body->first; s && jinja_tick(r->run); s = s->next) {
        const int conditional = r->conditional;
        if (s->kind == JINJA_IF) {
            r->conditional++;
            for (struct jinja_branch *b = s->branches; b; b = b->next) {
                if (b->test) walk(r, b->test, true);
                place_body(r, &b->body);
            }
        } else {
            resolve_statement(r, s);
        }
        r->conditional = conditional;
    }
}

void jinja_resolve_scopes(struct jinja_template *t)
{
    struct resolver r = {.run = &t->run, .t = t};
    struct function function;
    open_function(&r, &function);
    struct scope scope;
    open_scope(&r, &scope);
    collect(&r, &t->body);
    place_in(&r, &t->body, &t->scope);
    t->num_slots = close_function(&r);
}
