#include "runtime/options/hub_cache.h"

#include <ctype.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/file.h"
#include "base/json.h"
#include "model/checkpoint/foreign_checkpoint.h"

/* ---- names ---- */

enum { PART_MAX = 96, NAME_MAX_BYTES = 512, COMMIT_DIGITS = 40, MIN_COMMIT_DIGITS = 4 };

#define WORD_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"
#define NAME_CHARACTERS WORD_CHARACTERS "-."
#define REVISION_CHARACTERS NAME_CHARACTERS "+/"

/* One side of the slash, [length]. */
static bool is_part(const char *part, size_t length)
{
    if (length < 1 || length > PART_MAX || strspn(part, NAME_CHARACTERS) < length) return false;
    if (!strchr(WORD_CHARACTERS, part[0]) || !strchr(WORD_CHARACTERS, part[length - 1])) return false;
    for (size_t i = 1; i < length; i++)
        if (part[i] == part[i - 1] && (part[i] == '-' || part[i] == '.')) return false;
    return true;
}

static bool is_revision(const char *revision)
{
    const size_t length = strlen(revision);
    return length > 0 && strspn(revision, REVISION_CHARACTERS) == length && revision[0] != '/' &&
           revision[length - 1] != '/' && !strstr(revision, "//") && !strstr(revision, "..");
}

bool hub_cache_is_name(const char *text)
{
    const char *slash = strchr(text, '/');
    if (!slash || strlen(text) >= NAME_MAX_BYTES) return false;
    const size_t length = strcspn(slash + 1, "@");
    const char *end = slash + 1 + length;
    if (length > 4 && strncmp(end - 4, ".git", 4) == 0) return false;
    return is_part(text, (size_t)(slash - text)) && is_part(slash + 1, length) && (!*end || is_revision(end + 1));
}

/* ---- the cache's folder ---- */

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

static const char *home_folder(void)
{
    const char *home = variable("HOME");
    const struct passwd *user = home ? NULL : getpwuid(getuid());
    return user ? user->pw_dir : home ? home : "/";
}

/* Appends the value of the variable that begins at `at`, which is a '$'; *end is what follows it. What is not set stays
 * as it is. */
static bool append_variable(struct text *out, const char *at, const char **end)
{
    char name[256];
    const bool braces = at[1] == '{';
    const char *first = at + 1 + braces;
    const size_t length = braces ? strcspn(first, "}") : strspn(first, WORD_CHARACTERS);
    const bool whole = length < sizeof name && (!braces || first[length] == '}');
    *end = whole ? first + length + braces : at + 1;
    snprintf(name, sizeof name, "%.*s", whole ? (int)length : 0, first);
    const char *value = *name ? getenv(name) : NULL;
    return value ? text_append_string(out, value) : text_append(out, at, (size_t)(*end - at));
}

/* Expands as os.path.expanduser and os.path.expandvars do, but for "~user". */
static bool append_expanded(struct text *out, const char *value)
{
    bool ok = true;
    if (value[0] == '~' && (value[1] == '/' || !value[1])) {
        ok = text_append_string(out, home_folder());
        value++;
    }
    while (ok && *value) {
        const size_t plain = strcspn(value, "$");
        ok = text_append(out, value, plain);
        value += plain;
        if (ok && *value) ok = append_variable(out, value, &value);
    }
    return ok;
}

static bool append_cache_folder(struct text *out)
{
    static const struct {
        const char *variable, *below;
    } places[] = {
        {"HF_HUB_CACHE", ""}, {"HUGGINGFACE_HUB_CACHE", ""}, {"HF_HOME", "hub"}, {"XDG_CACHE_HOME", "huggingface/hub"}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *value = variable(places[i].variable);
        if (!value) continue;
        bool ok = append_expanded(out, value);
        if (ok && *places[i].below && out->data[out->length - 1] != '/') ok = text_append_string(out, "/");
        return ok && text_append_string(out, places[i].below);
    }
    return append_expanded(out, "~/.cache/huggingface/hub");
}

