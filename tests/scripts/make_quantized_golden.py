#!/usr/bin/env python3
"""Makes tests/data/quantized: tiny random checkpoints in every quantized format that quire reads, and what transformers
computes in float32 on the CPU with the weights that they stand for.

    python3 -m venv --system-site-packages VENV && VENV/bin/pip install llmcompressor gptqmodel
    VENV/bin/python tests/scripts/make_quantized_golden.py [NAME...]        (without a name: all of CHECKPOINTS)

Each folder holds config.json, the weights, and golden.json and golden.bin as make_golden.py describes them, with

    "x_errors": {"int8 token": e, "fp8 token": e, "fp8 group": e, "int8 group": e}

the error of the logits, |logits - float32 logits| / |float32 logits| over all cases together, if the input of every
quantized matrix is rounded to 8 bits and all else is computed in float64: with a scale for each token (int8: largest
magnitude / 127, fp8: / 448), for each token and 128 features (fp8), or each token and 32 features (int8); features are in the order of their groups.

README.md beside the checkpoints says which library made which. The weights that they stand for are computed here from
the specifications (quantized_formats.py) and compared with what the library itself computes from the checkpoint.
"""

import json
import pathlib
import shutil
import sys
import tempfile

import numpy
import safetensors.torch
import torch
import transformers

import make_golden
import quantized_formats as formats
from quantized_formats import (auto_fp8, by_channel, compressed_tensors, fp4, fp8_blocks, gptqmodel, modelopt_fp8, mxfp4_experts,
                               packed, packed_by_group, words_of_columns)

VOCAB = 128
LENGTHS = (1, 33, 100)
STEPS = 32
FEWEST_DISTINCT = 12
SMALL = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2)
LARGE = dict(hidden_size=128, intermediate_size=256, num_hidden_layers=1)  # several groups of 64 or 128
COMMON = dict(vocab_size=VOCAB, max_position_embeddings=256, rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=None,
              pad_token_id=None, num_attention_heads=2, num_key_value_heads=1, head_dim=64, tie_word_embeddings=True)
GPT_OSS = dict(hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_local_experts=4, num_experts_per_tok=2,
               sliding_window=24, num_attention_heads=1, tie_word_embeddings=False)
QWEN3_MOE = dict(hidden_size=64, moe_intermediate_size=32, num_hidden_layers=1, num_experts=5, num_experts_per_tok=2,
                 num_attention_heads=1, norm_topk_prob=True, tie_word_embeddings=False)
MIXTRAL = dict(hidden_size=64, intermediate_size=32, num_hidden_layers=1, num_local_experts=4, num_experts_per_tok=2,
               num_attention_heads=1)
NEMOTRON_H = dict(hidden_size=64, num_attention_heads=2, tie_word_embeddings=False, layer_norm_epsilon=1e-5,
                  intermediate_size=64, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
                  moe_shared_expert_intermediate_size=48,
                  layers_block_type=["full_attention", "mlp", "full_attention", "moe"])
# gated delta nets, and attention whose q_proj has gates, head by head
GATED = dict(hidden_size=128, intermediate_size=128, num_hidden_layers=2, head_dim=128, linear_num_key_heads=1,
             linear_num_value_heads=2, linear_key_head_dim=128, linear_value_head_dim=64,
             layer_types=["linear_attention", "full_attention"],
             rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25,
                                  mrope_section=[6, 5, 5], mrope_interleaved=True))
PHI3 = dict(SMALL, head_dim=None, rope_parameters=dict(rope_type="default", rope_theta=10000.0))  # qkv_proj, gate_up_proj


def scheme(group_size=None, **weights):
    return dict(targets=["Linear"], weights=dict(num_bits=4, group_size=group_size,
                                                 strategy="group" if group_size else "channel", **weights))


def autoawq_config(group_size):
    return dict(bits=4, group_size=group_size, modules_to_not_convert=None, quant_method="awq", version="gemm",
                zero_point=True)


