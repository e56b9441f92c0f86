/* What goes wrong, and what quire says: a row for each. A sentence says what is wrong, where, what was expected or what
 * to do. `build/debug/test_errors --print` prints them all.
 *
 * Checked for every row: the exit status; one line on stderr that begins with the command; nothing on stdout, or, where
 * the row is `answered`, the sentence in it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "runtime/commands.h"
#include "tests/support/program.h"
#include "tests/support/temp_folder.h"

enum { USAGE = EXIT_STATUS_USAGE, FAILED = EXIT_STATUS_FAILURE, MAX_WORDS = 24 };

struct row {
    /* Words between blanks; '_' is a word of one blank, EMPTY one of none. GUIDE is the guide's folder, GOLDEN the
     * folder of the golden checkpoints, FILE the file below, FOLDER the folder that it lies in. */
    const char *arguments;
    int exit_status;
    const char *sentence;    /* a part of it, without "quire COMMAND: " */
    const char *name, *file; /* of the file, and its content; name NULL: "file" */
    const char *input;       /* standard input; NULL: empty */
    const char *variable;    /* of the environment, "NAME=VALUE" */
    bool answered;           /* the sentence is an answer's "error", on stdout */
};

#define CONFIG "config.json"
#define QUANTIZED(keys)                                                                                                \
    "{\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 96, \"num_hidden_layers\": 1,"            \
    "\"num_attention_heads\": 4, \"vocab_size\": 320, \"quantization_config\": {" keys "}}"
#define CHECK "inspect --model FOLDER --device cpu"
#define DRAFT_CONFIG(head_size)                                                                                        \
    "{\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 96, \"num_hidden_layers\": 1,"            \
    "\"num_attention_heads\": 4, \"vocab_size\": 4096, \"head_dim\": " head_size "}"
#define DRAFTED "profile --model GUIDE --device cpu --kv-cache-space 0.1 --speculative-model "
/* What every line of generate below has. */
#define GENERATE "generate --model GUIDE --device cpu --max-num-seqs 4 --quiet --no-chat --max-tokens 4 --input FILE"

