/* Places in JSON: "choices/0/text" leads to a member of an element of a list; "" to the value itself. */
#ifndef QUIRE_TESTS_SUPPORT_JSON_PATH_H
#define QUIRE_TESTS_SUPPORT_JSON_PATH_H

#include <jansson.h>

const json_t *json_at(const json_t *value, const char *path); /* NULL: there is nothing */

/* Fail the test unless there is this string, this value (as JSON), or nothing. */
void expect_json_text(const json_t *value, const char *path, const char *expected);
void expect_json(const json_t *value, const char *path, const char *expected);
void expect_no_json(const json_t *value, const char *path);

#endif
