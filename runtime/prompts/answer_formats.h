/* What the tables of tool_formats.c and reasoning_formats.c say of each form. */
#ifndef QUIRE_RUNTIME_ANSWER_FORMATS_H
#define QUIRE_RUNTIME_ANSWER_FORMATS_H

#include <stdbool.h>

#include "runtime/prompts/answer_parser.h"

enum { FORM_MAX_MARKS = 6 };

/* How calls are written behind the mark that begins them. */
enum tool_syntax {
    SYNTAX_JSON,    /* {"name": "f", "arguments": {}}, or a list of such objects */
    SYNTAX_NAMED,   /* a name, a mark and the arguments as a JSON object */
    SYNTAX_XML,     /* a mark with the name, then marks with keys and values */
    SYNTAX_LITERAL, /* f(a=1, b="x"), or call:f{a:1} */
    SYNTAX_HARMONY  /* messages with channels; reasoning is among them */
};

/* Marks of SYNTAX_NAMED and SYNTAX_XML. Blanks may stand between a mark's end and what comes next, except in names,
 * keys and values. */
struct call_marks {
    const char *call;                     /* begins a call, before its name */
    const char *name_end[FORM_MAX_MARKS]; /* XML: empty if the name ends at a line's end, a key or the call's end */
    const char *call_end;
    /* XML: */
    const char *key, *key_end;
    const char *value;          /* stands between key_end and the value; NULL: nothing does */
    const char *string_key_end; /* stands for key_end where the value is a string whatever the schema says */
    const char *value_end;
};

struct tool_form {
    struct answer_format format;
    enum tool_syntax syntax;
    const char *begins[FORM_MAX_MARKS]; /* each begins calls wherever it stands */
    const char *ends[FORM_MAX_MARKS];   /* may stand behind the last call */
    const char *bare;                   /* an answer that begins with one of these characters is calls, too */
    const char *separator;              /* JSON: may stand between two objects */
    bool name_is_key;                   /* JSON: {"f": {}} */
    bool may_be_named;                  /* JSON: `marks` hold, too, as with SYNTAX_NAMED */
    bool has_id;                        /* NAMED: the name is "functions.f:0", which is the call's id */
    bool trims;                         /* XML: one newline on each side is no part of a value */
    bool guesses;                       /* XML: a value without a type in the schema is JSON if it can be */
    const char *quote;                  /* LITERAL: the mark around strings; NULL: Python's quotes */
    struct call_marks marks;
    /* How a call that must come is written, where several ways can be read: */
    bool writes_list;                     /* JSON: a list of objects */
    bool writes_lines;                    /* each part on a line of its own */
    bool writes_value_lines;              /* XML: each value, too */
    const char *name_key, *arguments_key; /* JSON; NULL: "name" and "arguments" */
    const char *signs[FORM_MAX_MARKS]; /* a template that has all of them is made for this form; none: not found so */
};

struct reasoning_form {
    struct answer_format format;
    const char *begins[FORM_MAX_MARKS], *ends[FORM_MAX_MARKS];
    const char *label;                     /* may follow the begin, and is no part of the thought */
    const char *answer_begin, *answer_end; /* may stand around the content */
    bool ends_at_tools;                    /* the mark of a call ends a thought, too */
    bool is_harmony;
    const char *signs[FORM_MAX_MARKS];
};

/* Another name of a form. A list of them ends with NULL. */
struct answer_alias {
    const char *alias, *name;
};
/* The name that it stands for, or itself. */
const char *answer_alias_resolve(const struct answer_alias *aliases, const char *name);
/* Whether one of marks[count] has a special token of the tokenizer in it. Any mark may be NULL. */
bool answer_marks_are_special(const char *const *marks, int count, const struct tokenizer *t);
/* Whether the source has all of the signs, and there are any. */
bool answer_signs_are_in(const char *const *signs, const char *source);

#endif
