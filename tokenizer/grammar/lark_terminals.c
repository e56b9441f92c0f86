#include "tokenizer/grammar/lark_terminals.h"

#include <string.h>

#define INT "[0-9]+"
#define DECIMAL "(?:[0-9]+\\.[0-9]*|\\.[0-9]+)"
#define EXPONENT "[eE][+-]?[0-9]+"
#define FLOAT "(?:" INT EXPONENT "|" DECIMAL "(?:" EXPONENT ")?)"
#define NUMBER "(?:" FLOAT "|" INT ")"

static const struct {
    const char *name, *pattern;
} terminals[] = {
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[0-9a-fA-F]"},
    {"INT", INT},
    {"SIGNED_INT", "[+-]?" INT},
    {"DECIMAL", DECIMAL},
    {"FLOAT", FLOAT},
    {"SIGNED_FLOAT", "[+-]?" FLOAT},
    {"NUMBER", NUMBER},
    {"SIGNED_NUMBER", "[+-]?" NUMBER},
    {"ESCAPED_STRING", "\"(?:[^\"\\\\\\n]|\\\\[^\\n])*\""},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[a-zA-Z]"},
    {"WORD", "[a-zA-Z]+"},
    {"CNAME", "[a-zA-Z_][a-zA-Z0-9_]*"},
    {"WS_INLINE", "[ \\t]+"},
    {"WS", "[ \\t\\f\\r\\n]+"},
    {"CR", "\\r"},
    {"LF", "\\n"},
    {"NEWLINE", "(?:\\r?\\n)+"},
    {"SH_COMMENT", "#[^\\n]*"},
    {"CPP_COMMENT", "//[^\\n]*"},
    {"C_COMMENT", "/\\*(?:[^*]|\\*+[^*/])*\\*+/"},
    {"SQL_COMMENT", "--[^\\n]*"},
};

const char *lark_terminal(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof terminals / sizeof *terminals; i++)
        if (strlen(terminals[i].name) == length && memcmp(terminals[i].name, name, length) == 0)
            return terminals[i].pattern;
    return NULL;
}
