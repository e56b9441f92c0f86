/* Statements, and jinja_render. */
#include "tokenizer/jinja/evaluator.h"

#include <stdlib.h>
#include <string.h>

#include "base/plural.h"

/* --- variables --- */

struct jinja_value frame_value(struct frame *frame)
{
    return frame ? jinja_object(&frame->base) : jinja_none();
}

static void reach_frame(struct jinja_run *run, struct jinja_object *self)
{
    const struct frame *frame = (const struct frame *)self;
    jinja_reach(run, frame_value(frame->outer));
    for (size_t i = 0; i < frame->num_slots; i++) jinja_reach(run, frame->slots[i]);
}

struct frame *new_frame(struct evaluator *e, struct frame *outer, uint32_t num_slots)
{
    static const struct jinja_object_type type = {.name = "frame", .reach = reach_frame};
    struct frame *frame = jinja_alloc(&e->run, sizeof *frame + num_slots * sizeof *frame->slots);
    if (!frame) return NULL;
    frame->base.type = &type;
    frame->outer = outer;
    frame->num_slots = num_slots;
    return frame;
}

/* A variable of the rendering, or a global function. */
static struct jinja_value global(struct evaluator *e, const struct jinja_name *name)
{
    struct jinja_value *value = &e->globals[name->index];
    if (e->known[name->index]) return *value;
    e->known[name->index] = true;
    const struct jinja_context *context = e->run.context;
    for (size_t i = context->num_variables; i > 0; i--) {
        const struct jinja_variable *variable = &context->variables[i - 1];
        if (strlen(variable->name) == name->string.length &&
            memcmp(variable->name, name->string.bytes, name->string.length) == 0)
            return *value = jinja_from_json(&e->run, variable);
    }
    jinja_find_global(&e->run, &name->string, value);
    return *value;
}

void enter_scope(struct evaluator *e, const struct jinja_scope *scope)
{
    for (size_t i = 0; i < scope->count; i++) {
        const struct jinja_load *load = &scope->loads[i];
        if (load->how == JINJA_LOAD_UNDEFINED) e->frame->slots[load->slot] = (struct jinja_value){0};
        if (load->how == JINJA_LOAD_GLOBAL) e->frame->slots[load->slot] = global(e, load->name);
        if (load->how == JINJA_LOAD_OUTER) e->frame->slots[load->slot] = *slot_at(e, load->outer);
    }
}

void leave_scope(struct evaluator *e, const struct jinja_scope *scope)
{
    for (size_t i = 0; i < scope->count; i++) e->frame->slots[scope->loads[i].slot] = (struct jinja_value){0};
}

/* The object whose attribute the target is; NULL after a failure: attributes can be set of namespaces alone. */
static struct jinja_object *attribute_holder(struct evaluator *e, const struct jinja_expr *target)
{
    const struct jinja_value object = evaluate(e, target->operands.first);
    if (jinja_failed(&e->run)) return NULL;
    if (object.kind == JINJA_OBJECT && object.object->type->set_attribute) return object.object;
    evaluator_at(e, target);
    jinja_fail(&e->run, "cannot assign attribute on non-namespace object");
    return NULL;
}

static void unpack(struct evaluator *e, const struct jinja_expr *target, struct jinja_value value)
{
    const struct jinja_list *list = jinja_iterate(&e->run, value);
    const size_t wanted = target->operands.count;
    if (!list) return;
    if (list->count < wanted)
        jinja_fail(&e->run, "not enough values to unpack (expected %zu, got %zu)", wanted, list->count);
    else if (list->count > wanted)
        jinja_fail(&e->run, "too many values to unpack (expected %zu)", wanted);
    const struct jinja_expr *part = target->operands.first;
    const struct jinja_value items = {.kind = JINJA_LIST, .list = (struct jinja_list *)list};
    struct held held;
    hold(e, &held, &items, 1);
    for (size_t i = 0; part && !jinja_failed(&e->run); i++, part = part->next) assign(e, part, list->items[i]);
    release(e, &held);
}

void assign(struct evaluator *e, const struct jinja_expr *target, struct jinja_value value)
{
    if (jinja_failed(&e->run)) return;
    evaluator_at(e, target);
    if (target->kind == JINJA_EXPR_NAME) {
        *slot_at(e, target->place) = value;
    } else if (target->kind == JINJA_EXPR_TUPLE) {
        unpack(e, target, value);
    } else {
        struct held held;
        hold(e, &held, &value, 1);
        struct jinja_object *object = attribute_holder(e, target);
        release(e, &held);
        if (object) object->type->set_attribute(&e->run, object, &target->name->string, value);
    }
}

