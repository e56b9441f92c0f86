/* The page at "/": page.html, as it is in the source tree. */
#ifndef QUIRE_RUNTIME_SERVE_PAGE_H
#define QUIRE_RUNTIME_SERVE_PAGE_H

#include <stddef.h>

extern const char page_html[];
extern const size_t page_html_length;

#endif
