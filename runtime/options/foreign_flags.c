#include "runtime/options/foreign_flags.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static const char SERVER[] = "quire has no server yet: quire generate answers files of prompts, quire chat a person";
static const char REQUEST_LOG[] = "requests are not logged, so leave it out";
static const char ONE_DEVICE[] = "a model lies whole on one device, which --device names";
static const char TOKENIZER[] = "the tokenizer is that of the model's folder, so leave it out";
static const char DOWNLOAD[] = "quire downloads nothing: HF_HUB_CACHE names the cache that hf download fills";
static const char SPECULATION[] = "quire does not have speculative decoding yet, so leave it out";
static const char ADAPTERS[] = "quire reads no adapters: merge them into the model's weights first";
static const char GUIDED[] = "quire cannot hold an answer to a grammar or a schema yet, so leave it out";
static const char MAPPED[] = "weights stay mapped from their file, so leave it out";
static const char GENERATES[] = "quire does nothing but generate text, so leave it out";
static const char TURNS[] = "quire chat QUESTION gives one answer, and quire chat alone is a conversation";
static const char MEDIA[] = "quire computes text alone, so leave it out";

const struct foreign_flag foreign_flags[] = {
    /* vLLM */
    {"host", NULL, SERVER},
    {"port", NULL, SERVER},
    {"api-key", NULL, SERVER},
    {"uvicorn-log-level", NULL, SERVER},
    {"disable-log-requests", NULL, REQUEST_LOG},
    {"enable-log-requests", NULL, REQUEST_LOG},
    {"disable-log-stats", NULL, REQUEST_LOG},
    {"tokenizer", NULL, TOKENIZER},
    {"tokenizer-mode", NULL, TOKENIZER},
    {"tokenizer-revision", NULL, TOKENIZER},
    {"download-dir", NULL, DOWNLOAD},
    {"distributed-executor-backend", NULL, ONE_DEVICE},
    {"disable-custom-all-reduce", NULL, ONE_DEVICE},
    {"cpu-offload-gb", NULL, ONE_DEVICE},
    {"speculative-config", NULL, SPECULATION},
    {"speculative-model", NULL, SPECULATION},
    {"num-speculative-tokens", NULL, SPECULATION},
    {"enable-lora", NULL, ADAPTERS},
    {"lora-modules", NULL, ADAPTERS},
    {"guided-decoding-backend", NULL, GUIDED},
    {"structured-outputs-config", NULL, GUIDED},
    {"limit-mm-per-prompt", NULL, MEDIA},
    {"task", NULL, GENERATES},
    {"runner", NULL, GENERATES},
    {"input-file", "input", NULL},
    {"output-file", "output", NULL},
    {"max-seq-len", "max-model-len", NULL},
    {"max-new-tokens", "max-tokens", NULL},
    {"num-beams", "beam-width", NULL},
    /* llama.cpp */
    {"c", "max-model-len", NULL},
    {"ctx-size", "max-model-len", NULL},
    {"n", "max-tokens", NULL},
    {"predict", "max-tokens", NULL},
    {"n-predict", "max-tokens", NULL},
    {"temp", "temperature", NULL},
    {"repeat-penalty", "repetition-penalty", NULL},
    {"r", "stop", NULL},
    {"reverse-prompt", "stop", NULL},
    {"sys", "system", NULL},
    {"system-prompt", "system", NULL},
    {"b", "max-num-batched-tokens", NULL},
    {"batch-size", "max-num-batched-tokens", NULL},
    {"ub", "max-num-batched-tokens", NULL},
    {"ubatch-size", "max-num-batched-tokens", NULL},
    {"np", "max-num-seqs", NULL},
    {"parallel", "max-num-seqs", NULL},
    {"ctk", "kv-cache-dtype", NULL},
    {"ctv", "kv-cache-dtype", NULL},
    {"cache-type-k", "kv-cache-dtype", NULL},
    {"cache-type-v", "kv-cache-dtype", NULL},
    {"tb", "threads", NULL},
    {"threads-batch", "threads", NULL},
    {"chat-template-file", "chat-template", NULL},
    {"hf", "model", NULL},
    {"hfr", "model", NULL},
    {"hf-repo", "model", NULL},
    {"f", NULL, "a file of prompts is --input FILE of quire generate, a file with one question @FILE of quire chat"},
    {"file", NULL, "a file of prompts is --input FILE of quire generate, a file with one question @FILE of quire chat"},
    {"st", NULL, TURNS},
    {"single-turn", NULL, TURNS},
    {"cnv", NULL, TURNS},
    {"conversation", NULL, TURNS},
    {"ngl", NULL, ONE_DEVICE},
    {"gpu-layers", NULL, ONE_DEVICE},
    {"n-gpu-layers", NULL, ONE_DEVICE},
    {"sm", NULL, ONE_DEVICE},
    {"split-mode", NULL, ONE_DEVICE},
    {"ts", NULL, ONE_DEVICE},
    {"tensor-split", NULL, ONE_DEVICE},
    {"fa", NULL, "attention always works without a matrix of scores, so leave it out"},
    {"flash-attn", NULL, "attention always works without a matrix of scores, so leave it out"},
    {"jinja", NULL, "the model's own chat template is always used, so leave it out"},
    {"mlock", NULL, MAPPED},
    {"mmap", NULL, MAPPED},
    {"md", NULL, SPECULATION},
    {"model-draft", NULL, SPECULATION},
    {"lora", NULL, ADAPTERS},
    {"grammar", NULL, GUIDED},
    {"json-schema", NULL, GUIDED},
    {"mmproj", NULL, MEDIA},
    /* ollama's /set parameter */
    {"num-ctx", "max-model-len", NULL},
    {"num-predict", "max-tokens", NULL},
    {NULL, NULL, NULL},
};

static bool is_same(const char *a, const char *b)
{
    for (; *a && (*a == *b || (*a == '_' && *b == '-')); a++) b++;
    return !*a && !*b;
}

const struct foreign_flag *foreign_flag_find(const char *name)
{
    if (strncmp(name, "no-", 3) == 0) name += 3;
    for (const struct foreign_flag *flag = foreign_flags; flag->name; flag++)
        if (is_same(name, flag->name)) return flag;
    return NULL;
}
