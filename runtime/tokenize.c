/* quire tokenize: the token ids of a text, or the text of ids. */
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/utf8.h"
#include "base/visible.h"
#include "runtime/options/command.h"
#include "runtime/input.h"
#include "runtime/options/engine_flags.h"
#include "runtime/options/model_folder.h"
#include "runtime/prompts/result.h"
#include "tokenizer/token_table.h"
#include "tokenizer/tokenizer.h"

static const char COMMAND[] = "tokenize";

struct tokenize_options {
    const char *model, *revision, *text;
    bool json, special, ids;
};

static void add_flags(const struct command *c, struct option_table *table, void *options)
{
    (void)c;
    struct tokenize_options *o = options;
    model_flags_add(table, &o->model, &o->revision, "Tokenize:");
    const struct option_spec specs[] = {
        {"special", OPTION_SWITCH, &o->special,
         .help = "Find special tokens in the text, and put around it what the tokenizer puts there, such as bos; with "
                 "--ids, show special tokens. Default: off.",
         .common = true},
        {"ids", OPTION_SWITCH, &o->ids,
         .help = "The text is token ids, with spaces or commas between them: print their text. Default: off.",
         .common = true},
        {"json", OPTION_SWITCH, &o->json, .help = "Print one JSON object. Default: off.", .common = true},
    };
    option_table_add(table, specs, (int)(sizeof specs / sizeof specs[0]));
    table->word = &o->text;
}

/* ---- what is printed ---- */

/* Appends the bytes of a token so that they can be read: what is not printed as itself is escaped, with the control
 * characters of Latin-1 (U+0080 to U+009F), which some terminals obey. */
static bool append_shown(struct text *out, const char *bytes, size_t length)
{
    bool ok = true;
    for (size_t i = 0; i < length && ok;) {
        const int n = utf8_length(bytes + i, length - i);
        const unsigned char c = (unsigned char)bytes[i];
        const bool printed = n > 0 && c >= ' ' && c != 0x7F && !(c == 0xC2 && (unsigned char)bytes[i + 1] < 0xA0);
        if (c == '\n' || c == '\t')
            ok = text_append_string(out, c == '\n' ? "\\n" : "\\t");
        else if (!printed)
            ok = text_printf(out, "\\x%02x", c);
        else
            ok = (c != '\\' || text_append(out, "\\", 1)) && text_append(out, bytes + i, (size_t)n);
        i += printed ? (size_t)n : 1;
    }
    return ok;
}

/* One line a token: the id and its text. At a terminal the colour changes from token to token. */
static bool print_tokens(const struct tokenizer *t, const struct token_list *ids)
{
    static const char *const colours[] = {"\033[36m", "\033[33m"};
    const bool coloured = isatty(STDOUT_FILENO);
    bool ok = true;
    for (size_t i = 0; i < ids->count && ok; i++) {
        struct text shown = {0};
        size_t length;
        const char *bytes = tokenizer_token_bytes(t, ids->ids[i], true, &length);
        const char *colour = tokenizer_is_special(t, ids->ids[i]) ? "\033[1;35m" : colours[i % 2];
        ok = text_append(&shown, "", 0) && append_shown(&shown, bytes, length) &&
             printf("%d\t%s", ids->ids[i], coloured ? colour : "") > 0 &&
             visible_write(stdout, shown.data, shown.length) && puts(coloured ? "\033[0m" : "") >= 0;
        text_free(&shown);
    }
    return ok;
}

static bool print_json(json_t *object)
{
    const bool ok = json_print(object, JSON_COMPACT, stdout);
    json_decref(object);
    return ok;
}

static bool print_tokens_json(const struct tokenizer *t, const struct token_list *ids)
{
    json_t *list = json_array(), *pieces = json_array();
    for (size_t i = 0; i < ids->count; i++) {
        size_t length;
        const char *bytes = tokenizer_token_bytes(t, ids->ids[i], true, &length);
        json_array_append_new(pieces, result_json_text(bytes, length));
        json_array_append_new(list, json_integer(ids->ids[i]));
    }
    return print_json(json_pack("{s:I, s:o, s:o}", "count", (json_int_t)ids->count, "ids", list, "pieces", pieces));
}

static bool print_text(const struct text *text)
{
    return visible_write(stdout, text->length ? text->data : "", text->length) && putchar('\n') != EOF;
}

