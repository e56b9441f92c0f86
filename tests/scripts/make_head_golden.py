#!/usr/bin/env python3
"""Makes tests/data/heads: a tiny random target, heads that draft from its hidden states, and the heads' logits.

    python3 tests/scripts/make_head_golden.py [head ...]        (needs torch, transformers and safetensors)

It makes the heads that are named, or all of them and the target.

The target is transformers' Llama. EAGLE-3 heads (Li et al., 2025) are computed here, in float32, from the paper and the
names and norms of the published checkpoints:

    x = fc([states before three layers])          or, of a draft, the head's own residual stream of the pass before
    y = x + attention([input_layernorm(embedding of the next token), hidden_norm(x)])
    z = y + mlp(post_attention_layernorm(y))      the residual stream; further layers are Llama's
    logits = lm_head(norm(z)), of draft ids; target id = draft id + d2t[draft id]

MTP heads (DeepSeek-AI, 2024, section 2.2) lie in their target's own files: the last layer of a model is said to be the
next one, which MTP renames. The layer itself is transformers'; around it is computed here

    x = projection([embedding_norm(embedding of the next token), state_norm(state)])
    logits = lm_head(final_norm(layer(x)))                            with the target's lm_head

The state is the target's residual stream or, of a draft, the head's own, before the final norm or behind it: GLM's is
the target's behind it, and its own before; MiMo's (vLLM's mimo_mtp.py, which is Xiaomi's) is the other way around, and
comes first; ERNIE's (Baidu's PaddleFormers) are both before it, and final_norm is the target's; Qwen's (vLLM's
qwen3_next_mtp.py and qwen3_5_mtp.py) are both behind it. DeepSeek's are as GLM's. transformers does not have MiMo, which
is its Qwen2.

Each head's folder holds config.json, the weights, and

    golden.json  {"vocab_size", "cases": [{"prompt": ids, "positions": [...], "logits_offset": n, "greedy": 4 ids,
                  "gaps": 4 numbers}]}
    golden.bin   little-endian float32: case i's logits [len(positions), vocab_size] start at element logits_offset.
                 They are those of a pass over the prompt, whose token i reads the target's states of token i and the
                 embedding of token i + 1, and then of 3 passes of one token, which read the head's own states and the
                 draft of the pass before. Ids that are no draft id have -infinity.

"greedy" is the token that the target puts behind the prompt, and the drafts behind that; "gaps" is the difference
between the two highest logits at each.
"""

import json
import math
import pathlib
import sys

import numpy
import torch
import transformers
from safetensors.torch import load_file, save_file

FOLDER = pathlib.Path(__file__).parent.parent / "data" / "heads"
VOCAB = 160
LENGTHS = (1, 9, 40)
PASSES = 3
SMALLEST_GAP = 0.01
TARGET = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=7, num_attention_heads=2,
              num_key_value_heads=1, head_dim=64, tie_word_embeddings=False, max_position_embeddings=256,
              bos_token_id=1, eos_token_id=None, torch_dtype="bfloat16")
HEADS = {
    # one layer, called midlayer; a part of the vocabulary; the target's embedding
    "eagle3": dict(hidden_size=32, intermediate_size=40, num_hidden_layers=1, num_attention_heads=2,
                   num_key_value_heads=1, head_dim=64, draft_vocab_size=96, rms_norm_eps=1e-5, rope_theta=50000.0),
    # two layers, numbered; the whole vocabulary, an embedding of its own, other sizes, and layers that the file names
    "eagle3_layers": dict(hidden_size=48, target_hidden_size=32, intermediate_size=40, num_hidden_layers=2,
                          num_attention_heads=2, num_key_value_heads=2, head_dim=64, draft_vocab_size=VOCAB,
                          attention_bias=True, rms_norm_eps=1e-5, rope_theta=10000.0,
                          eagle_config=dict(eagle_aux_hidden_state_layer_ids=[0, 4, 6], use_aux_hidden_state=True)),
}


