#include "runtime/quantize/output_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "model/quantization.h"

#define RECORD "quantize.quire"
#define CONFIG "config.json"
#define TEMPLATES "additional_chat_templates" /* transformers' */

static enum status join(char path[PATH_MAX], const char *folder, const char *name, struct error *err)
{
    if (path_join(path, PATH_MAX, folder, name)) return STATUS_OK;
    return error_set(err, STATUS_INVALID, "%s: the path is too long", folder);
}

/* Takes `json`. */
static enum status write_json(const char *folder, const char *name, json_t *json, struct error *err)
{
    char path[PATH_MAX];
    struct text text = {0};
    const bool ok = json && json_append(&text, json, JSON_INDENT(2)) && text_append_string(&text, "\n");
    json_decref(json);
    enum status status =
        ok ? join(path, folder, name, err) : error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for %s", name);
    if (status == STATUS_OK) status = file_replace(path, text.data, text.length, err);
    text_free(&text);
    return status;
}

/* ---- whose folder it is ---- */

static bool is_same_folder(const char *a, const char *b)
{
    struct stat of_a, of_b;
    return stat(a, &of_a) == 0 && stat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

/* What a run that was killed in its first moment left counts as nothing. */
static bool is_empty(const char *folder)
{
    bool empty = true;
    DIR *entries = opendir(folder);
    for (const struct dirent *e; entries && (e = readdir(entries));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && strcmp(e->d_name, RECORD ".new") != 0)
            empty = false;
    if (entries) closedir(entries);
    return empty;
}

static json_t *record_of(const struct output_folder *f, const struct fingerprint *source)
{
    return json_pack("{s:s, s:s, s:s, s:f}", "quire", QUIRE_VERSION, "source", source->text, "quantization",
                     f->quantization, "max_shard_size", f->max_shard_size);
}

static enum status check_record(const struct output_folder *f, const char *path, const json_t *now, struct error *err)
{
    static const struct {
        const char *key, *what;
    } facts[] = {{"source", "from another checkpoint"},
                 {"quantization", "with another --quantization"},
                 {"max_shard_size", "with another --max-shard-size"},
                 {"quire", "by another version of quire"}};
    json_t *before = NULL;
    enum status status = json_object_read(path, &before, err);
    for (size_t i = 0; i < sizeof facts / sizeof *facts && status == STATUS_OK; i++)
        if (!json_equal(json_object_get(before, facts[i].key), json_object_get(now, facts[i].key)))
            status =
                error_set(err, STATUS_INVALID, "the output %s was begun %s (%s); name another folder, or remove it",
                          f->path, facts[i].what, show_value(json_object_get(before, facts[i].key)).text);
    json_decref(before);
    return status;
}

static enum status check_owner(const struct output_folder *f, struct error *err)
{
    struct fingerprint source;
    char path[PATH_MAX];
    bool found = false;
    enum status status = fingerprint_model(f->model, true, &source, err);
    if (status == STATUS_OK) status = join(path, f->path, RECORD, err);
    if (status == STATUS_OK) status = file_find(path, &found, err);
    if (status != STATUS_OK) return status;
    if (!found && !is_empty(f->path))
        return error_set(err, STATUS_INVALID,
                         "the output %s is not empty, and it was not begun by quire quantize; name a new folder, or an "
                         "empty one",
                         f->path);
    json_t *now = record_of(f, &source);
    if (!found) return write_json(f->path, RECORD, now, err);
    status = now ? check_record(f, path, now, err) : error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory");
    json_decref(now);
    return status;
}

enum status output_folder_open(struct output_folder *f, struct error *err)
{
    f->fd = -1;
    if (is_same_folder(f->path, f->model))
        return error_set(err, STATUS_INVALID, "the output %s is the model's own folder; name another one", f->path);
    if (mkdir(f->path, 0777) != 0 && errno != EEXIST)
        return error_set(err, STATUS_IO, "cannot make the folder %s: %s", f->path, strerror(errno));
    f->fd = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->fd < 0) return error_set(err, STATUS_IO, "cannot open the output %s: %s", f->path, strerror(errno));
    if (flock(f->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return error_set(err, STATUS_IO, "another quire is writing the output %s; wait for it, or name another folder",
                         f->path);
    return check_owner(f, err);
}

void output_folder_close(struct output_folder *f)
{
    if (f->fd >= 0) close(f->fd);
    f->fd = -1;
}

enum status output_folder_check_room(const struct output_folder *f, uint64_t bytes, struct error *err)
{
    static const double GB = 1e9;
    struct statvfs info;
    if (fstatvfs(f->fd, &info) != 0) return STATUS_OK; /* then a write says it */
    const double room = (double)info.f_bavail * (double)info.f_frsize;
    if ((double)bytes <= room) return STATUS_OK;
    return error_set(err, STATUS_IO,
                     "the output %s needs %.3g GB more, but its disk has %.3g GB free; make room, or "
                     "name a folder on another disk",
                     f->path, (double)bytes / GB, room / GB);
}

/* ---- the other files ---- */

/* Hidden files, weights and their indices, and what is written anew. */
static int is_copied(const struct dirent *entry)
{
    static const char *const left_out[] = {".*",        CONFIG,          "hf_quant_config.json",
                                           RECORD "*",  "*.safetensors", "*.bin",
                                           "*.pt",      "*.pth",         "*.ckpt",
                                           "*.gguf",    "*.h5",          "*.onnx",
                                           "*.msgpack", "*.ot",          "*.index.json"};
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++)
        if (fnmatch(left_out[i], entry->d_name, 0) == 0) return 0;
    return 1;
}

static enum status copy_file(const char *from, const char *to, const char *name, struct error *err)
{
    char source[PATH_MAX], target[PATH_MAX];
    struct mapped_file file;
    enum status status = join(source, from, name, err);
    if (status == STATUS_OK) status = join(target, to, name, err);
    if (status != STATUS_OK || !file_exists(source)) return status;
    status = mapped_file_open(source, &file, err);
    if (status == STATUS_OK) status = file_replace(target, (const char *)file.data, file.size, err);
    mapped_file_close(&file);
    return status;
}

static enum status copy_files(const char *from, const char *to, struct error *err)
{
    struct dirent **entries = NULL;
    enum status status = STATUS_OK;
    const int count = scandir(from, &entries, is_copied, NULL);
    for (int i = 0; i < count; i++) {
        if (status == STATUS_OK) status = copy_file(from, to, entries[i]->d_name, err);
        free(entries[i]);
    }
    free(entries);
    return status;
}

static enum status copy_templates(const struct output_folder *f, struct error *err)
{
    char from[PATH_MAX], to[PATH_MAX];
    enum status status = join(from, f->model, TEMPLATES, err);
    if (status == STATUS_OK) status = join(to, f->path, TEMPLATES, err);
    if (status != STATUS_OK || !folder_exists(from)) return status;
    if (mkdir(to, 0777) != 0 && errno != EEXIST)
        return error_set(err, STATUS_IO, "cannot make the folder %s: %s", to, strerror(errno));
    return copy_files(from, to, err);
}

static enum status write_config(const struct output_folder *f, const struct quantize_plan *plan, struct error *err)
{
    char path[PATH_MAX];
    json_t *config = NULL;
    enum status status = join(path, f->model, CONFIG, err);
    if (status == STATUS_OK) status = json_object_read(path, &config, err);
    if (status != STATUS_OK) return status;
    if (json_object_set_new(config, "quantization_config", quantize_plan_config(plan)) != 0) {
        json_decref(config);
        config = NULL;
    }
    return write_json(f->path, CONFIG, config, err);
}

enum status output_folder_finish(const struct output_folder *f, const struct quantize_plan *plan, struct error *err)
{
    enum status status = copy_files(f->model, f->path, err);
    if (status == STATUS_OK) status = copy_templates(f, err);
    if (status == STATUS_OK && plan->num_shards > 1)
        status = write_json(f->path, QUANTIZE_INDEX, quantize_plan_index(plan), err);
    return status == STATUS_OK ? write_config(f, plan, err) : status;
}
