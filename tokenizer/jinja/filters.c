/* The table of filters. The filters map and select find filters and tests by name, and the test `filter` finds filters:
 * filters.c, select_filters.c and tests.c are one recursive unit. */
#include "tokenizer/jinja/library.h"

static struct jinja_value filter_random(struct jinja_run *run, struct jinja_call *c)
{
    (void)c;
    return jinja_error(run,
                       "the filter 'random' is not supported: the same conversation must always give the same text");
}

static struct jinja_value filter_urlize(struct jinja_run *run, struct jinja_call *c)
{
    (void)c;
    return jinja_error(run, "the filter 'urlize' is not supported: a conversation is not a web page");
}

static const struct jinja_function refused[] = {{"random", filter_random}, {"urlize", filter_urlize}, {NULL}};

const struct jinja_function *const jinja_filters[] = {jinja_list_filters,
                                                      jinja_select_filters,
                                                      jinja_text_filters,
                                                      jinja_json_filters,
                                                      jinja_number_filters,
                                                      jinja_sort_filters,
                                                      jinja_html_filters,
                                                      jinja_pprint_filters,
                                                      jinja_wordwrap_filters,
                                                      refused,
                                                      NULL};

const struct jinja_function *jinja_find_filter(const struct jinja_string *name)
{
    return jinja_find_function(jinja_filters, name);
}
