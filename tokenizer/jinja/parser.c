/* Statements, and the entry points of jinja.h that concern a template's source. */
#include "tokenizer/jinja/parser.h"

#include <stdlib.h>
#include <string.h>

#include "base/plural.h"
#include "base/utf8.h"

/* --- bodies --- */

static struct jinja_statement *new_statement(struct jinja_parser *p, enum jinja_statement_kind kind,
                                             const struct jinja_token *at)
{
    struct jinja_statement *s = jinja_alloc(p->run, sizeof *s);
    if (!s) return NULL;
    s->kind = kind;
    s->line = at->line;
    s->column = at->column;
    return s;
}

static void append(struct jinja_body *body, struct jinja_statement *s)
{
    if (body->last)
        body->last->next = s;
    else
        body->first = s;
    body->last = s;
}

static struct jinja_statement *parse_statement(struct jinja_parser *p);

static bool ends_here(const struct jinja_parser *p, const char *const *ends)
{
    for (; ends && *ends; ends++)
        if (parser_at(p, *ends)) return true;
    return false;
}

/* {{ ... }} */
static struct jinja_statement *parse_print(struct jinja_parser *p)
{
    struct jinja_statement *s = new_statement(p, JINJA_PRINT, &p->token);
    parser_take(p);
    struct jinja_expr *e = parser_tuple(p, true);
    if (!s || !e || !parser_expect_kind(p, JINJA_TOKEN_PRINT_END, "}}")) return NULL;
    parser_list_append(&s->exprs, e);
    return s;
}

static struct jinja_statement *parse_data(struct jinja_parser *p)
{
    struct jinja_statement *s = new_statement(p, JINJA_TEXT, &p->token);
    if (!s) return NULL;
    s->text = p->token.text;
    s->length = p->token.length;
    parser_take(p);
    return s;
}

/* Statements up to the tag that has one of these names (NULL at the end), which stays the current token: behind its
 * {%. Without `ends`: up to the end of the template. */
static bool parse_until(struct jinja_parser *p, struct jinja_body *body, const char *const *ends)
{
    *body = (struct jinja_body){0};
    while (!jinja_failed(p->run) && p->token.kind != JINJA_TOKEN_END) {
        struct jinja_statement *s = NULL;
        if (p->token.kind == JINJA_TOKEN_DATA) {
            s = parse_data(p);
        } else if (p->token.kind == JINJA_TOKEN_PRINT_BEGIN) {
            s = parse_print(p);
        } else {
            parser_take(p);
            if (ends_here(p, ends)) return true;
            s = parse_statement(p);
            if (s) parser_expect_kind(p, JINJA_TOKEN_BLOCK_END, "%}");
        }
        if (s) append(body, s);
    }
    return !ends && !jinja_failed(p->run);
}

/* The body of the statement `name`, which began at `tag`: from the end of its tag up to one of `ends`, the last of
 * which is what closes it. */
static bool parse_body(struct jinja_parser *p, struct jinja_body *body, const char *const *ends,
                       const struct jinja_token *tag)
{
    parser_accept(p, ":");
    if (!parser_expect_kind(p, JINJA_TOKEN_BLOCK_END, "%}")) return false;
    if (p->blocks == JINJA_MAX_DEPTH) {
        parser_fail_at(p, tag->line, tag->column, "statements are nested more than %d deep", JINJA_MAX_DEPTH);
        return false;
    }
    p->blocks++;
    const bool ok = parse_until(p, body, ends);
    p->blocks--;
    if (ok) return true;
    while (ends[1]) ends++;
    parser_fail_at(p, tag->line, tag->column, "{%% %.*s %%} has no {%% %s %%}", (int)tag->length, tag->text, *ends);
    return false;
}

/* A body that only `end` ends, which is taken. */
static bool parse_whole_body(struct jinja_parser *p, struct jinja_body *body, const char *end,
                             const struct jinja_token *tag)
{
    const char *const ends[] = {end, NULL};
    return parse_body(p, body, ends, tag) && parser_expect(p, end);
}