static const struct row rows[] = {
    /* commands and flags */
    {"", USAGE, "usage: quire COMMAND [flags]"},
    {"chatt", USAGE, "there is no command 'chatt'; did you mean chat? quire --help lists the commands"},
    {"zzzzzz", USAGE, "there is no command 'zzzzzz'; quire --help lists the commands"},
    {"run model", USAGE, "there is no command 'run': quire chat --model ORG/NAME talks with a model"},
    {"pull model", USAGE, "there is no command 'pull': quire downloads nothing: hf download ORG/NAME does"},
    {"run-batch", USAGE, "there is no command 'run-batch': quire generate -i FILE -o FILE answers OpenAI batch files"},
    {"chat --stop \xFF", USAGE, "stop string 0 is not UTF-8"},
    {"bench", USAGE, "usage: quire bench NAME"},
    {"bench latencie", USAGE, "there is no benchmark 'latencie'; did you mean latency? quire bench --help lists them"},
    {"generate x --regex a{2,1}", USAGE, "--regex: "},
    {"chat x --choice a --choice b --regex a", USAGE, "--regex and --choice are both given; one is enough"},
    {"chat --choice \xFF x", USAGE, "--choice: expected a text in UTF-8"},
    {"generate x --grammar FILE", USAGE, "--grammar: line 2, column 7: 'b' is not defined",
     .file = "root ::= a\na ::= b\n"},
    {"generate x --grammar FILE", USAGE, "file: the file is not UTF-8", .file = "\xFF"},
    {"generate x --json-schema FILE", USAGE, "file: not valid JSON", .file = "{"},
    {"generate x --json-schema FILE", FAILED, "--json-schema: #/not: quire does not support \"not\"",
     .file = "{\"not\": {}}"},
    {"generate x --json-schema FOLDER/none", FAILED, "none: "},
    {"chat --grammar-file x", USAGE, "there is no flag --grammar-file; did you mean --grammar?"},
    {"chat --max-model-length 5", USAGE, "there is no flag --max-model-length; did you mean --max-model-len?"},
    {"generate --outptu x", USAGE, "there is no flag --outptu; did you mean --output?"},
    {"chat --n 3", USAGE, "there is no flag --n: it is one of quire generate"},
    {"chat --served_model_name x", USAGE, "there is no flag --served_model_name: it is one of quire generate"},
    {"inspect --prefix-len 3", USAGE, "there is no flag --prefix-len: it is one of quire bench cache"},
    {"chat -c 4096", USAGE, "there is no flag -c; did you mean --max-model-len?"},
    {"generate --n-predict 5", USAGE, "there is no flag --n-predict; did you mean --max-tokens?"},
    {"inspect -ngl 99", USAGE, "there is no flag -ngl: a model lies whole on one device, which --device names"},
    {"inspect -ncmoe 9", USAGE, "there is no flag -ncmoe; did you mean --cpu-offload-experts?"},
    {"inspect --cpu-offload-experts all", USAGE, "--cpu-offload-experts: expected"},
    {"generate --host x", USAGE, "there is no flag --host: it is one of quire serve"},
    {"serve --port 70000", USAGE, "--port: expected"},
    {"serve --ssl-certfile x", USAGE, "--ssl-certfile and --ssl-keyfile go together"},
    {"serve --uds x --ssl-certfile x --ssl-keyfile y", USAGE, "a Unix socket (--uds) has no TLS"},
    {"serve here --model there", USAGE, "the model is given twice, as here and with --model"},
    {"serve --api-key-file FILE", USAGE, "/file has no key; expected one a line", .file = "\n \n"},
    {"serve --api-key-file FOLDER/none", USAGE, "/none: "},
    {"serve --api-key EMPTY", USAGE, "--api-key needs a value: --api-key KEY"},
    {"inspect --pipeline_parallel_size 9", USAGE, "--pipeline-parallel-size: expected"},
    {"chat --data_parallel_size 2", USAGE, "--data-parallel-size 2: one conversation runs on one engine"},
    {"chat --model GUIDE --revision main", FAILED, "--revision main is for a model ORG/NAME in the Hugging Face cache"},
    {"profile --no-json=1", USAGE, "--no-json takes no value, but was written --no-json=1"},
    {"inspect --enable-", USAGE, "--enable- could mean --enable-prefix-caching or --enable-chunked-prefill"},
    {"chat -z", USAGE, "there is no flag -z; --help-all lists the flags"},
    {"inspect FOLDER", USAGE, "is not a flag; flags begin with --"},
    {"generate prompts.txt", USAGE, "'prompts.txt' is a file's name, and no prompt; @prompts.txt runs its lines"},
    {"profile GUIDE", USAGE, "is a folder, and no prompt; a model is --model "},
    {"generate _", USAGE, "the prompt beside the flags is empty"},
    {"generate a -i b", USAGE, "the prompts are given twice: 'a', and --input b"},
    {"generate @FOLDER/none", FAILED, "cannot open the input"},
    {"profile --steps", USAGE, "--steps is about a run: give its prompts, as PROMPT, @FILE or --input FILE"},
    {"chat -", USAGE, "standard input is empty"},
    {"chat --system -", USAGE, "--system - takes standard input: give the question as an argument"},
    {"chat --system - -", USAGE, "--system and the question cannot both be -, standard input"},
    {"quantize --quantization fp8", USAGE, "give --output FOLDER, where the quantized checkpoint goes"},
    {"quantize -o FOLDER/none", USAGE, "give --quantization fp8, int8 or int4"},
    {"quantize -o FOLDER/none --quantization awq", USAGE, "--quantization: expected fp8|int8|int4, got 'awq'"},
    {"quantize -m FOLDER/none -o FOLDER/out --quantization fp8", FAILED,
     "/none: no such folder; name one with config.json"},
    {"tokenize one two", USAGE, "'two' is a word too many; put a text of several words in quotes"},
    {"tokenize @FOLDER/none", FAILED, "cannot open: No such file or directory (@ begins a file's name; @@ begins"},
    {"template [] --messages FILE", USAGE, "the conversation is given twice: '[]', and --messages"},
    {"bench --compare only.json", USAGE, "--compare needs two files: quire bench --compare A.json B.json"},
    /* values */
    {"chat --model", USAGE, "--model needs a value: --model PATH|ORG/NAME[@REVISION]"},
    {"generate -o EMPTY", USAGE, "--output needs a value: --output FILE"},
    {"generate -i EMPTY", USAGE, "--input needs a value: --input FILE"},
    {"profile -i EMPTY", USAGE, "--input needs a value: --input FILE"},
    {"chat --stop EMPTY", USAGE, "--stop: expected a text, got an empty one"},
    {"generate --format csv", USAGE, "--format: expected auto|text|jsonl"},
    {"bench kernels --device cuda:1x", USAGE, "--device: expected auto|cpu|cuda|cuda:N[,M,..], got 'cuda:1x'"},
    {"chat --block-size 17", USAGE, "--block-size: expected 8|16|32|64|128, got '17'"},
    {"generate --data-parallel-size 2 --device cuda:0,1,2 a", FAILED,
     "the device 'cuda:0,1,2' is 3 GPUs, but 2 engines need 2: set --data-parallel-size to 3"},
    {"generate --nnodes 2 -tp 2 --model GUIDE a", FAILED,
     "nnodes is 2, and neither mpirun nor srun has started this process, so it is not known which of them it is: set "
     "--node-rank"},
    {"generate --nnodes 2 -tp 2 --node-rank 2 --model GUIDE a", FAILED,
     "node_rank is 2, but there are 2 nodes: 0 to 1"},
    {"generate --nnodes 2 -tp 2 --node-rank 0 --model GUIDE --master-addr 192.0.2.1 a", FAILED,
     "cannot listen on port 29501 of 192.0.2.1: "},
    {"generate --nnodes 2 -tp 2 --node-rank 0 -dp 2 --device cpu --model GUIDE a", FAILED,
     "nnodes is 2, which quire does not combine with data_parallel_size"},
    {"chat --device gpu", USAGE, "--device: expected auto|cpu|cuda|cuda:N[,M,..], got 'gpu'"},
    {"chat --dtype int8", USAGE, "--dtype: expected auto|float32|float|float16|half|bfloat16, got 'int8'"},
    {"chat --quantization nf4", USAGE,
     "--quantization: expected none|fp8|int8|int4|awq|gptq|compressed-tensors, got 'nf4'"},
    {"chat --generation-config EMPTY", USAGE,
     "--generation-config needs a value: --generation-config auto|vllm|FOLDER"},
    {"chat --load-format gguf", USAGE, "--load-format: expected auto|safetensors|dummy, got 'gguf'"},
    {"chat --preemption-mode drop", USAGE, "--preemption-mode: expected auto|recompute|swap, got 'drop'"},
    {"chat --scheduling-policy lifo", USAGE, "--scheduling-policy: expected fcfs|priority, got 'lifo'"},
    {"chat --max-model-len 0", USAGE, "--max-model-len: expected a whole number from 1 to 2147483647, got '0'"},
    {"chat --num-speculative-tokens 8", USAGE,
     "--num-speculative-tokens: expected a whole number from 1 to 7, got '8'"},
    {"chat --draft-max 8", USAGE, "there is no flag --draft-max; did you mean --num-speculative-tokens?"},
    {"generate --speculative-config {}", USAGE, "--speculative-config: method or model must be given"},
    {"profile -sc {\"method\":\"medusa\"}", USAGE,
     "--speculative-config: method: expected ngram|suffix|grammar|draft_model|mtp|none"},
    {"chat --speculative-model ngran", FAILED, "the draft model: ngran: no such folder"},
    {"bench latency --synthetic-acceptance-rate 2", USAGE,
     "--synthetic-acceptance-rate: expected a number from 0 to 1, or none, got '2'"},
    {"bench prefill --synthetic-acceptance-rate 1", USAGE,
     "there is no flag --synthetic-acceptance-rate: it is one of quire bench latency"},
    {"chat --max-num-seqs 4k", USAGE, "--max-num-seqs: expected a whole number from 1 to 65535, got '4k'"},
    {"chat --gpu-memory-utilization 90", USAGE, "--gpu-memory-utilization: expected a number from 0.01 to 1, got '90'"},
    {"chat --kv-cache-space -1", USAGE, "--kv-cache-space: expected a number from 0 to 1048576, got '-1'"},
    {"chat --cpu-isa sse9", USAGE, "--cpu-isa: expected auto|scalar|avx2|avx512|avx512vnni|amx, got 'sse9'"},
    {"chat --threads 1e3", USAGE, "--threads: expected a whole number from 0 to 4096, got '1e3'"},
    {"chat --seed -1", USAGE, "--seed: expected a whole number from 0 to 18446744073709551615, got '-1'"},
    {"chat --temperature hot", USAGE, "--temperature: expected a number, got 'hot'"},
    {"chat --temperature -1", USAGE, "temperature is -1"},
    {"chat --top-p 1.5", USAGE, "top_p is 1.5"},
    {"chat --top-k -5", USAGE, "top_k is -5"},
    {"chat --repetition-penalty 0", USAGE, "repetition_penalty is 0"},
    {"generate --n 0", USAGE, "n is 0"},
    {"generate --best-of 2 --n 3", USAGE, "n is 3; it must be at most best_of, which is 2"},
    {"generate --beam-width 2 --stop x", USAGE, "beam"},
    {"generate --max-tokens 0", USAGE, "max_tokens is 0"},
    {"chat --min-tokens 9 --max-tokens 3", USAGE, "min_tokens is 9"},
    {"chat --stop-token-ids 2,x", USAGE, "--stop-token-ids: expected token ids as in 2,13,29, got '2,x'"},
    {"chat --logit-bias 13", USAGE, "--logit-bias: expected token ids and what to add as in 13:-100,29:2.5, got '13'"},
    {"generate --early-stopping maybe", USAGE, "--early-stopping: expected true, false or never, got 'maybe'"},
    {"chat --prompt _", USAGE, "--prompt is empty; give it a text to answer"},
    {"chat --chat-template-kwargs [1]", USAGE, "--chat-template-kwargs: "},
    {"generate --tool-call-parser hermse", USAGE, "--tool-call-parser must be one of auto, none, "},
    {"serve --reasoning-parser think", USAGE, "--reasoning-parser must be one of auto, none, "},
    {"bench latency --input-len 9:3", USAGE, "--input-len: expected a number of tokens from 1, or two as A:B, A <= B"},
    {"bench latency --batch-size 0", USAGE, "--batch-size: expected a whole number from 1 to 1048576, got '0'"},
    {"profile --every 0", USAGE, "--every: expected a whole number from 1 to 1073741824, got '0'"},
    /* the environment and --config */
    {"inspect", USAGE, "QUIRE_BLOCK_SIZE: expected 8|16|32|64|128, got '5'", .variable = "QUIRE_BLOCK_SIZE=5"},
    {"inspect", USAGE, "QUIRE_CPU_ISA: expected auto|scalar|avx2|avx512|avx512vnni|amx, got 'sse9'",
     .variable = "QUIRE_CPU_ISA=sse9"},
    {"inspect", USAGE, "QUIRE_JSON: expected true or false, got '2'", .variable = "QUIRE_JSON=2"},
    {"inspect --config FILE", USAGE, "file:2: block-size: expected 8|16|32|64|128, got '5'",
     .file = "# sizes\nblock_size: 5\n"},
    {"inspect --config FILE", USAGE, "file:1: max-len: no command has a flag --max-len", .file = "max-len: 5\n"},
    {"inspect --config FILE", USAGE, "file:2: the line begins with a blank, but nothing is nested here; a line is",
     .file = "seed: 1\n  name: x\n"},
    {"inspect --config FILE", USAGE, "file: max-model-len: expected a whole number from 1",
     .file = "{\"max_model_len\": 1.5}"},
    {"inspect --config FOLDER/none", USAGE, "/none: "},
    {"chat", USAGE, "QUIRE_TOP_P: top_p is 2; it must be above 0 and at most 1", .variable = "QUIRE_TOP_P=2"},
    {"chat --config FILE", USAGE, "file: max-tokens: max_tokens is 0", .file = "max_tokens: 0"},
    /* models */
    {"chat --model FOLDER/none", FAILED, "none: no such folder; name one with config.json and *.safetensors"},
    {"chat --generation-config FOLDER", FAILED,
     ": there is no generation_config.json, which generation_config asks for"},
    {"chat --model llama", FAILED, "llama: no such folder; a model in the Hugging Face cache is named ORG/NAME"},
    {"chat --model org/name", FAILED, "download it with: hf download org/name",
     .variable = "HF_HUB_CACHE=/nowhere/at/all"},
    {"chat --model FILE", FAILED, "x.gguf is a GGUF file; quire reads the original checkpoint", .name = "x.gguf",
     .file = ""},
    {CHECK, FAILED, "there is no config.json; a checkpoint folder holds config.json and *.safetensors", .file = ""},
    {CHECK, FAILED, "config.json: ", CONFIG, ""},
    {CHECK, FAILED, "config.json: ", CONFIG, "{\"model_type\": "},
    {CHECK, FAILED, "config.json: ", CONFIG, "[]"},
    {CHECK, FAILED, "config.json: ", CONFIG, "{}"},
    {CHECK, FAILED, "model_type is \"deepseek_v32\"; what quire lacks for it: sparse attention", CONFIG,
     "{\"model_type\": \"deepseek_v32\"}"},
    {CHECK, FAILED, "model_type is \"nosuch\"", CONFIG, "{\"model_type\": \"nosuch\"}"},
    {CHECK, FAILED, "architectures names \"LlamaForCausalLMEagle3\", a head that drafts for another model", CONFIG,
     "{\"architectures\": [\"LlamaForCausalLMEagle3\"], \"model_type\": \"llama\", \"hidden_size\": 64,"
     "\"intermediate_size\": 96, \"num_hidden_layers\": 1, \"num_attention_heads\": 4, \"vocab_size\": 320}"},
    {CHECK, FAILED, "config.json: the key hidden_size is missing; expected an integer", CONFIG,
     "{\"model_type\": \"llama\"}"},
    {CHECK, FAILED, "config.json: hidden_size must be ", CONFIG,
     "{\"model_type\": \"llama\", \"hidden_size\": \"big\"}"},
    {CHECK " --load-format dummy", FAILED,
     "the model's head size 18 is not a multiple of 4, which a KV cache of type float32 needs", CONFIG,
     "{\"model_type\": \"mimo_v2_flash\", \"hidden_size\": 64, \"intermediate_size\": 96, \"num_hidden_layers\": 1,"
     "\"num_attention_heads\": 8, \"vocab_size\": 320, \"v_head_dim\": 18}"},
    {CHECK, FAILED, "config.json: quantization_config: HQQ is not read; use the model in bfloat16 or float16", CONFIG,
     QUANTIZED("\"quant_method\": \"hqq\"")},
    {CHECK " --quantization fp8", FAILED,
     "quantization is \"fp8\", but the checkpoint is quantized already (int4, groups of 32, AWQ): set --quantization "
     "to "
     "none",
     CONFIG, QUANTIZED("\"quant_method\": \"awq\", \"bits\": 4, \"group_size\": 32, \"version\": \"gemm\"")},
    {"chat --model GUIDE --quantization awq", FAILED, "quantization is \"awq\", but the checkpoint is not quantized"},
    {"chat --model GUIDE --device cuda:99", FAILED, "cuda"},
    {"chat --model GUIDE --max-model-len 100000 -p x", FAILED, "max_model_len"},
    {"profile --model GUIDE --device cpu --kv-cache-space 0.00001", FAILED, "kv-cache-space"},
    {"chat --model GUIDE --device cpu --chat-template FOLDER/none -p x", FAILED, "/none: "},
    {"chat --model GUIDE --device cpu --chat-template FILE -p x", FAILED, "file: ", .file = "{% if %}"},
    {"chat --model GUIDE --device cpu --chat-template FILE -p x", FAILED,
     "file: the file is empty; expected a chat template", .file = ""},
    {"chat --model GUIDE --device cpu --skip-tokenizer-init -p x", USAGE, "there is no flag --skip-tokenizer-init"},
    /* draft models */
    {DRAFTED "GOLDEN/mha", FAILED, "golden/mha has a vocabulary of 320 tokens, and "},
    {DRAFTED "GOLDEN/mha", FAILED, "guide one of 4096: a draft model must have the same tokens under the same ids\n"},
    {DRAFTED "FOLDER/none", FAILED, "none: no such folder; name one with config.json and *.safetensors"},
    {DRAFTED "FOLDER", FAILED, ": there is no config.json; a checkpoint folder holds config.json", .file = ""},
    {DRAFTED "FOLDER", FAILED, "safetensors", CONFIG, DRAFT_CONFIG("16")},
    {DRAFTED "FOLDER", FAILED,
     " has positions for 64 tokens, but sequences may have 2048: lower --max-model-len to 64\n", CONFIG,
     "{\"model_type\": \"gpt2\", \"n_embd\": 64, \"n_layer\": 1, \"n_head\": 4, \"vocab_size\": 4096,"
     "\"n_positions\": 64}"},
    {DRAFTED "FOLDER --load-format dummy --kv-cache-dtype fp8", FAILED, "head size 20", CONFIG, DRAFT_CONFIG("20")},
    {"profile --model GOLDEN/sliding --device cpu --skip-tokenizer-init --speculative-model GOLDEN/mha", FAILED,
     "golden/sliding: no layer there reads all tokens, or"},
    {DRAFTED "GUIDE/draft --num-speculative-tokens 0", USAGE,
     "--num-speculative-tokens: expected a whole number from 1 to 7, got '0'"},
    /* other files */
    {"generate --model GUIDE --input FOLDER/none", FAILED, "cannot open the input "},
    {"generate --model GUIDE --input FOLDER", FAILED, " is a folder; name a file of prompts"},
    {"generate --model GUIDE --input FILE --output FILE", USAGE, "is the input; name another file", .file = "x\n"},
    {"generate --model GUIDE --input FILE --output FOLDER/no/such", FAILED, "no/such: No such file or directory",
     .file = "x\n"},
    {"profile --model GUIDE --device cpu --input FOLDER/none", FAILED, "cannot open the input "},
    {"template --model GUIDE --messages FILE", FAILED, "file: ", .file = "[{\"role\": "},
    {"template --model GUIDE --messages FILE", FAILED, "unknown field \"mesages\"; a conversation has messages, tools",
     .file = "{\"mesages\": []}"},
    {"tokenize --model GUIDE --ids 1;2", FAILED, "'1;2' is not a token id; expected numbers with spaces between them"},
    {"tokenize --model GUIDE --ids 99999", FAILED, "99999"},
    {"bench --compare FILE FILE", FAILED, "file: no result of quire bench NAME --json", .file = "{}"},
    {"bench kernels --device cuda:0,1 -tp 3", FAILED,
     "device 'cuda:0,1' names 2 GPUs, but --tensor-parallel-size is 3"},
    {"bench kernels --filter nosuch --device cpu", FAILED, "no kernel or shape contains 'nosuch'; without --filter"},
    {"bench scheduler --filter nosuch", FAILED, "no part contains 'nosuch' (--filter); they are pool, decodes"},
    {"bench latency --model GUIDE --device cpu --input-len 3000", FAILED, "lower --input-len or --output-len"},
    /* prompts: an answer has the sentence, and the others are answered */
    {GENERATE, FAILED, "line 1: not valid JSON at column 12: expected a value, but the text ends; is it cut short?",
     .file = "{\"prompt\": \n", .answered = true},
    {GENERATE, FAILED, "line 1: structured_outputs.grammar: line 1, column 8: 'x' is not defined",
     .file = "{\"prompt\": \"a\", \"structured_outputs\": {\"grammar\": \"start: x\"}}\n", .answered = true},
    {GENERATE, FAILED, "line 1: beam_width is 2, but a beam search cannot follow a grammar",
     .file = "{\"prompt\": \"a\", \"beam_width\": 2, \"structured_outputs\": {\"regex\": \"a\"}}\n", .answered = true},
    {GENERATE, FAILED, "line 1: the prompt holds \\\\ud800, which is half of a surrogate pair and no character",
     .file = "{\"prompt\": \"a \\ud800\"}\n", .answered = true},
    {GENERATE, FAILED, "line 1: temperature must be a number, found NaN",
     .file = "{\"prompt\": \"x\", \"temperature\": NaN}\n", .answered = true},
    {GENERATE, FAILED, "line 2: expected a JSON object {...}, as the file's name or a line before says",
     .file = "{\"prompt\": \"x\"}\n[1]\n", .answered = true},
    {GENERATE, FAILED, "line 1: prompt is a list of prompts; put each on a line of its own",
     .file = "{\"prompt\": [\"x\"]}\n", .answered = true},
    {GENERATE, FAILED, "line 1: custom_id is missing, by which the answer to a line of a batch is found",
     .file = "{\"url\": \"/v1/completions\", \"body\": {\"prompt\": \"x\"}}\n", .answered = true},
    {GENERATE, USAGE, "file: this is a JSON array, and not an object on each line: convert it with jq -c '.[]'",
     .file = "[\n"},
    {GENERATE, USAGE, "file: this is a JSON object over several lines", .file = "{\n"},
    {"generate --model GUIDE --device cpu --output /nowhere/x.jsonl.gz --input FILE", USAGE,
     "the output /nowhere/x.jsonl.gz has the name of a packed file, but text is written: leave the ending out",
     .file = "x"},
    {"merge FILE --output x.zst", FAILED, "the output x.zst has the name of a packed file, but text is written",
     .file = "{\"index\": 0, \"text\": \"\"}\n"},
    {GENERATE, FAILED, "line 1: one of prompt, prompt_token_ids and messages must be given", .file = "{\"id\": 1}\n",
     .answered = true},
    {GENERATE, FAILED, "line 1: there is no field 'max_token'", .file = "{\"prompt\": \"x\", \"max_token\": 3}\n",
     .answered = true},
    {GENERATE, FAILED, "line 1: prompt must be ", .file = "{\"prompt\": 5}\n", .answered = true},
    {GENERATE, FAILED, "line 1: the prompt is empty", .file = "{\"prompt\": \"\"}\n", .answered = true},
    {GENERATE, FAILED, "line 1: temperature ", .file = "{\"prompt\": \"x\", \"temperature\": -1}\n", .answered = true},
    {GENERATE, FAILED, "line 1: top_k must be ", .file = "{\"prompt\": \"x\", \"top_k\": \"3\"}\n", .answered = true},
    {GENERATE, FAILED, "line 1: n is 9", .file = "{\"prompt\": \"x\", \"n\": 9}\n", .answered = true},
    {GENERATE, FAILED, "line 1: a token id in prompt_token_ids must be an integer from 0 to 4095, found 99999",
     .file = "{\"prompt_token_ids\": [5, 99999]}\n", .answered = true},
    {GENERATE, FAILED, "line 1: stop holds an empty string", .file = "{\"prompt\": \"x\", \"stop\": [\"\"]}\n",
     .answered = true},
    {GENERATE, FAILED, "line 1: logit_bias has the key 'x', which is no token id",
     .file = "{\"prompt\": \"x\", \"logit_bias\": {\"x\": 1}}\n", .answered = true},
    {GENERATE, FAILED,
     "line 1: priority is 3, but requests run in order of arrival: set --scheduling-policy to priority",
     .file = "{\"prompt\": \"x\", \"priority\": 3}\n", .answered = true},
    {GENERATE, FAILED, "line 1: byte 2 is not UTF-8; convert", .file = "a\xFF\n", .answered = true},
    {GENERATE, FAILED, "line 1: messages must be a list of objects, each with a ",
     .file = "{\"messages\": \"hello\"}\n", .answered = true},
    {GENERATE, FAILED, "line 1: message 1 must be an object with a string \\\"role\\\"",
     .file = "{\"messages\": [{\"content\": \"x\"}]}\n", .answered = true},
    {"generate --model GUIDE --device cpu --max-model-len 16 --quiet --no-chat --input FILE", FAILED,
     "max_model_len is 16", .file = "a b c d e f g h i j k l m n o p q r s t u v w x y z\n", .answered = true},
};
enum { NUM_ROWS = sizeof rows / sizeof rows[0] };