FP8_CHANNEL = dict(weights=dict(num_bits=8, type="float", strategy="channel"),
                   input_activations=dict(num_bits=8, type="float", strategy="token", dynamic=True))
MIXED = dict(group_0=dict(targets=["re:.*self_attn.*"], **FP8_CHANNEL),
             group_1=dict(scheme(32, symmetric=False), targets=["re:.*mlp.*"]))
MIXED_IGNORE = ["lm_head", "re:.*down_proj", "model.layers.1.self_attn.k_proj"]
KV_SCHEME = dict(num_bits=8, type="float", strategy="tensor", dynamic=False, symmetric=True)

# name: (family, dtype, keys of config.json, quantizer)
CHECKPOINTS = {
    "ct-fp8-tensor": ("llama", "bfloat16", SMALL, compressed_tensors(calibrate=True, scheme="FP8", targets="Linear")),
    "ct-fp8-kv": ("llama", "bfloat16", SMALL, compressed_tensors(calibrate=True, scheme="FP8", targets="Linear",
                                                                kv_cache_scheme=KV_SCHEME)),
    "ct-fp8-channel": ("llama", "bfloat16", SMALL,
                       compressed_tensors(scheme="FP8_DYNAMIC", targets="Linear", shard_size="40KB")),
    "ct-fp8-lm-head": ("llama", "bfloat16", dict(SMALL, tie_word_embeddings=False),
                       compressed_tensors(scheme="FP8_DYNAMIC", targets="Linear", ignore=[])),
    "ct-fp8-block": ("llama", "bfloat16", dict(LARGE, intermediate_size=160),
                     compressed_tensors(scheme="FP8_BLOCK", targets="Linear")),
    "ct-w8a8": ("qwen2", "bfloat16", SMALL, compressed_tensors(scheme="W8A8", targets="Linear")),
    "ct-w4a16": ("llama", "bfloat16", LARGE, compressed_tensors(scheme="W4A16", targets="Linear")),
    "ct-w4a16-asym": ("llama", "bfloat16", dict(SMALL, tie_word_embeddings=False),
                      compressed_tensors(config_groups=dict(group_0=scheme(32, symmetric=False)))),
    "ct-w4a16-channel": ("llama", "float16", SMALL, compressed_tensors(config_groups=dict(group_0=scheme()))),
    "ct-w4a16-actorder": ("llama", "bfloat16", SMALL,
                          compressed_tensors("gptq", config_groups=dict(group_0=scheme(32, actorder="weight")))),
    "ct-w4a16-g-idx": ("llama", "bfloat16", SMALL, packed_by_group),
    "ct-w8a16": ("llama", "bfloat16", LARGE, compressed_tensors(scheme="W8A16", targets="Linear")),
    "ct-mxfp4": ("llama", "bfloat16", SMALL, fp4("MXFP4A16")),
    "ct-nvfp4": ("llama", "bfloat16", SMALL, fp4("NVFP4A16")),
    "ct-mixed": ("qwen3", "bfloat16", SMALL, compressed_tensors(config_groups=MIXED, ignore=MIXED_IGNORE)),
    "ct-phi3": ("phi3", "bfloat16", PHI3, compressed_tensors(config_groups=dict(group_0=scheme(32)))),
    "fp8": ("llama", "bfloat16", SMALL, auto_fp8("dynamic", [])),
    "fp8-static": ("llama", "bfloat16", SMALL, auto_fp8("static", ["k_proj", "down_proj"])),
    "fp8-phi3": ("phi3", "bfloat16", PHI3, auto_fp8("static", [])),
    "fp8-block": ("qwen3", "bfloat16", LARGE, fp8_blocks),
    "fp8-block-edges": ("llama", "bfloat16", dict(LARGE, hidden_size=160, intermediate_size=200), fp8_blocks),
    "awq": ("llama", "float16", dict(SMALL, intermediate_size=128),
            gptqmodel(autoawq_config(32), group_size=32, sym=False, method="awq", format="gemm")),
    "awq-g128": ("llama", "float16", LARGE, gptqmodel(group_size=128, sym=False, method="awq", format="gemm")),
    "gated-fp8-block": ("qwen3_5_text", "bfloat16", GATED, fp8_blocks),
    "gated-ct-w4a16": ("qwen3_5_text", "bfloat16", dict(GATED, hidden_size=64, intermediate_size=96, head_dim=64),
                       packed(4, 32, ignored=["re:.*in_proj_[ab]$"])),
    "gptq": ("llama", "float16", LARGE, gptqmodel(group_size=128, sym=True, desc_act=False)),
    "gptq-act-order": ("llama", "float16", SMALL, gptqmodel(group_size=32, sym=False, desc_act=True)),
    "gptq-v2": ("llama", "bfloat16", LARGE, gptqmodel(group_size=64, sym=False, desc_act=False, format="gptq_v2")),
    "gptq-channel": ("llama", "float16", SMALL,
                     gptqmodel(group_size=-1, sym=True, desc_act=False, act_group_aware=False)),
    "gptq-qwen2": ("qwen2", "float16", SMALL, gptqmodel(shard_size="40KB", group_size=32, sym=True, desc_act=True)),
    "gptq-phi3": ("phi3", "float16", PHI3, gptqmodel(fuse=True, group_size=32, sym=False, desc_act=True)),
    "moe-fp8": ("mixtral", "bfloat16", MIXTRAL, auto_fp8("static", ["block_sparse_moe.gate"])),
    "moe-fp8-block": ("qwen3_moe", "bfloat16", dict(QWEN3_MOE, hidden_size=128, moe_intermediate_size=256, num_experts=2, num_experts_per_tok=1,
                           norm_topk_prob=False), fp8_blocks),
    "moe-ct-fp8-channel": ("qwen3_moe", "bfloat16", QWEN3_MOE, by_channel("float-quantized")),
    "moe-ct-w8a8": ("qwen3_moe", "bfloat16", QWEN3_MOE, by_channel("int-quantized")),
    "moe-ct-w8a16": ("qwen3_moe", "bfloat16", QWEN3_MOE, packed(8, 32)),
    "moe-ct-w4a16": ("qwen3_moe", "bfloat16", QWEN3_MOE, packed(4, 32)),
    "moe-awq": ("mixtral", "float16", MIXTRAL,
                words_of_columns(dict(autoawq_config(32), modules_to_not_convert=["gate"]), symmetric=False)),
    "moe-modelopt-fp8": ("nemotron_h", "bfloat16", NEMOTRON_H, modelopt_fp8),
    "moe-gptq": ("qwen3_moe", "float16", QWEN3_MOE,
                 words_of_columns(dict(bits=4, group_size=32, desc_act=False, sym=True, quant_method="gptq",
                                       checkpoint_format="gptq"), symmetric=True)),
    "mxfp4-gpt-oss": ("gpt_oss", "bfloat16", GPT_OSS, mxfp4_experts),
}


