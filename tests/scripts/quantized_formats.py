"""Quantized checkpoints as their formats' libraries write them, and the weights that they stand for.

A quantizer takes a folder with a checkpoint of floats and writes the quantized one to another. `dequantize` reads any
of them and returns float32 weights: scale * (stored - zero), by each format's specification.
"""

import json
import os
import re
import shutil

import numpy
import safetensors.torch
import torch
import transformers

E2M1 = numpy.array([sign * magnitude for sign in (1, -1) for magnitude in (0, 0.5, 1, 1.5, 2, 3, 4, 6)])
CALIBRATION = dict(samples=8, length=64)


def read_tensors(folder):
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors.update(safetensors.torch.load_file(path))
    return tensors


def calibration_tokens(vocab_size):
    generator = torch.Generator().manual_seed(0)
    shape = (CALIBRATION["samples"], CALIBRATION["length"])
    return torch.randint(3, vocab_size, shape, generator=generator).tolist()


def write_tokenizer(folder, vocab_size):
    """The libraries ask for one, though calibration has token ids."""
    from tokenizers import Tokenizer, models

    Tokenizer(models.WordLevel({f"t{i}": i for i in range(vocab_size)}, unk_token="t0")).save(
        str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(dict(
        tokenizer_class="PreTrainedTokenizerFast", bos_token="t1", eos_token="t2", pad_token="t0")))


def keep_what_counts(folder):
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name not in ("config.json", "golden.json", "golden.bin") and "safetensors" not in path.name:
            path.unlink()
        else:
            path.chmod(0o644)


def edit_config(folder, edit):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    edit(config)
    path.write_text(json.dumps(config, indent=2) + "\n")


def rewrite(folder, quantization_config, edit):
    """Replaces the tensors of each quantized matrix by edit(name, its tensors), and config.json's description."""
    (path,) = folder.glob("*.safetensors")
    tensors = safetensors.torch.load_file(path)
    out = {}
    for name in sorted(tensors):
        prefix = name.removesuffix(".weight")
        if is_matrix(name, tensors[name]):
            out.update({f"{prefix}.{key}": value for key, value in edit(prefix, tensors[name]).items()})
        else:
            out[name] = tensors[name]
    safetensors.torch.save_file({name: t.contiguous() for name, t in out.items()}, path, metadata={"format": "pt"})
    edit_config(folder, lambda config: config.update(quantization_config=quantization_config))


def is_matrix(name, tensor):
    return ".layers." in name and name.endswith(".weight") and tensor.dim() == 2 and not stays_float(name)


def stays_float(name):
    """Routers, and what decides how a recurrent layer forgets and learns."""
    return re.search(r"\.(mlp|block_sparse_moe|mixer)\.gate\.weight$|linear_attn\.in_proj_[ab]\.weight$", name)


# ---- quantizers ----


def compressed_tensors(modifier="rtn", calibrate=False, shard_size=None, **recipe):
    """llm-compressor."""
    def quantize(source, folder, vocab_size):
        from datasets import Dataset
        from llmcompressor import oneshot
        from llmcompressor.modifiers.quantization import GPTQModifier, QuantizationModifier

        model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype="auto")
        samples = [dict(input_ids=ids, attention_mask=[1] * len(ids)) for ids in calibration_tokens(vocab_size)]
        data = dict(dataset=Dataset.from_list(samples), num_calibration_samples=CALIBRATION["samples"],
                    max_seq_length=CALIBRATION["length"]) if calibrate or modifier == "gptq" else {}
        kind = GPTQModifier if modifier == "gptq" else QuantizationModifier
        oneshot(model=model, recipe=kind(**{"ignore": ["lm_head"], **recipe}), tokenizer=str(source), **data)
        model.save_pretrained(folder, save_compressed=True, **({"max_shard_size": shard_size} if shard_size else {}))
    return quantize


