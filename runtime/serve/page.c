#include "runtime/serve/page.h"

/* The assembler puts the file into the executable as it is. */
__asm__(".pushsection .rodata\n"
        ".global page_html, page_html_length\n"
        "page_html:\n"
        ".incbin \"runtime/serve/page.html\"\n"
        "page_html_end:\n"
        ".byte 0\n"
        ".balign 8\n"
        "page_html_length:\n"
        ".quad page_html_end - page_html\n"
        ".popsection\n");
