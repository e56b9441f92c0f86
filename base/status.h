/* How functions fail.
 *
 * A function that can fail returns an `enum status` and, when it is not STATUS_OK, leaves in its `struct error` one
 * sentence for a person: which file, which tensor, what was expected, what was found, what to do. Nothing below
 * runtime/ prints it, and nothing below runtime/ exits.
 */
#ifndef QUIRE_BASE_STATUS_H
#define QUIRE_BASE_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

enum status {
    STATUS_OK = 0,
    STATUS_INVALID,       /* bad input: a file, a flag, a prompt */
    STATUS_IO,            /* the operating system refused: cannot open, cannot read */
    STATUS_OUT_OF_MEMORY, /* host or device memory */
    STATUS_UNSUPPORTED,   /* well formed, but not something quire does */
    STATUS_INTERNAL       /* a bug in quire, or a device that stopped working */
};

struct error {
    char text[1024]; /* NUL-terminated, no newline */
};

/* Formats the sentence into *err (which may be NULL) and returns `status`, so that callers write
 * `return error_set(err, STATUS_INVALID, "%s: ...", path);`. A longer text is cut at a whole UTF-8 character. */
enum status error_set(struct error *err, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "prefix: " before the sentence in *err, for a caller that knows which file it was about. Returns `status`. */
enum status error_prefix(struct error *err, enum status status, const char *prefix);

#ifdef __cplusplus
}
#endif

#endif
