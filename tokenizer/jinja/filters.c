#include "tokenizer/jinja/filters.h"

static struct jinja_value refuse(struct jinja_run *run, const char *name, const char *why)
{
    jinja_fail(run, "the filter '%s' is not supported: %s", name, why);
    return jinja_undefined(NULL);
}

static struct jinja_value filter_random(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    (void)self, (void)args;
    return refuse(run, "random", "the same conversation must always give the same text");
}

static struct jinja_value filter_urlize(struct jinja_run *run, struct jinja_value self, const struct jinja_args *args)
{
    (void)self, (void)args;
    return refuse(run, "urlize", "a conversation is not a web page");
}

const struct jinja_named jinja_filters[] = {
    {"abs", jinja_filter_abs},
    {"attr", jinja_filter_attr},
    {"batch", jinja_filter_batch},
    {"capitalize", jinja_filter_capitalize},
    {"center", jinja_filter_center},
    {"count", jinja_filter_length},
    {"d", jinja_filter_default},
    {"default", jinja_filter_default},
    {"dictsort", jinja_filter_dictsort},
    {"e", jinja_filter_escape},
    {"escape", jinja_filter_escape},
    {"filesizeformat", jinja_filter_filesizeformat},
    {"first", jinja_filter_first},
    {"float", jinja_filter_float},
    {"forceescape", jinja_filter_forceescape},
    {"format", jinja_filter_format},
    {"groupby", jinja_filter_groupby},
    {"indent", jinja_filter_indent},
    {"int", jinja_filter_int},
    {"items", jinja_filter_items},
    {"join", jinja_filter_join},
    {"last", jinja_filter_last},
    {"length", jinja_filter_length},
    {"list", jinja_filter_list},
    {"lower", jinja_filter_lower},
    {"map", jinja_filter_map},
    {"max", jinja_filter_max},
    {"min", jinja_filter_min},
    {"pprint", jinja_filter_pprint},
    {"random", filter_random},
    {"reject", jinja_filter_reject},
    {"rejectattr", jinja_filter_rejectattr},
    {"replace", jinja_filter_replace},
    {"reverse", jinja_filter_reverse},
    {"round", jinja_filter_round},
    {"safe", jinja_filter_safe},
    {"select", jinja_filter_select},
    {"selectattr", jinja_filter_selectattr},
    {"slice", jinja_filter_slice},
    {"sort", jinja_filter_sort},
    {"string", jinja_filter_string},
    {"striptags", jinja_filter_striptags},
    {"sum", jinja_filter_sum},
    {"title", jinja_filter_title},
    {"tojson", jinja_filter_tojson},
    {"trim", jinja_filter_trim},
    {"truncate", jinja_filter_truncate},
    {"unique", jinja_filter_unique},
    {"upper", jinja_filter_upper},
    {"urlencode", jinja_filter_urlencode},
    {"urlize", filter_urlize},
    {"wordcount", jinja_filter_wordcount},
    {"wordwrap", jinja_filter_wordwrap},
    {"xmlattr", jinja_filter_xmlattr},
};
const size_t jinja_num_filters = sizeof jinja_filters / sizeof jinja_filters[0];

jinja_function jinja_find_filter(const struct jinja_string *name)
{
    const struct jinja_named *found = jinja_find_named(jinja_filters, jinja_num_filters, name);
    return found ? found->function : NULL;
}
