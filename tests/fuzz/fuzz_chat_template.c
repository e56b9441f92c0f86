/* A conversation and the template that renders it. The input's first line is an object with the arguments of
 * apply_chat_template, the rest is the template. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "base/json.h"
#include "tests/fuzz/fuzz.h"
#include "tokenizer/chat_template.h"

static void check_text(const struct marked_text *text)
{
    fuzz_require(text->marks.length == text->text.length || text->marks.length == 0, "not one mark for each byte");
    fuzz_require(utf8_valid_prefix(text->text.data, text->text.length) == text->text.length,
                 "rendered text that is not UTF-8");
}

static void check_render(const struct chat_template *template, const struct chat_input *input)
{
    struct marked_text text = {0};
    struct token_list ids = {0};
    struct error err = {""};
    const int32_t size = tokenizer_size(fuzz_shared_tokenizer());
    if (chat_template_render(template, input, &text, &err) == STATUS_OK)
        check_text(&text);
    else
        fuzz_require_sentence(&err);
    if (chat_template_encode(template, input, &ids, &err) != STATUS_OK)
        fuzz_require(ids.count == 0, "ids after a failure");
    for (size_t i = 0; i < ids.count; i++)
        fuzz_require(ids.ids[i] >= 0 && ids.ids[i] < size, "an id outside the vocabulary");
    marked_text_free(&text);
    token_list_free(&ids);
}

static void check_input(const json_t *object, const char *source)
{
    const struct tokenizer *t = fuzz_shared_tokenizer();
    struct chat_input input = {.messages = json_object_get(object, "messages"),
                               .tools = json_object_get(object, "tools"),
                               .documents = json_object_get(object, "documents"),
                               .kwargs = json_object_get(object, "chat_template_kwargs"),
                               .add_generation_prompt = json_is_true(json_object_get(object, "add_generation_prompt")),
                               .now = 1700000000};
    struct chat_template *template;
    struct error err = {""};
    if (chat_input_check(&input, &err) != STATUS_OK) return;
    if (chat_template_open(t, source, &template, &err) != STATUS_OK) return;
    check_render(template, &input);
    input.allow_special = true;
    check_render(template, &input);
    chat_template_close(template);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_part rest = {(const char *)data, size};
    const struct fuzz_part line = fuzz_split(&rest, '\n');
    json_t *object;
    json_object_parse(line.bytes, line.length, 0, NULL, &object, NULL);
    char *source = fuzz_string(rest);
    if (object && utf8_valid_prefix(source, strlen(source)) == strlen(source)) check_input(object, source);
    json_decref(object);
    free(source);
    return 0;
}
