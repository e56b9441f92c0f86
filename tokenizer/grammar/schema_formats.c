#include "tokenizer/grammar/schema_formats.h"

#include <stddef.h>
#include <string.h>

/* RFC 3339, with the days that the months have, and leap years. The year is not 0000. */
#define YEAR "(?:\\d{3}[1-9]|\\d{2}[1-9]0|\\d[1-9]00|[1-9]000)"
#define LEAP_YEAR "(?:\\d{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
#define MONTH_AND_DAY "(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1\\d|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
#define DATE "(?:" YEAR "-" MONTH_AND_DAY "|" LEAP_YEAR "-02-29)"
#define HOUR "(?:[01]\\d|2[0-3])"
#define TIME HOUR ":[0-5]\\d:[0-5]\\d(?:\\.\\d+)?(?:Z|[+-]" HOUR ":[0-5]\\d)"
/* RFC 3339, appendix A. */
#define DURATION_TIME "T(?:\\d+H(?:\\d+M(?:\\d+S)?)?|\\d+M(?:\\d+S)?|\\d+S)"
#define DURATION_DATE "(?:\\d+Y(?:\\d+M(?:\\d+D)?)?|\\d+M(?:\\d+D)?|\\d+D)"
#define DURATION "P(?:" DURATION_DATE "(?:" DURATION_TIME ")?|" DURATION_TIME "|\\d+W)"
/* RFC 1123. Names of many long labels, which could have more than 253 characters in all, are left out. */
#define LABEL(middle) "[A-Za-z0-9](?:[A-Za-z0-9-]{0," middle "}[A-Za-z0-9])?"
#define HOSTNAME LABEL("60") "(?:\\." LABEL("60") "){0,3}|" LABEL("28") "(?:\\." LABEL("28") "){4,7}"
/* RFC 5321, without quoted local parts and literal addresses. */
#define ATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
#define EMAIL ATOM "(?:\\." ATOM ")*@(?:" HOSTNAME ")"
#define BYTE "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4 BYTE "(?:\\." BYTE "){3}"
/* RFC 4291. */
#define HEX "[0-9A-Fa-f]"
#define GROUP HEX "{1,4}"
#define LAST_GROUPS "(?:" GROUP ":" GROUP "|" IPV4 ")"
#define IPV6                                                                                                           \
    "(?:" GROUP ":){6}" LAST_GROUPS "|::(?:" GROUP ":){5}" LAST_GROUPS "|(?:" GROUP ")?::(?:" GROUP                    \
    ":){4}" LAST_GROUPS "|(?:(?:" GROUP ":){0,1}" GROUP ")?::(?:" GROUP ":){3}" LAST_GROUPS "|(?:(?:" GROUP            \
    ":){0,2}" GROUP ")?::(?:" GROUP ":){2}" LAST_GROUPS "|(?:(?:" GROUP ":){0,3}" GROUP ")?::" GROUP ":" LAST_GROUPS   \
    "|(?:(?:" GROUP ":){0,4}" GROUP ")?::" LAST_GROUPS "|(?:(?:" GROUP ":){0,5}" GROUP ")?::" GROUP "|(?:(?:" GROUP    \
    ":){0,6}" GROUP ")?::"
#define UUID HEX "{8}-" HEX "{4}-" HEX "{4}-" HEX "{4}-" HEX "{12}"
/* RFC 3986. */
#define UNRESERVED "A-Za-z0-9._~\\-"
#define DELIMITERS "!$&'()*+,;="
#define ESCAPED "%" HEX HEX
#define PATH_CHARACTER "(?:[" UNRESERVED DELIMITERS ":@]|" ESCAPED ")"
#define USER "(?:(?:[" UNRESERVED DELIMITERS ":]|" ESCAPED ")*@)?"
#define HOST                                                                                                           \
    "(?:\\[(?:" IPV6 "|v" HEX "+\\.[" UNRESERVED DELIMITERS ":]+)\\]|(?:[" UNRESERVED DELIMITERS "]|" ESCAPED ")*)"
#define AUTHORITY USER HOST "(?::\\d*)?"
#define SEGMENTS "(?:/" PATH_CHARACTER "*)*"
#define ROOTLESS PATH_CHARACTER "+" SEGMENTS
#define QUERY "(?:" PATH_CHARACTER "|[/?])*"
#define URI                                                                                                            \
    "[A-Za-z][A-Za-z0-9+.-]*:(?://" AUTHORITY SEGMENTS "|/(?:" ROOTLESS ")?|(?:" ROOTLESS ")?)(?:\\?" QUERY            \
    ")?(?:#" QUERY ")?"

static const struct {
    const char *name, *pattern, *least, *most;
} formats[] = {
    {"date", DATE},
    {"time", TIME},
    {"date-time", DATE "T" TIME},
    {"duration", DURATION},
    {"uuid", UUID},
    {"email", EMAIL},
    {"hostname", HOSTNAME},
    {"ipv4", IPV4},
    {"ipv6", IPV6},
    {"uri", URI},
    /* OpenAPI's, and those that Rust's schemars writes. */
    {"int8", NULL, "-128", "127"},
    {"int16", NULL, "-32768", "32767"},
    {"int32", NULL, "-2147483648", "2147483647"},
    {"int64", NULL, "-9223372036854775808", "9223372036854775807"},
    {"uint8", NULL, "0", "255"},
    {"uint16", NULL, "0", "65535"},
    {"uint32", NULL, "0", "4294967295"},
    {"uint64", NULL, "0", "18446744073709551615"},
    {"float", NULL},
    {"double", NULL},
};
enum { NUM_FORMATS = sizeof formats / sizeof *formats };

static size_t find_format(const char *name)
{
    size_t i = 0;
    while (i < NUM_FORMATS && strcmp(formats[i].name, name) != 0) i++;
    return i;
}

bool schema_format_is_known(const char *name)
{
    return find_format(name) < NUM_FORMATS;
}

const char *schema_format_pattern(const char *name)
{
    const size_t i = find_format(name);
    return i < NUM_FORMATS ? formats[i].pattern : NULL;
}

bool schema_format_range(const char *name, const char **least, const char **most)
{
    const size_t i = find_format(name);
    if (i == NUM_FORMATS || !formats[i].least) return false;
    *least = formats[i].least;
    *most = formats[i].most;
    return true;
}
