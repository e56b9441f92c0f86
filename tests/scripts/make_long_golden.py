#!/usr/bin/env python3
"""Writes tests/data/long_prompts/NAME.bin: the logits of transformers in float64 behind prompts of 3,000 and of 100,000
tokens, float32 [2][vocab_size], for golden checkpoints whose last layer alone has attention.

    python3 tests/scripts/make_long_golden.py [NAME...]       (needs torch and transformers; a few minutes)

Recurrences are computed token by token in float64, and of attention only the last token's, which is all that the logits
read. Norms and angles are transformers' own, in float32. Token i of a prompt is 3 + (x_i >> 16) % (vocab_size - 3), where
x_0 = 1 and x_i+1 = (x_i * 1103515245 + 12345) % 2^31.
"""

import json
import pathlib
import sys

import numpy
import torch
import torch.nn.functional as F
import transformers
from transformers.masking_utils import AttentionMaskInterface
from transformers.models.bamba import modeling_bamba
from transformers.models.kimi_linear import modeling_kimi_linear
from transformers.models.qwen3_next import modeling_qwen3_next

NAMES = "bamba kimi_linear qwen3_next".split()
LENGTHS = 3000, 100000
DATA = pathlib.Path(__file__).resolve().parent.parent / "data"


def delta_rule(query, key, value, g, beta, **kwargs):
    """g: [batch, tokens, heads], or [batch, tokens, heads, elements of a key]."""
    q, k, v, g, beta = (x[0].double() for x in (query, key, value, g, beta))
    q, k = (x / torch.sqrt((x * x).sum(-1, keepdim=True) + 1e-6) for x in (q, k))
    q, decays, out = q / q.shape[-1] ** 0.5, g.exp(), torch.zeros_like(v)
    decays = decays[..., None] if decays.dim() == 2 else decays
    state = torch.zeros(v.shape[1], v.shape[2], k.shape[2], dtype=torch.float64)
    for t in range(v.shape[0]):
        state = state * decays[t][:, None]
        found = (state @ k[t][..., None])[..., 0]
        state = state + (beta[t][:, None] * (v[t] - found))[..., None] * k[t][:, None]
        out[t] = (state @ q[t][..., None])[..., 0]
    return out[None], None


def mamba2(hidden_states, dt, A, B, C, chunk_size, D=None, dt_bias=None, dt_limit=(0.0, float("inf")), **kwargs):
    x, dt, A, B, C = hidden_states[0].double(), dt[0].double(), A.double(), B[0].double(), C[0].double()
    dt = F.softplus(dt + dt_bias.double()).clamp(*dt_limit)
    B, C = (part.repeat_interleave(x.shape[1] // part.shape[1], dim=1) for part in (B, C))
    decays, scaled, out = (dt * A).exp(), dt[..., None] * x, torch.zeros_like(x)
    state = torch.zeros(*x.shape[1:], B.shape[-1], dtype=torch.float64)
    for t in range(x.shape[0]):
        state = state * decays[t][:, None, None] + scaled[t][..., None] * B[t][:, None]
        out[t] = (state @ C[t][..., None])[..., 0]
    return (out + D.double()[:, None] * x)[None]


def last_query(module, query, key, value, attention_mask, scaling, **kwargs):
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    scores = (query[:, :, -1:] @ key.transpose(2, 3) * scaling).softmax(dim=-1)
    out = torch.zeros(query.shape[0], query.shape[2], query.shape[1], value.shape[-1], dtype=query.dtype)
    out[:, -1] = (scores @ value)[:, :, 0]
    return out, None


def prompt(length, vocab_size):
    ids, x = [], 1
    for _ in range(length):
        ids.append(3 + (x >> 16) % (vocab_size - 3))
        x = (x * 1103515245 + 12345) % 2 ** 31
    return ids


def last_logits(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False, logits_to_keep=1).logits[0, -1].float().numpy()


def check(folder, model):
    """Against what transformers computes without all this."""
    golden = json.loads((folder / "golden.json").read_text())
    case = golden["cases"][-1]
    expected = numpy.fromfile(folder / "golden.bin", "<f4")[case["logits_offset"]:][:golden["vocab_size"]]
    error = numpy.linalg.norm(last_logits(model, case["prompt"]) - expected) / numpy.linalg.norm(expected)
    assert error < 1e-5, f"{folder.name}: {error}"


def main():
    transformers.AttentionInterface.register("last_query", last_query)
    AttentionMaskInterface.register("last_query", lambda *args, **kwargs: None)
    modeling_bamba.mamba2_chunk_scan = mamba2
    modeling_kimi_linear.chunk_kimi_delta_attention = delta_rule
    modeling_qwen3_next.torch_chunk_gated_delta_rule = delta_rule
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    (DATA / "long_prompts").mkdir(exist_ok=True)
    for name in sys.argv[1:] or NAMES:
        folder = DATA / "golden" / name
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64,
                                                                  attn_implementation="last_query",
                                                                  experts_implementation="eager").eval()
        check(folder, model)
        rows = [last_logits(model, prompt(length, model.config.vocab_size)) for length in LENGTHS]
        numpy.stack(rows).astype("<f4").tofile(DATA / "long_prompts" / f"{name}.bin")
        print(name, [round(float(numpy.linalg.norm(row)), 2) for row in rows], flush=True)


if __name__ == "__main__":
    main()
