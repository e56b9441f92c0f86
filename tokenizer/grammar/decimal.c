#include "tokenizer/grammar/decimal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_value.h"

/* Takes needless zeros off both ends. */
static void normalize(struct decimal *d)
{
    int32_t zeros = 0;
    while (zeros + 1 < d->num_whole && d->digits[zeros] == '0') zeros++;
    d->num_whole -= zeros;
    memmove(d->digits, d->digits + zeros, (size_t)(d->num_whole + d->num_fraction));
    while (d->num_fraction > 0 && d->digits[d->num_whole + d->num_fraction - 1] == '0') d->num_fraction--;
    if (d->num_whole == 1 && d->num_fraction == 0 && d->digits[0] == '0') d->negative = false;
}

bool decimal_parse(struct decimal *d, const char *text)
{
    *d = (struct decimal){.negative = *text == '-'};
    if (d->negative) text++;
    if (*text < '0' || *text > '9') return false; /* NaN and Infinity, which Python's JSON may have */
    char digits[DECIMAL_MAX_DIGITS];
    int32_t count = 0, point = -1;
    for (; (*text >= '0' && *text <= '9') || *text == '.'; text++) {
        if (*text == '.')
            point = count;
        else if (count == DECIMAL_MAX_DIGITS)
            return false;
        else
            digits[count++] = *text;
    }
    if (point < 0) point = count;
    const long exponent = *text == 'e' || *text == 'E' ? strtol(text + 1, NULL, 10) : 0;
    if (labs(exponent) > DECIMAL_MAX_DIGITS) return false;
    point += (int32_t)exponent;
    const int32_t before = point < 1 ? 1 - point : 0; /* zeros before the digits */
    const int32_t behind = point > count ? point - count : 0;
    if (before + count + behind > DECIMAL_MAX_DIGITS) return false;
    memset(d->digits, '0', sizeof d->digits);
    memcpy(d->digits + before, digits, (size_t)count);
    d->num_whole = point < 1 ? 1 : point;
    d->num_fraction = before + count + behind - d->num_whole;
    normalize(d);
    return true;
}

/* The shortest text that is read as the same double. */
static void write_double(char *out, size_t size, double value)
{
    for (int precision = 1; precision <= 17; precision++) {
        snprintf(out, size, "%.*e", precision - 1, value);
        if (strtod(out, NULL) == value) return;
    }
}

bool decimal_of_json(struct decimal *d, const json_t *number)
{
    char text[64];
    if (json_spelling(number)) return decimal_parse(d, json_spelling(number));
    if (json_is_integer(number))
        snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(number));
    else
        write_double(text, sizeof text, json_real_value(number));
    return decimal_parse(d, text);
}

static int compare_magnitudes(const struct decimal *a, const struct decimal *b)
{
    if (a->num_whole != b->num_whole) return a->num_whole < b->num_whole ? -1 : 1;
    const int32_t a_count = a->num_whole + a->num_fraction, b_count = b->num_whole + b->num_fraction;
    const int order = memcmp(a->digits, b->digits, (size_t)(a_count < b_count ? a_count : b_count));
    return order ? order : (a_count > b_count) - (a_count < b_count);
}

int decimal_compare(const struct decimal *a, const struct decimal *b)
{
    if (a->negative != b->negative) return a->negative ? -1 : 1;
    return a->negative ? compare_magnitudes(b, a) : compare_magnitudes(a, b);
}

bool decimal_is_whole(const struct decimal *d)
{
    return d->num_fraction == 0;
}

/* Adds 1 to the magnitude, which has no fraction. */
static bool count_up(struct decimal *d)
{
    int32_t i = d->num_whole - 1;
    for (; i >= 0 && d->digits[i] == '9'; i--) d->digits[i] = '0';
    if (i >= 0) return d->digits[i]++, true;
    if (d->num_whole == DECIMAL_MAX_DIGITS) return false;
    memmove(d->digits + 1, d->digits, (size_t)d->num_whole++);
    d->digits[0] = '1';
    return true;
}

/* Subtracts 1 from the magnitude, which has no fraction and is not 0. */
static void count_down(struct decimal *d)
{
    int32_t i = d->num_whole - 1;
    for (; d->digits[i] == '0'; i--) d->digits[i] = '9';
    d->digits[i]--;
    normalize(d);
}

bool decimal_next_integer(struct decimal *d, bool up)
{
    const bool whole = decimal_is_whole(d), zero = whole && d->num_whole == 1 && d->digits[0] == '0';
    d->num_fraction = 0;
    if (zero) d->negative = !up;
    if (d->negative == up && !zero) { /* towards 0 */
        if (whole) count_down(d);
        normalize(d);
        return true;
    }
    return count_up(d);
}

bool decimal_next_double(struct decimal *d, bool up)
{
    struct text text = {0};
    char next[64];
    const bool written = decimal_append(&text, d);
    if (written) write_double(next, sizeof next, nextafter(strtod(text.data, NULL), up ? INFINITY : -INFINITY));
    text_free(&text);
    return written && decimal_parse(d, next);
}

bool decimal_append(struct text *out, const struct decimal *d)
{
    return text_append_string(out, d->negative ? "-" : "") && text_append(out, d->digits, (size_t)d->num_whole) &&
           (d->num_fraction == 0 ||
            (text_append(out, ".", 1) && text_append(out, d->digits + d->num_whole, (size_t)d->num_fraction)));
}

/* Python writes a float without an exponent from 1e-4 to below 1e16, with a point always. */
bool json_append_number(struct text *out, const json_t *number)
{
    char text[64];
    struct decimal d;
    if (json_spelling(number)) return text_append_string(out, json_spelling(number));
    if (json_is_integer(number)) return text_printf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(number));
    const double value = json_real_value(number);
    write_double(text, sizeof text, value);
    if (value == 0 || (fabs(value) >= 1e-4 && fabs(value) < 1e16)) {
        decimal_parse(&d, text);
        return text_append_string(out, signbit(value) && !d.negative ? "-" : "") && decimal_append(out, &d) &&
               (d.num_fraction > 0 || text_append_string(out, ".0"));
    }
    return text_append_string(out, text);
}
