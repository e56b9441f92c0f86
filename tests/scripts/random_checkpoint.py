"""Writes a checkpoint of random weights in the shape of Llama-3.2-1B or Llama-3-8B, for tests of speed and arithmetic.

usage: python3 tests/scripts/random_checkpoint.py 1b|8b FOLDER [LAYERS]
(torch and safetensors; uses a GPU if there is one)
"""

import json
import pathlib
import sys

import torch
from safetensors.torch import save_file

SHAPES = {
    "1b": dict(hidden_size=2048, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8, head_dim=64,
               intermediate_size=8192, tie_word_embeddings=True),
    "8b": dict(hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8, head_dim=128,
               intermediate_size=14336, tie_word_embeddings=False),
}
COMMON = dict(architectures=["LlamaForCausalLM"], model_type="llama", hidden_act="silu", rms_norm_eps=1e-5,
              rope_theta=500000.0, max_position_embeddings=8192, vocab_size=128256, torch_dtype="bfloat16",
              bos_token_id=128000, eos_token_id=128001, attention_bias=False, mlp_bias=False)


def shapes(c):
    hidden, inner, vocab = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
    q, kv = c["num_attention_heads"] * c["head_dim"], c["num_key_value_heads"] * c["head_dim"]
    yield "model.embed_tokens.weight", (vocab, hidden)
    for i in range(c["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        yield layer + "input_layernorm.weight", (hidden,)
        yield layer + "self_attn.q_proj.weight", (q, hidden)
        yield layer + "self_attn.k_proj.weight", (kv, hidden)
        yield layer + "self_attn.v_proj.weight", (kv, hidden)
        yield layer + "self_attn.o_proj.weight", (hidden, q)
        yield layer + "post_attention_layernorm.weight", (hidden,)
        yield layer + "mlp.gate_proj.weight", (inner, hidden)
        yield layer + "mlp.up_proj.weight", (inner, hidden)
        yield layer + "mlp.down_proj.weight", (hidden, inner)
    yield "model.norm.weight", (hidden,)
    if not c["tie_word_embeddings"]:
        yield "lm_head.weight", (vocab, hidden)


def main():
    config = dict(COMMON, **SHAPES[sys.argv[1]])
    folder = pathlib.Path(sys.argv[2])
    if len(sys.argv) > 3:
        config["num_hidden_layers"] = int(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator(device).manual_seed(0)
    tensors = {}
    for name, shape in shapes(config):
        noise = torch.randn(shape, generator=generator, device=device, dtype=torch.bfloat16)
        scale = 0.1 if len(shape) == 1 else 1 / shape[-1] ** 0.5 if "embed" not in name else 1.0
        tensors[name] = (noise * scale + (1 if len(shape) == 1 else 0)).to("cpu")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


main()