def gptqmodel(new_config=None, shard_size=None, fuse=False, **keys):
    """gptqmodel, GPTQ and AWQ."""
    def quantize(source, folder, vocab_size):
        os.environ.setdefault("GPTQMODEL_CPU_WORKERS", "2")
        from gptqmodel import GPTQModel, QuantizeConfig

        dtype = getattr(torch, json.loads((source / "config.json").read_text())["dtype"])
        model = GPTQModel.load(str(source), QuantizeConfig(bits=4, device="cpu", **keys), dtype=dtype)
        model.quantize([dict(input_ids=ids, attention_mask=[1] * len(ids)) for ids in calibration_tokens(vocab_size)],
                       batch_size=1)
        model.save(str(folder), **({"max_shard_size": shard_size} if shard_size else {}))
        edit_config(folder, lambda config: config["quantization_config"].pop("meta"))
        if fuse:
            fuse_gate_up(folder)
        if new_config:
            edit_config(folder, lambda config: config.update(quantization_config=new_config))
    return quantize


def fuse_gate_up(folder):
    """Phi-3's gate_up_proj, which gptqmodel cuts in two, and AutoGPTQ did not. Both have the same input, and so the
    same order of input features."""
    path = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    for name in [name for name in tensors if ".gate_proj." in name]:
        gate, up = tensors.pop(name), tensors.pop(name.replace("gate_proj", "up_proj"))
        assert gate.dim() == 2 or torch.equal(gate, up), name
        tensors[name.replace("gate_proj", "gate_up_proj")] = torch.cat((gate, up), dim=1) if gate.dim() == 2 else gate
    safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})


def copy_floats(source, folder):
    for path in source.iterdir():
        shutil.copyfile(path, folder / path.name)


def auto_fp8(activation_scheme, ignored):
    """AutoFP8's layout, written to its specification: the package is not on PyPI. A scale for each matrix, and one for
    its input where that is static."""
    def quantize(source, folder, vocab_size):
        names = ["lm_head"]

        def edit(name, weight):
            if any(part in name for part in ignored):
                names.append(name)
                return dict(weight=weight)
            scale = weight.float().abs().max() / 448
            static = dict(input_scale=torch.tensor(0.0625)) if activation_scheme == "static" else {}
            return dict(weight=(weight.float() / scale).to(torch.float8_e4m3fn), weight_scale=scale.clone(), **static)
        copy_floats(source, folder)
        rewrite(folder, dict(quant_method="fp8", activation_scheme=activation_scheme, ignored_layers=names), edit)
    return quantize


def modelopt_fp8(source, folder, vocab_size):
    """NVIDIA ModelOpt's FP8 of Nemotron 3, written to its specification: a scale for each matrix and one for its input;
    attention stays in floats, and has the scales of an fp8 cache."""
    names = ["lm_head", "*.mixer.gate"]

    def edit(name, weight):
        if name.endswith(("q_proj", "k_proj", "v_proj", "o_proj")):
            names.append(name)
            cache = {"k_proj": "k_scale", "v_proj": "v_scale"}.get(name.rpartition(".")[2])
            return {"weight": weight, **({cache: torch.tensor(0.0625)} if cache else {})}
        scale = weight.float().abs().max() / 448
        return dict(weight=(weight.float() / scale).to(torch.float8_e4m3fn), weight_scale=scale.clone(),
                    input_scale=torch.tensor(0.0625))
    copy_floats(source, folder)
    rewrite(folder, dict(quant_method="modelopt", quant_algo="FP8", ignore=names,
                         kv_cache_scheme=dict(dynamic=False, num_bits=8, type="float"),
                         producer=dict(name="modelopt", version="0.40.0")), edit)


