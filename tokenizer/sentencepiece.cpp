#include <sentencepiece_processor.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

extern "C" {
#include "base/file.h"
#include "base/status.h"
}
#include "tokenizer/model_proto.h"
#include "tokenizer/sentencepiece.h"

// Functions that turn the library's messages off. 0.1.97 exports the first without declaring it, later versions declare
// the second. They are weak symbols because a version may lack either.
namespace sentencepiece
{
namespace logging
{
void SetMinLogLevel(int level) __attribute__((weak));
}
void SetMinLogLevel(int level) __attribute__((weak));
} // namespace sentencepiece

namespace
{
const int LOG_FATAL_ONLY = 3;

// normalizer_spec { add_dummy_prefix: false }: protobuf merges it into the message that it is appended to.
const char NO_DUMMY_PREFIX[] = "\x1a\x02\x18\x00";
const size_t NO_DUMMY_PREFIX_SIZE = 4;

void silence()
{
    if (sentencepiece::logging::SetMinLogLevel) sentencepiece::logging::SetMinLogLevel(LOG_FATAL_ONLY);
    if (sentencepiece::SetMinLogLevel) sentencepiece::SetMinLogLevel(LOG_FATAL_ONLY);
}

enum status load(sentencepiece::SentencePieceProcessor *processor, const char *path, const std::string &model,
                 struct error *err)
{
    const sentencepiece::util::Status status = processor->LoadFromSerializedProto(model);
    if (status.ok()) return STATUS_OK;
    return error_set(err, STATUS_INVALID, "%s: SentencePiece cannot use this model (%s); download it again", path,
                     status.error_message());
}

// A copy that the caller of the C interface releases with free().
template <typename T> enum status copy_out(const T *data, size_t count, T **out, struct error *err)
{
    T *copy = static_cast<T *>(std::malloc((count + 1) * sizeof(T)));
    if (!copy) return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for %zu tokens or bytes of text", count);
    if (count) std::memcpy(copy, data, count * sizeof(T));
    copy[count] = 0;
    *out = copy;
    return STATUS_OK;
}
} // namespace

struct sentencepiece_model {
    std::string path;
    std::string model; // the file's bytes, kept for the second copy
    struct model_facts facts = {};
    sentencepiece::SentencePieceProcessor processor;

    // The same model without the dummy prefix, loaded for the first text that continues an earlier one.
    mutable std::once_flag bare_once;
    mutable sentencepiece::SentencePieceProcessor bare;
    mutable enum status bare_status = STATUS_OK;
    mutable struct error bare_error = {};
};

namespace
{
enum status read_model(struct sentencepiece_model *sp, struct error *err)
{
    struct mapped_file file;
    enum status status = mapped_file_open(sp->path.c_str(), &file, err);
    if (status) return status;
    std::unique_ptr<struct mapped_file, void (*)(struct mapped_file *)> close(&file, mapped_file_close);
    if (file.size > SENTENCEPIECE_MAX_TEXT)
        return error_set(err, STATUS_INVALID, "%s: %llu bytes are too many for a SentencePiece model", sp->path.c_str(),
                         static_cast<unsigned long long>(file.size));
    status = model_facts_read(sp->path.c_str(), file.data, file.size, &sp->facts, err);
    if (status) return status;
    sp->model.assign(reinterpret_cast<const char *>(file.data), file.size);
    return STATUS_OK;
}

enum status open_model(struct sentencepiece_model *sp, struct error *err)
{
    enum status status = read_model(sp, err);
    if (status) return status;
    status = load(&sp->processor, sp->path.c_str(), sp->model, err);
    if (status) return status;
    if (sp->processor.GetPieceSize() <= 0 || sp->processor.unk_id() < 0)
        return error_set(err, STATUS_INVALID, "%s: the model has no unknown piece; it cannot encode text",
                         sp->path.c_str());
    return STATUS_OK;
}

void load_bare(const struct sentencepiece_model *sp)
{
    std::string model = sp->model;
    model.append(NO_DUMMY_PREFIX, NO_DUMMY_PREFIX_SIZE);
    sp->bare_status = load(&sp->bare, sp->path.c_str(), model, &sp->bare_error);
}

const sentencepiece::SentencePieceProcessor *select_processor(const struct sentencepiece_model *sp, bool continues,
                                                              enum status *status, struct error *err)
{
    *status = STATUS_OK;
    if (!continues || !sp->facts.add_dummy_prefix) return &sp->processor;
    std::call_once(sp->bare_once, load_bare, sp);
    if (sp->bare_status) *status = error_set(err, sp->bare_status, "%s", sp->bare_error.text);
    return &sp->bare;
}

enum status encode(const struct sentencepiece_model *sp, const char *text, size_t length, bool continues, int32_t **ids,
                   int32_t *count, struct error *err)
{
    enum status status;
    const sentencepiece::SentencePieceProcessor *processor = select_processor(sp, continues, &status, err);
    if (status) return status;
    std::vector<int> result;
    const sentencepiece::util::Status encoded = processor->Encode({text, length}, &result);
    if (!encoded.ok())
        return error_set(err, STATUS_INTERNAL, "SentencePiece cannot encode a text of %zu bytes: %s", length,
                         encoded.error_message());
    *count = static_cast<int32_t>(result.size());
    return copy_out<int32_t>(result.data(), result.size(), ids, err);
}

enum status decode(const struct sentencepiece_model *sp, const int32_t *ids, int32_t count, char **text, size_t *length,
                   struct error *err)
{
    std::string result;
    const std::vector<int> list(ids, ids + count);
    const sentencepiece::util::Status decoded = sp->processor.Decode(list, &result);
    if (!decoded.ok())
        return error_set(err, STATUS_INVALID, "SentencePiece cannot decode %d token%s: %s", static_cast<int>(count),
                         count == 1 ? "" : "s", decoded.error_message());
    *length = result.size();
    return copy_out<char>(result.data(), result.size(), text, err);
}

// No exception may reach C.
template <typename F> enum status guarded(F function, struct error *err) noexcept
{
    try {
        return function();
    } catch (const std::bad_alloc &) {
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory in SentencePiece");
    } catch (const std::exception &e) {
        return error_set(err, STATUS_INTERNAL, "SentencePiece failed: %s", e.what());
    } catch (...) {
        return error_set(err, STATUS_INTERNAL, "SentencePiece failed for an unknown reason");
    }
}
} // namespace