/* --- statements; each gets the token of its name, which is taken already --- */

static struct jinja_statement *parse_if(struct jinja_parser *p, const struct jinja_token *tag)
{
    static const char *const behind_if[] = {"elif", "else", "endif", NULL}, *const behind_else[] = {"endif", NULL};
    struct jinja_statement *s = new_statement(p, JINJA_IF, tag);
    struct jinja_branch **end = s ? &s->branches : NULL;
    for (bool more = s != NULL, is_else = false; more;) {
        struct jinja_branch *branch = *end = jinja_alloc(p->run, sizeof *branch);
        if (!branch) return NULL;
        end = &branch->next;
        if (!is_else) branch->test = parser_tuple(p, false);
        if ((!is_else && !branch->test) || !parse_body(p, &branch->body, is_else ? behind_else : behind_if, tag))
            return NULL;
        more = !parser_at(p, "endif");
        is_else = parser_at(p, "else");
        parser_take(p);
    }
    return s;
}

/* Whether this target assigns to `name`. */
static bool assigns(const struct jinja_expr *target, const struct jinja_name *name)
{
    if (target->kind == JINJA_EXPR_NAME) return target->name == name;
    bool found = false;
    if (target->kind == JINJA_EXPR_TUPLE)
        for (const struct jinja_expr *e = target->operands.first; e; e = e->next) found = found || assigns(e, name);
    return found;
}

static bool add_target(struct jinja_parser *p, struct jinja_statement *s, bool attributes)
{
    struct jinja_expr *target = s ? parser_target(p, attributes) : NULL;
    if (!target) return false;
    parser_list_append(&s->targets, target);
    if (s->kind != JINJA_WITH && p->all_loops > 0 && assigns(target, p->t->loop))
        parser_fail_at(p, target->line, target->column, "a loop cannot assign to its special variable loop");
    return !jinja_failed(p->run);
}

static struct jinja_expr *copy_target(struct jinja_parser *p, const struct jinja_expr *target)
{
    struct jinja_expr *copy = jinja_alloc(p->run, sizeof *copy);
    if (!copy) return NULL;
    *copy = *target;
    copy->next = NULL;
    copy->operands = (struct jinja_expr_list){0};
    for (const struct jinja_expr *e = target->operands.first; e; e = e->next) {
        struct jinja_expr *part = copy_target(p, e);
        if (!part) return NULL;
        parser_list_append(&copy->operands, part);
    }
    return copy;
}

/* "TARGET in VALUES [if TEST] [recursive]" */
static bool parse_for_head(struct jinja_parser *p, struct jinja_statement *s)
{
    if (!add_target(p, s, false) || !parser_expect(p, "in")) return false;
    struct jinja_expr *values = parser_tuple(p, false);
    if (!values) return false;
    parser_list_append(&s->exprs, values);
    if (parser_accept(p, "if")) {
        s->loop->test = parser_expression(p);
        s->loop->test_target = copy_target(p, s->targets.first);
    }
    s->loop->recursive = parser_accept(p, "recursive");
    return !jinja_failed(p->run);
}

static struct jinja_statement *parse_for(struct jinja_parser *p, const struct jinja_token *tag)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    struct jinja_statement *s = new_statement(p, JINJA_FOR, tag);
    if (!s || !(s->loop = jinja_alloc(p->run, sizeof *s->loop))) return NULL;
    const int loops = p->loops;
    p->all_loops++;
    bool ok = parse_for_head(p, s);
    if (s->loop->recursive) p->loops = 0; /* its body is a function */
    p->loops++;
    ok = ok && parse_body(p, &s->body, ends, tag);
    p->loops--;
    const bool has_else = ok && parser_accept(p, "else");
    if (has_else)
        ok = parse_whole_body(p, &s->loop->otherwise, "endfor", tag);
    else if (ok)
        ok = parser_expect(p, "endfor");
    p->loops = loops;
    p->all_loops--;
    return ok ? s : NULL;
}