def fp8_blocks(source, folder, vocab_size):
    """transformers' finegrained_fp8, the layout of DeepSeek-V3 and Qwen3-FP8, written to its specification: quantizing
    needs a GPU there. A scale for each block of 128 x 128, smaller at the edges. Of experts, all that stays in floats
    is listed, as Qwen3-30B-A3B-FP8 lists it."""
    def edit(name, weight):
        rows, columns = weight.shape
        blocks = [-(-rows // 128), -(-columns // 128)]
        padded = torch.zeros(blocks[0] * 128, blocks[1] * 128)
        padded[:rows, :columns] = weight.float()
        padded = padded.view(blocks[0], 128, blocks[1], 128)
        scales = padded.abs().amax(dim=(1, 3)) / 448
        codes = (padded / scales[:, None, :, None]).view(blocks[0] * 128, blocks[1] * 128)[:rows, :columns]
        return dict(weight=codes.to(torch.float8_e4m3fn), weight_scale_inv=scales)
    copy_floats(source, folder)
    names = [name.removesuffix(".weight") for name in read_tensors(folder)]
    if any(".experts." in name for name in names):
        floats = dict(modules_to_not_convert=["lm_head", *(name for name in names if re.search("norm$|gate$", name))])
    elif any("linear_attn" in name for name in names):
        floats = dict(modules_to_not_convert=["lm_head", *(name for name in names
                                                           if re.search("norm$|conv1d$|in_proj_[ab]$", name))])
    else:
        floats = {}
    rewrite(folder, dict(quant_method="fp8", activation_scheme="dynamic", fmt="e4m3", weight_block_size=[128, 128],
                         **floats), edit)


def fp4(name):
    """MXFP4 or NVFP4 by the library compressed-tensors alone, which packs what its preset scheme "MXFP4A16" or
    "NVFP4A16" makes of the largest magnitudes."""
    def quantize(source, folder, vocab_size):
        from compressed_tensors.compressors import BaseCompressor
        from compressed_tensors.quantization import QuantizationConfig, preset_name_to_scheme
        from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

        scheme = preset_name_to_scheme(name, ["Linear"])
        kind = "mxfp4-pack-quantized" if name.startswith("MX") else "nvfp4-pack-quantized"
        compressor = BaseCompressor.get_value_from_registry(kind)

        def edit(_, weight):
            state = dict(weight=weight)
            groups = weight.unflatten(-1, (-1, scheme.weights.group_size))
            if name.startswith("NV"):
                state["weight_global_scale"] = generate_gparam(weight.min(), weight.max())
            scale, _ = calculate_qparams(groups.amin(-1), groups.amax(-1), scheme.weights,
                                         global_scale=state.get("weight_global_scale"))
            return compressor.compress(dict(state, weight_scale=scale), scheme)
        copy_floats(source, folder)
        config = QuantizationConfig(config_groups=dict(group_0=scheme), format=kind, ignore=["lm_head"],
                                    quantization_status="compressed")
        rewrite(folder, config.model_dump(mode="json"), edit)
    return quantize


def mxfp4_experts(source, folder, vocab_size):
    """gpt-oss as published, written to its specification: quantizing needs a GPU in transformers. All experts of a layer
    are in one tensor [experts, out, groups, 16 bytes], with an e8m0 scale for each group of 32 input features."""
    copy_floats(source, folder)
    (path,) = folder.glob("*.safetensors")
    out = {}
    for name, tensor in safetensors.torch.load_file(path).items():
        if tensor.dim() < 3:
            out[name] = tensor
            continue
        groups = numbers(tensor.transpose(1, 2)).reshape(tensor.shape[0], tensor.shape[2], -1, 32)
        exponents = numpy.floor(numpy.log2(abs(groups).max(axis=-1))) - 2
        nearest = abs(groups[..., None] / 2.0 ** exponents[..., None, None] - E2M1).argmin(axis=-1)
        out[f"{name}_blocks"] = torch.from_numpy((nearest[..., ::2] | nearest[..., 1::2] << 4).astype("u1", order="C"))
        out[f"{name}_scales"] = torch.from_numpy((exponents + 127).astype("u1", order="C"))
    safetensors.torch.save_file(out, path, metadata={"format": "pt"})
    floats = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    edit_config(folder, lambda config: config.update(
        quantization_config=dict(modules_to_not_convert=floats, quant_method="mxfp4")))


def packed_by_group(source, folder, vocab_size):
    """compressed-tensors' pack-quantized with actorder "group", written to the specification of 0.9: newer versions
    read it and write it no more. Input features are in groups in the order of a permutation; g_idx names the groups."""
    def edit(name, weight):
        rows, columns = weight.shape
        generator = torch.Generator().manual_seed(len(name))
        g_idx = torch.arange(columns, dtype=torch.int32) // 32
        g_idx = g_idx[torch.randperm(columns, generator=generator)]
        order = torch.argsort(g_idx, stable=True)
        groups = weight.float()[:, order].view(rows, columns // 32, 32)
        scales = (groups.abs().amax(dim=2) / 7.5).to(torch.bfloat16)
        codes = torch.empty(rows, columns)
        codes[:, order] = (groups / scales.float()[:, :, None]).round().clamp(-8, 7).view(rows, columns)
        return dict(weight_packed=pack(codes.int() + 8, 1), weight_scale=scales, weight_g_idx=g_idx,
                    weight_shape=torch.tensor([rows, columns]))
    weights = dict(actorder="group", block_structure=None, dynamic=False, group_size=32, num_bits=4, observer="minmax",
                   observer_kwargs={}, strategy="group", symmetric=True, type="int")
    copy_floats(source, folder)
    rewrite(folder, dict(quant_method="compressed-tensors", format="pack-quantized", global_compression_ratio=1.5,
                         ignore=["lm_head"], kv_cache_scheme=None, quantization_status="compressed",
                         config_groups=dict(group_0=dict(input_activations=None, output_activations=None,
                                                         targets=["Linear"], weights=weights))), edit)


def linear_codes(weight, bits, group_size, symmetric, dtype):
    """Codes [out, in] of 0 to 2^bits - 1, scales and zeros [out, groups], of the smallest and the largest number of a
    group; weight = (code - zero) * scale."""
    most = (1 << bits) - 1
    groups = weight.float().unflatten(1, (-1, group_size))
    if symmetric:
        scales = (groups.abs().amax(2) * 2 / most).to(dtype)
        zeros = torch.full_like(scales, (most + 1) // 2).int()
    else:
        low, high = groups.amin(2).clamp(max=0), groups.amax(2).clamp(min=0)
        scales = ((high - low) / most).to(dtype)
        zeros = (-low / scales.float()).round().clamp(0, most).int()
    codes = (groups / scales.float()[..., None] + zeros[..., None]).round().clamp(0, most).int()
    return codes.flatten(1), scales, zeros


def int_config(format, bits, group_size, activations=None, ignored=()):
    """What llm-compressor writes of a model with experts."""
    weights = dict(actorder=None, block_structure=None, dynamic=False, group_size=group_size, num_bits=bits,
                   observer="minmax", observer_kwargs={}, strategy="group" if group_size else "channel",
                   symmetric=True, type="float" if format == "float-quantized" else "int")
    group = dict(input_activations=activations, output_activations=None, targets=["Linear"], weights=weights)
    return dict(quant_method="compressed-tensors", format=format, global_compression_ratio=None,
                ignore=["lm_head", "re:.*mlp.gate$", *ignored], kv_cache_scheme=None, quantization_status="compressed",
                config_groups=dict(group_0=group))


def packed(bits, group_size, ignored=()):
    """compressed-tensors' pack-quantized, W4A16 or W8A16, written to its specification."""
    def quantize(source, folder, vocab_size):
        def edit(name, weight):
            codes, scales, _ = linear_codes(weight, bits, group_size, True, weight.dtype)
            return dict(weight_packed=pack(codes, 1, bits), weight_scale=scales,
                        weight_shape=torch.tensor(weight.shape))
        copy_floats(source, folder)
        rewrite(folder, int_config("pack-quantized", bits, group_size, ignored=ignored), edit)
    return quantize


def by_channel(format):
    """compressed-tensors' float-quantized or int-quantized with a scale for each output feature and dynamic activations,
    written to its specification."""
    def quantize(source, folder, vocab_size):
        def edit(name, weight):
            scales = (weight.float().abs().amax(1, keepdim=True) / (448 if is_fp8 else 127.5)).to(weight.dtype)
            codes = weight.float() / scales.float()
            codes = codes.to(torch.float8_e4m3fn) if is_fp8 else codes.round().clamp(-128, 127).to(torch.int8)
            return dict(weight=codes, weight_scale=scales)
        is_fp8 = format == "float-quantized"
        tokens = dict(dynamic=True, num_bits=8, observer=None, strategy="token", symmetric=True,
                      type="float" if is_fp8 else "int")
        copy_floats(source, folder)
        rewrite(folder, int_config(format, 8, None, tokens), edit)
    return quantize


def words_of_columns(config, symmetric):
    """GPTQ or AWQ, written to their specifications: words are of the transposed matrix."""
    def quantize(source, folder, vocab_size):
        def edit(name, weight):
            codes, scales, zeros = linear_codes(weight, 4, config["group_size"], symmetric, torch.float16)
            codes, scales, zeros = codes.T, scales.T, zeros.T
            if config["quant_method"] == "awq":
                return dict(qweight=pack(in_awq_order(codes), 1), qzeros=pack(in_awq_order(zeros), 1), scales=scales)
            return dict(qweight=pack(codes, 0), qzeros=pack(zeros - 1, 1), scales=scales,
                        g_idx=torch.arange(codes.shape[0], dtype=torch.int32) // config["group_size"])
        copy_floats(source, folder)
        rewrite(folder, config, edit)
    return quantize


# ---- what the checkpoints stand for ----


def pack(codes, axis, bits=4):
    """Unsigned codes to int32 words along an axis, the first in the lowest bits."""
    codes = numpy.moveaxis(codes.numpy().astype("u4"), axis, -1)
    codes = codes.reshape(*codes.shape[:-1], -1, 32 // bits)
    words = numpy.bitwise_or.reduce(codes << numpy.arange(0, 32, bits, dtype="u4"), axis=-1)
    return torch.from_numpy(numpy.moveaxis(words, -1, axis).astype("u4").view("i4").copy())


def unpack(words, axis, bits=4, order=None):
    """The reverse, to float64. order: which of its elements a word has in its lowest bits, the next, and so on."""
    words = numpy.moveaxis(words.numpy().view("u4"), axis, -1)
    codes = words[..., None] >> numpy.arange(0, 32, bits, dtype="u4") & ((1 << bits) - 1)
    if order:
        codes = codes[..., numpy.argsort(order)]
    return numpy.moveaxis(codes.reshape(*words.shape[:-1], -1), -1, axis).astype("f8")


def numbers(tensor):
    return tensor.to(torch.float64).numpy()


def spread(groups, size):
    """[rows, groups] to [rows, size]."""
    return numpy.repeat(groups, -(-size // groups.shape[1]), axis=1)[:, :size]


def dequantize_rows(t, block):
    codes, scales = numbers(t["weight"]), numbers(t.get("weight_scale", t.get("weight_scale_inv")))
    if scales.size == 1:
        return codes * scales.item()
    if block:
        scales = numpy.repeat(scales, 128, axis=0)[:codes.shape[0]]
        return codes * numpy.repeat(scales, 128, axis=1)[:, :codes.shape[1]]
    return codes * spread(scales.reshape(codes.shape[0], -1), codes.shape[1])


def dequantize_packed(t, bits):
    codes, scales = unpack(t["weight_packed"], 1, bits), numbers(t["weight_scale"])
    rows, columns = t["weight_shape"].tolist()
    zeros = unpack(t["weight_zero_point"], 0, bits)[:rows] if "weight_zero_point" in t else \
        numpy.full_like(scales, 1 << (bits - 1))
    if "weight_g_idx" in t:
        groups = t["weight_g_idx"].numpy()
        return (codes - zeros[:, groups]) * scales[:, groups]
    return (codes[:, :columns] - spread(zeros, columns)) * spread(scales, columns)


def dequantize_fp4(t):
    """e2m1, by its bits: sign, exponent of 2, mantissa of 1. A scale is e8m0, or e4m3 by a scale of the matrix."""
    packed = t["weight_packed"].numpy()
    codes = numpy.stack((packed & 15, packed >> 4), axis=-1).reshape(packed.shape[0], -1).astype("i4")
    exponents, mantissas = codes >> 1 & 3, codes & 1
    magnitudes = numpy.where(exponents == 0, mantissas / 2, (1 + mantissas / 2) * 2.0 ** (exponents - 1))
    if "weight_global_scale" in t:
        scales = (t["weight_scale"].float() / t["weight_global_scale"]).numpy()
    else:
        scales = 2.0 ** (t["weight_scale"].numpy().astype("f8") - 127)
    return numpy.where(codes >= 8, -magnitudes, magnitudes) * spread(scales, codes.shape[1])


def dequantize_gptq(t, zeros_less_one):
    groups = t["g_idx"].numpy()
    codes, zeros = unpack(t["qweight"], 0), unpack(t["qzeros"], 1) + zeros_less_one
    return ((codes - zeros[groups]) * numbers(t["scales"])[groups]).T


AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def in_awq_order(codes):
    return codes.unflatten(1, (-1, 8))[..., AWQ_ORDER].flatten(1)


def dequantize_awq(t):
    codes, zeros = unpack(t["qweight"], 1, order=AWQ_ORDER), unpack(t["qzeros"], 1, order=AWQ_ORDER)
    groups = numpy.arange(codes.shape[0]) // (codes.shape[0] // zeros.shape[0])
    return ((codes - zeros[groups]) * numbers(t["scales"])[groups]).T


def dequantize_matrix(tensors, config):
    if "weight_packed" in tensors and tensors["weight_packed"].dtype == torch.uint8:
        return dequantize_fp4(tensors)
    if "weight_packed" in tensors:
        bits = 32 * tensors["weight_packed"].shape[1] // tensors["weight_shape"][1].item()
        return dequantize_packed(tensors, bits)
    if "g_idx" in tensors:
        return dequantize_gptq(tensors, config.get("checkpoint_format", "gptq") == "gptq")
    if "qweight" in tensors:
        return dequantize_awq(tensors)
    return dequantize_rows(tensors, block="weight_scale_inv" in tensors or "block" in json.dumps(config) and
                           tensors["weight_scale"].dim() == 2 and
                           tensors["weight_scale"].shape[0] < tensors["weight"].shape[0])


QUANTIZED = ("weight_packed", "qweight", "weight_scale", "weight_scale_inv")


def input_order(tensors):
    """The input features in the order of their groups, or None."""
    groups = tensors.get("g_idx", tensors.get("weight_g_idx"))
    return None if groups is None else torch.argsort(groups, stable=True)


def module_of(name):
    """The module in transformers of a quantized matrix: of experts, one for all."""
    name = re.sub(r"\.(mlp|block_sparse_moe)\.experts\..*", ".mlp.experts", name)
    return re.sub(r"\.mixer\.experts\..*", ".mixer.experts", name.replace("backbone.", "model."))


def dequantize(folder):
    """The state dict in float32, and the input order of each quantized matrix, or module of quantized experts."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    config = json.loads((folder / "config.json").read_text())["quantization_config"]
    tensors, state, matrices, experts = read_tensors(folder), {}, {}, []
    for name, tensor in tensors.items():
        prefix, _, last = name.rpartition(".")
        if name.endswith("_blocks"):
            whole = name.removesuffix("_blocks")
            state[whole] = convert_moe_packed_tensors(tensor, tensors[f"{whole}_scales"], dtype=torch.float32)
            experts.append(prefix)
        elif name.removesuffix("_scales") + "_blocks" in tensors:
            continue
        elif any(f"{prefix}.{key}" in tensors for key in QUANTIZED) and last != "bias":
            matrices.setdefault(prefix, {})[last] = tensor
        elif last not in ("k_scale", "v_scale"):  # of a KV cache
            state[name] = tensor.float()
    for prefix, parts in matrices.items():
        state[f"{prefix}.weight"] = torch.from_numpy(dequantize_matrix(parts, config).astype("f4", order="C"))
    orders = {prefix: input_order(parts) for prefix, parts in matrices.items()}
    return state, {**orders, **dict.fromkeys(experts)}
