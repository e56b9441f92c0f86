#include "tests/support/operation_list.h"

#include <stdlib.h>
#include <string.h>

static const struct operation_parameter config_parameters[] = {
    {"blocks", 1},    {"host", 0},      {"size", 1},    {"tokens", 1},   {"seqs", 1},      {"length", 2},
    {"groups", 1},    {"window", 0},    {"window2", 0}, {"window3", 0},  {"window4", 0},   {"caching", 0},
    {"chunked", 1},   {"mode", 0},      {"policy", 0},  {"hashes", 0},   {"grow", 0},      {"fails", 0},
    {"namespace", 0}, {"watermark", 0}, {"shift", 0},   {"shift2", 0},   {"shift3", 0},    {"shift4", 0},
    {"chunks", 0},    {"drafts", 0},    {"states", 0},  {"interval", 0}, {"hostslots", 0}, {"batches", 0},
};
static const struct operation_parameter add_parameters[] = {
    {"request", 0}, {"length", 1},   {"base", 0}, {"shared", 0}, {"n", 1},    {"max", 1},      {"min", 0},
    {"eos", 0},     {"priority", 0}, {"salt", 0}, {"beams", 0},  {"seed", 0}, {"logprobs", 0}, {"state", 0},
};
static const struct operation_parameter abort_parameters[] = {{"request", 0}};
static const struct operation_parameter finish_parameters[] = {{"request", 0}, {"sequence", 0}};
static const struct operation_parameter schedule_parameters[] = {
    {"cancel", 0}, {"drafts", 0}, {"right", 0}, {"spread", 0}, {"device", 0}};
static const struct operation_parameter collect_parameters[] = {{"damaged", 0}};
static const struct operation_parameter beams_parameters[] = {{"request", 0}, {"choice", 0}};

#define COUNT(array) ((int32_t)(sizeof(array) / sizeof *(array)))

static const struct {
    const char *name;
    const struct operation_parameter *parameters;
    int32_t count;
} kinds[NUM_OPERATION_KINDS] = {
    [OPERATION_CONFIG] = {"config", config_parameters, COUNT(config_parameters)},
    [OPERATION_ADD] = {"add", add_parameters, COUNT(add_parameters)},
    [OPERATION_ABORT] = {"abort", abort_parameters, COUNT(abort_parameters)},
    [OPERATION_FINISH] = {"finish", finish_parameters, COUNT(finish_parameters)},
    [OPERATION_SCHEDULE] = {"schedule", schedule_parameters, COUNT(schedule_parameters)},
    [OPERATION_COLLECT] = {"collect", collect_parameters, COUNT(collect_parameters)},
    [OPERATION_BEAMS] = {"beams", beams_parameters, COUNT(beams_parameters)},
    [OPERATION_RESET] = {"reset", NULL, 0},
};
_Static_assert(sizeof config_parameters / sizeof *config_parameters == NUM_CONFIG_VALUES, "a value has no name");
_Static_assert(sizeof add_parameters / sizeof *add_parameters == NUM_ADD_VALUES, "a value has no name");
_Static_assert(sizeof schedule_parameters / sizeof *schedule_parameters == NUM_SCHEDULE_VALUES, "a value has no name");
_Static_assert(sizeof finish_parameters / sizeof *finish_parameters == NUM_FINISH_VALUES, "a value has no name");
_Static_assert(sizeof beams_parameters / sizeof *beams_parameters == NUM_BEAMS_VALUES, "a value has no name");

const struct operation_parameter *operation_parameters(enum operation_kind kind, int32_t *count)
{
    *count = kinds[kind].count;
    return kinds[kind].parameters;
}

struct operation operation_of(enum operation_kind kind)
{
    struct operation operation = {.kind = kind};
    for (int32_t i = 0; i < kinds[kind].count; i++) operation.values[i] = kinds[kind].parameters[i].usual;
    return operation;
}

