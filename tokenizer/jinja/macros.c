/* {% macro %}, and the block of {% call %} and {% generation %}, which is a macro without a name. */
#include "tokenizer/jinja/evaluator.h"

#include "tokenizer/jinja/library.h"

struct macro {
    struct jinja_object object;
    struct evaluator *e;
    const struct jinja_macro *m;
    struct frame *frame; /* where it was defined */
};

static const struct jinja_string *macro_name(const struct macro *macro)
{
    static const struct jinja_string block = {.bytes = "caller", .length = 6, .count = 6};
    return macro->m->name ? &macro->m->name->string : &block;
}

/* --- arguments --- */

/* The keyword arguments of one call, of which those that are parameters are taken. */
struct keywords {
    const struct jinja_keyword *list; /* [count] */
    size_t count;
    bool *taken; /* [count] */
};

/* False: there is no such keyword. */
static bool take(struct jinja_run *run, struct keywords *k, const struct jinja_name *name, struct jinja_value *out)
{
    for (size_t i = 0; i < k->count && jinja_tick(run); i++) {
        if (k->taken[i] || !jinja_strings_equal(k->list[i].name.string, &name->string)) continue;
        *out = k->list[i].value;
        return k->taken[i] = true;
    }
    return false;
}

/* The keywords that no parameter took: they are kwargs, or an error. */
static void use_other_keywords(struct macro *macro, const struct keywords *k, struct frame *frame)
{
    struct jinja_run *run = &macro->e->run;
    const struct jinja_string *name = macro_name(macro);
    struct jinja_value kwargs = macro->m->uses_kwargs ? jinja_dict_new(run) : jinja_none();
    for (size_t i = 0; i < k->count && !jinja_failed(run); i++) {
        const struct jinja_string *keyword = k->list[i].name.string;
        if (k->taken[i]) continue;
        if (macro->m->uses_kwargs)
            jinja_dict_set(run, kwargs.dict, k->list[i].name, k->list[i].value);
        else if (jinja_string_is(keyword, "caller"))
            jinja_fail(run, "macro '%.*s' was called with a block, but does not use caller()", (int)name->length,
                       name->bytes);
        else
            jinja_fail(run, "macro '%.*s' takes no keyword argument '%.*s'", (int)name->length, name->bytes,
                       (int)keyword->length, keyword->bytes);
    }
    if (macro->m->uses_kwargs) frame->slots[macro->m->kwargs_slot] = kwargs;
}

static void use_other_values(struct macro *macro, const struct jinja_args *args, struct frame *frame)
{
    struct jinja_run *run = &macro->e->run;
    const size_t wanted = macro->m->num_parameters, used = args->count < wanted ? args->count : wanted;
    if (macro->m->uses_varargs)
        frame->slots[macro->m->varargs_slot] = jinja_tuple(run, args->positional + used, args->count - used);
    else if (args->count > used)
        jinja_fail(run, "macro '%.*s' takes not more than %zu argument(s)", (int)macro_name(macro)->length,
                   macro_name(macro)->bytes, wanted);
}

/* Puts the arguments into the slots of the parameters; those that are not given stay without a value. */
static void bind_arguments(struct macro *macro, const struct jinja_args *args, struct frame *frame)
{
    const struct jinja_macro *m = macro->m;
    struct jinja_run *run = &macro->e->run;
    struct keywords k = {args->keywords, args->num_keywords, jinja_alloc(run, args->num_keywords)};
    size_t i = 0;
    if (jinja_failed(run)) return;
    for (const struct jinja_parameter *p = m->parameters; p; p = p->next, i++) {
        if (i < args->count)
            frame->slots[p->slot] = args->positional[i];
        else
            take(run, &k, p->name, &frame->slots[p->slot]);
    }
    if (m->uses_caller && !m->explicit_caller && !take(run, &k, macro->e->t->caller, &frame->slots[m->caller_slot]))
        frame->slots[m->caller_slot] = jinja_undefined("No caller defined");
    use_other_keywords(macro, &k, frame);
    use_other_values(macro, args, frame);
}

