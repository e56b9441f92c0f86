/* {% for %} and its variable `loop`. As in jinja2, the elements that a test lets through are found one at a time, so
 * that the test sees what the body has changed. */
#include "tokenizer/jinja/evaluator.h"

#include <stdio.h>

#include "tokenizer/jinja/library.h"

struct loop {
    struct jinja_object object;
    struct evaluator *e;
    const struct jinja_statement *s;
    struct frame *frame; /* where it stands */
    const struct jinja_list *source;
    size_t next;    /* in source */
    bool has_test;  /* source's elements are still to be tested */
    bool has_after; /* `after` is the element after the current one */
    int64_t index0, depth0;
    int64_t length; /* -1: not known */
    struct jinja_value before, current, after;
    struct jinja_value changed; /* a tuple: what `changed` was given last; UNDEFINED: nothing yet */
};

/* --- elements --- */

/* Whether the test lets this element through, which it may replace: of "for a, b in" comes a tuple. The test is
 * evaluated where the loop stands, whoever asks for the element. */
static bool passes(struct loop *l, struct jinja_value *element)
{
    struct evaluator *e = l->e;
    const struct jinja_for *f = l->s->loop;
    struct frame *frame = e->frame;
    const struct jinja_value around = frame_value(frame);
    struct held held;
    hold(e, &held, &around, 1);
    e->frame = l->frame;
    enter_scope(e, &f->test_scope);
    assign(e, f->test_target, *element);
    const bool passed = jinja_is_true(&e->run, evaluate(e, f->test)) && !jinja_failed(&e->run);
    if (passed) *element = evaluate(e, f->test_target);
    e->frame = frame;
    release(e, &held);
    return passed;
}

/* The next element of the source; false: there is none, or a failure. */
static bool pull(struct loop *l, struct jinja_value *out)
{
    while (l->next < l->source->count && jinja_tick(&l->e->run)) {
        *out = l->source->items[l->next++];
        if (!l->has_test || passes(l, out)) return !jinja_failed(&l->e->run);
    }
    return false;
}

static bool peek(struct loop *l)
{
    l->e->library_calls++;
    if (!l->has_after) l->has_after = pull(l, &l->after);
    l->e->library_calls--;
    return l->has_after;
}

static bool step(struct loop *l)
{
    struct jinja_value element;
    if (l->has_after)
        element = l->after;
    else if (!pull(l, &element))
        return false;
    l->has_after = false;
    l->before = l->current;
    l->current = element;
    l->index0++;
    return true;
}

/* With a test, all elements that are left are tested now. */
static int64_t length(struct loop *l)
{
    struct jinja_run *run = &l->e->run;
    if (l->length >= 0) return l->length;
    const struct jinja_value rest = jinja_list_new(run, JINJA_LIST);
    struct jinja_value element;
    l->e->library_calls++;
    while (pull(l, &element)) jinja_list_append(run, rest.list, element);
    l->e->library_calls--;
    if (jinja_failed(run)) return 0;
    l->source = rest.list;
    l->next = 0;
    l->has_test = false;
    l->length = (int64_t)rest.list->count + l->index0 + 1 + l->has_after;
    return l->length;
}

/* --- the object --- */

static struct jinja_value cycle(struct jinja_run *run, struct jinja_call *c)
{
    const struct loop *l = (const struct loop *)c->self.object;
    if (c->args->num_keywords) jinja_fail(run, "cycle() takes no keyword arguments");
    if (!c->args->count) jinja_fail(run, "no items for cycling given");
    return jinja_failed(run) ? jinja_none() : c->args->positional[l->index0 % (int64_t)c->args->count];
}

static struct jinja_value changed(struct jinja_run *run, struct jinja_call *c)
{
    struct loop *l = (struct loop *)c->self.object;
    if (c->args->num_keywords) jinja_fail(run, "changed() takes no keyword arguments");
    const struct jinja_value values = jinja_tuple(run, c->args->positional, c->args->count);
    if (jinja_failed(run)) return jinja_none();
    const bool is_new = l->changed.kind == JINJA_UNDEFINED || !jinja_equal(run, l->changed, values);
    l->changed = values;
    return jinja_bool(is_new);
}

static bool loop_attribute(struct jinja_run *run, struct jinja_object *self, const struct jinja_string *name,
                           struct jinja_value *out)
{
    static const struct jinja_function methods[] = {{"cycle", cycle}, {"changed", changed}, {NULL}};
    static const struct jinja_function *const tables[] = {methods, NULL};
    struct loop *l = (struct loop *)self;
    const struct jinja_function *method = jinja_find_function(tables, name);
    if (jinja_string_is(name, "index"))
        *out = jinja_int(l->index0 + 1);
    else if (jinja_string_is(name, "index0"))
        *out = jinja_int(l->index0);
    else if (jinja_string_is(name, "first"))
        *out = jinja_bool(l->index0 == 0);
    else if (jinja_string_is(name, "last"))
        *out = jinja_bool(!peek(l));
    else if (jinja_string_is(name, "length"))
        *out = jinja_int(length(l));
    else if (jinja_string_is(name, "revindex"))
        *out = jinja_int(length(l) - l->index0);
    else if (jinja_string_is(name, "revindex0"))
        *out = jinja_int(length(l) - l->index0 - 1);
    else if (jinja_string_is(name, "depth"))
        *out = jinja_int(l->depth0 + 1);
    else if (jinja_string_is(name, "depth0"))
        *out = jinja_int(l->depth0);
    else if (jinja_string_is(name, "previtem"))
        *out = l->index0 > 0 ? l->before : jinja_undefined("there is no previous item");
    else if (jinja_string_is(name, "nextitem"))
        *out = peek(l) ? l->after : jinja_undefined("there is no next item");
    else if (method)
        *out = jinja_make_function(run, method, jinja_object(self));
    else
        return false;
    return true;
}

