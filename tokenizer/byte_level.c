#include "tokenizer/pre_tokenizer.h"

/* GPT-2's bytes_to_unicode: a byte that is a visible character of Latin-1 stands for itself, and the others follow from
 * U+0100 on, in order: 0 to 0x20, 0x7F to 0xA0, and 0xAD. */
static bool stands_for_itself(int byte)
{
    return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
}

uint32_t byte_level_character(int byte)
{
    if (stands_for_itself(byte)) return (uint32_t)byte;
    if (byte <= 0x20) return (uint32_t)(0x100 + byte);
    return (uint32_t)(byte == 0xAD ? 0x143 : 0x121 + byte - 0x7F);
}

int byte_level_byte(uint32_t character)
{
    if (character < 0x100) return stands_for_itself((int)character) ? (int)character : -1;
    if (character <= 0x120) return (int)(character - 0x100);
    if (character <= 0x142) return (int)(character - 0x121 + 0x7F);
    return character == 0x143 ? 0xAD : -1;
}

size_t byte_level_spell(unsigned char byte, char out[2])
{
    const uint32_t c = byte_level_character(byte); /* below U+0800 */
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    out[0] = (char)(0xC0 | c >> 6);
    out[1] = (char)(0x80 | (c & 0x3F));
    return 2;
}
