/* The files beside a tokenizer.json that name tokens and templates. The input has them one after the other, with a NUL
 * between two. */
#include <ctype.h>

#include "tests/fuzz/fuzz.h"
#include "tests/support/temp_folder.h"
#include "tokenizer/chat_template.h"

static const char *const names[] = {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
                                    "chat_template.jinja", "additional_chat_templates/tool_use.jinja"};

static void check_templates(const struct tokenizer *t)
{
    struct chat_template *template;
    struct error err = {""};
    const enum status status = chat_template_open(t, NULL, &template, &err);
    fuzz_require((status == STATUS_OK) == (template != NULL) && (template || err.text[0]),
                 "a failure without a sentence");
    chat_template_close(template);
}

/* Ids of six and seven digits make large tables: slow, and nothing that others do not reach. */
static bool has_large_id(const uint8_t *data, size_t size)
{
    size_t digits = 0;
    for (size_t i = 0; i <= size; i++) {
        if (i < size && isdigit(data[i])) {
            digits++;
            continue;
        }
        if (digits == 6 || digits == 7) return true;
        digits = 0;
    }
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct fuzz_part text = {"low <|im_start|> lower", 22};
    struct fuzz_part rest = {(const char *)data, size};
    struct temp_folder folder;
    struct tokenizer *t;
    struct error err = {""};
    if (has_large_id(data, size)) return 0;
    temp_folder_make(&folder);
    temp_folder_write_string(&folder, "tokenizer.json", fuzz_tokenizer_json);
    temp_folder_add_folder(&folder, "additional_chat_templates");
    for (size_t i = 0; i < sizeof names / sizeof *names && rest.length > 0; i++) {
        const struct fuzz_part file = fuzz_split(&rest, '\0');
        temp_folder_write(&folder, names[i], file.bytes, file.length);
    }
    const enum status status = tokenizer_open(folder.path, &t, &err);
    fuzz_require((status == STATUS_OK) == (t != NULL) && (t || err.text[0]), "a failure without a sentence");
    if (t) fuzz_tokenizer(t, text);
    if (t) check_templates(t);
    tokenizer_close(t);
    temp_folder_remove(&folder);
    return 0;
}