void operation_print(const struct operation *operation, FILE *out)
{
    fputs(kinds[operation->kind].name, out);
    for (int32_t i = 0; i < kinds[operation->kind].count; i++) {
        const struct operation_parameter *p = &kinds[operation->kind].parameters[i];
        if (operation->values[i] != p->usual) fprintf(out, " %s=%d", p->name, operation->values[i]);
    }
    fputc('\n', out);
}

static bool parse_value(const char *word, size_t length, struct operation *out)
{
    for (int32_t i = 0; i < kinds[out->kind].count; i++) {
        const char *name = kinds[out->kind].parameters[i].name;
        const size_t name_length = strlen(name);
        if (name_length >= length || strncmp(word, name, name_length) != 0 || word[name_length] != '=') continue;
        char *end;
        out->values[i] = (int32_t)strtol(word + name_length + 1, &end, 10);
        return end == word + length;
    }
    return false;
}

bool operation_parse(const char *line, struct operation *out, struct error *err)
{
    static const char spaces[] = " \t\r\n";
    const char *word = line + strspn(line, spaces);
    size_t length = strcspn(word, spaces);
    int32_t kind = 0;
    while (kind < NUM_OPERATION_KINDS &&
           (strlen(kinds[kind].name) != length || strncmp(word, kinds[kind].name, length)))
        kind++;
    if (kind == NUM_OPERATION_KINDS) {
        error_set(err, STATUS_INVALID, "\"%.*s\" is not an operation", (int)length, word);
        return false;
    }
    *out = operation_of((enum operation_kind)kind);
    for (word += length; *(word += strspn(word, spaces)); word += length) {
        length = strcspn(word, spaces);
        if (parse_value(word, length, out)) continue;
        error_set(err, STATUS_INVALID, "\"%.*s\" is not a parameter of %s", (int)length, word, kinds[kind].name);
        return false;
    }
    return true;
}

/* ---- shrinking ---- */

struct shrinker {
    struct operation *list, *trial;
    int32_t count;
    operation_test *fails;
    void *user;
};

/* Leaves out operations first .. first + length - 1 if the list still fails. The configuration stays. */
static bool drop(struct shrinker *s, int32_t first, int32_t length)
{
    const int32_t rest = s->count - first - length;
    memcpy(s->trial, s->list, (size_t)first * sizeof *s->list);
    memcpy(s->trial + first, s->list + first + length, (size_t)rest * sizeof *s->list);
    if (!s->fails(s->trial, s->count - length, s->user)) return false;
    s->count -= length;
    memcpy(s->list, s->trial, (size_t)s->count * sizeof *s->list);
    return true;
}

static bool drop_runs(struct shrinker *s)
{
    bool dropped = false;
    for (int32_t length = s->count / 2; length > 0; length /= 2)
        for (int32_t first = s->count - length; first >= 1;) { /* from the end: what comes late depends on the rest */
            if (first + length <= s->count && drop(s, first, length)) dropped = true;
            first -= first > length ? length : 1;
        }
    return dropped;
}

static bool lower_value(struct shrinker *s, int32_t index, int32_t value, int32_t usual)
{
    int32_t *now = &s->list[index].values[value];
    const int32_t was = *now, candidates[] = {usual, usual + (was - usual) / 2, was - 1};
    for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++) {
        if (candidates[i] < usual || candidates[i] >= was) continue;
        *now = candidates[i];
        if (s->fails(s->list, s->count, s->user)) return true;
        *now = was;
    }
    return false;
}

static bool lower_values(struct shrinker *s)
{
    bool lowered = false;
    for (int32_t i = 0; i < s->count; i++) {
        int32_t count;
        const struct operation_parameter *parameters = operation_parameters(s->list[i].kind, &count);
        for (int32_t v = 0; v < count; v++)
            while (lower_value(s, i, v, parameters[v].usual)) lowered = true;
    }
    return lowered;
}

int32_t operation_list_shrink(struct operation *list, int32_t count, operation_test *fails, void *user)
{
    struct shrinker s = {.list = list, .count = count, .fails = fails, .user = user};
    s.trial = malloc((size_t)count * sizeof *s.trial);
    if (!s.trial) return count;
    while (drop_runs(&s) || lower_values(&s)) continue;
    free(s.trial);
    return s.count;
}
