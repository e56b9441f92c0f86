/* quire serve: the engine behind the API that clients speak. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/notice.h"
#include "base/processors.h"
#include "runtime/interrupt.h"
#include "runtime/node.h"
#include "runtime/options/command.h"
#include "runtime/options/model_folder.h"
#include "runtime/serve/serve_options.h"
#include "runtime/serve/server.h"

static const char COMMAND[] = "serve";
static const char SUMMARY[] =
    "Answers requests over HTTP: OpenAI's /v1/chat/completions, /v1/completions and /v1/responses, Anthropic's "
    "/v1/messages, what vLLM's server has beside them, and at / a page to chat. SIGTERM or Ctrl-C ends it: requests "
    "that run are answered, within --shutdown-timeout, and a second signal ends it at once.";

enum {
    MAX_UNSENT = 2 << 20, /* bytes of a stream that wait for a slow reader */
    HTTP_THREADS = 4      /* at most; at least two: they read and encode prompts, and one may be long */
};

/* Signals that come so soon after the first belong to the same event: timeout(1) sends its signal to the process and to
 * its group. */
static const double SAME_EVENT_SECONDS = 0.5;

struct run {
    struct serve_options *options;
    struct server server;
    const char *name; /* of the model, where no flag says one */
};

/* ---- start ---- */

static int http_threads(void)
{
    const int half = processors_allowed() / 2;
    return half < 2 ? 2 : half < HTTP_THREADS ? half : HTTP_THREADS;
}

/* systemd has opened the socket (sd_listen_fds(3)). */
static bool is_inherited(void)
{
    const char *pid = getenv("LISTEN_PID");
    return pid && strtol(pid, NULL, 10) == (long)getpid();
}

static enum status start_http(struct run *run, struct error *err)
{
    const struct serve_options *o = run->options;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "unix:%s", o->uds ? o->uds : "");
    const struct http_options http = {.host = o->uds ? path : o->host,
                                      .port = o->port,
                                      .inherited = is_inherited(),
                                      .certificate = o->certificate,
                                      .key = o->key,
                                      .num_threads = http_threads(),
                                      .max_connections = o->max_connections,
                                      .max_body = (size_t)o->max_body_mib << 20,
                                      .max_head = (size_t)o->max_head_kib << 10,
                                      .idle_seconds = o->idle_seconds,
                                      .max_unsent = MAX_UNSENT,
                                      .allowed_origins = o->allowed_origins,
                                      .log = &o->log,
                                      .head = server_head,
                                      .handle = server_handle,
                                      .gone = server_gone,
                                      .error_body = server_error_body,
                                      .error_type = "application/json",
                                      .user = &run->server};
    return http_server_start(&http, &run->server.http, err);
}

/* What the model's name and limits decide. */
static enum status start_answering(struct run *run, struct error *err)
{
    struct server *s = &run->server;
    struct serve_options *o = run->options;
    const struct prompt_options options = serve_prompt_options(o);
    const enum status status = prompt_rules_make(service_engine(s->service), &options, &s->prompts, err);
    if (status != STATUS_OK) return status;
    if (o->names.count == 0) o->names.list[0] = run->name;
    s->root = o->engine.model;
    s->rules = (struct api_rules){.prompts = &s->prompts,
                                  .model_names = o->names.list,
                                  .return_token_ids = o->return_token_ids,
                                  .spell = command_spell_flag};
    s->calls = (struct call_context){s->service, &s->metrics, &s->log};
    return service_begin(s->service, s->http, err);
}

static bool is_local(const char *url)
{
    static const char *const local[] = {"unix:", "127.", "localhost", "[::1]"};
    const char *host = strstr(url, "://");
    host = host ? host + 3 : url;
    for (size_t i = 0; i < sizeof local / sizeof *local; i++)
        if (strncmp(host, local[i], strlen(local[i])) == 0) return true;
    return false;
}

static void say_ready(const struct run *run)
{
    const struct serve_options *o = run->options;
    const char *url = http_server_url(run->server.http);
    if (o->keys.count == 0 && !is_local(url))
        log_write(&o->log, LOG_WARNING, "everyone who reaches %s may ask: give --api-key-file, or --host 127.0.0.1",
                  url);
    notice_printf(stderr, "quire serve: %s on %s, at %s\n", o->names.list[0],
                  service_engine(run->server.service)->device, url);
}

/* The address is taken before the model is loaded, so that a wrong one is said at once; requests are refused until the
 * model is there. */