static struct jinja_statement *parse_loop_control(struct jinja_parser *p, const struct jinja_token *tag)
{
    if (p->loops == 0)
        parser_fail_at(p, tag->line, tag->column, "{%% %.*s %%} stands outside of a loop", (int)tag->length, tag->text);
    return new_statement(p, parser_is(tag, "break") ? JINJA_BREAK : JINJA_CONTINUE, tag);
}

static struct jinja_expr *captured(struct jinja_parser *p)
{
    return parser_new_expr(p, JINJA_EXPR_CAPTURED, &p->token);
}

/* {% set a = value %}, or {% set a | filter %} ... {% endset %} */
static struct jinja_statement *parse_set(struct jinja_parser *p, const struct jinja_token *tag)
{
    struct jinja_statement *s = new_statement(p, JINJA_SET, tag);
    if (!add_target(p, s, true)) return NULL;
    const bool is_block = !parser_accept(p, "=");
    struct jinja_expr *e = is_block ? parser_filters(p, captured(p), false) : parser_tuple(p, true);
    if (!e) return NULL;
    parser_list_append(&s->exprs, e);
    if (!is_block) return s;
    s->kind = JINJA_SET_BLOCK;
    return parse_whole_body(p, &s->body, "endset", tag) ? s : NULL;
}

static struct jinja_statement *parse_with(struct jinja_parser *p, const struct jinja_token *tag)
{
    struct jinja_statement *s = new_statement(p, JINJA_WITH, tag);
    while (s && p->token.kind != JINJA_TOKEN_BLOCK_END) {
        if (s->targets.count && !parser_expect(p, ",")) return NULL;
        if (!add_target(p, s, false) || !parser_expect(p, "=")) return NULL;
        struct jinja_expr *value = parser_expression(p);
        if (!value) return NULL;
        parser_list_append(&s->exprs, value);
    }
    return s && parse_whole_body(p, &s->body, "endwith", tag) ? s : NULL;
}

static struct jinja_statement *parse_filter_block(struct jinja_parser *p, const struct jinja_token *tag)
{
    struct jinja_statement *s = new_statement(p, JINJA_FILTER_BLOCK, tag);
    struct jinja_expr *e = s ? parser_filters(p, captured(p), true) : NULL;
    if (!e) return NULL;
    parser_list_append(&s->exprs, e);
    return parse_whole_body(p, &s->body, "endfilter", tag) ? s : NULL;
}

static struct jinja_statement *parse_autoescape(struct jinja_parser *p, const struct jinja_token *tag)
{
    struct jinja_statement *s = new_statement(p, JINJA_SCOPE, tag);
    const struct jinja_expr *e = s ? parser_expression(p) : NULL;
    if (!e) return NULL;
    if (e->kind != JINJA_EXPR_CONSTANT || e->value.kind != JINJA_BOOL || e->value.boolean) {
        parser_fail_at(p, e->line, e->column,
                       "only {%% autoescape false %%} is supported: a chat template is not HTML");
        return NULL;
    }
    return parse_whole_body(p, &s->body, "endautoescape", tag) ? s : NULL;
}

static struct jinja_statement *parse_print_statement(struct jinja_parser *p, const struct jinja_token *tag)
{
    struct jinja_statement *s = new_statement(p, JINJA_PRINT, tag);
    while (s && p->token.kind != JINJA_TOKEN_BLOCK_END) {
        if (s->exprs.count && !parser_expect(p, ",")) return NULL;
        struct jinja_expr *e = parser_expression(p);
        if (!e) return NULL;
        parser_list_append(&s->exprs, e);
    }
    return s;
}

/* --- macros and calls --- */

