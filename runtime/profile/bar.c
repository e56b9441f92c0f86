#include "runtime/profile/bar.h"

#include <langinfo.h>
#include <locale.h>
#include <math.h>
#include <string.h>

bool locale_is_utf8(void)
{
    const locale_t locale = newlocale(LC_CTYPE_MASK, "", (locale_t)0);
    if (!locale) return false;
    const bool utf8 = strcmp(nl_langinfo_l(CODESET, locale), "UTF-8") == 0;
    freelocale(locale);
    return utf8;
}

void bar_text(char out[BAR_TEXT_SIZE], double fraction, int width, bool utf8)
{
    static const char *const parts[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    const int units = utf8 ? 8 : 1;
    int length = (int)lround((fraction < 0 ? 0 : fraction > 1 ? 1 : fraction) * width * units);
    if (length == 0 && fraction > 0) length = 1;
    out[0] = '\0';
    char *end = out;
    for (int i = 0; i < length / units; i++) end = stpcpy(end, utf8 ? "█" : "#");
    if (utf8) strcpy(end, parts[length % units]);
}

const char *bar_column(int eighths, bool utf8)
{
    static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    const int level = eighths < 0 ? 0 : eighths > 8 ? 8 : eighths;
    return utf8 ? blocks[level] : level == 0 ? " " : level < 5 ? "." : "#";
}
