#include "tokenizer/utf8.h"

/* The least and greatest second byte after `lead` (Unicode 15, table 3-7): this shuts out overlong forms, surrogates
 * and what lies above U+10FFFF. */
static void second_byte_range(unsigned char lead, unsigned char *least, unsigned char *greatest)
{
    *least = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    *greatest = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
}

int utf8_length(const char *bytes, size_t count)
{
    unsigned char lead = (unsigned char)bytes[0];
    if (lead < 0x80) return 1;
    if (lead < 0xC2 || lead > 0xF4) return -1;
    int length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    unsigned char least, greatest;
    second_byte_range(lead, &least, &greatest);
    for (int i = 1; i < length; i++) {
        if ((size_t)i == count) return 0;
        unsigned char byte = (unsigned char)bytes[i];
        if (byte < least || byte > greatest) return -1;
        least = 0x80;
        greatest = 0xBF;
    }
    return length;
}
