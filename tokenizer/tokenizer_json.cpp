#include "tokenizer/tokenizer_json.h"

#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <vector>

extern "C" {
#include "base/file.h"
}
#include "base/json_parse.h"
#include "tokenizer/tokenizer_config.h"

namespace
{
namespace ondemand = simdjson::ondemand;

// What ends the reading: a sentence without the file's name.
struct failure {
    enum status status;
    std::string sentence;
};

[[noreturn]] void fail(const std::string &sentence, enum status status = STATUS_INVALID)
{
    throw failure{status, sentence};
}

// Text from the file, made fit for a message: cut at a whole character, control characters replaced by '?'.
std::string show(std::string_view text)
{
    const size_t longest = 80;
    size_t length = std::min(text.size(), longest);
    while (length < text.size() && length > 0 && (text[length] & 0xC0) == 0x80) length--;
    std::string shown(text.substr(0, length));
    for (char &c : shown)
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
    return "\"" + shown + (length < text.size() ? "...\"" : "\"");
}

template <typename T> T *append(T **items, size_t *count, size_t *capacity)
{
    if (!array_reserve(items, capacity, *count + 1, sizeof(T))) throw std::bad_alloc();
    return &(*items)[(*count)++];
}

struct reader {
    struct tokenizer_json *out;
    size_t vocab_capacity = 0, merges_capacity = 0;

    // Where the bytes are put in out->strings: over text of the file that has been read, because no string is longer
    // than its text there.
    uint32_t put(std::string_view bytes)
    {
        const size_t offset = out->strings.length;
        std::memcpy(out->strings.data + offset, bytes.data(), bytes.size());
        out->strings.length += bytes.size();
        return static_cast<uint32_t>(offset);
    }

