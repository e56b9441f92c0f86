/* An interpreter of Jinja templates (the language of jinja2 3.1, as Hugging Face's chat templates use it), in the
 * environment that transformers' apply_chat_template makes: a sandbox, trim_blocks and lstrip_blocks on, the extensions
 * loopcontrols and {% generation %}, the filter tojson and the functions raise_exception and strftime_now of
 * transformers. It knows nothing of models or tokens. {% include %}, {% import %} and {% extends %} are refused: a
 * template is one source.
 *
 * Every byte of a string carries a *mark*: whether it came from a marked variable, whatever concatenation, filters,
 * slices and loops made of it since. So the caller can tell text of the template from text that a person wrote.
 *
 * Errors are STATUS_INVALID and one sentence that begins with "line L, column C: "; or STATUS_OUT_OF_MEMORY. */
#ifndef QUIRE_TOKENIZER_JINJA_JINJA_H
#define QUIRE_TOKENIZER_JINJA_JINJA_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/array.h"
#include "base/status.h"

struct jinja_template;

/* Parses source[length], which must be UTF-8. A template never changes once it is parsed, so several threads may render
 * it. Blocks and expressions may be nested JINJA_MAX_DEPTH deep; parsing takes at most 1 second and 64 MiB. */
enum status jinja_parse(const char *source, size_t length, struct jinja_template **out, struct error *err);
void jinja_template_free(struct jinja_template *t); /* NULL is allowed */

/* Whether the template has a loop over something of this name, be it a variable, an attribute or an item, also filtered
 * (name | list), sliced, or one side of `or` or of an inline if: a template that loops over the "content" of a message
 * knows that it can be a list of parts. A loop over a variable of another name that holds it is not found. */
bool jinja_template_loops_over(const struct jinja_template *t, const char *name);

/* A variable of the rendering. JSON's objects, lists, strings, numbers and null become Python's dict, list, str, int or
 * float, and None. */
struct jinja_variable {
    const char *name;
    const json_t *value;
    bool marked; /* its strings are marked, keys of objects included ... */
    /* ... except those members of objects for which this says no. NULL: no exception. */
    bool (*is_marked)(const char *key, const char *string, size_t length);
};

enum { JINJA_MAX_DEPTH = 200 };

struct jinja_context {
    const struct jinja_variable *variables; /* [num_variables]; of two with the same name the later one counts */
    size_t num_variables;
    int64_t now; /* what strftime_now sees: seconds since 1970, shown in local time */
    /* A rendering that takes longer, or has more memory in use, is an error. Each byte of the variables allows a
     * microsecond and 16 bytes more, so that no conversation is too long. */
    double seconds;   /* 0: 1 second */
    size_t max_bytes; /* 0: 64 MiB */
};

struct jinja_output {
    struct text text;
    struct text marks; /* [text.length] 1 for a marked byte, otherwise 0 */
};
void jinja_output_free(struct jinja_output *out);

/* Renders into *out, which it overwrites. The template's raise_exception gives STATUS_INVALID with its message. */
enum status jinja_render(const struct jinja_template *t, const struct jinja_context *context, struct jinja_output *out,
                         struct error *err);

#endif