/* Replaces `from` in a word by `to`. */
static void replace(char *word, size_t size, const char *from, const char *to)
{
    char rest[512], *at = strstr(word, from);
    if (!at) return;
    snprintf(rest, sizeof rest, "%s", at + strlen(from));
    snprintf(at, size - (size_t)(at - word), "%s%s", to, rest);
}

static void run(const struct row *row, struct program *p)
{
    static const char *const variables[] = {"LC_ALL=C", NULL};
    char words[MAX_WORDS][512], line[512], file[400];
    const char *argv[MAX_WORDS + 4] = {"/usr/bin/env", variables[0], row->variable ? row->variable : variables[0],
                                       QUIRE_EXECUTABLE};
    struct temp_folder folder;
    int count = 4;
    temp_folder_make(&folder);
    assert_true(path_join(file, sizeof file, folder.path, row->name ? row->name : "file"));
    if (row->file) temp_folder_write_string(&folder, row->name ? row->name : "file", row->file);
    snprintf(line, sizeof line, "%s", row->arguments);
    for (char *word = strtok(line, " "); word && count < MAX_WORDS + 3; word = strtok(NULL, " ")) {
        char *copy = words[count - 4];
        snprintf(copy, sizeof words[0], "%s", word);
        if (strcmp(copy, "EMPTY") == 0) copy[0] = '\0';
        if (strcmp(copy, "_") == 0) copy[0] = ' ';
        replace(copy, sizeof words[0], "GUIDE", QUIRE_GUIDE);
        replace(copy, sizeof words[0], "GOLDEN", QUIRE_TEST_DATA "/golden");
        replace(copy, sizeof words[0], "FILE", file);
        replace(copy, sizeof words[0], "FOLDER", folder.path);
        argv[count++] = copy;
    }
    argv[count] = NULL;
    program_run(p, argv, row->input);
    temp_folder_remove(&folder);
}