/* Adds the parameter whose name is `name`, with its "= value". */
static bool add_parameter(struct jinja_parser *p, struct jinja_macro *m, struct jinja_parameter **end,
                          const struct jinja_token *name, bool needs_default)
{
    struct jinja_parameter *parameter = jinja_alloc(p->run, sizeof *parameter);
    if (!parameter || !(parameter->name = parser_name(p, name->text, name->length))) return false;
    parameter->not_provided = parser_sentence(p, "parameter '%.*s' was not provided", &parameter->name->string);
    for (const struct jinja_parameter *other = m->parameters; other && jinja_tick(p->run); other = other->next)
        if (other->name == parameter->name)
            parser_fail_at(p, name->line, name->column, "two parameters are called %.*s", (int)name->length,
                           name->text);
    parser_declare(p, parameter->name);
    if (parser_accept(p, "="))
        parameter->fallback = parser_expression(p);
    else if (needs_default)
        parser_fail_at(p, name->line, name->column, "a parameter without a default follows one that has a default");
    *end = parameter;
    m->num_parameters++;
    if (parameter->name == p->t->caller) m->explicit_caller = true;
    return !jinja_failed(p->run);
}

static bool parse_parameters(struct jinja_parser *p, struct jinja_macro *m)
{
    struct jinja_parameter **end = &m->parameters;
    bool needs_default = false;
    if (!parser_expect(p, "(")) return false;
    while (!parser_at(p, ")")) {
        struct jinja_token name;
        if (m->num_parameters && !parser_expect(p, ",")) return false;
        if (!parser_expect_name(p, &name) || !add_parameter(p, m, end, &name, needs_default)) return false;
        needs_default = (*end)->fallback != NULL;
        end = &(*end)->next;
    }
    return parser_expect(p, ")");
}

static bool parse_macro_body(struct jinja_parser *p, struct jinja_macro *m, const char *end,
                             const struct jinja_token *tag)
{
    struct jinja_open_macro open = {.around = p->macro, .macro = m};
    const int loops = p->loops;
    p->macro = &open;
    p->loops = 0;
    const bool ok = parse_whole_body(p, &m->body, end, tag);
    p->macro = open.around;
    p->loops = loops;
    for (const struct jinja_parameter *parameter = m->parameters; parameter; parameter = parameter->next) {
        if (parameter->name == p->t->kwargs) m->uses_kwargs = false;
        if (parameter->name == p->t->varargs) m->uses_varargs = false;
        if (parameter->name == p->t->caller && m->uses_caller && !parameter->fallback)
            parser_fail_at(p, tag->line, tag->column, "the parameter caller must have a default, or be left out");
    }
    return ok && !jinja_failed(p->run);
}

static struct jinja_statement *new_macro(struct jinja_parser *p, enum jinja_statement_kind kind,
                                         const struct jinja_token *tag)
{
    struct jinja_statement *s = new_statement(p, kind, tag);
    if (s) s->macro = jinja_alloc(p->run, sizeof *s->macro);
    return s && s->macro ? s : NULL;
}

static struct jinja_statement *parse_macro(struct jinja_parser *p, const struct jinja_token *tag)
{
    struct jinja_statement *s = new_macro(p, JINJA_MACRO_STATEMENT, tag);
    struct jinja_token name;
    if (!s || !parser_expect_name(p, &name)) return NULL;
    s->macro->name = parser_name(p, name.text, name.length);
    return parse_parameters(p, s->macro) && parse_macro_body(p, s->macro, "endmacro", tag) ? s : NULL;
}

static struct jinja_statement *parse_call_block(struct jinja_parser *p, const struct jinja_token *tag)
{
    struct jinja_statement *s = new_macro(p, JINJA_CALL_BLOCK, tag);
    if (!s || (parser_at(p, "(") && !parse_parameters(p, s->macro))) return NULL;
    struct jinja_expr *call = parser_expression(p);
    if (!call) return NULL;
    if (call->kind != JINJA_EXPR_CALL) {
        parser_fail_at(p, call->line, call->column, "{%% call %%} needs a call, such as {%% call name(...) %%}");
        return NULL;
    }
    parser_list_append(&s->exprs, call);
    return parse_macro_body(p, s->macro, "endcall", tag) ? s : NULL;
}