def save_floats(folder, family, dtype, keys, seed):
    keys = {key: value for key, value in {**COMMON, **keys}.items() if key != "head_dim" or value}
    model = make_golden.new_model(family, keys).eval()
    make_golden.randomize(model, seed, make_golden.GAIN_OFFSETS.get(family, 0))
    model.to(getattr(torch, dtype)).save_pretrained(folder)
    formats.write_tokenizer(folder, VOCAB)


def dequantized_model(folder):
    """The checkpoint as a model of floats, and the input orders of the matrices that are quantized in it."""
    state, matrices = formats.dequantize(folder)
    with tempfile.TemporaryDirectory() as floats:
        shutil.copyfile(folder / "config.json", f"{floats}/config.json")
        formats.edit_config(pathlib.Path(floats), lambda config: config.pop("quantization_config"))
        safetensors.torch.save_file(state, f"{floats}/model.safetensors", metadata={"format": "pt"})
        model, loading = transformers.AutoModelForCausalLM.from_pretrained(
            floats, dtype=torch.float32, attn_implementation="eager", experts_implementation="batched_mm",
            output_loading_info=True)
    if set(loading["missing_keys"]) - {"lm_head.weight"} or loading["unexpected_keys"]:
        sys.exit(f"{folder}: missing {loading['missing_keys']}, unexpected {loading['unexpected_keys']}")
    return model.eval(), {formats.module_of(name): order for name, order in matrices.items()}


