/* How functions fail.
 *
 * A function that can fail returns an `enum status` and, when it is not STATUS_OK, leaves in its `struct error` one
 * sentence for a person: which file, which tensor, what was expected, what was found, what to do. Nothing below
 * runtime/ prints it, and nothing below runtime/ exits.
 *
 * Where another setting would help, the error carries advice beside the sentence: which setting to change, and to what.
 * The sentence itself names no command-line flag, because only the command knows how its user sets something.
 */
#ifndef QUIRE_BASE_STATUS_H
#define QUIRE_BASE_STATUS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum status {
    STATUS_OK = 0,
    STATUS_INVALID,       /* bad input: a file, a flag, a prompt */
    STATUS_IO,            /* the operating system refused: cannot open, cannot read */
    STATUS_OUT_OF_MEMORY, /* host or device memory */
    STATUS_UNSUPPORTED,   /* well formed, but not something quire does */
    STATUS_CANCELLED,     /* the caller asked to stop */
    STATUS_INTERNAL       /* a bug in quire, or a device that stopped working */
};

/* One setting that would help. */
enum advice_kind {
    ADVICE_RAISE,
    ADVICE_LOWER,
    ADVICE_SET,
    ADVICE_LOWERED /* no advice, but what was done already: of a warning (log_warn) */
};
struct advice {
    enum advice_kind kind;
    const char *setting; /* the name of a field of struct engine_options, a string that is never freed */
    char value[32];      /* the value that would help; "": not known */
};

#define ERROR_MAX_ADVICE 4
struct error {
    char text[1024];                        /* NUL-terminated, no newline */
    struct advice advice[ERROR_MAX_ADVICE]; /* [num_advice] alternatives: one of them is enough */
    int num_advice;
};

/* Formats the sentence into *err (which may be NULL), drops any advice, and returns `status`, so that callers write
 * `return error_set(err, STATUS_INVALID, "%s: ...", path);`. A longer text is cut at a whole UTF-8 character. */
enum status error_set(struct error *err, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Adds advice to the sentence in *err (which may be NULL), in the order in which it will be read: "raise NAME to
 * VALUE". format NULL: the value is not known. Beyond ERROR_MAX_ADVICE nothing is added. */
void error_advise(struct error *err, enum advice_kind kind, const char *setting, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Puts "prefix: " before the sentence in *err, for a caller that knows which file it was about. Returns `status`. */
enum status error_prefix(struct error *err, enum status status, const char *prefix);

/* Writes to out[size] how the user of a program names a setting: as a flag, say. */
typedef void setting_speller(const char *setting, char *out, size_t size);

/* The sentence with its advice: "TEXT: lower max_model_len to 512, or raise num_gpu_blocks_override to 33". Settings
 * are spelled by `spell`; NULL: as they are. */
struct sentence {
    char text[2048]; /* NUL-terminated; long enough for every error */
};
struct sentence error_sentence(const struct error *err, setting_speller *spell);

#ifdef __cplusplus
}
#endif

#endif