static struct jinja_statement *parse_generation(struct jinja_parser *p, const struct jinja_token *tag)
{
    struct jinja_statement *s = new_macro(p, JINJA_GENERATION, tag);
    return s && parse_macro_body(p, s->macro, "endgeneration", tag) ? s : NULL;
}

/* --- all statements --- */

static struct jinja_statement *refuse(struct jinja_parser *p, const struct jinja_token *tag)
{
    parser_fail_at(p, tag->line, tag->column,
                   "{%% %.*s %%} is not supported: a chat template is a single source, which includes and extends no "
                   "other",
                   (int)tag->length, tag->text);
    return NULL;
}

static struct jinja_statement *parse_statement(struct jinja_parser *p)
{
    static const struct {
        const char *name;
        struct jinja_statement *(*parse)(struct jinja_parser *p, const struct jinja_token *tag);
    } statements[] = {
        {"if", parse_if},
        {"for", parse_for},
        {"set", parse_set},
        {"macro", parse_macro},
        {"break", parse_loop_control},
        {"continue", parse_loop_control},
        {"with", parse_with},
        {"filter", parse_filter_block},
        {"call", parse_call_block},
        {"generation", parse_generation},
        {"print", parse_print_statement},
        {"autoescape", parse_autoescape},
        {"include", refuse},
        {"import", refuse},
        {"from", refuse},
        {"extends", refuse},
        {"block", refuse},
    };
    struct jinja_token tag;
    if (!parser_expect_name(p, &tag)) return NULL;
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++)
        if (parser_is(&tag, statements[i].name)) return statements[i].parse(p, &tag);
    parser_fail_at(p, tag.line, tag.column, "unexpected tag {%% %.*s %%}", (int)tag.length, tag.text);
    return NULL;
}

/* --- templates --- */

/* Refuses a source that is not UTF-8, with the place where it is not. */
static enum status check_utf8(const char *source, size_t length, struct error *err)
{
    int line = 1, column = 1;
    for (size_t at = 0; at < length;) {
        const int n = utf8_length(source + at, length - at);
        if (n <= 0)
            return error_set(err, STATUS_INVALID, "line %d, column %d: the template is not valid UTF-8", line, column);
        column = source[at] == '\n' ? 1 : column + 1;
        line += source[at] == '\n';
        at += (size_t)n;
    }
    return STATUS_OK;
}

/* A name that the rules know, whether the source has it or not. */
static struct jinja_name *special_name(struct jinja_parser *p, const char *text)
{
    return parser_name(p, text, strlen(text));
}

static void parse_template(struct jinja_parser *p, const char *source, size_t length)
{
    struct jinja_template *t = p->t;
    t->names_index = jinja_dict_new(p->run);
    t->loop = special_name(p, "loop");
    t->caller = special_name(p, "caller");
    t->kwargs = special_name(p, "kwargs");
    t->varargs = special_name(p, "varargs");
    jinja_lexer_begin(&p->lexer, p->run, source, length);
    if (jinja_failed(p->run)) return;
    parser_take(p);
    parser_take(p);
    if (parse_until(p, &t->body, NULL)) jinja_resolve_scopes(t);
}

enum status jinja_parse(const char *source, size_t length, struct jinja_template **out, struct error *err)
{
    static const struct jinja_context limits; /* of parsing: the defaults */
    *out = NULL;
    if (check_utf8(source, length, err)) return STATUS_INVALID;
    struct jinja_template *t = calloc(1, sizeof *t);
    if (!t)
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for a template of %zu byte%s", length,
                         plural((int64_t)length));
    jinja_run_begin(&t->run, &limits, err);
    struct jinja_parser p = {.run = &t->run, .t = t};
    parse_template(&p, source, length);
    const enum status status = t->run.status;
    t->run.err = NULL;
    if (status)
        jinja_template_free(t);
    else
        *out = t;
    return status;
}

void jinja_template_free(struct jinja_template *t)
{
    if (!t) return;
    jinja_run_end(&t->run);
    free(t);
}
