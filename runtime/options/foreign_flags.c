#include "runtime/options/foreign_flags.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static const char ONE_DEVICE[] = "a model lies whole on one device, which --device names";
static const char LOOKUP[] = "it is a field of the JSON of --speculative-config: prompt_lookup_min, prompt_lookup_max";
static const char ADAPTIVE[] = "how many drafts a step has follows from what is accepted, so leave it out";
static const char ADAPTERS[] = "quire reads no adapters: merge them into the model's weights first";
static const char GUIDED[] = "quire has one way to hold answers to a form, so leave it out";
static const char MEDIA[] = "quire computes text alone, so leave it out";

const struct foreign_flag foreign_flags[] = {
    /* vLLM */
    {"uvicorn-log-level|disable-log-requests|disable-log-stats|disable-uvicorn-access-log", NULL,
     "quire serve logs requests with --enable-log-requests, so leave it out"},
    {"timeout-keep-alive", "idle-timeout", NULL},
    {"api-server-count", NULL, "one process answers all, so leave it out"},
    {"tokenizer|tokenizer-mode|tokenizer-revision", NULL,
     "the tokenizer is that of the model's folder, so leave it out"},
    {"download-dir", NULL, "quire downloads nothing: HF_HUB_CACHE names the cache that hf download fills"},
    {"distributed-executor-backend|disable-custom-all-reduce", NULL, ONE_DEVICE},
    {"cpu-offload-gb", NULL, "what stays in host memory are experts, of the layers that --cpu-offload-experts names"},
    {"ngram-prompt-lookup-min|ngram-prompt-lookup-max", NULL, LOOKUP},
    {"speculative-disable-by-batch-size", NULL, ADAPTIVE},
    {"enable-lora|lora-modules", NULL, ADAPTERS},
    {"guided-decoding-backend|structured-outputs-config", NULL, GUIDED},
    {"limit-mm-per-prompt", NULL, MEDIA},
    {"mamba-cache-dtype", "mamba-ssm-cache-dtype", NULL},
    {"mamba-block-size|mamba-cache-mode", NULL,
     "states are kept at boundaries of small blocks, also every --state-interval tokens of a prompt"},
    {"task|runner", NULL, "quire does nothing but generate text, so leave it out"},
    {"input-file", "input", NULL},
    {"output-file", "output", NULL},
    {"max-seq-len", "max-model-len", NULL},
    {"max-new-tokens", "max-tokens", NULL},
    {"num-beams", "beam-width", NULL},
    /* llama.cpp */
    {"c|ctx-size", "max-model-len", NULL},
    {"n|predict|n-predict", "max-tokens", NULL},
    {"temp", "temperature", NULL},
    {"repeat-penalty", "repetition-penalty", NULL},
    {"r|reverse-prompt", "stop", NULL},
    {"sys|system-prompt", "system", NULL},
    {"b|batch-size|ub|ubatch-size", "max-num-batched-tokens", NULL},
    {"np|parallel", "max-num-seqs", NULL},
    {"ctk|ctv|cache-type-k|cache-type-v", "kv-cache-dtype", NULL},
    {"tb|threads-batch", "threads", NULL},
    {"chat-template-file", "chat-template", NULL},
    {"hf|hfr|hf-repo", "model", NULL},
    {"f|file", NULL,
     "a file of prompts is --input FILE of quire generate, a file with one question @FILE of quire chat"},
    {"st|single-turn|cnv|conversation", NULL,
     "quire chat QUESTION gives one answer, and quire chat alone is a conversation"},
    {"ngl|gpu-layers|n-gpu-layers|sm|split-mode|ts|tensor-split", NULL, ONE_DEVICE},
    {"ncmoe|n-cpu-moe", "cpu-offload-experts", NULL},
    {"cmoe|cpu-moe", NULL, "--cpu-offload-experts N, with the number of layers, keeps all experts in host memory"},
    {"fa|flash-attn", NULL, "attention always works without a matrix of scores, so leave it out"},
    {"jinja", NULL, "the model's own chat template is always used, so leave it out"},
    {"mlock|mmap", NULL, "weights stay mapped from their file, so leave it out"},
    {"md|model-draft", "speculative-model", NULL},
    {"draft|draft-n|draft-max", "num-speculative-tokens", NULL},
    {"draft-min|draft-n-min|draft-p-min", NULL, ADAPTIVE},
    {"lcd|lookup-cache-dynamic", NULL, "--speculative-model suffix keeps the earlier answers of the run"},
    {"spec-type", "speculative-model", NULL},
    {"lora", NULL, ADAPTERS},
    {"grammar-file", "grammar", NULL},
    {"j|jf|json-schema-file", "json-schema", NULL},
    {"mmproj", NULL, MEDIA},
    /* ollama's /set parameter */
    {"num-ctx", "max-model-len", NULL},
    {"num-predict", "max-tokens", NULL},
    {NULL, NULL, NULL},
};

/* Whether `name`, in which '_' stands for '-', is one of the words of "a|b". */
static bool is_among(const char *words, const char *name)
{
    const char *at = name;
    for (; *words; words++) {
        if (*words == '|' && at && !*at) return true;
        if (*words == '|')
            at = name;
        else
            at = at && (*at == *words || (*at == '_' && *words == '-')) ? at + 1 : NULL;
    }
    return at && !*at;
}

const struct foreign_flag *foreign_flag_find(const char *name)
{
    if (strncmp(name, "no-", 3) == 0) name += 3;
    for (const struct foreign_flag *flag = foreign_flags; flag->names; flag++)
        if (is_among(flag->names, name)) return flag;
    return NULL;
}