SIZES = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
             num_key_value_heads=1, head_dim=64, rms_norm_eps=1e-5, max_position_embeddings=256, bos_token_id=1,
             eos_token_id=None)
DEEPSEEK = dict(layer="model.layers.2", state_first=False, state_before_norm=False, own_state_normed=False,
                names=dict(projection="model.layers.2.eh_proj", embedding_norm="model.layers.2.enorm",
                           state_norm="model.layers.2.hnorm", final_norm="model.layers.2.shared_head.norm"))
QWEN = dict(layer="mtp.layers.0", state_first=False, state_before_norm=False, own_state_normed=True, gain_offset=1,
            names=dict(projection="mtp.fc", embedding_norm="mtp.pre_fc_norm_embedding",
                       state_norm="mtp.pre_fc_norm_hidden", final_norm="mtp.norm"))
LATENT = dict(num_key_value_heads=2, head_dim=16, q_lora_rank=24, kv_lora_rank=32, qk_rope_head_dim=16,
              qk_nope_head_dim=16, moe_intermediate_size=16, first_k_dense_replace=1, tie_word_embeddings=False)
DELTA_NET = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=16)
QWEN_EXPERTS = dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=16, shared_expert_intermediate_size=16)
MROPE = dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25, mrope_section=[3, 3, 2],
             mrope_interleaved=True)
MTP = {
    "mtp_glm4_moe": dict(
        **DEEPSEEK, family="Glm4Moe",
        config=dict(moe_intermediate_size=16, attention_bias=True, use_qk_norm=True, n_routed_experts=8,
                    num_experts_per_tok=3, n_shared_experts=1, n_group=4, topk_group=2, routed_scaling_factor=1.5,
                    first_k_dense_replace=1, partial_rotary_factor=0.5, tie_word_embeddings=False)),
    # the next layer has no experts
    "mtp_ernie4_5_moe": dict(
        family="Ernie4_5_Moe", layer="model.mtp_block.0", state_first=False, state_before_norm=True,
        own_state_normed=False,
        config=dict(moe_intermediate_size=16, moe_num_experts=6, moe_k=2, moe_num_shared_experts=1,
                    moe_layer_start_index=1, moe_layer_end_index=1, tie_word_embeddings=True),
        names=dict(projection="model.mtp_linear_proj.0", embedding_norm="model.mtp_emb_norm.0",
                   state_norm="model.mtp_hidden_norm.0"),
        file=dict(moe_layer_end_index=-1)),
    "mtp_mimo": dict(
        family="Qwen2", layer="model.mtp_layers.0", state_first=True, state_before_norm=True, own_state_normed=True,
        config=dict(tie_word_embeddings=False, use_sliding_window=False),
        names=dict(projection="model.mtp_layers.0.input_proj", embedding_norm="model.mtp_layers.0.token_layernorm",
                   state_norm="model.mtp_layers.0.hidden_layernorm", final_norm="model.mtp_layers.0.final_layernorm"),
        file=dict(architectures=["MiMoForCausalLM"], model_type="mimo", attention_bias=True)),
    # latent attention; the file has copies of the embedding and of lm_head in the layer
    "mtp_deepseek_v3": dict(
        **DEEPSEEK, family="DeepseekV3", copies=True,
        config=dict(**LATENT, v_head_dim=32, attention_bias=True, n_routed_experts=8, n_group=4, topk_group=2,
                    num_experts_per_tok=3, rope_parameters=dict(
                        rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=64,
                        beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0))),
    "mtp_glm4_moe_lite": dict(
        **DEEPSEEK, family="Glm4MoeLite",
        config=dict(**LATENT, v_head_dim=48, n_routed_experts=6, num_experts_per_tok=2)),
    # targets with recurrent layers; the next layer has attention
    "mtp_qwen3_next": dict(
        **QWEN, family="Qwen3Next", next_layers=None,
        config=dict(**DELTA_NET, **QWEN_EXPERTS, layer_types=["linear_attention", "full_attention", "full_attention"])),
    "mtp_qwen3_5": dict(
        **QWEN, family="Qwen3_5", config_class="Qwen3_5TextConfig", mrope=True, next_layers="mtp_num_hidden_layers",
        config=dict(**DELTA_NET, layer_types=["linear_attention", "full_attention", "full_attention"],
                    rope_parameters=MROPE, tie_word_embeddings=True)),
    # as it is published, beside a vision tower: the target's experts are stacked, the next layer's are not
    "mtp_qwen3_5_moe": dict(
        **QWEN, family="Qwen3_5Moe", config_class="Qwen3_5MoeTextConfig", mrope=True, next_layers="mtp_num_hidden_layers",
        stacked=True, vision="qwen3_5_moe",
        config=dict(**DELTA_NET, **QWEN_EXPERTS, rope_parameters=MROPE,
                    layer_types=["linear_attention", "full_attention", "full_attention"])),
}