/* ---- one model ---- */

struct lookup {
    char name[NAME_MAX_BYTES]; /* as given */
    char repo[NAME_MAX_BYTES]; /* "org/name" */
    const char *revision;      /* "main" if none was given */
    char download[2 * NAME_MAX_BYTES];
    char folder[PATH_MAX]; /* CACHE/models--ORG--NAME */
    struct error *err;
};

static enum status too_long(const struct lookup *l)
{
    return error_set(l->err, STATUS_INVALID, "%s: its path in the Hugging Face cache is too long", l->name);
}

static enum status begin(struct lookup *l, const char *name)
{
    struct text cache = {0};
    snprintf(l->name, sizeof l->name, "%s", name);
    snprintf(l->repo, sizeof l->repo, "%.*s", (int)strcspn(name, "@"), name);
    const char *at = strchr(l->name, '@'), *slash = strchr(l->repo, '/');
    l->revision = at ? at + 1 : "main";
    snprintf(l->download, sizeof l->download, "hf download %s%s%s", l->repo, at ? " --revision " : "",
             at ? l->revision : "");
    if (!append_cache_folder(&cache)) {
        text_free(&cache);
        return error_set(l->err, STATUS_OUT_OF_MEMORY, "%s: out of memory", name);
    }
    const int written = snprintf(l->folder, sizeof l->folder, "%s/models--%.*s--%s", cache.data, (int)(slash - l->repo),
                                 l->repo, slash + 1);
    text_free(&cache);
    return written > 0 && (size_t)written < sizeof l->folder ? STATUS_OK : too_long(l);
}

static bool is_commit(const char *text)
{
    return strlen(text) == COMMIT_DIGITS && strspn(text, "0123456789abcdef") == COMMIT_DIGITS;
}

static bool begins_commit(const char *text)
{
    const size_t length = strlen(text);
    return length >= MIN_COMMIT_DIGITS && length <= COMMIT_DIGITS && strspn(text, "0123456789abcdef") == length;
}

/* The snapshot whose commit begins as the revision; "" if there is none. */
static enum status find_snapshot(const struct lookup *l, char commit[COMMIT_DIGITS + 1])
{
    char snapshots[PATH_MAX], others[COMMIT_DIGITS + 8], other[COMMIT_DIGITS + 1];
    snprintf(others, sizeof others, "%s*", l->revision);
    commit[0] = '\0';
    if (!path_join(snapshots, sizeof snapshots, l->folder, "snapshots")) return too_long(l);
    if (!folder_find_entry(snapshots, others, commit, COMMIT_DIGITS + 1)) return STATUS_OK;
    const size_t shared = strlen(l->revision);
    for (size_t length = shared; length < COMMIT_DIGITS; length++) {
        /* Another one has a different digit in this place. */
        snprintf(others, sizeof others, "%.*s[!%c]*", (int)length, commit, commit[length]);
        if (!folder_find_entry(snapshots, others, other, sizeof other)) continue;
        return error_set(l->err, STATUS_INVALID, "%s: the Hugging Face cache has %s and %s; give more digits", l->name,
                         commit, other);
    }
    return STATUS_OK;
}

/* A ref goes before a commit, as in huggingface_hub; the commit is "" if the revision is neither. */
static enum status find_commit(const struct lookup *l, char commit[COMMIT_DIGITS + 1])
{
    char path[PATH_MAX];
    struct text ref = {0};
    if (snprintf(path, sizeof path, "%s/refs/%s", l->folder, l->revision) >= (int)sizeof path) return too_long(l);
    if (!file_exists(path)) {
        commit[0] = '\0';
        return begins_commit(l->revision) ? find_snapshot(l, commit) : STATUS_OK;
    }
    enum status status = file_read(path, &ref, l->err);
    while (ref.length > 0 && isspace((unsigned char)ref.data[ref.length - 1])) ref.data[--ref.length] = '\0';
    if (status == STATUS_OK && (ref.length == 0 || !is_commit(ref.data)))
        status = error_set(l->err, STATUS_INVALID, "%s: expected a commit of 40 hexadecimal digits, found \"%s\"", path,
                           show_string(ref.data).text);
    if (status == STATUS_OK) strcpy(commit, ref.data);
    text_free(&ref);
    return status;
}