static const char *text_of(const struct text *text)
{
    return text->data ? text->data : "";
}

/* What is wrong with what quire said; NULL: nothing. */
static const char *check(const struct row *row, const struct program *p)
{
    const char *err = text_of(&p->err), *said = row->answered ? text_of(&p->out) : err;
    const bool usage = strncmp(row->sentence, "usage:", 6) == 0;
    if (p->exit_status != row->exit_status) return "another exit status";
    if (!strstr(said, row->sentence)) return "another sentence";
    if (!row->answered && p->out.length > 0) return "something on stdout";
    if (!usage && strncmp(err, "quire", 5) != 0) return "does not begin with quire";
    if (!p->err.length || err[p->err.length - 1] != '\n') return "no whole line on stderr";
    if (strstr(err, "(null)") || strchr(err, '\033')) return "not fit for a terminal";
    if (!usage && strchr(err, '\n') != err + p->err.length - 1) return "more than one line";
    return NULL;
}

static void test_rows(void **state)
{
    (void)state;
    int failures = 0;
    assert_true(NUM_ROWS >= 60);
    for (int i = 0; i < NUM_ROWS; i++) {
        struct program p;
        run(&rows[i], &p);
        const char *wrong = check(&rows[i], &p);
        if (wrong)
            print_message("quire %s: %s: expected %d '%s', got %d\n%s%s", rows[i].arguments, wrong, rows[i].exit_status,
                          rows[i].sentence, p.exit_status, text_of(&p.out), text_of(&p.err));
        failures += wrong != NULL;
        program_free(&p);
    }
    assert_int_equal(failures, 0);
}

static void print_rows(void)
{
    for (int i = 0; i < NUM_ROWS; i++) {
        struct program p;
        run(&rows[i], &p);
        printf("$ quire %s\n%s%s-> %d\n\n", rows[i].arguments, text_of(&p.out), text_of(&p.err), p.exit_status);
        program_free(&p);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows)};
    if (argc > 1 && strcmp(argv[1], "--print") == 0) {
        print_rows();
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
