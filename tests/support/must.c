#include "tests/support/must.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

void must(enum status status, const struct error *err)
{
    if (status != STATUS_OK) fail_msg("%s", err->text);
}