enum status sentencepiece_open(const char *path, struct sentencepiece_model **out, struct error *err)
{
    *out = nullptr;
    return guarded(
        [&] {
            silence();
            std::unique_ptr<struct sentencepiece_model> sp(new struct sentencepiece_model);
            sp->path = path;
            const enum status status = open_model(sp.get(), err);
            if (!status) *out = sp.release();
            return status;
        },
        err);
}

void sentencepiece_close(struct sentencepiece_model *sp)
{
    delete sp;
}

int32_t sentencepiece_size(const struct sentencepiece_model *sp)
{
    return sp->processor.GetPieceSize();
}

int32_t sentencepiece_bos_id(const struct sentencepiece_model *sp)
{
    return sp->processor.bos_id();
}

int32_t sentencepiece_eos_id(const struct sentencepiece_model *sp)
{
    return sp->processor.eos_id();
}

int32_t sentencepiece_unk_id(const struct sentencepiece_model *sp)
{
    return sp->processor.unk_id();
}

bool sentencepiece_adds_dummy_prefix(const struct sentencepiece_model *sp)
{
    return sp->facts.add_dummy_prefix;
}

bool sentencepiece_removes_extra_whitespaces(const struct sentencepiece_model *sp)
{
    return sp->facts.remove_extra_whitespaces;
}

const char *sentencepiece_piece(const struct sentencepiece_model *sp, int32_t id, size_t *length)
{
    const std::string &piece = sp->processor.IdToPiece(id);
    if (length) *length = piece.size();
    return piece.c_str();
}

enum piece_type sentencepiece_type(const struct sentencepiece_model *sp, int32_t id)
{
    if (sp->processor.IsControl(id)) return PIECE_CONTROL;
    if (sp->processor.IsUnknown(id)) return PIECE_UNKNOWN;
    if (sp->processor.IsByte(id)) return PIECE_BYTE;
    if (sp->processor.IsUnused(id)) return PIECE_UNUSED;
    return PIECE_NORMAL;
}

int32_t sentencepiece_piece_to_id(const struct sentencepiece_model *sp, const char *piece)
{
    return sp->processor.PieceToId(piece);
}

enum status sentencepiece_encode(const struct sentencepiece_model *sp, const char *text, size_t length, bool continues,
                                 int32_t **ids, int32_t *count, struct error *err)
{
    *ids = nullptr;
    *count = 0;
    if (length > SENTENCEPIECE_MAX_TEXT)
        return error_set(err, STATUS_INVALID,
                         "a text of %zu bytes is too long to encode; at most %d bytes are possible", length,
                         static_cast<int>(SENTENCEPIECE_MAX_TEXT));
    return guarded([&] { return encode(sp, text ? text : "", length, continues, ids, count, err); }, err);
}

enum status sentencepiece_decode(const struct sentencepiece_model *sp, const int32_t *ids, int32_t count, char **text,
                                 size_t *length, struct error *err)
{
    *text = nullptr;
    *length = 0;
    return guarded([&] { return decode(sp, ids, count, text, length, err); }, err);
}