def make_cases(model, seed):
    generator = torch.Generator().manual_seed(1000 + seed)
    cases, blocks, offset = [], [], 0
    for length in LENGTHS:
        prompt = torch.randint(3, VOCAB, (length,), generator=generator).tolist()
        tokens, gaps = make_golden.greedy(model, prompt)
        if min(gaps) < make_golden.SMALLEST_GAP or len(set(tokens)) < FEWEST_DISTINCT:
            return None
        positions = list(range(length)) if length <= make_golden.ALL_POSITIONS_UP_TO else [length - 1]
        logits = make_golden.logits_of(model, prompt)[positions].numpy().astype("<f4")
        cases.append(dict(prompt=prompt, positions=positions, logits_offset=offset, greedy=tokens,
                          gaps=[float(f"{gap:.6g}") for gap in gaps]))
        blocks.append(logits.ravel())
        offset += logits.size
    return cases, numpy.concatenate(blocks)


def error_of(model, cases, logits):
    difference = size = 0
    for case in cases:
        ours = make_golden.logits_of(model, case["prompt"])[case["positions"]].double().numpy().ravel()
        exact = logits[case["logits_offset"]:][:ours.size].astype("f8")
        difference += numpy.sum((ours - exact) ** 2)
        size += numpy.sum(exact ** 2)
    return float((difference / size) ** 0.5)


def round_x(x, kind, order):
    """The input of a matmul as 8-bit numbers with a scale for each token, or each group of its features, which are in
    the order of the weight's columns."""
    if order is not None:
        return round_x(x[..., order], kind, None)[..., torch.argsort(order)]
    size = {"int8 group": 32, "fp8 group": 128}.get(kind, x.shape[-1])
    padded = torch.nn.functional.pad(x, (0, -x.shape[-1] % size))
    groups = padded.reshape(*x.shape[:-1], -1, size)
    largest = groups.abs().amax(dim=-1, keepdim=True)
    scale = torch.where(largest > 0, largest, 1) / (127 if kind.startswith("int8") else 448)
    codes = groups / scale
    codes = codes.round() if kind.startswith("int8") else codes.to(torch.float8_e4m3fn).to(x.dtype)
    return (codes * scale).reshape(padded.shape)[..., :x.shape[-1]]


def round_gated(experts, kind):
    """The input of down of experts. Returns hooks."""
    if not experts.has_gate:
        return [experts.act_fn.register_forward_hook(lambda module, args, out: round_x(out, kind, None))]
    gate = type(experts)._apply_gate
    experts._apply_gate = lambda gate_up: round_x(gate(experts, gate_up), kind, None)
    return []


def x_errors(model, matrices, cases, logits):
    exact, errors = model.double(), {}
    modules = dict(exact.named_modules())
    for kind in ("int8 token", "fp8 token", "fp8 group", "int8 group"):
        hooks = [modules[name].register_forward_pre_hook(
            lambda module, args, kind=kind, order=order: (round_x(args[0], kind, order), *args[1:]))
            for name, order in matrices.items()]
        for name in matrices:
            if hasattr(modules[name], "_apply_gate"):
                hooks += round_gated(modules[name], kind)
        errors[kind] = float(f"{error_of(exact, cases, logits):.4g}")
        for hook in hooks:
            hook.remove()
    return errors


