/* Automata that compare a number with a bound, or divide it, digit by digit. */
#include <stdlib.h>
#include <string.h>

#include "tokenizer/grammar/decimal.h"
#include "tokenizer/grammar/regular_state.h"

enum { OTHER, MINUS, POINT, DIGIT /* class of '0'; those of 1 to 9 follow */, NUM_CLASSES = DIGIT + 10 };
enum { MAX_REMAINDERS = 10000 };

/* An automaton of so many states, all of which lead to state 1. */
static struct regular *new_automaton(int32_t num_states)
{
    struct character_set sets[NUM_CLASSES - 1] = {{0}};
    struct alphabet alphabet = {0};
    struct regular *r = NULL;
    bool made = true;
    for (uint32_t i = 0; i < NUM_CLASSES - 1; i++) {
        const uint32_t c = i == 0 ? '-' : i == 1 ? '.' : '0' + i - 2;
        character_set_add(&sets[i], c, c);
        made = made && !sets[i].failed;
    }
    if (made && alphabet_of_sets(&alphabet, sets, NUM_CLASSES - 1)) r = regular_new(num_states, &alphabet);
    for (int i = 0; i < NUM_CLASSES - 1; i++) character_set_free(&sets[i]);
    for (int32_t i = 0; r && i < num_states * NUM_CLASSES; i++) r->next[i] = 1;
    return r;
}

struct regular *decimal_numbers(bool integers)
{
    static const char whole[] = "0|-?[1-9]\\d*", any[] = "-?(0|[1-9]\\d*)(\\.\\d+)?";
    struct regular *r;
    const char *pattern = integers ? whole : any;
    return regular_parse(pattern, strlen(pattern), false, &r, NULL) ? NULL : r;
}

/* How the magnitude that was read compares with the bound's. */
enum order { LESS, EQUAL, GREATER };

/* Compares the magnitude of the number that is read with that of a bound. The states, from `base` on:
 *     3 (n - 1) + order   n digits before the point, of which the bound has num_whole; their order
 *     over                more digits than the bound has
 *     equal + j           all digits are the bound's, j of them behind the point
 *     known + order       behind the point, the order is known */
struct comparison {
    struct regular *r;
    const struct decimal *bound;
    int32_t base, over, equal, known, end;
    bool accept[3]; /* by order */
};

static struct comparison layout(struct regular *r, const struct decimal *bound, int32_t base)
{
    struct comparison c = {.r = r, .bound = bound, .base = base};
    c.over = base + 3 * bound->num_whole;
    c.equal = c.over + 1;
    c.known = c.equal + bound->num_fraction + 1;
    c.end = c.known + 3;
    return c;
}

static enum order order_of(int digit, char other)
{
    return digit < other - '0' ? LESS : digit > other - '0' ? GREATER : EQUAL;
}

static void set_next(const struct comparison *c, int32_t state, int class, int32_t next)
{
    c->r->next[state * NUM_CLASSES + class] = next;
}

static void add_whole_digits(const struct comparison *c)
{
    const int32_t count = c->bound->num_whole;
    for (int32_t n = 1; n <= count; n++) {
        for (int order = LESS; order <= GREATER; order++) {
            const int32_t state = c->base + 3 * (n - 1) + order;
            const enum order final = n < count ? LESS : (enum order)order;
            for (int digit = 0; digit < 10; digit++) {
                const enum order next =
                    order != EQUAL || n == count ? (enum order)order : order_of(digit, c->bound->digits[n]);
                set_next(c, state, DIGIT + digit, n == count ? c->over : c->base + 3 * n + (int32_t)next);
            }
            set_next(c, state, POINT, final == EQUAL ? c->equal : c->known + (int32_t) final);
            c->r->ends[state] = c->accept[final == EQUAL && c->bound->num_fraction > 0 ? LESS : final];
        }
    }
    for (int digit = 0; digit < 10; digit++) set_next(c, c->over, DIGIT + digit, c->over);
    set_next(c, c->over, POINT, c->known + GREATER);
    c->r->ends[c->over] = c->accept[GREATER];
}

