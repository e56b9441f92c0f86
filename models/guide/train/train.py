"""Trains the guide, or its draft model, from nothing and exports it to bfloat16 safetensors.

    python train.py ROWS.npy                      writes ../model.safetensors, ../config.json, ../generation_config.json
    python train.py ROWS.npy --draft              the same in ../draft, of a draft model of the guide that is in ..
    python train.py ROWS.npy --steps 20 --batch 1 a quick try on a CPU

ROWS.npy comes from make_data.py --rows: [rows, 2, length] int16, token ids and the mask of the tokens that count. The
model is a plain llama: RMSNorm, grouped-query attention with RoPE, SwiGLU, tied embeddings. Master weights are
float32, the arithmetic is bfloat16 on a GPU. The learning rate warms up, then falls as a cosine over the steps, or
over --seconds where that ends sooner.

A draft model is there to say what the guide will say, right or wrong. So its target is the guide and not the text: at
each token that counts, half of the target is the guide's distribution, half the token that the guide gives most.
"""
import argparse
import json
import math
import os
import time

import numpy
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

GUIDE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
DRAFT = os.path.join(GUIDE, "draft")

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 4096,
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 2048,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "attention_bias": False,
    "mlp_bias": False,
    "attention_dropout": 0.0,
    "tie_word_embeddings": True,
    "initializer_range": 0.02,
    "bos_token_id": 1,
    "eos_token_id": 6,
    "pad_token_id": 2,
    "pretraining_tp": 1,
    "use_cache": True,
    "torch_dtype": "bfloat16",
}
DRAFT_CONFIG = {**CONFIG, "hidden_size": 96, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 2,
                "num_key_value_heads": 1}
GENERATION_CONFIG = {"bos_token_id": 1, "eos_token_id": [6, 2], "pad_token_id": 2, "do_sample": False}

GUIDE_DROPOUT = 0.1      # the draft model has none: it is too small to learn the rows by heart


class RMSNorm(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(config["hidden_size"])), config["rms_norm_eps"]

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), self.eps)


def rotate(x, cos, sin):
    """RoPE on x [batch, heads, tokens, head_dim]: the first half of a head is paired with the second."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, heads, kv_heads = (config[k] for k in ("hidden_size", "num_attention_heads", "num_key_value_heads"))
        self.head_dim, self.repeat = config["head_dim"], heads // kv_heads
        self.q_proj = nn.Linear(hidden, heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(hidden, kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(hidden, kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(heads * self.head_dim, hidden, bias=False)

    def forward(self, x, cos, sin):
        batch, tokens, _ = x.shape
        q, k, v = (p(x).view(batch, tokens, -1, self.head_dim).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = (t.repeat_interleave(self.repeat, 1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(batch, tokens, -1))


class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, config, dropout):
        super().__init__()
        self.input_layernorm, self.self_attn = RMSNorm(config), Attention(config)
        self.post_attention_layernorm, self.mlp = RMSNorm(config), MLP(config)
        self.dropout = dropout

    def forward(self, x, cos, sin):
        x = x + F.dropout(self.self_attn(self.input_layernorm(x), cos, sin), self.dropout, self.training)
        return x + F.dropout(self.mlp(self.post_attention_layernorm(x)), self.dropout, self.training)


class Llama(nn.Module):
    """Token ids [batch, tokens] -> hidden states after the last norm. The names are those of the checkpoint."""

    def __init__(self, config, dropout=0.0):
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config["vocab_size"], config["hidden_size"])
        self.layers = nn.ModuleList(Layer(config, dropout) for _ in range(config["num_hidden_layers"]))
        self.norm = RMSNorm(config)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02 / (math.sqrt(2 * len(self.layers)) if name.endswith(("o_proj.weight", "down_proj.weight")) else 1))
        inverse = config["rope_theta"] ** (-torch.arange(0, config["head_dim"], 2) / config["head_dim"])
        angle = torch.outer(torch.arange(config["max_position_embeddings"]), inverse)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, ids):
        x = self.embed_tokens(ids)
        cos, sin = (t[:ids.shape[1]].to(torch.bfloat16 if torch.is_autocast_enabled("cuda") else x.dtype) for t in (self.cos, self.sin))
        x = x.to(cos.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.norm(x)


def logits_of(model, trunk, ids, keep):
    """The logits [tokens that keep [batch, tokens] picks, vocab_size]."""
    hidden = trunk(ids)[keep]
    return F.linear(hidden, model.embed_tokens.weight.to(hidden.dtype))


def soft_target(logits):
    """What a draft model is to say where the guide gives these logits: a distribution."""
    target = logits.float().softmax(-1) / 2
    return target.scatter_(-1, target.argmax(-1, keepdim=True), 0.5, reduce="add")


def target_of(guide, rows):
    """What follows each token that counts: its id; or, for a draft model, what the guide says."""
    keep = rows[:, 1, 1:].bool()
    if not guide:
        return keep, rows[:, 0, 1:][keep]
    with torch.no_grad():
        return keep, soft_target(logits_of(*guide, rows[:, 0, :-1], keep))


def load(folder):
    """The checkpoint in a folder that export() wrote."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        model = Llama(json.load(file))
    tensors = load_file(os.path.join(folder, "model.safetensors"))
    model.load_state_dict({name.removeprefix("model."): t.float() for name, t in tensors.items()})
    return model.eval().requires_grad_(False)