static enum status start(struct run *run, struct error *err)
{
    struct server *s = &run->server;
    const struct service_options service = {&run->options->engine, run->options->max_waiting};
    enum status status = start_http(run, err);
    if (status == STATUS_OK) status = service_start(&service, &s->service, err);
    if (status == STATUS_OK) status = service_wait_open(s->service, err);
    if (status == STATUS_OK) status = start_answering(run, err);
    if (status != STATUS_OK) return status;
    interrupt_catch_to_end();
    atomic_store(&s->ready, true);
    say_ready(run);
    return STATUS_OK;
}

/* ---- end ---- */

enum event { EVENT_NONE, EVENT_SIGNAL, EVENT_SERVICE };

/* Waits for a signal, for what service_event tells, or until `end`, a time of clock_seconds; INFINITY: for good. */
static enum event wait_until(const struct run *run, double end)
{
    struct pollfd polled[] = {{interrupt_descriptor(), POLLIN, 0}, {service_event(run->server.service), POLLIN, 0}};
    for (;;) {
        const double left = end - clock_seconds();
        const int milliseconds = left > 1e6 ? -1 : left > 0 ? (int)(left * 1000) + 1 : 0;
        const int count = poll(polled, 2, milliseconds);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return EVENT_NONE;
        return polled[1].revents ? EVENT_SERVICE : EVENT_SIGNAL;
    }
}

static void forget_signals(void)
{
    uint64_t count;
    if (read(interrupt_descriptor(), &count, sizeof count) < 0) return; /* there were none */
}

/* Takes no more requests, and lets those that run end, for a while. A second signal ends the process. */
static void drain(struct run *run)
{
    const double start = clock_seconds(), end = start + run->options->shutdown_seconds;
    enum event event;
    http_server_close_listener(run->server.http);
    service_drain(run->server.service);
    do {
        forget_signals();
        event = wait_until(run, end);
        if (event == EVENT_SIGNAL && clock_seconds() - start > SAME_EVENT_SECONDS) interrupt_raise();
    } while (event == EVENT_SIGNAL);
    if (event == EVENT_NONE)
        log_write(&run->options->log, LOG_WARNING, "requests that ran for longer than --shutdown-timeout are cut");
}

static int serve(struct run *run)
{
    struct error err = {""};
    if (start(run, &err) != STATUS_OK) return command_fail(COMMAND, &err, EXIT_STATUS_FAILURE);
    if (wait_until(run, INFINITY) == EVENT_SIGNAL) drain(run);
    if (service_failed(run->server.service, &err)) return command_fail(COMMAND, &err, EXIT_STATUS_FAILURE);
    interrupt_end(0);
    return EXIT_STATUS_OK;
}

/* Calls end before the server does, which then sends what is whole; no thread of it uses the engine after that. */
static int serve_and_free(struct serve_options *o, const char *name)
{
    struct run run = {.options = o, .name = name, .server = {.log = o->request_log, .keys = &o->keys}};
    metrics_init(&run.server.metrics);
    run.server.created = time(NULL);
    run.server.calls = (struct call_context){NULL, &run.server.metrics, &run.server.log};
    const int exit_status = serve(&run);
    if (run.server.service) service_stop(run.server.service);
    http_server_stop(run.server.http);
    service_free(run.server.service);
    prompt_rules_free(&run.server.prompts);
    metrics_destroy(&run.server.metrics);
    return exit_status;
}

/* The name of the folder at the end of a path. */
static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static int check_and_run(void *options)
{
    struct serve_options *o = options;
    struct error err;
    char model[PATH_MAX];
    if (serve_options_read(o, &err) != STATUS_OK) return command_fail(COMMAND, &err, EXIT_STATUS_USAGE);
    const char *name = o->engine.model;
    if (model_folder_of_engine(&o->engine, model, sizeof model, &err) != STATUS_OK ||
        node_prepare(&o->engine, &err) != STATUS_OK)
        return command_fail(COMMAND, &err, EXIT_STATUS_FAILURE);
    if (node_serves(&o->engine)) return node_run(&o->engine, COMMAND);
    return serve_and_free(o, name ? name : last_part(o->engine.model));
}

const struct command command_serve = {
    .name = COMMAND,
    .summary = "answer requests over HTTP, as OpenAI's API has them",
    .usage = "serve [MODEL] [flags]",
    .help = SUMMARY,
    .options_size = sizeof(struct serve_options),
    .add = serve_options_add,
    .run = check_and_run,
    .free = serve_options_free,
};