    void read_vocab(ondemand::value value);
    void read_scored_vocab(ondemand::value value);
    void read_merge(ondemand::value value, size_t number);
    void read_merges(ondemand::value value);
    void read_model(ondemand::value value);
    void read(ondemand::document &document);
};

void reader::read_vocab(ondemand::value value)
{
    ondemand::object vocab;
    if (out->is_unigram) return read_scored_vocab(value);
    if (value.get_object().get(vocab)) fail("\"vocab\" must be an object of pieces and their ids");
    for (auto field : vocab) {
        const std::string_view piece = field.unescaped_key();
        int64_t id;
        const simdjson::error_code error = field.value().get_int64().get(id);
        if (error || id < 0 || id >= TOKENIZER_CONFIG_MAX_ID)
            fail("the id of the piece " + show(piece) + " must be an integer from 0 to " +
                 std::to_string(TOKENIZER_CONFIG_MAX_ID - 1));
        *append(&out->vocab, &out->num_vocab, &vocab_capacity) = {put(piece), static_cast<uint32_t>(piece.size()),
                                                                  static_cast<int32_t>(id), 0};
    }
}

// Whether a value is a number, as tokenizers reads a score: the digits as an integer, divided by a power of ten. That
// is not always the nearest double, and the last bit decides between ways whose scores are otherwise equal.
bool read_score(ondemand::value value, double *score)
{
    const std::string_view token = value.raw_json_token(); // white space may follow
    if (value.get_double().get(*score)) return false;
    const size_t begin = token.find_first_of("0123456789"), end = token.find_last_of("0123456789") + 1;
    std::string digits(token.substr(begin, end - begin));
    const size_t point = digits.find('.');
    if (point == digits.npos || digits.find_first_of("eE") != digits.npos || digits.size() > 20) return true;
    digits.erase(point, 1);
    const double size = std::strtoull(digits.c_str(), nullptr, 10);
    *score = std::copysign(size / std::pow(10, digits.size() - point), *score);
    return true;
}

// [[piece, score], ...]
void reader::read_scored_vocab(ondemand::value value)
{
    ondemand::array vocab, pair;
    if (value.get_array().get(vocab)) fail("the \"vocab\" of Unigram must be an array of pieces and their scores");
    for (ondemand::value entry : vocab) {
        const size_t id = out->num_vocab;
        std::string_view piece;
        double score;
        bool valid = !entry.get_array().get(pair);
        if (valid) {
            auto part = pair.begin(), end = pair.end();
            valid = part != end && !(*part).get_string().get(piece) && ++part != end && read_score(*part, &score) &&
                    !(++part != end);
        }
        if (!valid) fail("piece " + std::to_string(id) + " must be an array of a string and its score, a number");
        if (id == TOKENIZER_CONFIG_MAX_ID) fail("more than " + std::to_string(id) + " pieces");
        *append(&out->vocab, &out->num_vocab, &vocab_capacity) = {put(piece), static_cast<uint32_t>(piece.size()),
                                                                  static_cast<int32_t>(id), score};
    }
}

std::string_view merge_part(simdjson::simdjson_result<ondemand::value> value, size_t number)
{
    std::string_view part;
    if (value.get_string().get(part)) fail("merge " + std::to_string(number) + " must have two strings");
    return part;
}

// "left right", or ["left", "right"] where pieces may hold spaces.
void reader::read_merge(ondemand::value value, size_t number)
{
    std::string_view left, right;
    if (value.type() == ondemand::json_type::string) {
        const std::string_view both = value.get_string();
        const size_t space = both.find(' ');
        if (space == both.npos || both.find(' ', space + 1) != both.npos)
            fail("merge " + std::to_string(number) + " must be two pieces with a space between them, found " +
                 show(both));
        left = both.substr(0, space);
        right = both.substr(space + 1);
    } else {
        ondemand::array parts;
        if (value.get_array().get(parts)) fail("merge " + std::to_string(number) + " must be a string or an array");
        size_t count = 0;
        for (auto part : parts) {
            (count++ == 0 ? left : right) = merge_part(part, number);
            if (count > 2) break;
        }
        if (count != 2) fail("merge " + std::to_string(number) + " must have two strings");
    }
    *append(&out->merges, &out->num_merges, &merges_capacity) = {put(left), static_cast<uint32_t>(left.size()),
                                                                 put(right), static_cast<uint32_t>(right.size())};
}

void reader::read_merges(ondemand::value value)
{
    ondemand::array merges;
    if (value.get_array().get(merges)) fail("\"merges\" must be an array");
    size_t number = 0;
    for (ondemand::value merge : merges) read_merge(merge, number++);
}

// Parses a value with jansson and puts it into `object`.
void put_json(json_t *object, const std::string &key, ondemand::value value)
{
    if (json_object_get(object, key.c_str())) fail("the key " + show(key) + " is there twice");
    ondemand::json_type type; // NaN and Infinity have none
    const bool is_word = value.type().get(type) != simdjson::SUCCESS;
    const std::string_view text = is_word ? value.raw_json_token() : std::string_view(simdjson::to_json_string(value));
    struct error error;
    json_t *parsed;
    const enum status status = json_value_parse(text.data(), text.size(), JSON_DECODE_ANY, nullptr, &parsed, &error);
    if (status) fail(show(key) + ": " + error.text, status);
    if (json_object_set_new_nocheck(object, key.c_str(), parsed) != 0) throw std::bad_alloc();
}

void reader::read_model(ondemand::value value)
{
    bool has_vocab = false, has_merges = false;
    json_t *model = json_object();
    if (!model || json_object_set_new(out->rest, "model", model) != 0) throw std::bad_alloc();
    for (auto field : value.get_object()) {
        const std::string key(std::string_view(field.unescaped_key()));
        bool *has = key == "vocab" ? &has_vocab : key == "merges" ? &has_merges : nullptr;
        if (has && *has) fail("the key " + show(key) + " is there twice");
        if (has) *has = true;
        if (has == &has_vocab)
            read_vocab(field.value());
        else if (has == &has_merges)
            read_merges(field.value());
        else
            put_json(model, key, field.value());
    }
    has_merges |= out->is_unigram;
    if (!has_vocab || !has_merges) fail("\"model\" has no \"" + std::string(has_vocab ? "merges" : "vocab") + "\"");
}

// Files of early versions of tokenizers do not name their model; one with merges is BPE. Returns whether it is Unigram.
bool check_model(ondemand::document &document)
{
    ondemand::object model;
    std::string_view type;
    simdjson::error_code error = document["model"].get_object().get(model);
    if (error == simdjson::NO_SUCH_FIELD || error == simdjson::INCORRECT_TYPE) fail("there is no object \"model\"");
    if (error) throw simdjson::simdjson_error(error);
    error = model["type"].get_string().get(type);
    if (error == simdjson::INCORRECT_TYPE) fail("the model's \"type\" must be a string");
    if (error && error != simdjson::NO_SUCH_FIELD) throw simdjson::simdjson_error(error);
    const bool is_unigram = !error && type == "Unigram";
    if (!error && !is_unigram && type != "BPE")
        fail("the model's type " + show(type) +
                 " is not supported, only BPE and Unigram are; without this file quire reads tokenizer.model, if the "
                 "folder has one",
             STATUS_UNSUPPORTED);
    document.rewind();
    if (error && document["model"]["merges"].error())
        fail("the model has no type and no merges; only BPE is supported so", STATUS_UNSUPPORTED);
    document.rewind();
    return is_unigram;
}

void check_ids(const struct tokenizer_json *file)
{
    int32_t last = -1;
    for (size_t i = 0; i < file->num_vocab; i++) last = std::max(last, file->vocab[i].id);
    std::vector<int32_t> owner(static_cast<size_t>(last) + 1, -1); // of each id, the piece
    for (size_t i = 0; i < file->num_vocab; i++) {
        int32_t &first = owner[file->vocab[i].id];
        if (first >= 0) {
            const struct json_piece &a = file->vocab[first], &b = file->vocab[i];
            fail("the pieces " + show({file->strings.data + a.offset, a.length}) + " and " +
                 show({file->strings.data + b.offset, b.length}) + " have the same id " + std::to_string(b.id));
        }
        first = static_cast<int32_t>(i);
    }
}

void reader::read(ondemand::document &document)
{
    out->is_unigram = check_model(document);
    out->rest = json_object();
    if (!out->rest) throw std::bad_alloc();
    for (auto field : document.get_object()) {
        const std::string key(std::string_view(field.unescaped_key()));
        if (key == "model" && json_object_get(out->rest, "model")) fail("the key \"model\" is there twice");
        if (key == "model")
            read_model(field.value());
        else
            put_json(out->rest, key, field.value());
    }
    if (!document.current_location().error()) fail("something follows the object");
    check_ids(out);
}

void read_file(const char *path, struct tokenizer_json *out, struct error *err)
{
    struct text *const bytes = &out->strings;
    const enum status status = file_read(path, bytes, err);
    if (status) throw status;
    if (bytes->length == 0) fail("the file is empty");
    if (const enum status lfs = file_refuse_lfs_pointer(path, bytes->data, bytes->length, err)) throw lfs;
    if (!text_reserve(bytes, bytes->length + simdjson::SIMDJSON_PADDING)) throw std::bad_alloc();
    ondemand::parser parser;
    const size_t mark = std::string_view(bytes->data, bytes->length).substr(0, 3) == "\xEF\xBB\xBF" ? 3 : 0;
    ondemand::document document = parser.iterate(bytes->data + mark, bytes->length - mark, bytes->capacity - mark);
    bytes->length = 0; // the strings take the place of what has been read
    reader{out}.read(document);
    bytes->data[bytes->length] = '\0';
    if (void *shrunk = std::realloc(bytes->data, bytes->length + 1))
        *bytes = {static_cast<char *>(shrunk), bytes->length, bytes->length + 1};
}

// The place where the text is no JSON says more than what simdjson made of it, which does not know the place. What it
// has read is overwritten, so the file is read again.
enum status refuse(const char *path, enum status status, const char *sentence, struct error *err) noexcept
{
    struct text bytes = {};
    json_t *value = nullptr;
    enum status parsed = STATUS_OK;
    if (status == STATUS_INVALID && file_read(path, &bytes, nullptr) == STATUS_OK && bytes.length > 0)
        parsed = json_value_parse(bytes.data, bytes.length, JSON_DECODE_ANY, path, &value, err);
    text_free(&bytes);
    json_decref(value);
    return parsed ? parsed : error_set(err, status, "%s: %s", path, sentence);
}

// No exception may reach C.
enum status guarded(const char *path, struct tokenizer_json *out, struct error *err) noexcept
{
    try {
        read_file(path, out, err);
        return STATUS_OK;
    } catch (enum status status) {
        return status;
    } catch (const failure &f) {
        return refuse(path, f.status, f.sentence.c_str(), err);
    } catch (const simdjson::simdjson_error &e) {
        if (e.error() == simdjson::MEMALLOC)
            return error_set(err, STATUS_OUT_OF_MEMORY, "%s: out of memory reading the file", path);
        const bool half = e.error() == simdjson::STRING_ERROR;
        return refuse(path, STATUS_INVALID,
                      half ? "a string holds half of a surrogate pair, such as \\ud800" : e.what(), err);
    } catch (const std::bad_alloc &) {
        return error_set(err, STATUS_OUT_OF_MEMORY, "%s: out of memory reading the file", path);
    } catch (const std::exception &e) {
        return error_set(err, STATUS_INTERNAL, "%s: simdjson failed: %s", path, e.what());
    }
}
} // namespace

enum status tokenizer_json_read(const char *path, struct tokenizer_json *out, struct error *err)
{
    *out = {};
    return guarded(path, out, err);
}

void tokenizer_json_free(struct tokenizer_json *file)
{
    text_free(&file->strings);
    std::free(file->vocab);
    std::free(file->merges);
    json_decref(file->rest);
    *file = {};
}