def is_steady(folder, cases, logits):
    """Whether no router of experts chooses others when numbers are rounded."""
    model, matrices = dequantized_model(folder)
    if not any("experts" in name for name in matrices):
        return True
    return (x_errors(model, matrices, cases, logits)["int8 group"] < make_golden.LARGEST_ERRORS[0] and
            error_of(model.to(torch.bfloat16), cases, logits) < make_golden.LARGEST_ERRORS[0])


def library_error(folder, cases, logits):
    """The error of what the format's library computes with the checkpoint, in its own type."""
    if folder.name in ("ct-w4a16-g-idx", "fp8-block-edges", "gptq-phi3", "moe-ct-w8a8", "moe-awq",
                       "moe-gptq", "gated-ct-w4a16"):
        return None  # not read any more; all blocks of a side are taken to be equal; a fused matrix is not known; no
                     # library reads such experts on a CPU
    config = json.loads((folder / "config.json").read_text())
    method = config["quantization_config"]["quant_method"]
    if method in ("gptq", "awq"):
        from gptqmodel import BACKEND, GPTQModel
        backend = BACKEND.GPTQ_TORCH if method == "gptq" else BACKEND.AWQ_TORCH
        return error_of(GPTQModel.load(str(folder), backend=backend, device="cpu").model, cases, logits)
    keys = {}
    if method == "compressed-tensors":
        keys = dict(quantization_config=transformers.CompressedTensorsConfig(run_compressed=False))
    elif method == "mxfp4":
        keys = dict(quantization_config=transformers.Mxfp4Config(dequantize=True))
    elif "weight_block_size" in config["quantization_config"]:
        keys = dict(quantization_config=transformers.FineGrainedFP8Config(dequantize=True))
    else:
        return None  # transformers does not read AutoFP8's layout, nor ModelOpt's
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto", **keys).eval()
    for module in model.modules():  # weights alone
        if hasattr(module, "quantization_scheme"):
            module.quantization_enabled = False
    return error_of(model, cases, logits)


def write_golden(folder, model, matrices, cases, logits):
    bfloat16 = error_of(model.to(torch.bfloat16), cases, logits)
    errors = json.dumps(x_errors(dequantized_model(folder)[0], matrices, cases, logits))
    lines = ",\n".join(json.dumps(case) for case in cases)
    (folder / "golden.json").write_text('{"vocab_size": %d, "bfloat16_error": %.4g, "x_errors": %s, "cases": [\n%s\n]}\n'
                                        % (VOCAB, bfloat16, errors, lines))
    (folder / "golden.bin").write_bytes(logits.tobytes())
    return bfloat16, errors


def make_checkpoint(folder, name):
    family, dtype, keys, quantize = CHECKPOINTS[name]
    for seed in range(100):
        with tempfile.TemporaryDirectory() as floats:
            save_floats(pathlib.Path(floats), family, dtype, keys, seed)
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            quantize(pathlib.Path(floats), folder, VOCAB)
        model, matrices = dequantized_model(folder)
        made = make_cases(model, seed)
        if made and is_steady(folder, *made):
            break
    else:
        sys.exit(f"{name}: no seed gives varied text without near ties")
    bfloat16, errors = write_golden(folder, model, matrices, *made)
    library = library_error(folder, *made)
    if library is not None and not library < 2 * bfloat16:
        sys.exit(f"{name}: the library's logits differ by {library:.3g}, in bfloat16 they should by {bfloat16:.3g}")
    formats.keep_what_counts(folder)
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{name}: seed {seed}, {len(matrices)} quantized matrices, the library's error {library}, bfloat16 "
          f"{bfloat16:.3g}, {errors}, {size} bytes", flush=True)


def main():
    root = pathlib.Path(__file__).resolve().parent.parent / "data" / "quantized"
    names = sys.argv[1:] or list(CHECKPOINTS)
    unknown = set(names) - set(CHECKPOINTS)
    if unknown:
        sys.exit(f"no such checkpoint: {', '.join(sorted(unknown))}")
    make_golden.STEPS = STEPS
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    for name in names:
        make_checkpoint(root / name, name)


if __name__ == "__main__":
    main()