static void add_fraction(const struct comparison *c)
{
    const char *digits = c->bound->digits + c->bound->num_whole;
    for (int32_t j = 0; j <= c->bound->num_fraction; j++) {
        const bool last = j == c->bound->num_fraction;
        for (int digit = 0; digit < 10; digit++) {
            const enum order order = order_of(digit, last ? '0' : digits[j]);
            set_next(c, c->equal + j, DIGIT + digit, order == EQUAL ? c->equal + j + !last : c->known + (int32_t)order);
        }
        c->r->ends[c->equal + j] = c->accept[last ? EQUAL : LESS];
    }
    for (int order = LESS; order <= GREATER; order++) {
        for (int digit = 0; digit < 10; digit++) set_next(c, c->known + order, DIGIT + digit, c->known + order);
        c->r->ends[c->known + order] = c->accept[order];
    }
}

/* The first digit that follows state `from`. */
static void add_first_digit(const struct comparison *c, int32_t from)
{
    for (int digit = 0; digit < 10; digit++)
        set_next(c, from, DIGIT + digit, c->base + (int32_t)order_of(digit, c->bound->digits[0]));
}

/* State 0 begins, 1 is that of no number, 2 follows a minus, and 3 takes what is known to be right. */
struct regular *decimal_bound(const struct decimal *d, bool at_least)
{
    const bool zero = d->num_whole == 1 && d->num_fraction == 0 && d->digits[0] == '0';
    const struct comparison size = layout(NULL, d, 0);
    struct regular *r = new_automaton(4 + 2 * size.end);
    if (!r) return NULL;
    struct comparison plus = layout(r, d, 4), minus = layout(r, d, 4 + size.end);
    for (int order = LESS; order <= GREATER; order++) {
        plus.accept[order] = order == EQUAL || (order == GREATER) == at_least;
        minus.accept[order] = order == EQUAL || (order == LESS) == at_least;
    }
    for (int class = OTHER; class < NUM_CLASSES; class ++) {
        set_next(&plus, 3, class, 3);
        if (class >= DIGIT && d->negative && at_least) set_next(&plus, 0, class, 3); /* above what is below 0 */
        if (class >= DIGIT && !d->negative && !zero && !at_least) set_next(&plus, 2, class, 3);
    }
    r->ends[3] = true;
    set_next(&plus, 0, MINUS, 2);
    add_whole_digits(&plus);
    add_fraction(&plus);
    add_whole_digits(&minus);
    add_fraction(&minus);
    if (!d->negative) add_first_digit(&plus, 0);
    if (d->negative || zero) add_first_digit(&minus, 2);
    return regular_minimize(r);
}

/* 10^exponent modulo p. */
static int32_t power_of_ten(int32_t exponent, int32_t p)
{
    int32_t power = 1 % p;
    for (int32_t i = 0; i < exponent; i++) power = power * 10 % p;
    return power;
}

/* Divides by p what has been read: d is p / 10^k. The states of phase f begin at 2 + f p, one for each remainder: phase
 * 0 is before the point, and 1 + j follows j digits behind it. Behind the k-th only zeros may follow. */
static void add_remainders(struct regular *r, int32_t p, int32_t k)
{
    const struct comparison c = {.r = r};
    for (int32_t state = 2; state < r->num_states; state++) {
        const int32_t phase = (state - 2) / p, remainder = (state - 2) % p;
        const int32_t missing = phase == 0 ? k : k - (phase - 1);
        for (int digit = 0; digit < 10; digit++) {
            const int32_t next = (remainder * 10 + digit) % p, phases = 2 + (phase == 0 ? 0 : phase + 1) * p;
            if (missing > 0 || phase == 0) set_next(&c, state, DIGIT + digit, phases + next);
        }
        if (missing == 0 && phase > 0) set_next(&c, state, DIGIT, state);
        if (phase == 0) set_next(&c, state, POINT, 2 + p + remainder);
        r->ends[state] = (int64_t)remainder * power_of_ten(missing, p) % p == 0;
    }
    set_next(&c, 0, MINUS, 0);
    for (int digit = 0; digit < 10; digit++) set_next(&c, 0, DIGIT + digit, 2 + digit % p);
}

struct regular *decimal_multiples(const struct decimal *d)
{
    const int32_t k = d->num_fraction;
    int32_t p = 0;
    for (int32_t i = 0; i < d->num_whole + k; i++) {
        p = p * 10 + (d->digits[i] - '0');
        if (p > MAX_REMAINDERS / (k + 2)) return NULL;
    }
    struct regular *r = p > 0 ? new_automaton(2 + p * (k + 2)) : NULL;
    if (r) add_remainders(r, p, k);
    return regular_minimize(r);
}