static bool print_text_json(const struct text *text)
{
    return print_json(json_pack("{s:s%}", "text", text->length ? text->data : "", text->length));
}

/* ---- both ways ---- */

static enum status encode(const struct tokenizer *t, const struct tokenize_options *o, const struct text *text,
                          struct error *err)
{
    struct token_list ids = {0};
    const unsigned flags = o->special ? TOKENIZER_ADD_SPECIAL | TOKENIZER_PARSE_SPECIAL : 0;
    enum status status = tokenizer_encode(t, text->data, text->length, flags, &ids, err);
    if (status == STATUS_OK && !(o->json ? print_tokens_json(t, &ids) : print_tokens(t, &ids)))
        status = error_set(err, STATUS_IO, "cannot write to standard output");
    if (status == STATUS_OK && !o->json && isatty(STDOUT_FILENO))
        fprintf(stderr, "%zu token%s\n", ids.count, plural((int64_t)ids.count));
    token_list_free(&ids);
    return status;
}

static enum status read_ids(const struct text *text, struct token_list *ids, struct error *err)
{
    static const char between[] = " ,[]\t\r\n"; /* a list in JSON is read, too */
    for (const char *at = text->data + strspn(text->data, between); *at; at += strspn(at, between)) {
        char *end;
        const long long value = strtoll(at, &end, 10);
        const int32_t id = (int32_t)value;
        if (end == at || (*end && !strchr(between, *end)) || value < 0 || value > INT32_MAX)
            return error_set(err, STATUS_INVALID, "'%.*s' is not a token id; expected numbers with spaces between them",
                             (int)strcspn(at, between), at);
        if (!token_list_append(ids, &id, 1)) return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory");
        at = end;
    }
    if (strlen(text->data) < text->length)
        return error_set(err, STATUS_INVALID,
                         "there is a NUL among the token ids; expected numbers with spaces between them");
    return STATUS_OK;
}

static enum status decode(const struct tokenizer *t, const struct tokenize_options *o, const struct text *input,
                          struct error *err)
{
    struct token_list ids = {0};
    struct text text = {0};
    enum status status = read_ids(input, &ids, err);
    if (status == STATUS_OK) status = tokenizer_decode(t, ids.ids, ids.count, o->special, &text, err);
    if (status == STATUS_OK && !(o->json ? print_text_json(&text) : print_text(&text)))
        status = error_set(err, STATUS_IO, "cannot write to standard output");
    text_free(&text);
    token_list_free(&ids);
    return status;
}

static enum status tokenize(struct tokenize_options *o, struct error *err)
{
    struct tokenizer *t = NULL;
    struct text text = {0};
    char model[PATH_MAX];
    const char *rest;
    if (input_place(o->text, &rest) == INPUT_STANDARD) input_note_terminal(COMMAND, "a text");
    enum status status = input_read_text(o->text, &text, err);
    if (status == STATUS_OK) status = model_folder_resolve(&o->model, o->revision, false, model, sizeof model, err);
    if (status == STATUS_OK) status = tokenizer_open(o->model, &t, err);
    if (status == STATUS_OK) status = o->ids ? decode(t, o, &text, err) : encode(t, o, &text, err);
    text_free(&text);
    tokenizer_close(t);
    return status;
}

static int run(void *options)
{
    struct tokenize_options *o = options;
    struct error err;
    if (!o->text && !isatty(STDIN_FILENO)) o->text = "-";
    if (!o->text) {
        error_set(&err, STATUS_INVALID, "give a text, @FILE, or - for standard input");
        return command_fail(COMMAND, &err, EXIT_STATUS_USAGE);
    }
    return tokenize(o, &err) == STATUS_OK ? EXIT_STATUS_OK : command_fail(COMMAND, &err, EXIT_STATUS_FAILURE);
}

const struct command command_tokenize = {
    .name = COMMAND,
    .summary = "show the token ids of a text, or the text of ids",
    .usage = "tokenize [TEXT|@FILE|-] [flags]",
    .help = "Shows the token ids of a text and the text of each. Without a TEXT it is what is piped in. Added tokens "
            "that are not special are found in every text.",
    .options_size = sizeof(struct tokenize_options),
    .add = add_flags,
    .run = run,
};