static enum status not_there(const struct lookup *l)
{
    if (!folder_exists(l->folder))
        return error_set(l->err, STATUS_IO,
                         "%s: no such folder, nor is it in the Hugging Face cache (%s); download it with: %s", l->name,
                         l->folder, l->download);
    return error_set(l->err, STATUS_IO,
                     "%s: no such folder, and the Hugging Face cache (%s) does not have its revision \"%s\"; download "
                     "it with: %s",
                     l->name, l->folder, l->revision, l->download);
}

/* ---- complete? ---- */

static bool has_file(const char *folder, const char *name)
{
    char path[PATH_MAX];
    return path_join(path, sizeof path, folder, name) && file_exists(path);
}

/* The first file that the index of the weights names and the snapshot does not have; "" if it has all. An index that
 * cannot be read is left to model/checkpoint/tensor_file.h. */
static void find_missing_shard(const char *snapshot, const char *index, char *missing, size_t size)
{
    char path[PATH_MAX];
    json_t *root, *file;
    const char *tensor;
    *missing = '\0';
    if (!path_join(path, sizeof path, snapshot, index) || json_object_read(path, &root, NULL) != STATUS_OK) return;
    json_object_foreach(json_object_get(root, "weight_map"), tensor, file)
    {
        const char *name = json_string_value(file);
        if (*missing || !name || strchr(name, '/') || has_file(snapshot, name)) continue;
        snprintf(missing, size, "%s", name);
    }
    json_decref(root);
}

static bool is_downloading(const struct lookup *l)
{
    char blobs[PATH_MAX], name[NAME_MAX + 1];
    return path_join(blobs, sizeof blobs, l->folder, "blobs") &&
           folder_find_entry(blobs, "*.incomplete", name, sizeof name);
}

static void find_missing(const struct lookup *l, const char *snapshot, bool with_weights, char *missing, size_t size)
{
    static const char single[] = "model.safetensors", index[] = "model.safetensors.index.json";
    *missing = '\0';
    if (!has_file(snapshot, "config.json") && (is_downloading(l) || !foreign_checkpoint_found(snapshot)))
        snprintf(missing, size, "config.json");
    else if (!with_weights || has_file(snapshot, single))
        return;
    else if (has_file(snapshot, index))
        find_missing_shard(snapshot, index, missing, size);
    else if (is_downloading(l) || !foreign_checkpoint_found(snapshot))
        snprintf(missing, size, "%s", single);
}

enum status hub_cache_find(const char *name, bool with_weights, char *path, size_t size, struct error *err)
{
    struct lookup l = {.err = err};
    char commit[COMMIT_DIGITS + 1], missing[NAME_MAX + 1];
    enum status status = begin(&l, name);
    if (status == STATUS_OK) status = find_commit(&l, commit);
    if (status != STATUS_OK) return status;
    const int written = snprintf(path, size, "%s/snapshots/%s", l.folder, commit);
    if (written < 0 || (size_t)written >= size) return too_long(&l);
    if (!*commit || !folder_exists(path)) return not_there(&l);
    find_missing(&l, path, with_weights, missing, sizeof missing);
    if (!*missing) return STATUS_OK;
    return error_set(err, STATUS_IO,
                     "%s: %s is not in its folder of the Hugging Face cache (%s): the download is not complete; "
                     "continue it with: %s",
                     l.name, missing, path, l.download);
}