def export(model, folder):
    """The checkpoint in bfloat16; the output layer is tied and not stored."""
    os.makedirs(folder, exist_ok=True)
    tensors = {"model." + k: v.detach().to("cpu", torch.bfloat16).contiguous() for k, v in model.state_dict().items()}
    save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    for name, value in (("config.json", model.config), ("generation_config.json", GENERATION_CONFIG)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(value, file, indent=2)
            file.write("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows")
    parser.add_argument("--draft", action="store_true", help="train a draft model of the guide")
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=1e9, help="end after this time, the schedule shortened to fit")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1.5e-3)
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = torch.from_numpy(numpy.load(args.rows))
    if device == "cuda":
        rows = rows.to(device)
    made_ready = torch.compile if args.compile else lambda f: f
    model = (Llama(DRAFT_CONFIG) if args.draft else Llama(CONFIG, GUIDE_DROPOUT)).to(device)
    trunk = made_ready(model)
    guide = load(GUIDE).to(device) if args.draft else None
    guide = guide and (guide, made_ready(guide))
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() != 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
                                  lr=args.lr, betas=(0.9, 0.95), fused=device == "cuda")
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {rows.shape[0]:,} rows of {rows.shape[2]}", flush=True)

    order, start, total = torch.empty(0, dtype=torch.long), None, 0.0
    for step in range(args.steps):
        if len(order) < args.batch:
            order = torch.randperm(len(rows))
        batch, order = rows[order[:args.batch].to(device)].long(), order[args.batch:]
        elapsed = time.time() - start if start else 0.0
        progress = max(step / args.steps, elapsed / args.seconds)
        if progress >= 1:
            break
        rate = args.lr * min(1, (step + 1) / 200) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            keep, target = target_of(guide, batch)
            logits = logits_of(model, trunk, batch[:, 0, :-1], keep)
            loss = F.cross_entropy(logits.float(), target)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        start = start or time.time()        # the first step compiles
        if step % 500 == 0 or step == args.steps - 1:
            right = (logits.argmax(-1) == (target.argmax(-1) if args.draft else target)).float().mean()
            print(f"step {step} loss {loss.item():.4f} right {right.item():.4f} lr {rate:.2e} {time.time() - start:.0f} s", flush=True)
    export(model, DRAFT if args.draft else GUIDE)
    print(f"{step + 1} steps in {time.time() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
