#include "runtime/serve/request_log.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/json_value.h"
#include "base/log.h"

static const struct log stderr_log = {.level = LOG_INFO};

/* "2026-11-27T17:00:00.123Z" */
struct time_text {
    char text[40];
};
static struct time_text time_now(void)
{
    struct time_text out;
    struct timespec now;
    struct tm parts;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    const size_t length = strftime(out.text, sizeof out.text, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(out.text + length, sizeof out.text - length, ".%03ldZ", now.tv_nsec / 1000000);
    return out;
}

void request_log_body(const struct request_log *log, const struct http_exchange *x)
{
    struct text shown = {0};
    size_t length;
    const char *body = http_body(x, &length);
    if (!log->enabled || log->body_bytes == 0 || length == 0) return;
    const bool cut = length > (size_t)log->body_bytes;
    if (json_append_escaped(&shown, body, cut ? (size_t)log->body_bytes : length))
        log_write(&stderr_log, LOG_INFO, "%s %s body \"%s\"%s", time_now().text, http_request_id(x),
                  shown.length ? shown.data : "", cut ? "..." : "");
    text_free(&shown);
}

void request_log_end(const struct request_log *log, const struct http_exchange *x, const char *path, int status,
                     const struct request_facts *facts)
{
    char first[32] = "", counts[160] = "";
    if (!log->enabled) return;
    if (facts && facts->first_seconds >= 0) snprintf(first, sizeof first, " first=%.4f", facts->first_seconds);
    if (facts)
        snprintf(counts, sizeof counts, " prompt=%d cached=%d output=%d%s total=%.4f", facts->usage.prompt_tokens,
                 facts->usage.cached_tokens, facts->usage.completion_tokens, first, facts->seconds);
    log_write(&stderr_log, LOG_INFO, "%s %s %s %s %s %d%s", time_now().text, http_request_id(x), http_peer(x),
              http_method(x), path, status, counts);
}