def rms_norm(x, gain, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * gain


def rotate(x, positions, theta):
    """x [tokens, heads, head_size]"""
    half = x.shape[-1] // 2
    frequencies = theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = positions.double()[:, None] * frequencies
    cos, sin = angles.cos().float()[:, None], angles.sin().float()[:, None]
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Head:
    def __init__(self, config, tensors, embedding):
        self.config, self.stored = config, tensors
        self.tensors = {name: t.float() for name, t in tensors.items()}
        self.embedding = self.tensors.get("embed_tokens.weight", embedding)
        self.ids = torch.arange(config["draft_vocab_size"]) + tensors.get("d2t", torch.zeros(1, dtype=torch.long))
        self.prefixes = layer_names(config)
        layers = config.get("eagle_config", {}).get("eagle_aux_hidden_state_layer_ids")
        count = TARGET["num_hidden_layers"]
        self.state_layers = layers or [2, count // 2, count - 3]

    def begin(self, hidden_states):
        """What the first pass reads; hidden_states[i] is the residual stream before layer i."""
        self.cache = [(None, None)] * len(self.prefixes)
        return self.linear("fc", torch.cat([hidden_states[layer][0] for layer in self.state_layers], -1))

    def linear(self, name, x):
        y = x @ self.tensors[name + ".weight"].T
        return y + self.tensors[name + ".bias"] if name + ".bias" in self.tensors else y

    def norm(self, name, x):
        return rms_norm(x, self.tensors[name + ".weight"], self.config["rms_norm_eps"])

    def attention(self, layer, x, positions):
        c, prefix, size = self.config, self.prefixes[layer] + ".self_attn.", self.config["head_dim"]
        q = rotate(self.linear(prefix + "q_proj", x).view(len(x), -1, size), positions, c["rope_theta"])
        k = rotate(self.linear(prefix + "k_proj", x).view(len(x), -1, size), positions, c["rope_theta"])
        v = self.linear(prefix + "v_proj", x).view(len(x), -1, size)
        if self.cache[layer][0] is not None:
            k, v = torch.cat([self.cache[layer][0], k]), torch.cat([self.cache[layer][1], v])
        self.cache[layer] = k, v
        shared = c["num_attention_heads"] // c["num_key_value_heads"]
        k, v = k.repeat_interleave(shared, 1), v.repeat_interleave(shared, 1)
        scores = torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(size)
        hidden = torch.arange(len(k))[None, :] > positions[:, None]
        weights = scores.masked_fill(hidden, -math.inf).softmax(-1)
        return self.linear(prefix + "o_proj", torch.einsum("hqk,khd->qhd", weights, v).reshape(len(x), -1))

    def mlp(self, layer, x):
        prefix = self.prefixes[layer] + ".mlp."
        gate = torch.nn.functional.silu(self.linear(prefix + "gate_proj", x))
        return self.linear(prefix + "down_proj", gate * self.linear(prefix + "up_proj", x))

    def forward(self, ids, x, positions):
        """The logits of the target's vocabulary, and the residual stream."""
        first = self.prefixes[0]
        embedded = self.norm(first + ".input_layernorm", self.embedding[ids])
        wide = torch.cat([embedded, self.norm(first + ".hidden_norm", x)], -1)
        for layer, prefix in enumerate(self.prefixes):
            inner = wide if layer == 0 else self.norm(prefix + ".input_layernorm", x)
            x = x + self.attention(layer, inner, positions)
            x = x + self.mlp(layer, self.norm(prefix + ".post_attention_layernorm", x))
        logits = torch.full((len(x), VOCAB), -math.inf)
        logits[:, self.ids] = self.linear("lm_head", self.norm("norm", x))
        return logits, x


def layer_names(config):
    count = config["num_hidden_layers"]
    return ["midlayer"] if count == 1 else [f"layers.{i}" for i in range(count)]


def make_tensors(config):
    hidden, inner, size = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q, k = config["num_attention_heads"] * size, config["num_key_value_heads"] * size
    tensors = {}

    def matrix(name, rows, columns, bias=False):
        tensors[name + ".weight"] = torch.randn(rows, columns) * columns ** -0.5
        if bias:
            tensors[name + ".bias"] = torch.randn(rows) * 0.1

    def gain(name):
        tensors[name + ".weight"] = 1 + 0.2 * torch.randn(hidden)

    matrix("fc", hidden, 3 * config.get("target_hidden_size", hidden))
    for layer, prefix in enumerate(layer_names(config)):
        columns, bias = hidden * (2 if layer == 0 else 1), config.get("attention_bias", False)
        if layer == 0:
            gain(prefix + ".hidden_norm")
        gain(prefix + ".input_layernorm")
        gain(prefix + ".post_attention_layernorm")
        for name, rows in ("q", q), ("k", k), ("v", k):
            matrix(f"{prefix}.self_attn.{name}_proj", rows, columns, bias)
        matrix(prefix + ".self_attn.o_proj", hidden, q, bias)
        matrix(prefix + ".mlp.gate_proj", inner, hidden)
        matrix(prefix + ".mlp.up_proj", inner, hidden)
        matrix(prefix + ".mlp.down_proj", hidden, inner)
    gain("norm")
    matrix("lm_head", config["draft_vocab_size"], hidden)
    if "target_hidden_size" in config:
        tensors["embed_tokens.weight"] = torch.randn(VOCAB, hidden)
    tensors = {name: t.to(torch.bfloat16) for name, t in tensors.items()}
    if config["draft_vocab_size"] < VOCAB:
        ids = torch.randperm(VOCAB)[:config["draft_vocab_size"]].sort().values
        tensors["d2t"] = ids - torch.arange(len(ids))
        tensors["t2d"] = torch.zeros(VOCAB, dtype=torch.bool).index_fill_(0, ids, True)
    return tensors


def best(logits):
    """The token with the highest logit, and how much higher that is than the next."""
    values, ids = logits.topk(2)
    return int(ids[0]), float(values[0] - values[1])


def compute_case(head, target, prompt):
    out = target(torch.tensor([prompt]), output_hidden_states=True)
    greedy = [best(out.logits[0, -1])]
    logits, x = head.forward(torch.tensor(prompt[1:] + [greedy[0][0]]), head.begin(out.hidden_states),
                             torch.arange(len(prompt)))
    rows = [logits]
    for i in range(PASSES):
        greedy.append(best(rows[-1][-1]))
        logits, x = head.forward(torch.tensor([greedy[-1][0]]), x[-1:], torch.tensor([len(prompt) + i]))
        rows.append(logits)
    return greedy, torch.cat(rows)


def make_cases(prompts, make):
    """The first of make(seed), a head and its target, with which no token is nearly a tie."""
    for seed in range(100):
        torch.manual_seed(seed)
        head, target = make()
        found = [compute_case(head, target, prompt) for prompt in prompts]
        if min(gap for greedy, _ in found for _, gap in greedy) > SMALLEST_GAP:
            return head, found
    raise SystemExit("no seed has clear tokens")


def make_eagle3(name, config, target, prompts):
    def make():
        return Head(config, make_tensors(config), target.model.embed_tokens.weight), target

    head, found = make_cases(prompts, make)
    folder = FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    save_file(head.stored, folder / "model.safetensors")
    full = dict(architectures=["LlamaForCausalLMEagle3"], model_type="llama", hidden_act="silu",
                max_position_embeddings=256, tie_word_embeddings=False, torch_dtype="bfloat16", vocab_size=VOCAB)
    (folder / "config.json").write_text(json.dumps(full | config, indent=1) + "\n")
    write_golden(folder, prompts, found)


class MtpHead:
    """The last of a model's layers, with what makes its input. `tensors` are those of spec["names"]."""

    def __init__(self, spec, model, target, tensors):
        self.spec, self.model, self.layer = spec, model.model, model.model.layers[-1]
        self.lm_head, self.stored = model.lm_head, tensors
        self.tensors = {part: t.float() + (spec.get("gain_offset", 0) if part.endswith("norm") else 0)
                        for part, t in tensors.items()}
        self.final_norm = self.tensors.get("final_norm", self.model.norm.weight)
        target.model.norm.register_forward_hook(self.see_norm)

    def see_norm(self, module, args, out):
        self.target_state = (args[0] if self.spec["state_before_norm"] else out)[0]

    def begin(self, hidden_states):
        self.inputs = torch.zeros(0, self.model.config.hidden_size)
        return self.target_state

    def norm(self, gain, x):
        return rms_norm(x, gain, self.model.config.rms_norm_eps)

    def forward(self, ids, state, positions):
        """Computes the layer of all tokens so far anew."""
        e = self.norm(self.tensors["embedding_norm"], self.model.embed_tokens.weight[ids])
        h = self.norm(self.tensors["state_norm"], state)
        x = torch.cat([h, e] if self.spec["state_first"] else [e, h], -1) @ self.tensors["projection"].T
        self.inputs = torch.cat([self.inputs, x])
        count = len(self.inputs)
        every = torch.arange(count)[None]
        mask = torch.full((count, count), -math.inf).triu(1)[None, None]
        axes = every[None].expand(3, 1, count) if self.spec.get("mrope") else every
        x = self.layer(self.inputs[None], attention_mask=mask, position_ids=every,
                       position_embeddings=self.model.rotary_emb(self.inputs[None], axes))
        x = (x[0] if isinstance(x, tuple) else x)[0, -len(ids):]
        normed = self.norm(self.final_norm, x)
        return self.lm_head(normed), normed if self.spec["own_state_normed"] else x


def randomize(model, gain_offset=0):
    for name, p in model.named_parameters():
        p.data = 1 + 0.2 * torch.randn_like(p) if p.dim() == 1 else torch.randn_like(p) * p.shape[-1] ** -0.5
        if p.dim() == 1 and "norm" in name and "linear_attn" not in name:
            p.data -= gain_offset


def store_mtp(folder, spec, stored):
    """Turns the saved model into one of a layer less, and a head."""
    count = SIZES["num_hidden_layers"]
    tensors = load_file(folder / "model.safetensors")
    if spec.get("stacked"):
        stack_experts(tensors, count)
    tensors = {name.replace(f"model.layers.{count}.", spec["layer"] + "."): t for name, t in tensors.items()}
    tensors |= {spec["names"][part] + ".weight": t for part, t in stored.items()}
    if spec.get("copies"):
        tensors[spec["layer"] + ".embed_tokens.weight"] = tensors["model.embed_tokens.weight"].clone()
        tensors[spec["layer"] + ".shared_head.head.weight"] = tensors["lm_head.weight"].clone()
    if "vision" in spec:
        tensors = {("model.language_model." + name[6:] if name.startswith("model.") else name): t
                   for name, t in tensors.items()}
        tensors["model.visual.pos_embed.weight"] = torch.zeros(4, 8, dtype=torch.bfloat16)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def stack_experts(tensors, count):
    """Of the layers before `count`, whose experts transformers saves apart."""
    for module in {name.split(".experts.")[0] + ".experts" for name in tensors if ".experts." in name}:
        if module.startswith(f"model.layers.{count}."):
            continue
        parts = {part: torch.stack([tensors.pop(f"{module}.{i}.{part}_proj.weight")
                                    for i in range(QWEN_EXPERTS["num_experts"])]) for part in ("gate", "up", "down")}
        tensors[module + ".gate_up_proj"] = torch.cat([parts["gate"], parts["up"]], 1).contiguous()
        tensors[module + ".down_proj"] = parts["down"].contiguous()


def store_config(folder, spec):
    count, key = SIZES["num_hidden_layers"], spec.get("next_layers", "num_nextn_predict_layers")
    config = json.loads((folder / "config.json").read_text())
    types = config.pop("layer_types", None)
    if "layer_types" in spec["config"]:
        config["layer_types"] = types[:count]
    config |= dict(num_hidden_layers=count) | ({key: 1} if key else {}) | spec.get("file", {})
    if "vision" in spec:
        config = dict(architectures=[spec["family"] + "ForConditionalGeneration"], model_type=spec["vision"],
                      tie_word_embeddings=config["tie_word_embeddings"], text_config=config)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    (folder / "generation_config.json").unlink(missing_ok=True)


def make_mtp(name, spec, prompts):
    folder, count, hidden = FOLDER / name, SIZES["num_hidden_layers"], SIZES["hidden_size"]
    config_class = getattr(transformers, spec.get("config_class", spec["family"] + "Config"))
    model_class = getattr(transformers, spec["family"] + "ForCausalLM")
    offset = spec.get("gain_offset", 0)

    def make():
        model = model_class(config_class(**SIZES | spec["config"] | dict(num_hidden_layers=count + 1)))
        randomize(model, offset)
        model.to(torch.bfloat16).save_pretrained(folder)
        model, target = (model_class.from_pretrained(folder, dtype=torch.float32).eval() for _ in range(2))
        target.model.layers = target.model.layers[:count]
        target.config.num_hidden_layers = target.model.config.num_hidden_layers = count
        tensors = {}
        for part in spec["names"]:
            tensors[part] = (torch.randn(hidden, 2 * hidden) * (2 * hidden) ** -0.5 if part == "projection" else
                             1 - offset + 0.2 * torch.randn(hidden))
        return MtpHead(spec, model, target, {part: t.to(torch.bfloat16) for part, t in tensors.items()}), target

    head, found = make_cases(prompts, make)
    store_mtp(folder, spec, head.stored)
    store_config(folder, spec)
    write_golden(folder, prompts, found)


def write_golden(folder, prompts, found):
    cases, offset = [], 0
    for prompt, (greedy, rows) in zip(prompts, found):
        cases.append(dict(prompt=prompt, positions=list(range(len(rows))), logits_offset=offset,
                          greedy=[token for token, _ in greedy], gaps=[round(gap, 6) for _, gap in greedy]))
        offset += rows.numel()
    (folder / "golden.json").write_text(json.dumps(dict(vocab_size=VOCAB, cases=cases)) + "\n")
    numpy.concatenate([rows.numpy().astype("<f4").ravel() for _, rows in found]).tofile(folder / "golden.bin")


def make_target():
    torch.manual_seed(1)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**TARGET))
    randomize(model)
    model.to(torch.bfloat16).save_pretrained(FOLDER / "target")
    (FOLDER / "target" / "generation_config.json").unlink(missing_ok=True)
    return transformers.LlamaForCausalLM.from_pretrained(FOLDER / "target", dtype=torch.float32).eval()


def main(names):
    with torch.no_grad():
        target = make_target() if not names or set(names) & set(HEADS) else None
        torch.manual_seed(2)
        prompts = [torch.randint(VOCAB, (length,)).tolist() for length in LENGTHS]
        for name in names or [*HEADS, *MTP]:
            if name in HEADS:
                make_eagle3(name, HEADS[name], target, prompts)
            else:
                make_mtp(name, MTP[name], prompts)


main(sys.argv[1:])