static size_t loop_length(struct jinja_object *self)
{
    return (size_t)length((struct loop *)self);
}

static bool loop_repr(struct jinja_run *run, struct jinja_builder *b, struct jinja_object *self)
{
    struct loop *l = (struct loop *)self;
    return jinja_build_printf(run, b, "<LoopContext %lld/%lld>", (long long)l->index0 + 1, (long long)length(l));
}

static struct jinja_value loop_call(struct jinja_run *run, struct jinja_object *self, const struct jinja_args *args);

static void reach_loop(struct jinja_run *run, struct jinja_object *self)
{
    const struct loop *l = (const struct loop *)self;
    const struct jinja_value values[] = {frame_value(l->frame),
                                         {.kind = JINJA_LIST, .list = (struct jinja_list *)l->source},
                                         l->before,
                                         l->current,
                                         l->after,
                                         l->changed};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) jinja_reach(run, values[i]);
}

static const struct jinja_object_type loop_type = {.name = "LoopContext",
                                                   .get_attribute = loop_attribute,
                                                   .call = loop_call,
                                                   .length = loop_length,
                                                   .build_repr = loop_repr,
                                                   .reach = reach_loop};

/* --- the statement --- */

static struct loop *new_loop(struct evaluator *e, const struct jinja_statement *s, struct frame *standing,
                             struct jinja_value iterable, int64_t depth0)
{
    struct loop *l = jinja_alloc(&e->run, sizeof *l);
    const struct jinja_list *source = jinja_iterate(&e->run, iterable);
    if (!l || !source) return NULL;
    *l = (struct loop){.object = {&loop_type}, .e = e, .s = s, .frame = standing, .source = source, .depth0 = depth0};
    l->has_test = s->loop->test != NULL;
    l->length = l->has_test ? -1 : (int64_t)source->count;
    l->index0 = -1;
    return l;
}

/* Runs the body for each element, and the else body unless an element's body was run to its end. */
static enum flow run_loop(struct evaluator *e, struct loop *l)
{
    const struct jinja_statement *s = l->s;
    const struct jinja_value object = jinja_object(&l->object);
    struct held held;
    bool completed = false;
    enum flow flow = FLOW_NEXT;
    hold(e, &held, &object, 1);
    while (flow != FLOW_BREAK && flow != FLOW_STOP && step(l)) {
        assign(e, s->targets.first, l->current);
        e->frame->slots[s->loop->loop_slot] = object;
        enter_scope(e, &s->scope);
        flow = execute(e, &s->body);
        completed = completed || flow == FLOW_NEXT;
    }
    release(e, &held);
    leave_scope(e, &s->scope);
    if (jinja_failed(&e->run)) return FLOW_STOP;
    if (completed || !s->loop->otherwise.first) return FLOW_NEXT;
    enter_scope(e, &s->loop->else_scope);
    flow = execute(e, &s->loop->otherwise);
    leave_scope(e, &s->loop->else_scope);
    return flow;
}

/* A recursive loop is a function: what its bodies print is a string. */
static struct jinja_value run_recursive(struct evaluator *e, const struct jinja_statement *s, struct frame *standing,
                                        struct jinja_value iterable, int64_t depth0)
{
    struct frame *frame = e->frame;
    const struct jinja_value around = frame_value(frame);
    struct output out;
    struct held held;
    struct loop *l = new_loop(e, s, standing, iterable, depth0);
    struct frame *own = l ? new_frame(e, standing, s->loop->num_slots) : NULL;
    if (!own || !jinja_enter(&e->run)) return jinja_none();
    hold(e, &held, &around, 1);
    begin_output(e, &out);
    e->frame = own;
    run_loop(e, l);
    e->frame = frame;
    release(e, &held);
    jinja_leave(&e->run);
    return end_output(e, &out);
}

/* loop(children) */
static struct jinja_value loop_call(struct jinja_run *run, struct jinja_object *self, const struct jinja_args *args)
{
    const struct loop *l = (const struct loop *)self;
    struct jinja_value iterable;
    if (!jinja_bind(run, "loop", "iterable", args, &iterable)) return jinja_none();
    if (l->s->loop->recursive) return run_recursive(l->e, l->s, l->frame, iterable, l->depth0 + 1);
    jinja_fail(run, "The loop must have the 'recursive' marker to be called recursively.");
    return jinja_none();
}

enum flow execute_for(struct evaluator *e, const struct jinja_statement *s)
{
    const struct jinja_value iterable = evaluate(e, s->exprs.first);
    if (jinja_failed(&e->run)) return FLOW_STOP;
    if (!s->loop->recursive) {
        struct loop *l = new_loop(e, s, e->frame, iterable, 0);
        return l ? run_loop(e, l) : FLOW_STOP;
    }
    const struct jinja_value text = run_recursive(e, s, e->frame, iterable, 0);
    return !jinja_failed(&e->run) && jinja_build_str(&e->run, &e->out->text, text) ? FLOW_NEXT : FLOW_STOP;
}
