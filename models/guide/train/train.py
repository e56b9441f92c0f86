"""Trains the guide from nothing and exports it to bfloat16 safetensors.

    python train.py ROWS.npy                      writes ../model.safetensors, ../config.json, ../generation_config.json
    python train.py ROWS.npy --steps 20 --batch 1 a quick try on a CPU

ROWS.npy comes from make_data.py --rows: [rows, 2, length] int16, token ids and the mask of the tokens that count. The
model is a plain llama: RMSNorm, grouped-query attention with RoPE, SwiGLU, tied embeddings. Master weights are
float32, the arithmetic is bfloat16 on a GPU. The learning rate warms up, then falls as a cosine over the steps, or
over --seconds where that ends sooner.
"""
import argparse
import json
import math
import os
import time

import numpy
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")

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
GENERATION_CONFIG = {"bos_token_id": 1, "eos_token_id": [6, 2], "pad_token_id": 2, "do_sample": False}

HIDDEN, HEADS, KV_HEADS, HEAD_DIM = (CONFIG[k] for k in ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim"))
DROPOUT = 0.1


class RMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(HIDDEN))

    def forward(self, x):
        return F.rms_norm(x, (HIDDEN,), self.weight.to(x.dtype), CONFIG["rms_norm_eps"])


def rotate(x, cos, sin):
    """RoPE on x [batch, heads, tokens, head_dim]: the first half of a head is paired with the second."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(HIDDEN, HEADS * HEAD_DIM, bias=False)
        self.k_proj = nn.Linear(HIDDEN, KV_HEADS * HEAD_DIM, bias=False)
        self.v_proj = nn.Linear(HIDDEN, KV_HEADS * HEAD_DIM, bias=False)
        self.o_proj = nn.Linear(HEADS * HEAD_DIM, HIDDEN, bias=False)

    def forward(self, x, cos, sin):
        batch, tokens, _ = x.shape
        q, k, v = (p(x).view(batch, tokens, -1, HEAD_DIM).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = (t.repeat_interleave(HEADS // KV_HEADS, 1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(batch, tokens, -1))


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        inner = CONFIG["intermediate_size"]
        self.gate_proj = nn.Linear(HIDDEN, inner, bias=False)
        self.up_proj = nn.Linear(HIDDEN, inner, bias=False)
        self.down_proj = nn.Linear(inner, HIDDEN, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm, self.self_attn = RMSNorm(), Attention()
        self.post_attention_layernorm, self.mlp = RMSNorm(), MLP()

    def forward(self, x, cos, sin):
        x = x + F.dropout(self.self_attn(self.input_layernorm(x), cos, sin), DROPOUT, self.training)
        return x + F.dropout(self.mlp(self.post_attention_layernorm(x)), DROPOUT, self.training)


class Llama(nn.Module):
    """Token ids [batch, tokens] -> hidden states after the last norm. The names are those of the checkpoint."""

    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(CONFIG["vocab_size"], HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(CONFIG["num_hidden_layers"]))
        self.norm = RMSNorm()
        for name, p in self.named_parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02 / (math.sqrt(2 * len(self.layers)) if name.endswith(("o_proj.weight", "down_proj.weight")) else 1))
        inverse = CONFIG["rope_theta"] ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
        angle = torch.outer(torch.arange(CONFIG["max_position_embeddings"]), inverse)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, ids):
        x = self.embed_tokens(ids)
        cos, sin = (t[:ids.shape[1]].to(torch.bfloat16 if torch.is_autocast_enabled("cuda") else x.dtype) for t in (self.cos, self.sin))
        x = x.to(cos.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.norm(x)


def loss_of(model, trunk, rows):
    """Mean cross entropy over the tokens that count."""
    ids, mask = rows[:, 0], rows[:, 1]
    hidden = trunk(ids[:, :-1])
    keep = mask[:, 1:].bool()
    logits = F.linear(hidden[keep], model.embed_tokens.weight.to(hidden.dtype))
    return F.cross_entropy(logits.float(), ids[:, 1:][keep])


def export(model):
    """The checkpoint in bfloat16; the output layer is tied and not stored."""
    tensors = {"model." + k: v.detach().to("cpu", torch.bfloat16).contiguous() for k, v in model.state_dict().items()}
    save_file(tensors, os.path.join(OUT, "model.safetensors"), metadata={"format": "pt"})
    for name, value in (("config.json", CONFIG), ("generation_config.json", GENERATION_CONFIG)):
        with open(os.path.join(OUT, name), "w", encoding="utf-8") as file:
            json.dump(value, file, indent=2)
            file.write("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows")
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
    model = Llama().to(device)
    trunk = torch.compile(model) if args.compile else model
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
            loss = loss_of(model, trunk, batch)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        start = start or time.time()        # the first step compiles
        if step % 500 == 0 or step == args.steps - 1:
            print(f"step {step} loss {loss.item():.4f} lr {rate:.2e} {time.time() - start:.0f} s", flush=True)
    export(model)
    print(f"{step + 1} steps in {time.time() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
