/* A parsed template: the tree that the parser makes and the evaluator walks.
 *
 * Variables are resolved when the template is parsed, by the rules of jinja2's compiler (idtracking.py, compiler.py),
 * which makes a Python function of a template. Each *scope* (of a loop, a macro, a with block ...) has variables of its
 * own; the root, each macro, each block given to a call and each recursive loop is a *function*, whose activation is
 * one array of slots for the variables of all its scopes. A function sees the variables of the functions around it. */
#ifndef QUIRE_TOKENIZER_JINJA_SYNTAX_H
#define QUIRE_TOKENIZER_JINJA_SYNTAX_H

#include "tokenizer/jinja/value.h"

struct jinja_name {
    struct jinja_string string;
    const char *undefined;         /* "'x' is undefined" */
    size_t index;                  /* in the template's table of names */
    struct jinja_binding *binding; /* private to scopes.c: the innermost one while scopes are resolved */
};

struct jinja_place { /* of a variable */
    uint32_t up;     /* functions outwards */
    uint32_t slot;
};

/* --- expressions --- */

enum jinja_expr_kind {
    JINJA_EXPR_CONSTANT,
    JINJA_EXPR_NAME,
    JINJA_EXPR_TUPLE,
    JINJA_EXPR_LIST,
    JINJA_EXPR_DICT,      /* operands: key, value, key, value ... */
    JINJA_EXPR_CONDITION, /* operands: test, value, and the value of else; without else `value` is undefined */
    JINJA_EXPR_OR,
    JINJA_EXPR_AND,
    JINJA_EXPR_NOT,
    JINJA_EXPR_COMPARE,    /* operands, each but the first with its comparison */
    JINJA_EXPR_ARITHMETIC, /* left `op` right */
    JINJA_EXPR_NEGATIVE,
    JINJA_EXPR_POSITIVE,
    JINJA_EXPR_CONCATENATE,
    JINJA_EXPR_ATTRIBUTE, /* operand.name; as a target: an attribute of a namespace */
    JINJA_EXPR_ITEM,      /* operands: object, key */
    JINJA_EXPR_SLICE,     /* operands: object, start, stop, step */
    JINJA_EXPR_CALL,
    JINJA_EXPR_FILTER,
    JINJA_EXPR_TEST,
    JINJA_EXPR_CAPTURED /* the text of a filter block or block set, which its filters get */
};

struct jinja_expr_list { /* linked by `next` */
    struct jinja_expr *first, *last;
    size_t count;
};

struct jinja_named_expr {
    struct jinja_named_expr *next;
    struct jinja_value name; /* a string */
    struct jinja_expr *value;
};

struct jinja_arguments {
    struct jinja_expr_list positional;
    struct jinja_named_expr *keywords;
    size_t num_keywords;
    struct jinja_expr *more_positional, *more_keywords; /* *a and **b; NULL: none */
};

struct jinja_expr {
    enum jinja_expr_kind kind;
    enum jinja_operator op;
    enum jinja_comparison comparison; /* with the operand before it */
    int line, column;
    int height; /* levels of expressions below it */
    struct jinja_expr *next;
    struct jinja_expr_list operands;
    struct jinja_value value;              /* CONSTANT, CONDITION */
    struct jinja_name *name;               /* NAME, ATTRIBUTE */
    struct jinja_place place;              /* NAME */
    struct jinja_value called;             /* FILTER, TEST: its name, a string */
    const struct jinja_function *function; /* FILTER, TEST; NULL: there is none of this name */
    struct jinja_arguments args;           /* CALL, FILTER, TEST */
};

/* --- statements --- */

/* What becomes of a variable when its scope is entered. */
struct jinja_load {
    enum {
        JINJA_LOAD_NOTHING,   /* a parameter or a loop's target, which is assigned anyway */
        JINJA_LOAD_UNDEFINED, /* it has no value yet */
        JINJA_LOAD_GLOBAL,    /* a variable of the rendering, or a global function */
        JINJA_LOAD_OUTER      /* a copy of the variable of the same name in a scope around this one */
    } how;
    uint32_t slot;
    struct jinja_place outer;
    const struct jinja_name *name;
};
struct jinja_scope {
    struct jinja_load *loads; /* [count] */
    size_t count;
};

enum jinja_statement_kind {
    JINJA_TEXT,
    JINJA_PRINT,
    JINJA_IF,
    JINJA_FOR,
    JINJA_BREAK,
    JINJA_CONTINUE,
    JINJA_SET,
    JINJA_SET_BLOCK,
    JINJA_WITH,
    JINJA_SCOPE, /* {% autoescape false %} */
    JINJA_FILTER_BLOCK,
    JINJA_MACRO_STATEMENT,
    JINJA_CALL_BLOCK,
    JINJA_GENERATION
};

struct jinja_body {
    struct jinja_statement *first, *last; /* linked by `next` */
};

struct jinja_branch { /* of an if */
    struct jinja_branch *next;
    struct jinja_expr *test; /* NULL: else */
    struct jinja_body body;
};

struct jinja_parameter {
    struct jinja_parameter *next;
    struct jinja_name *name;
    struct jinja_expr *fallback; /* NULL: none */
    const char *not_provided;    /* "parameter 'x' was not provided" */
    uint32_t slot;
};

/* A macro, or a block given to a call (and then without a name). */
struct jinja_macro {
    struct jinja_name *name;
    struct jinja_place place; /* of the name */
    struct jinja_parameter *parameters;
    size_t num_parameters;
    /* What the body names without declaring it; each is then one more parameter. */
    bool uses_caller, uses_kwargs, uses_varargs;
    bool explicit_caller; /* it is among the parameters */
    uint32_t caller_slot, kwargs_slot, varargs_slot;
    struct jinja_body body;
    struct jinja_scope scope;
    uint32_t num_slots;
};

struct jinja_statement {
    enum jinja_statement_kind kind;
    int line, column;
    struct jinja_statement *next;
    const char *text; /* TEXT: [length] */
    size_t length;
    struct jinja_branch *branches;  /* IF */
    struct jinja_expr_list targets; /* FOR, SET, SET_BLOCK: one; WITH: as many as exprs */
    /* PRINT: what is printed; FOR: what is looped over; SET, WITH: the values; CALL_BLOCK: the call; FILTER_BLOCK, and
     * SET_BLOCK if it has any: the filters */
    struct jinja_expr_list exprs;
    struct jinja_body body;
    struct jinja_scope scope;  /* of the body */
    struct jinja_macro *macro; /* MACRO_STATEMENT, CALL_BLOCK, GENERATION */
    struct jinja_for *loop;    /* FOR */
};

struct jinja_for {
    struct jinja_expr *test;        /* NULL: every element */
    struct jinja_expr *test_target; /* the target again, with places in the scope of the test */
    struct jinja_scope test_scope;
    struct jinja_body otherwise; /* else */
    struct jinja_scope else_scope;
    uint32_t loop_slot; /* of the variable `loop` */
    bool recursive;
    uint32_t num_slots; /* of a recursive loop, which is a function */
};

/* --- templates --- */

struct jinja_template {
    struct jinja_run run; /* owns the tree */
    struct jinja_body body;
    struct jinja_scope scope;
    uint32_t num_slots;
    struct jinja_name **names; /* [num_names] of variables and attributes */
    size_t num_names, names_capacity;
    struct jinja_value names_index; /* a dict: string -> its index in names */
    struct jinja_name *loop, *caller, *kwargs, *varargs;
};

/* Gives each variable its place: fills in scopes, places and slots. */
void jinja_resolve_scopes(struct jinja_template *t);

#endif