static void use_defaults(struct evaluator *e, const struct jinja_macro *m)
{
    for (const struct jinja_parameter *p = m->parameters; p; p = p->next) {
        struct jinja_value *slot = &e->frame->slots[p->slot];
        if (slot->kind != JINJA_UNDEFINED || slot->missing) continue;
        *slot = p->fallback ? evaluate(e, p->fallback) : jinja_undefined(p->not_provided);
    }
}

/* --- the object --- */

static struct jinja_value macro_call(struct jinja_run *run, struct jinja_object *self, const struct jinja_args *args)
{
    struct macro *macro = (struct macro *)self;
    struct evaluator *e = macro->e;
    const struct jinja_macro *m = macro->m;
    struct frame *around = e->frame, *frame = new_frame(e, macro->frame, m->num_slots);
    const struct jinja_value values[] = {frame_value(around), jinja_object(self)};
    struct held held;
    if (!frame || !jinja_enter(run)) return jinja_none();
    struct jinja_value text = jinja_none();
    bind_arguments(macro, args, frame);
    hold(e, &held, values, 2);
    if (!jinja_failed(run)) {
        enum flow flow;
        e->frame = frame;
        enter_scope(e, &m->scope);
        use_defaults(e, m);
        text = execute_captured(e, &m->body, &flow);
        e->frame = around;
    }
    release(e, &held);
    jinja_leave(run);
    return text;
}

static struct jinja_value parameter_names(struct jinja_run *run, const struct jinja_macro *m)
{
    const struct jinja_value names = jinja_list_new(run, JINJA_TUPLE);
    for (const struct jinja_parameter *p = m->parameters; p && !jinja_failed(run); p = p->next)
        jinja_list_append(run, names.list, (struct jinja_value){.kind = JINJA_STRING, .string = &p->name->string});
    return names;
}

static bool macro_attribute(struct jinja_run *run, struct jinja_object *self, const struct jinja_string *name,
                            struct jinja_value *out)
{
    const struct jinja_macro *m = ((struct macro *)self)->m;
    if (jinja_string_is(name, "name"))
        *out = m->name ? (struct jinja_value){.kind = JINJA_STRING, .string = &m->name->string} : jinja_none();
    else if (jinja_string_is(name, "arguments"))
        *out = parameter_names(run, m);
    else if (jinja_string_is(name, "caller"))
        *out = jinja_bool(m->uses_caller);
    else if (jinja_string_is(name, "explicit_caller"))
        *out = jinja_bool(m->explicit_caller);
    else if (jinja_string_is(name, "catch_kwargs"))
        *out = jinja_bool(m->uses_kwargs);
    else if (jinja_string_is(name, "catch_varargs"))
        *out = jinja_bool(m->uses_varargs);
    else
        return false;
    return true;
}

static bool macro_repr(struct jinja_run *run, struct jinja_builder *b, struct jinja_object *self)
{
    const struct jinja_name *name = ((struct macro *)self)->m->name;
    if (!name) return jinja_build_text(run, b, "<Macro anonymous>");
    return jinja_build_text(run, b, "<Macro '") && jinja_build_string(run, b, &name->string) &&
           jinja_build_text(run, b, "'>");
}

static void reach_macro(struct jinja_run *run, struct jinja_object *self)
{
    jinja_reach(run, frame_value(((struct macro *)self)->frame));
}

static const struct jinja_object_type macro_type = {.name = "Macro",
                                                    .get_attribute = macro_attribute,
                                                    .call = macro_call,
                                                    .build_repr = macro_repr,
                                                    .reach = reach_macro};

struct jinja_value make_macro(struct evaluator *e, const struct jinja_macro *m)
{
    const struct macro object = {.object = {&macro_type}, .e = e, .m = m, .frame = e->frame};
    return jinja_new_object(&e->run, &object, sizeof object);
}
