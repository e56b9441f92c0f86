#include "base/columns.h"

#include <utf8proc.h>

#include "base/utf8.h"

enum { VARIATION_SELECTOR_EMOJI = 0xFE0F };

/* Columns of a cluster that begins with this character. */
static int width_alone(uint32_t character)
{
    return utf8proc_charwidth((utf8proc_int32_t)character);
}

static bool is_regional_indicator(uint32_t character)
{
    return character >= 0x1F1E6 && character <= 0x1F1FF;
}

/* Columns of the cluster once this character has joined it. */
static int width_joined(const struct columns *c, uint32_t character)
{
    if (character == VARIATION_SELECTOR_EMOJI || is_regional_indicator(character)) return 2;
    return c->width;
}

int columns_add(struct columns *c, uint32_t character, bool *begins)
{
    *begins = c->before == 0 ||
              utf8proc_grapheme_break_stateful((utf8proc_int32_t)c->before, (utf8proc_int32_t)character, &c->state);
    const int before = *begins ? 0 : c->width;
    c->width = *begins ? width_alone(character) : width_joined(c, character);
    c->simple = *begins;
    c->before = character;
    return c->width - before;
}

int columns_of(const char *text, size_t length)
{
    struct columns c = {0};
    int sum = 0;
    for (size_t i = 0; i < length;) {
        uint32_t character;
        bool begins;
        i += utf8_decode(text + i, length - i, &character);
        sum += columns_add(&c, character, &begins);
    }
    return sum;
}
