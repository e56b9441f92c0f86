#include "base/utf8.h"

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

size_t utf8_decode(const char *bytes, size_t count, uint32_t *character)
{
    static const unsigned char lead_bits[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    const int length = utf8_length(bytes, count);
    if (length <= 0) {
        *character = 0xFFFD;
        return 1;
    }
    *character = (unsigned char)bytes[0] & lead_bits[length];
    for (int i = 1; i < length; i++) *character = *character << 6 | ((unsigned char)bytes[i] & 0x3F);
    return (size_t)length;
}

size_t utf8_valid_prefix(const char *text, size_t length)
{
    size_t at = 0;
    while (at < length) {
        int n = utf8_length(text + at, length - at);
        if (n <= 0) break;
        at += (size_t)n;
    }
    return at;
}

bool utf8_append_valid(struct text *out, const char *text, size_t length)
{
    bool ok = true;
    for (size_t i = 0; i < length && ok;) {
        const size_t valid = utf8_valid_prefix(text + i, length - i);
        ok = text_append(out, text + i, valid);
        i += valid;
        if (i < length && ok) ok = text_append(out, UTF8_REPLACEMENT, sizeof UTF8_REPLACEMENT - 1);
        i++;
    }
    return ok;
}
