#include "tokenizer/model_proto.h"

#include <string.h>

#include "base/file.h"

/* Field numbers of sentencepiece_model.proto. */
enum { MODEL_PIECES = 1, MODEL_TRAINER_SPEC = 2, MODEL_NORMALIZER_SPEC = 3, MODEL_DENORMALIZER_SPEC = 5 };
enum { PIECE_TEXT = 1 };
enum { NORMALIZER_CHARSMAP = 2, NORMALIZER_DUMMY_PREFIX = 3, NORMALIZER_REMOVE_WHITESPACES = 4 };

enum wire_type { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

struct wire {
    const uint8_t *at, *end;
};

struct field {
    uint32_t number;
    enum wire_type type;
    uint64_t value;    /* of a varint */
    struct wire bytes; /* of WIRE_BYTES */
};

static bool read_varint(struct wire *w, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 64 && w->at < w->end; shift += 7) {
        uint8_t byte = *w->at++;
        *value |= (uint64_t)(byte & 0x7F) << shift;
        if (!(byte & 0x80)) return true;
    }
    return false;
}

static bool read_bytes(struct wire *w, uint64_t count, struct wire *bytes)
{
    if (count > (uint64_t)(w->end - w->at)) return false;
    *bytes = (struct wire){w->at, w->at + count};
    w->at += count;
    return true;
}

/* The next field of a message that is not at its end; false if it is ill-formed or cut short. */
static bool read_field(struct wire *w, struct field *f)
{
    uint64_t key, count;
    *f = (struct field){0};
    if (!read_varint(w, &key) || key >> 3 == 0 || key >> 3 > 0x1FFFFFFF) return false;
    f->number = (uint32_t)(key >> 3);
    f->type = (enum wire_type)(key & 7);
    switch (f->type) {
    case WIRE_VARINT:
        return read_varint(w, &f->value);
    case WIRE_BYTES:
        return read_varint(w, &count) && read_bytes(w, count, &f->bytes);
    case WIRE_64:
        return read_bytes(w, 8, &f->bytes);
    case WIRE_32:
        return read_bytes(w, 4, &f->bytes);
    default:
        return false;
    }
}

/* The library aborts the process if a piece is empty or contains a NUL. */
static bool piece_is_sound(struct wire w)
{
    bool sound = false;
    while (w.at < w.end) {
        struct field f;
        if (!read_field(&w, &f)) return false;
        if (f.number != PIECE_TEXT) continue;
        size_t length = (size_t)(f.bytes.end - f.bytes.at);
        sound = f.type == WIRE_BYTES && length > 0 && !memchr(f.bytes.at, 0, length);
    }
    return sound;
}

static uint32_t read_u32(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* A unit of darts-clone's double array. Bit 31: the unit is a value, and has no children. Bit 8: the node has a value.
 * A child is at: the unit's index xor the unit's offset xor the child's label (8 bits). */
static bool unit_is_sound(const uint8_t *units, size_t num_units, size_t index, size_t text_size)
{
    uint32_t unit = read_u32(units + 4 * index);
    if (unit >> 31) return true;
    size_t children = index ^ (size_t)((unit >> 10) << ((unit & 0x200) >> 6));
    if ((children | 0xFF) >= num_units) return false;
    return !(unit & 0x100) || (read_u32(units + 4 * children) & 0x7FFFFFFF) < text_size;
}

/* The normalization rules: the trie's size in bytes, the trie, and the replacement texts, each with a NUL. The library
 * follows the trie's offsets without checking them, so they are checked here. */
static bool charsmap_is_sound(struct wire w)
{
    size_t size = (size_t)(w.end - w.at);
    if (size == 0) return true;
    if (size < 5) return false;
    size_t trie = read_u32(w.at);
    if (trie % 4 != 0 || trie >= size - 4 || w.end[-1] != '\0') return false;
    for (size_t i = 0; i < trie / 4; i++)
        if (!unit_is_sound(w.at + 4, trie / 4, i, size - 4 - trie)) return false;
    return trie > 0;
}

static bool read_normalizer(struct wire w, struct model_facts *facts)
{
    while (w.at < w.end) {
        struct field f;
        if (!read_field(&w, &f)) return false;
        if (f.number == NORMALIZER_CHARSMAP && f.type == WIRE_BYTES && !charsmap_is_sound(f.bytes)) return false;
        if (f.type != WIRE_VARINT) continue;
        if (f.number == NORMALIZER_DUMMY_PREFIX) facts->add_dummy_prefix = f.value != 0;
        if (f.number == NORMALIZER_REMOVE_WHITESPACES) facts->remove_extra_whitespaces = f.value != 0;
    }
    return true;
}

static bool has_charsmap(struct wire w)
{
    struct field f;
    while (w.at < w.end && read_field(&w, &f))
        if (f.number == NORMALIZER_CHARSMAP && f.type == WIRE_BYTES && f.bytes.at < f.bytes.end) return true;
    return false;
}

static enum status check_not_text(const char *path, const uint8_t *data, size_t size, struct error *err)
{
    if (size == 0) return error_set(err, STATUS_INVALID, "%s: the file is empty; download it again", path);
    return file_refuse_lfs_pointer(path, data, size, err);
}

enum status model_facts_read(const char *path, const uint8_t *data, size_t size, struct model_facts *out,
                             struct error *err)
{
    *out = (struct model_facts){.add_dummy_prefix = true, .remove_extra_whitespaces = true}; /* the proto's defaults */
    enum status status = check_not_text(path, data, size, err);
    if (status) return status;
    struct wire w = {data, data + size};
    bool has_trainer = false, has_normalizer = false;
    while (w.at < w.end) {
        size_t offset = (size_t)(w.at - data);
        struct field f;
        if (!read_field(&w, &f))
            return error_set(err, STATUS_INVALID,
                             "%s: not a whole SentencePiece model: %s at byte %zu of %zu; download it again", path,
                             offset == 0 ? "unknown contents" : "cut short or damaged", offset, size);
        bool sound = true;
        if (f.number == MODEL_PIECES) {
            sound = f.type == WIRE_BYTES && piece_is_sound(f.bytes);
            out->num_pieces++;
        } else if (f.number == MODEL_TRAINER_SPEC) {
            has_trainer = true;
        } else if (f.number == MODEL_NORMALIZER_SPEC) {
            has_normalizer = true;
            sound = f.type == WIRE_BYTES && read_normalizer(f.bytes, out);
        } else if (f.number == MODEL_DENORMALIZER_SPEC && has_charsmap(f.bytes)) {
            return error_set(err, STATUS_UNSUPPORTED,
                             "%s: the model has denormalization rules, which quire does not apply", path);
        }
        if (!sound)
            return error_set(err, STATUS_INVALID,
                             "%s: not a SentencePiece model: the %s at byte %zu is ill-formed; download it again", path,
                             f.number == MODEL_PIECES ? "piece" : "normalizer", offset);
    }
    if (!out->num_pieces)
        return error_set(err, STATUS_INVALID, "%s: not a SentencePiece model: it has no pieces", path);
    if (!has_trainer || !has_normalizer)
        return error_set(err, STATUS_INVALID,
                         "%s: cut short after %zu pieces: what follows them is missing; download it again", path,
                         out->num_pieces);
    return STATUS_OK;
}