/* Said before the value is evaluated. */
static bool can_assign(struct evaluator *e, const struct jinja_expr *target)
{
    if (target->kind == JINJA_EXPR_ATTRIBUTE) return attribute_holder(e, target) != NULL;
    if (target->kind == JINJA_EXPR_TUPLE)
        for (const struct jinja_expr *part = target->operands.first; part; part = part->next) can_assign(e, part);
    return !jinja_failed(&e->run);
}

/* --- statements --- */

static enum flow flow_of(const struct evaluator *e)
{
    return jinja_failed(&e->run) ? FLOW_STOP : FLOW_NEXT;
}

void begin_output(struct evaluator *e, struct output *out)
{
    *out = (struct output){.outer = e->out};
    e->out = out;
}

struct jinja_value end_output(struct evaluator *e, struct output *out)
{
    e->out = out->outer;
    return jinja_build_end(&e->run, &out->text);
}

struct jinja_value execute_captured(struct evaluator *e, const struct jinja_body *body, enum flow *flow)
{
    struct output out;
    begin_output(e, &out);
    *flow = execute(e, body);
    return end_output(e, &out);
}

static enum flow print(struct evaluator *e, const struct jinja_statement *s)
{
    for (const struct jinja_expr *expr = s->exprs.first; expr && !jinja_failed(&e->run); expr = expr->next) {
        const struct jinja_value value = evaluate(e, expr);
        if (!jinja_failed(&e->run)) jinja_build_str(&e->run, &e->out->text, value);
    }
    return flow_of(e);
}

static enum flow execute_if(struct evaluator *e, const struct jinja_statement *s)
{
    for (const struct jinja_branch *b = s->branches; b; b = b->next) {
        const bool taken = !b->test || jinja_is_true(&e->run, evaluate(e, b->test));
        if (jinja_failed(&e->run)) return FLOW_STOP;
        if (taken) return execute(e, &b->body);
    }
    return FLOW_NEXT;
}

static enum flow set(struct evaluator *e, const struct jinja_statement *s)
{
    if (!can_assign(e, s->targets.first)) return FLOW_STOP;
    assign(e, s->targets.first, evaluate(e, s->exprs.first));
    return flow_of(e);
}

/* The text of a filter block or block set, with its filters applied. */
static struct jinja_value filtered(struct evaluator *e, const struct jinja_statement *s, enum flow *flow)
{
    enter_scope(e, &s->scope);
    struct jinja_value value = execute_captured(e, &s->body, flow);
    if (*flow == FLOW_NEXT) {
        e->captured = value;
        value = evaluate(e, s->exprs.first);
        *flow = flow_of(e);
    }
    return value;
}

static enum flow set_block(struct evaluator *e, const struct jinja_statement *s)
{
    enum flow flow;
    struct held held;
    const struct jinja_value value = filtered(e, s, &flow);
    hold(e, &held, &value, 1);
    if (flow == FLOW_NEXT && can_assign(e, s->targets.first)) assign(e, s->targets.first, value);
    release(e, &held);
    leave_scope(e, &s->scope);
    return flow ? flow : flow_of(e);
}

static enum flow filter_block(struct evaluator *e, const struct jinja_statement *s)
{
    enum flow flow;
    const struct jinja_value value = filtered(e, s, &flow);
    if (flow == FLOW_NEXT) jinja_build_str(&e->run, &e->out->text, value);
    leave_scope(e, &s->scope);
    return flow ? flow : flow_of(e);
}

static enum flow with(struct evaluator *e, const struct jinja_statement *s)
{
    const struct jinja_expr *value = s->exprs.first;
    enter_scope(e, &s->scope);
    for (const struct jinja_expr *target = s->targets.first; target; target = target->next, value = value->next)
        assign(e, target, evaluate(e, value));
    const enum flow flow = execute(e, &s->body);
    leave_scope(e, &s->scope);
    return flow;
}

/* What {% call %} prints is what the call gives, and what {% generation %} prints its body. */
static enum flow call_block(struct evaluator *e, const struct jinja_statement *s)
{
    const struct jinja_args none = {0};
    const struct jinja_value body = make_macro(e, s->macro);
    struct held held;
    if (jinja_failed(&e->run)) return FLOW_STOP;
    hold(e, &held, &body, 1);
    const struct jinja_value value =
        s->kind == JINJA_GENERATION ? jinja_call(&e->run, body, &none) : evaluate_call(e, s->exprs.first, &body);
    release(e, &held);
    if (!jinja_failed(&e->run)) jinja_build_str(&e->run, &e->out->text, value);
    return flow_of(e);
}

static enum flow execute_one(struct evaluator *e, const struct jinja_statement *s)
{
    enum flow flow;
    e->run.line = s->line;
    e->run.column = s->column;
    switch (s->kind) {
    case JINJA_TEXT:
        jinja_build_bytes(&e->run, &e->out->text, s->text, s->length, false);
        return flow_of(e);
    case JINJA_PRINT:
        return print(e, s);
    case JINJA_IF:
        return execute_if(e, s);
    case JINJA_FOR:
        return execute_for(e, s);
    case JINJA_BREAK:
        return FLOW_BREAK;
    case JINJA_CONTINUE:
        return FLOW_CONTINUE;
    case JINJA_SET:
        return set(e, s);
    case JINJA_SET_BLOCK:
        return set_block(e, s);
    case JINJA_WITH:
        return with(e, s);
    case JINJA_FILTER_BLOCK:
        return filter_block(e, s);
    case JINJA_MACRO_STATEMENT:
        *slot_at(e, s->macro->place) = make_macro(e, s->macro);
        return flow_of(e);
    case JINJA_CALL_BLOCK:
    case JINJA_GENERATION:
        return call_block(e, s);
    case JINJA_SCOPE:
        enter_scope(e, &s->scope);
        flow = execute(e, &s->body);
        leave_scope(e, &s->scope);
        return flow;
    }
    return FLOW_STOP;
}

enum flow execute(struct evaluator *e, const struct jinja_body *body)
{
    if (!evaluator_enter(e)) return FLOW_STOP;
    enum flow flow = FLOW_NEXT;
    for (const struct jinja_statement *s = body->first; s && flow == FLOW_NEXT; s = s->next)
        flow = jinja_tick(&e->run) ? execute_one(e, s) : FLOW_STOP;
    e->levels--;
    return flow;
}

/* --- rendering --- */

/* The run is the first member of its evaluator. */
static void reach_roots(struct jinja_run *run)
{
    const struct evaluator *e = (const struct evaluator *)run;
    jinja_reach_memory(e->globals);
    jinja_reach_memory(e->known);
    for (size_t i = 0; i < e->t->num_names; i++) jinja_reach(run, e->globals[i]);
    jinja_reach(run, frame_value(e->frame));
    jinja_reach(run, e->captured);
    for (const struct held *held = e->held; held; held = held->outer)
        for (size_t i = 0; i < held->count; i++) jinja_reach(run, held->values[i]);
    for (const struct output *out = e->out; out; out = out->outer) jinja_reach_buffer(out->text.buffer);
}

static void render(struct evaluator *e)
{
    const struct jinja_template *t = e->t;
    e->globals = jinja_alloc(&e->run, t->num_names * sizeof *e->globals);
    e->known = jinja_alloc(&e->run, t->num_names * sizeof *e->known);
    e->frame = new_frame(e, NULL, t->num_slots);
    e->run.reach_roots = reach_roots;
    if (jinja_failed(&e->run)) return;
    enter_scope(e, &t->scope);
    execute(e, &t->body);
}

static bool copy_output(const struct jinja_builder *from, struct jinja_output *out)
{
    text_clear(&out->text);
    text_clear(&out->marks);
    const struct jinja_buffer *buffer = from->buffer;
    if (!text_append(&out->text, buffer ? buffer->bytes : "", from->length) || !text_reserve(&out->marks, from->length))
        return false;
    if (buffer && buffer->marks) return text_append(&out->marks, (const char *)buffer->marks, from->length);
    memset(out->marks.data, from->marked, from->length);
    out->marks.length = from->length;
    return true;
}

enum status jinja_render(const struct jinja_template *t, const struct jinja_context *context, struct jinja_output *out,
                         struct error *err)
{
    struct evaluator e = {.t = t};
    struct output output;
    jinja_run_begin(&e.run, context, err);
    begin_output(&e, &output);
    render(&e);
    enum status status = e.run.status;
    if (!status && !copy_output(&output.text, out))
        status = error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for %zu byte%s of rendered text",
                           output.text.length, plural((int64_t)output.text.length));
    jinja_run_end(&e.run);
    return status;
}

void jinja_output_free(struct jinja_output *out)
{
    text_free(&out->text);
    text_free(&out->marks);
}
