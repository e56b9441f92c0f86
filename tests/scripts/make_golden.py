#!/usr/bin/env python3
"""Makes tests/data/golden: tiny random checkpoints, and what transformers computes with them in float32 on the CPU.

    python3 tests/scripts/make_golden.py [NAME...]       (needs torch, transformers and safetensors)

Names are those of CHECKPOINTS, "rope", or "bfloat16", which makes bfloat16_error of all checkpoints anew; without one,
everything is made.

Each checkpoint's folder holds config.json, the weights, and

    golden.json  {"vocab_size", "bfloat16_error", "cases": [{"prompt": ids, "positions": [...], "logits_offset": n,
                  "greedy": 64 ids, "gaps": 64 numbers}]}
    golden.bin   little-endian float32: case i's logits [len(positions), vocab_size] start at element logits_offset

"bfloat16_error" is the error of transformers in bfloat16, |logits - float32 logits| / |float32 logits|, over all
cases together. "gaps" is the difference between the two highest logits at each greedy step: where it is tiny, two right implementations
may part. rope.json holds the rotation tables of every rope type for small configs.

Checkpoints of several modalities (MULTIMODAL) are saved by transformers' own classes, with a vision tower as small as
these allow; the prompts are text.

Families that transformers does not have are Llama or Qwen2 under other names (llama_names.py): such a model is saved
under them.

A seed is taken only if its greedy texts are varied and no step is nearly a tie, so that tests may compare tokens. Where
rounding makes a router choose another expert the logits jump: of mixtures of experts only seeds are taken whose logits
move by as little whichever way numbers are rounded. That is tried first, because it rejects most seeds, and is cheap.
"""

import copy
import json
import pathlib
import shutil
import sys

import numpy
import torch
import transformers
import llama_names
from safetensors.torch import load_file, save_file
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

VOCAB = 320
LENGTHS = (1, 7, 33, 100)
ALL_POSITIONS_UP_TO = 33  # longer prompts: the last position only
STEPS = 64
SMALLEST_GAP = 2e-3
FEWEST_DISTINCT = 1 / 16  # of the vocabulary, among the 64 greedy tokens
LARGEST_ERRORS = 0.05, 3e-6  # of a mixture of experts in bfloat16 and in float32
DRAWS, LARGEST_RATIO = 4, 1.3  # of rounding at random; between the errors that it makes

LLAMA3 = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=64)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=64)


def longrope(pairs):
    return dict(rope_type="longrope", rope_theta=10000.0, short_factor=[1 + 0.05 * i for i in range(pairs)],
                long_factor=[1 + 1.5 * i for i in range(pairs)])


SMALL = dict(vocab_size=160, hidden_size=32, num_hidden_layers=2, num_attention_heads=2)

# name: (family, dtype, "4" or "5" for the layout of config.json, shard size, config)
CHECKPOINTS = {
    "mha": ("llama", "bfloat16", "5", None, dict(
        hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
        head_dim=64, tie_word_embeddings=False)),
    "many_heads": ("llama", "bfloat16", "5", None, dict(
        hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=24, num_key_value_heads=24,
        head_dim=16, tie_word_embeddings=False)),
    "gqa": ("llama", "float16", "4", "150KB", dict(
        hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=80, tie_word_embeddings=True)),
    "mqa": ("llama", "float32", "4", None, dict(
        hidden_size=48, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=False, attention_bias=True, mlp_bias=True, rope_parameters=LLAMA3)),
    "sliding": ("mistral", "bfloat16", "5", None, dict(
        hidden_size=64, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        head_dim=64, tie_word_embeddings=False, sliding_window=24)),
    "yarn": ("llama", "float32", "5", None, dict(
        hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=True, rope_parameters=YARN)),
    # biases of Q, K and V; a window in the second layer only
    "qwen2": ("qwen2", "bfloat16", "4", None, dict(
        hidden_size=64, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=True, use_sliding_window=True, sliding_window=24, max_window_layers=1)),
    "qwen3": ("qwen3", "bfloat16", "5", None, dict(
        hidden_size=64, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=True)),
    # caps low enough to bend scores and logits, a scale other than 1 / sqrt(head_dim)
    "gemma2": ("gemma2", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=False, sliding_window=24, query_pre_attn_scalar=48,
        attn_logit_softcapping=5.0, final_logit_softcapping=10.0)),
    "olmo2": ("olmo2", "float16", "4", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
        head_dim=64, tie_word_embeddings=False)),
    "granite": ("granite", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=False, attention_multiplier=0.2, embedding_multiplier=3.0,
        residual_multiplier=0.6, logits_scaling=1.5)),
    # hidden_act as Gemma 1 was published
    "gemma": ("gemma", "bfloat16", "4", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=False, hidden_act="gelu")),
    # a window, and a rope of its own, in the first layer only, as in olmo3 and ministral
    "gemma3": ("gemma3", "bfloat16", "4", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=False, sliding_window=24, sliding_window_pattern=2, query_pre_attn_scalar=48,
        final_logit_softcapping=10.0,
        rope_parameters=dict(full_attention=dict(rope_type="linear", rope_theta=1000000.0, factor=8.0),
                             sliding_attention=dict(rope_type="default", rope_theta=500.0)))),
    "olmo3": ("olmo3", "float16", "5", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=False, sliding_window=24, layer_types=["sliding_attention", "full_attention"],
        rope_parameters=dict(full_attention=dict(YARN, rope_theta=500000.0),
                             sliding_attention=dict(rope_type="default", rope_theta=10000.0)))),
    # no rotation in the second layer
    "smollm3": ("smollm3", "bfloat16", "4", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=True, no_rope_layers=[1, 0])),
    "ministral": ("ministral", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=False, sliding_window=24,
        layer_types=["sliding_attention", "full_attention"])),
    "granite4": ("granitemoehybrid", "bfloat16", "4", None, dict(
        hidden_size=32, intermediate_size=80, shared_intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=64, tie_word_embeddings=False, attention_multiplier=0.2,
        embedding_multiplier=3.0, residual_multiplier=0.6, logits_scaling=1.5, num_local_experts=0,
        num_experts_per_tok=0, layer_types=["attention", "attention"], position_embedding_type="rope",
        mamba_n_heads=8)),
    # a window, and a theta of its own, in the second layer only; no rotation in the third
    "granite_swa": ("granite_swa", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=False, attention_multiplier=0.2, embedding_multiplier=3.0,
        residual_multiplier=0.6, logits_scaling=1.5, sliding_window=24,
        layer_types=["full_attention", "sliding_attention", "full_attention"],
        layer_rope_theta=[10000.0, 500.0, 0])),
    "cohere": ("cohere", "float16", "4", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=True, attention_bias=True, layer_norm_eps=1e-3, logit_scale=0.5)),
    # a window and a rotation in the first layer and in the third, neither in the second
    "cohere2": ("cohere2", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=True, sliding_window=24, sliding_window_pattern=2, logit_scale=0.5)),
    # half of each head rotated, biases of Q, K and V, gate and up in one tensor
    "glm": ("glm", "bfloat16", "4", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=False)),
    # the same with four norms, without biases
    "glm4": ("glm4", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=False, attention_bias=False)),
    "helium": ("helium", "bfloat16", "5", None, dict(
        hidden_size=64, intermediate_size=32, num_hidden_layers=2, num_attention_heads=1, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=True, attention_bias=True, mlp_bias=True)),
    "ernie4_5": ("ernie4_5", "bfloat16", "4", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=False, use_bias=True)),
    # a window and a rotation in the first layer, neither in the second; QK norm in both
    "exaone4": ("exaone4", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=False, sliding_window=24, sliding_window_pattern=2)),
    # biases everywhere but in the MLP
    "seed_oss": ("seed_oss", "bfloat16", "4", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=False, attention_bias=True, attention_out_bias=True)),
    # longrope, whose switch lies between the prompts' lengths, and a rotation of 24 of a head's 32 elements
    "phi3": ("phi3", "bfloat16", "4", None, dict(
        hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        tie_word_embeddings=True, sliding_window=40, original_max_position_embeddings=64, partial_rotary_factor=0.75,
        rope_parameters=longrope(12))),
    "phi4": ("phi3", "bfloat16", "5", None, dict(
        hidden_size=128, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        tie_word_embeddings=False, rope_parameters=dict(rope_type="default", rope_theta=250000.0))),
    "arcee": ("arcee", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=False, mlp_bias=True)),
    "exaone": ("exaone", "bfloat16", "4", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=False, rope_parameters=LLAMA3)),
    "internlm3": ("internlm3", "bfloat16", "4", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=False, attention_bias=True, mlp_bias=True)),
    "iquestcoder": ("iquestcoder", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=False)),
    "mimo": ("mimo", "bfloat16", "4", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=False, attention_bias=True, rope_theta=640000.0)),
    # windows in all layers but the first
    "cwm": ("cwm", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=False, sliding_window=24, rope_parameters=LLAMA3)),
    "vaultgemma": ("vaultgemma", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=False, sliding_window=24, query_pre_attn_scalar=48,
        attn_logit_softcapping=5.0, final_logit_softcapping=10.0)),
    # QK norm after the rotation
    "hunyuan_v1_dense": ("hunyuan_v1_dense", "bfloat16", "4", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=False,
        rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, factor=1.0, alpha=100.0))),
    # norms without gains; a clip that many elements meet
    "olmo": ("olmo", "bfloat16", "4", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=False, clip_qkv=2.0)),
    "nanochat": ("nanochat", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=False, final_logit_softcapping=10.0)),
    "hyperclovax": ("hyperclovax", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=False, attention_multiplier=0.2, embedding_multiplier=3.0,
        residual_multiplier=0.6, logits_scaling=0.5)),
    # two head sizes, V of K's matrix in the second layer
    "gemma4": ("gemma4", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
        head_dim=32, global_head_dim=64, num_global_key_value_heads=1, attention_k_eq_v=True,
        hidden_size_per_layer_input=0, tie_word_embeddings=False, sliding_window=24, final_logit_softcapping=10.0,
        layer_types=["sliding_attention", "full_attention"])),
    # per-layer embeddings; the last two layers read K and V of the first two, and have larger MLPs
    "gemma4_e": ("gemma4", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=32, num_hidden_layers=4, num_attention_heads=2, num_key_value_heads=1,
        head_dim=32, global_head_dim=64, hidden_size_per_layer_input=8, vocab_size_per_layer_input=VOCAB,
        num_kv_shared_layers=2, use_double_wide_mlp=True, tie_word_embeddings=False, sliding_window=24,
        layer_types=["sliding_attention", "full_attention"] * 2)),
    "apertus": ("apertus", "bfloat16", "4", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=False, rope_parameters=LLAMA3)),
    # mixtures of experts
    # sinks, biases everywhere, a window in the first layer only; rope as published, but for its lengths
    "gpt_oss": ("gpt_oss", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=False, num_local_experts=4, num_experts_per_tok=2, sliding_window=24,
        rope_parameters=dict(rope_type="yarn", rope_theta=150000.0, factor=8.0, beta_fast=32.0, beta_slow=1.0,
                             truncate=False, original_max_position_embeddings=32))),
    # an MLP, then experts; a window and a rotation in the first two layers; a head size of the smallest kernels
    "afmoe": ("afmoe", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=False, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=16,
        num_shared_experts=1, num_dense_layers=1, route_scale=1.5, sliding_window=24, mup_enabled=True,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"])),
    "mixtral": ("mixtral", "bfloat16", "4", None, dict(
        hidden_size=32, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=False, num_local_experts=4, num_experts_per_tok=2, sliding_window=24)),
    "qwen2_moe": ("qwen2_moe", "bfloat16", "4", None, dict(
        hidden_size=64, intermediate_size=48, num_hidden_layers=2, num_attention_heads=1, num_key_value_heads=1,
        tie_word_embeddings=True, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=16,
        shared_expert_intermediate_size=24, mlp_only_layers=[0])),
    "qwen3_moe": ("qwen3_moe", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=False, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=16,
        norm_topk_prob=True)),
    "olmoe": ("olmoe", "float16", "5", None, dict(
        hidden_size=64, intermediate_size=16, num_hidden_layers=2, num_attention_heads=1, num_key_value_heads=1,
        tie_word_embeddings=False, num_experts=6, num_experts_per_tok=2)),
    # heads, and a shared expert, that 2, 3, 4, 6 and 8 ranks share; experts that none of these share equally
    "many_experts": ("dots1", "bfloat16", "5", None, dict(
        hidden_size=48, intermediate_size=48, num_hidden_layers=2, num_attention_heads=24, num_key_value_heads=24,
        head_dim=16, tie_word_embeddings=False, n_routed_experts=11, n_shared_experts=1, num_experts_per_tok=3,
        moe_intermediate_size=24, routed_scaling_factor=1.5, first_k_dense_replace=0, norm_topk_prob=True)),
    # all experts of a layer in one tensor
    "granitemoe": ("granitemoe", "bfloat16", "5", None, dict(
        hidden_size=64, intermediate_size=16, num_hidden_layers=2, num_attention_heads=1, num_key_value_heads=1,
        tie_word_embeddings=True, attention_multiplier=0.2, embedding_multiplier=3.0,
        residual_multiplier=0.6, logits_scaling=1.5, num_local_experts=5, num_experts_per_tok=2)),
    "granitemoeshared": ("granitemoeshared", "bfloat16", "4", None, dict(
        hidden_size=64, intermediate_size=16, num_hidden_layers=2, num_attention_heads=1, num_key_value_heads=1,
        tie_word_embeddings=True, attention_multiplier=0.2, embedding_multiplier=3.0, shared_intermediate_size=24,
        residual_multiplier=0.6, logits_scaling=1.5, num_local_experts=5, num_experts_per_tok=2)),
    "granite4_moe": ("granitemoehybrid", "bfloat16", "4", None, dict(
        hidden_size=64, intermediate_size=16, shared_intermediate_size=24, num_hidden_layers=2, num_attention_heads=1,
        num_key_value_heads=1, tie_word_embeddings=True, attention_multiplier=0.2, embedding_multiplier=3.0,
        residual_multiplier=0.6, logits_scaling=1.5, num_local_experts=5, num_experts_per_tok=2,
        layer_types=["attention", "attention"], position_embedding_type="rope", mamba_n_heads=8)),
    # DeepSeek V3's router; a dense layer, then experts and shared ones
    "glm4_moe": ("glm4_moe", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=False, use_qk_norm=True, attention_bias=True, n_routed_experts=8, n_group=4,
        topk_group=2, num_experts_per_tok=3, moe_intermediate_size=16, routed_scaling_factor=1.5, num_mtp_layers=0)),
    "dots1": ("dots1", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=False, n_routed_experts=6, n_shared_experts=2, num_experts_per_tok=2,
        moe_intermediate_size=16, routed_scaling_factor=2.5, first_k_dense_replace=1, norm_topk_prob=True,
        sliding_window=24, max_window_layers=1)),
    "solar_open": ("solar_open", "bfloat16", "5", None, dict(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=False, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=16)),
    "exaone_moe": ("exaone_moe", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=False, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=16,
        sliding_window=24, sliding_window_pattern=2)),
    "flex_olmo": ("flex_olmo", "float16", "5", None, dict(
        hidden_size=64, intermediate_size=16, num_hidden_layers=2, num_attention_heads=1, num_key_value_heads=1,
        tie_word_embeddings=False, num_experts=5, num_experts_per_tok=3)),
    "minimax_m2": ("minimax_m2", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=False, num_local_experts=6, num_experts_per_tok=2,
        rope_parameters=dict(rope_type="default", rope_theta=5000000.0, partial_rotary_factor=0.5))),
    # norms over heads that 2, 3, 4, 6 and 8 ranks share, and over a KV head that each of them has
    "many_norms": ("minimax_m2", "bfloat16", "5", None, dict(
        hidden_size=48, intermediate_size=24, num_hidden_layers=2, num_attention_heads=24, num_key_value_heads=1,
        head_dim=16, tie_word_embeddings=False, num_local_experts=6, num_experts_per_tok=2,
        rope_parameters=dict(rope_type="default", rope_theta=5000000.0, partial_rotary_factor=0.5))),
    "ernie4_5_moe": ("ernie4_5_moe", "bfloat16", "5", None, dict(
        hidden_size=64, intermediate_size=48, num_hidden_layers=2, num_attention_heads=1, num_key_value_heads=1,
        tie_word_embeddings=True, moe_num_experts=6, moe_k=2, moe_intermediate_size=16, moe_num_shared_experts=1)),
    # a clip that many elements meet; the experts' matrices in two dimensions, down transposed
    "dbrx": ("dbrx", "bfloat16", "5", None, dict(
        d_model=64, n_heads=2, n_layers=2, max_seq_len=256, tie_word_embeddings=False,
        attn_config=dict(clip_qkv=2.0, kv_n_heads=1, rope_theta=500000.0),
        ffn_config=dict(ffn_hidden_size=16, moe_num_experts=5, moe_top_k=2),
        rope_parameters=dict(rope_type="default", rope_theta=500000.0))),
    # sparsemixer; LayerNorms, and biases of all but the experts
    "phimoe": ("phimoe", "bfloat16", "5", None, dict(
        hidden_size=64, intermediate_size=16, num_hidden_layers=2, num_attention_heads=1, num_key_value_heads=1,
        tie_word_embeddings=False, num_local_experts=6, router_jitter_noise=0.1, attention_bias=True,
        lm_head_bias=True, rope_parameters=dict(longrope(32), short_mscale=1.2, long_mscale=1.2,
                                                original_max_position_embeddings=256))),
    "hunyuan_v1_moe": ("hunyuan_v1_moe", "bfloat16", "4", None, dict(
        hidden_size=32, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=False, num_experts=6, moe_topk=[3, 2],
        rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, factor=1.0, alpha=100.0))),
    # a dense layer, whose windows have a pattern of their own, then experts in mean with shared ones
    "cohere2_moe": ("cohere2_moe", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=16, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=True, sliding_window=24, sliding_window_pattern=2, logit_scale=0.5,
        num_experts=6, num_experts_per_tok=2, num_shared_experts=2, expert_selection_fn="sigmoid",
        first_k_dense_replace=1, prefix_dense_intermediate_size=24)),
    # a window, and a theta of its own, in the second layer only; experts beside an MLP
    "granitemoe_swa": ("granitemoe_swa", "bfloat16", "5", None, dict(
        hidden_size=64, intermediate_size=16, num_hidden_layers=2, num_attention_heads=1, num_key_value_heads=1,
        tie_word_embeddings=True, attention_multiplier=0.2, embedding_multiplier=3.0, shared_intermediate_size=24,
        residual_multiplier=0.6, logits_scaling=1.5, num_local_experts=5, num_experts_per_tok=2, sliding_window=24,
        layer_rope_theta=[10000.0, 500.0])),
    "hy_v3": ("hy_v3", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=False, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=16)),
    # a window, and a rope of its own, in the first layer; experts in the second
    "mellum": ("mellum", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=False, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=16,
        sliding_window=24, layer_types=["sliding_attention", "full_attention"], mlp_layer_types=["dense", "sparse"],
        rope_parameters=dict(full_attention=dict(YARN, rope_theta=500000.0),
                             sliding_attention=dict(rope_type="default", rope_theta=10000.0)))),
    # more heads, a window and whole heads rotated in the second layer
    "laguna": ("laguna", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=1, num_key_value_heads=1,
        num_attention_heads_per_layer=[1, 2], head_dim=64, tie_word_embeddings=False, num_experts=6,
        num_experts_per_tok=2, moe_intermediate_size=16, shared_expert_intermediate_size=16,
        moe_routed_scaling_factor=1.5, moe_router_logit_softcapping=2.0, sliding_window=24,
        layer_types=["full_attention", "sliding_attention"],
        rope_parameters=dict(full_attention=dict(YARN, rope_theta=500000.0, partial_rotary_factor=0.5),
                             sliding_attention=dict(rope_type="default", rope_theta=10000.0)))),
    # heads of V half as large as those of K; a window, sinks, more KV heads and a rope of its own in the second layer
    "mimo_v2": ("mimo_v2_flash", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, v_head_dim=32, tie_word_embeddings=False, n_routed_experts=6, num_experts_per_tok=2,
        moe_intermediate_size=16, sliding_window=24,
        rope_parameters=dict(
            full_attention=dict(rope_type="default", rope_theta=500000.0, partial_rotary_factor=0.5),
            sliding_attention=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25)))),
    # a dense layer, and one with experts, more heads, a window and whole heads rotated; limits that many elements meet
    "step3p7": ("step3p7", "bfloat16", "5", None, dict(
        model_type="step3p5", pad_token_id=0, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=1, num_key_value_heads=1, num_sliding_attention_heads=2, head_dim=64,
        n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=16, share_expert_dim=16,
        moe_router_scaling_factor=1.5, attention_bias=True, sliding_window=24,
        layer_types=["full_attention", "sliding_attention"], mlp_layer_types=["dense", "sparse"],
        swiglu_limits=[None, 0.5], swiglu_limits_shared=[1.0, 0.75],
        rope_parameters=dict(full_attention=dict(LLAMA3, partial_rotary_factor=0.5),
                             sliding_attention=dict(rope_type="default", rope_theta=10000.0)))),
    # text parts of several modalities; layout "4 flat" is that of Qwen2-VL's files, without a text_config
    "gemma3_vision": ("gemma3_vision", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, sliding_window=24, sliding_window_pattern=2, query_pre_attn_scalar=48,
        rope_parameters=dict(full_attention=dict(rope_type="linear", rope_theta=1000000.0, factor=8.0),
                             sliding_attention=dict(rope_type="default", rope_theta=500.0)))),
    "mistral3": ("mistral3", "bfloat16", "5", None, dict(
        model_type="mistral", hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=64, sliding_window=None)),
    # queries scaled by position
    "ministral3": ("mistral3", "bfloat16", "5", None, dict(
        model_type="ministral3", hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=64, rope_parameters=dict(
            rope_type="yarn", rope_theta=10000.0, factor=8.0, original_max_position_embeddings=32, beta_fast=32.0,
            beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.3, max_position_embeddings=256))),
    "llava": ("llava", "float16", "5", None, dict(
        model_type="llama", hidden_size=64, intermediate_size=48, num_hidden_layers=2, num_attention_heads=1,
        num_key_value_heads=1)),
    # chunks and a rotation in the first two layers, scaled queries in the third; experts in the second
    "llama4": ("llama4", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=16, intermediate_size_mlp=24, num_hidden_layers=3, num_attention_heads=2,
        num_key_value_heads=1, head_dim=64, num_local_experts=6, num_experts_per_tok=2, interleave_moe_layer_step=2,
        no_rope_layer_interval=3, attention_chunk_size=24, floor_scale=16, attn_scale=0.3)),
    "qwen2_5_vl": ("qwen2_5_vl", "bfloat16", "4 flat", None, dict(
        hidden_size=64, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        rope_parameters=dict(rope_type="default", rope_theta=1000000.0, mrope_section=[4, 6, 6]))),
    "qwen3_vl": ("qwen3_vl", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, rope_parameters=dict(rope_type="default", rope_theta=500000.0, mrope_section=[12, 10, 10],
                                          mrope_interleaved=True))),
    "qwen3_vl_moe": ("qwen3_vl_moe", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24, mlp_only_layers=[0],
        rope_parameters=dict(rope_type="default", rope_theta=500000.0, mrope_section=[12, 10, 10],
                             mrope_interleaved=True))),
    # two gated delta nets before attention with an output gate; heads of which a quarter rotates
    "qwen3_5": ("qwen3_5", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16,
        linear_value_head_dim=16,
        layer_types=["linear_attention", "linear_attention", "full_attention"],
        rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25,
                             mrope_section=[3, 3, 2], mrope_interleaved=True))),
    "qwen3_5_moe": ("qwen3_5_moe", "bfloat16", "5", None, dict(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, linear_num_key_heads=1, linear_num_value_heads=2, linear_key_head_dim=16,
        linear_value_head_dim=32, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=16,
        shared_expert_intermediate_size=16, layer_types=["linear_attention", "full_attention"],
        rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25,
                             mrope_section=[3, 3, 2], mrope_interleaved=True))),
    "qwen3_next": ("qwen3_next", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16,
        linear_value_head_dim=16, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=16,
        shared_expert_intermediate_size=16, mlp_only_layers=[1],
        layer_types=["linear_attention", "full_attention"])),
    # a convolution, attention, and a convolution as the last layer
    "lfm2": ("lfm2", "bfloat16", "5", None, dict(
        hidden_size=64, intermediate_size=72, block_multiple_of=16, num_hidden_layers=3, num_attention_heads=2,
        num_key_value_heads=1, norm_eps=1e-5, conv_bias=True, layer_types=["conv", "full_attention", "conv"])),
    # channels that 2, 3 and 6 ranks share
    "many_channels": ("lfm2", "bfloat16", "5", None, dict(
        hidden_size=96, intermediate_size=72, block_multiple_of=24, num_hidden_layers=2, num_attention_heads=6,
        num_key_value_heads=1, norm_eps=1e-5, conv_bias=True, layer_types=["conv", "full_attention"])),
    "lfm2_moe": ("lfm2_moe", "bfloat16", "5", None, dict(
        hidden_size=64, intermediate_size=48, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1,
        norm_eps=1e-5, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=16, num_dense_layers=1,
        routed_scaling_factor=1.5, layer_types=["conv", "full_attention", "conv"])),
    # two groups of keys, time steps with a limit on both sides
    "granite4_h": ("granitemoehybrid", "bfloat16", "4", None, dict(
        hidden_size=32, intermediate_size=80, shared_intermediate_size=48, num_hidden_layers=3, num_attention_heads=2,
        num_key_value_heads=1, head_dim=64, tie_word_embeddings=True, attention_multiplier=0.2,
        embedding_multiplier=3.0, residual_multiplier=0.6, logits_scaling=1.5, num_local_experts=0,
        num_experts_per_tok=0, layer_types=["linear_attention", "full_attention", "linear_attention"],
        mamba_n_heads=4, mamba_d_head=16, mamba_n_groups=2, mamba_d_state=32, mamba_chunk_size=16,
        time_step_limit=[0.3, 1.5])),
    # layers of one sublayer each
    "nemotron_h": ("nemotron_h", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=48, num_attention_heads=2, num_key_value_heads=1, head_dim=64,
        tie_word_embeddings=False, layer_norm_epsilon=1e-5, mamba_num_heads=4, mamba_head_dim=16, n_groups=2,
        ssm_state_size=16, chunk_size=16,
        layers_block_type=["linear_attention", "mlp", "full_attention", "linear_attention", "mlp"])),
    # groups of a norm, of which 4 ranks and more have less than one
    "many_groups": ("nemotron_h", "bfloat16", "5", None, dict(
        hidden_size=48, intermediate_size=48, num_attention_heads=24, num_key_value_heads=1, head_dim=16,
        tie_word_embeddings=False, layer_norm_epsilon=1e-5, mamba_num_heads=24, mamba_head_dim=16, n_groups=2,
        ssm_state_size=16, chunk_size=16, layers_block_type=["linear_attention", "mlp", "full_attention"])),
    "bamba": ("bamba", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, tie_word_embeddings=False, attn_layer_indices=[1], mamba_n_heads=4, mamba_d_head=16,
        mamba_d_state=16, mamba_chunk_size=16)),
    # the same with experts; sublayers that add little, or rounding would be amplified until experts change
    "granite4_h_moe": ("granitemoehybrid", "bfloat16", "4", None, dict(
        hidden_size=32, intermediate_size=16, shared_intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, tie_word_embeddings=False, attention_multiplier=0.1, embedding_multiplier=2.0,
        residual_multiplier=0.3, logits_scaling=1.5, num_local_experts=4, num_experts_per_tok=2,
        layer_types=["linear_attention", "full_attention"], mamba_n_heads=4, mamba_d_head=16, mamba_d_state=16,
        mamba_chunk_size=16)),
    # norms by the kind of the layer, no rotation, heads of values twice as large as those of keys
    "olmo_hybrid": ("olmo_hybrid", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1,
        tie_word_embeddings=False, linear_key_head_dim=16, linear_value_head_dim=32, linear_num_value_heads=4,
        layer_types=["linear_attention", "full_attention", "linear_attention"],
        rope_parameters=dict(rope_type="default", rope_theta=None))),
    # attention and Mamba 2 in each layer, whose parts have other multipliers
    "falcon_h1": ("falcon_h1", "bfloat16", "4", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=32, tie_word_embeddings=False, mamba_d_ssm=64, mamba_n_heads=4, mamba_d_head=16, mamba_n_groups=2,
        mamba_d_state=16, mamba_chunk_size=16, embedding_multiplier=3.0, lm_head_multiplier=0.8, key_multiplier=0.7,
        attention_in_multiplier=1.2, attention_out_multiplier=0.6, ssm_in_multiplier=1.1, ssm_out_multiplier=0.5,
        ssm_multipliers=[0.9, 1.3, 0.8, 1.4, 0.7], mlp_multipliers=[1.5, 0.6])),
    # two matrices for q, with biases
    "deepseek_v3": ("deepseek_v3", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
        tie_word_embeddings=False, q_lora_rank=24, kv_lora_rank=32, qk_rope_head_dim=16, qk_nope_head_dim=16,
        v_head_dim=32, attention_bias=True, n_routed_experts=8, n_group=4, topk_group=2, num_experts_per_tok=3,
        moe_intermediate_size=16, first_k_dense_replace=1, num_mtp_layers=0,
        rope_parameters=dict(YARN, mscale=1.0, mscale_all_dim=1.0))),
    # one matrix for q, groups by their best expert
    "deepseek_v2": ("deepseek_v2", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
        tie_word_embeddings=False, q_lora_rank=None, kv_lora_rank=16, qk_rope_head_dim=16, qk_nope_head_dim=16,
        v_head_dim=16, n_routed_experts=6, n_group=3, topk_group=2, num_experts_per_tok=2, n_shared_experts=1,
        topk_method="group_limited_greedy", moe_intermediate_size=16, first_k_dense_replace=1,
        routed_scaling_factor=1.5, rope_parameters=dict(YARN, mscale=0.707, mscale_all_dim=0.707))),
    # queries scaled by position
    "mistral4": ("mistral4", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=8, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
        tie_word_embeddings=False, q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=16, qk_nope_head_dim=16,
        v_head_dim=16, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=8, first_k_dense_replace=1,
        rope_parameters=dict(YARN, beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0,
                             llama_4_scaling_beta=0.1, max_position_embeddings=256))),
    "glm4_moe_lite": ("glm4_moe_lite", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
        tie_word_embeddings=False, q_lora_rank=24, kv_lora_rank=32, qk_rope_head_dim=16, qk_nope_head_dim=16,
        v_head_dim=48, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=16)),
    # halves of heads rotated, not neighbours, by longrope's angles
    "minicpm3": ("minicpm3", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
        q_lora_rank=24, kv_lora_rank=32, qk_rope_head_dim=16, qk_nope_head_dim=16, scale_emb=3, dim_model_base=24,
        rope_parameters=dict(longrope(8), factor=4.0, original_max_position_embeddings=64))),
    "youtu": ("youtu", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
        q_lora_rank=24, kv_lora_rank=32, qk_rope_head_dim=16, qk_nope_head_dim=16, v_head_dim=16)),
    # a decay for each channel; latent attention without rotation; groups of experts
    "kimi_linear": ("kimi_linear", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
        kv_lora_rank=32, qk_rope_head_dim=16, qk_nope_head_dim=16, v_head_dim=32, linear_num_heads=2,
        linear_head_dim=16, n_group=2, topk_group=1, num_local_experts=6, num_experts_per_tok=2,
        moe_intermediate_size=16, layer_types=["linear_attention", "full_attention"],
        mlp_layer_types=["dense", "sparse"])),
    # lightning attention; a residual stream that is normed and scaled
    "minimax": ("minimax", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=32, tie_word_embeddings=False, num_local_experts=6, num_experts_per_tok=2, block_size=16,
        layer_types=["linear_attention", "full_attention"],
        full_attn_alpha_factor=1.5, full_attn_beta_factor=0.75, linear_attn_alpha_factor=3.0,
        linear_attn_beta_factor=1.0, mlp_alpha_factor=0.5, mlp_beta_factor=0.5)),
    "nemotron_h_moe": ("nemotron_h", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=48, num_attention_heads=2, num_key_value_heads=1, head_dim=64,
        tie_word_embeddings=False, layer_norm_epsilon=1e-5, mamba_num_heads=4, mamba_head_dim=16, n_groups=2,
        ssm_state_size=16, chunk_size=16, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=16,
        moe_shared_expert_intermediate_size=24, routed_scaling_factor=2.5,
        layers_block_type=["linear_attention", "moe", "full_attention", "moe"])),
    # experts that read and make latents
    "nemotron_h_latent": ("nemotron_h", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=48, num_attention_heads=2, num_key_value_heads=1, head_dim=64,
        tie_word_embeddings=False, layer_norm_epsilon=1e-5, mamba_num_heads=4, mamba_head_dim=16, n_groups=2,
        ssm_state_size=16, chunk_size=16, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=24,
        moe_latent_size=16, moe_shared_expert_intermediate_size=16, mlp_bias=True,
        layers_block_type=["linear_attention", "moe", "full_attention"])),
    # experts beside an MLP, with norms of their own
    "gemma4_moe": ("gemma4_vision", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
        head_dim=32, global_head_dim=64, num_global_key_value_heads=1, attention_k_eq_v=True,
        hidden_size_per_layer_input=0, sliding_window=24, final_logit_softcapping=10.0, enable_moe_block=True,
        num_experts=6, top_k_experts=2, moe_intermediate_size=16, pad_token_id=0,
        layer_types=["sliding_attention", "full_attention"])),
    "glm4v": ("glm4v", "bfloat16", "5", None, dict(
        hidden_size=64, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5,
                             mrope_section=[2, 3, 3]))),
    "glm4v_moe": ("glm4v_moe", "bfloat16", "5", None, dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=16, routed_scaling_factor=1.5,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5,
                             mrope_section=[4, 6, 6]))),
    "smolvlm": ("smolvlm", "bfloat16", "5", None, dict(
        model_type="llama", hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=64)),
    # q, k and v head by head, a quarter of each head rotated, two norms in parallel
    "gpt_neox": ("gpt_neox", "float16", "4", None, dict(SMALL, intermediate_size=48, tie_word_embeddings=False)),
    "phi": ("phi", "bfloat16", "4", None, dict(SMALL, intermediate_size=48, tie_word_embeddings=False)),
    # LayerNorms of heads; the others as phi
    "phi_qk_norm": ("phi", "bfloat16", "5", None, dict(
        SMALL, intermediate_size=48, num_key_value_heads=1, qk_layernorm=True, tie_word_embeddings=False)),
    "stablelm": ("stablelm", "bfloat16", "5", None, dict(
        SMALL, intermediate_size=48, num_key_value_heads=1, use_qkv_bias=True, tie_word_embeddings=True)),
    "stablelm_parallel": ("stablelm", "bfloat16", "4", None, dict(
        SMALL, intermediate_size=48, num_key_value_heads=2, use_parallel_residual=True, tie_word_embeddings=True)),
    "starcoder2": ("starcoder2", "bfloat16", "5", None, dict(
        SMALL, intermediate_size=48, num_key_value_heads=1, sliding_window=24, norm_epsilon=1e-3)),
    "opt": ("opt", "float16", "5", None, dict(SMALL, ffn_dim=48)),
    # three heads, for which ALiBi's slopes are those of four
    "bloom": ("bloom", "float16", "5", None, dict(
        SMALL, hidden_size=48, num_attention_heads=3, tie_word_embeddings=False)),
    "mpt": ("mpt", "bfloat16", "5", None, dict(
        SMALL, hidden_size=48, num_attention_heads=3, tie_word_embeddings=False)),
    "falcon": ("falcon", "bfloat16", "4", None, dict(SMALL, tie_word_embeddings=False)),
    "falcon_two_norms": ("falcon", "bfloat16", "5", None, dict(
        SMALL, num_attention_heads=4, hidden_size=64, ffn_hidden_size=48, num_kv_heads=2,
        new_decoder_architecture=True, tie_word_embeddings=False)),
    # heads of a power of two, whose slopes are exact in bfloat16, as transformers has them
    "falcon_alibi": ("falcon", "bfloat16", "4", None, dict(
        SMALL, alibi=True, bias=True, multi_query=False, parallel_attn=False, num_attention_heads=4, hidden_size=64,
        ffn_hidden_size=48)),
    "gpt2": ("gpt2", "float32", "5", None, dict(SMALL, n_inner=48, scale_attn_by_inverse_layer_idx=True)),
    "gpt_bigcode": ("gpt_bigcode", "bfloat16", "5", None, dict(SMALL)),
    "gptj": ("gptj", "float16", "5", None, dict(SMALL, rotary_dim=8, n_inner=48)),
    "nemotron": ("nemotron", "bfloat16", "5", None, dict(
        SMALL, intermediate_size=48, head_dim=32, num_key_value_heads=1, tie_word_embeddings=False)),
    "persimmon": ("persimmon", "bfloat16", "4", None, dict(SMALL, intermediate_size=48)),
    "jais2": ("jais2", "bfloat16", "5", None, dict(
        SMALL, intermediate_size=48, num_key_value_heads=1, layer_norm_eps=1e-3)),
}
# family: its class, its vision_config, and other keys of the file
TOWER = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, image_size=8, patch_size=4)
QWEN_TOWER = dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=1, patch_size=2, temporal_patch_size=1)
MULTIMODAL = {
    "gemma3_vision": ("Gemma3", dict(model_type="siglip_vision_model", **TOWER),
                      dict(mm_tokens_per_image=4, tie_word_embeddings=False)),
    "mistral3": ("Mistral3", dict(model_type="pixtral", head_dim=8, **TOWER), dict(tie_word_embeddings=False)),
    "llama4": ("Llama4", dict(vision_output_dim=8, projector_input_dim=8, projector_output_dim=8, **TOWER), {}),
    "llava": ("Llava", dict(model_type="clip_vision_model", projection_dim=8, vocab_size=4, **TOWER), {}),
    "qwen2_5_vl": ("Qwen2_5_VL", dict(out_hidden_size=64, fullatt_block_indexes=[0], **QWEN_TOWER), {}),
    "qwen3_vl": ("Qwen3VL", dict(out_hidden_size=32, num_position_embeddings=4, deepstack_visual_indexes=[0],
                                 **QWEN_TOWER), {}),
    "qwen3_vl_moe": ("Qwen3VLMoe", dict(out_hidden_size=32, num_position_embeddings=4, deepstack_visual_indexes=[0],
                                        **QWEN_TOWER), {}),
    "gemma4_vision": ("Gemma4", dict(
        model_type="gemma4_vision", hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
        num_key_value_heads=1, head_dim=8, patch_size=4, position_embedding_size=4, pooling_kernel_size=1),
        dict(tie_word_embeddings=False)),
    "qwen3_5": ("Qwen3_5", dict(out_hidden_size=32, num_position_embeddings=4, **QWEN_TOWER), {}),
    "qwen3_5_moe": ("Qwen3_5Moe", dict(out_hidden_size=32, num_position_embeddings=4, **QWEN_TOWER), {}),
    "glm4v_moe": ("Glm4vMoe", dict(out_hidden_size=32, image_size=8, **QWEN_TOWER), {}),
    "glm4v": ("Glm4v", dict(out_hidden_size=64, image_size=8, **QWEN_TOWER), {}),
    "smolvlm": ("SmolVLM", dict(TOWER), dict(scale_factor=1)),
    "step3p7": ("Step3p7", dict(TOWER, mlp_ratio=1.0), {}),
}
CLASSES = {  # the first part of the names of a family's classes in transformers
    "llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3", "gemma2": "Gemma2", "olmo2": "Olmo2",
    "granite": "Granite", "gemma": "Gemma", "gemma3": "Gemma3", "olmo3": "Olmo3", "smollm3": "SmolLM3",
    "ministral": "Ministral", "granitemoehybrid": "GraniteMoeHybrid", "granite_swa": "GraniteSWA",
    "cohere": "Cohere", "cohere2": "Cohere2", "glm": "Glm", "glm4": "Glm4", "helium": "Helium",
    "ernie4_5": "Ernie4_5", "exaone4": "Exaone4", "seed_oss": "SeedOss", "phi3": "Phi3",
    "arcee": "Arcee", "apertus": "Apertus", "mixtral": "Mixtral", "afmoe": "Afmoe", "gpt_oss": "GptOss", "qwen2_moe": "Qwen2Moe", "qwen3_moe": "Qwen3Moe",
    "olmoe": "Olmoe", "granitemoe": "GraniteMoe", "granitemoeshared": "GraniteMoeShared", "cwm": "Cwm",
    "vaultgemma": "VaultGemma", "hunyuan_v1_dense": "HunYuanDenseV1", "olmo": "Olmo", "nanochat": "NanoChat",
    "hyperclovax": "HyperCLOVAX", "hunyuan_v1_moe": "HunYuanMoEV1", "cohere2_moe": "Cohere2Moe",
    "phimoe": "Phimoe",
    "glm4_moe": "Glm4Moe", "dots1": "Dots1", "solar_open": "SolarOpen", "exaone_moe": "ExaoneMoe",
    "flex_olmo": "FlexOlmo", "minimax_m2": "MiniMaxM2",
    "ernie4_5_moe": "Ernie4_5_Moe",
    "gemma4": "Gemma4",
    "gpt_neox": "GPTNeoX", "phi": "Phi", "stablelm": "StableLm",
    "starcoder2": "Starcoder2", "opt": "OPT", "bloom": "Bloom", "mpt": "Mpt", "falcon": "Falcon", "gpt2": "GPT2",
    "gpt_bigcode": "GPTBigCode", "gptj": "GPTJ", "nemotron": "Nemotron", "persimmon": "Persimmon", "jais2": "Jais2",
    "dbrx": "Dbrx", "granitemoe_swa": "GraniteMoeSWA", "hy_v3": "HYV3", "laguna": "Laguna", "mellum": "Mellum",
    "mimo_v2_flash": "MiMoV2Flash", "qwen3_next": "Qwen3Next", "qwen3_5_text": "Qwen3_5",
    "deepseek_v2": "DeepseekV2", "deepseek_v3": "DeepseekV3", "glm4_moe_lite": "Glm4MoeLite", "minicpm3": "MiniCPM3",
    "youtu": "Youtu", "mistral4": "Mistral4", "kimi_linear": "KimiLinear", "minimax": "MiniMax",
    "lfm2": "Lfm2", "lfm2_moe": "Lfm2Moe", "nemotron_h": "NemotronH", "bamba": "Bamba", "falcon_h1": "FalconH1",
    "olmo_hybrid": "OlmoHybrid",
    "exaone": "Llama", "internlm3": "Llama", "iquestcoder": "Llama",
    "mimo": "Qwen2",
}
# where the name is not CLASSES' + "Config"
CONFIG_CLASSES = {"gemma3": "Gemma3TextConfig", "gemma4": "Gemma4TextConfig", "qwen3_5_text": "Qwen3_5TextConfig"}
MODEL_CLASSES = {"gpt2": "GPT2LMHeadModel"}  # where the name is not CLASSES' + "ForCausalLM"
# a gain is this plus what the file holds
GAIN_OFFSETS = {"gemma": 1, "gemma2": 1, "gemma3": 1, "gemma3_vision": 1, "vaultgemma": 1, "nemotron": 1,
                "step3p7": 1, "qwen3_5": 1, "qwen3_5_text": 1, "qwen3_5_moe": 1, "qwen3_next": 1}
COMMON = dict(vocab_size=VOCAB, max_position_embeddings=256, rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=None,
              pad_token_id=None)


def new_model(family, keys):
    if family in MULTIMODAL:
        name, vision, outer = MULTIMODAL[family]
        config = getattr(transformers, f"{name}Config")(text_config={**COMMON, **keys}, vision_config=vision, **outer)
        return getattr(transformers, f"{name}ForConditionalGeneration")(config)
    name = CLASSES[family]
    config_class = getattr(transformers, CONFIG_CLASSES.get(family, f"{name}Config"))
    model_class = getattr(transformers, MODEL_CLASSES.get(family, f"{name}ForCausalLM"))
    return model_class(config_class(**{**COMMON, **keys}))


def randomize(model, seed, gain_offset):
    """Deviations large enough that the text wanders, and gains and biases that a forgetful forward pass would miss."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            noise = torch.randn(tensor.shape, generator=generator)
            if name.endswith("bias"):
                tensor.copy_(0.2 * noise)
            elif name.endswith("A_log"):  # states that last for a few tokens, or for many
                tensor.copy_(noise - 2)
            elif "linear_attn.norm" in name:  # of a recurrent layer, without the offset
                tensor.copy_(1 + 0.2 * noise)
            elif name.endswith("sinks"):
                tensor.copy_(2 * noise)
            elif name.endswith("router.scale"):
                tensor.copy_(3 + 0.6 * noise)
            elif name.endswith("per_expert_scale"):
                tensor.copy_(1 + 0.2 * noise)
            elif "q_norm" in name:  # with small scores of attention texts soon go in circles
                tensor.copy_(2 - gain_offset + 0.2 * noise)
            elif "norm" in name.split(".")[-2] or ".ln_" in name:
                tensor.copy_(1 - gain_offset + 0.2 * noise)
            elif any(part in name for part in ("embed", "lm_head", "wte", "wpe")):
                tensor.copy_(0.4 * noise)
            elif ".experts." in name:
                tensor.copy_(0.15 * noise)
            else:
                tensor.copy_(0.35 * noise)
        for name, tensor in model.named_buffers():  # of xIELU; one that bounds many values shows if it is forgotten
            if name.endswith("act_fn.beta"):
                tensor.fill_(0.375)
            elif name.endswith("layer_scalar"):
                tensor.copy_(0.5 + torch.rand(1, generator=generator))
            elif name.endswith("act_fn.eps"):
                tensor.fill_(-0.25)
            elif name.endswith(("e_score_correction_bias", "feed_forward.expert_bias")):  # of a router
                tensor.copy_(0.2 * torch.randn(tensor.shape, generator=generator))


def to_transformers_4(config):
    """Rewrites the layout of config.json as transformers 4 left it."""
    rope = config.pop("rope_parameters")
    if "sliding_attention" in rope:
        config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        config["sliding_window_pattern"] = config.pop("_sliding_window_pattern")
        rope = rope["full_attention"]
    config["rope_theta"] = rope.pop("rope_theta")
    if config["model_type"] == "gpt_neox":
        config["rotary_emb_base"], config["rotary_pct"] = config.pop("rope_theta"), rope.pop("partial_rotary_factor")
    if "mrope_section" in rope:
        rope = dict(type="mrope", mrope_section=rope["mrope_section"])
    config["rope_scaling"] = rope if rope.get("rope_type") != "default" else None
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.57.1"
    layer_types = config.pop("layer_types", None)
    if config["model_type"] == "granitemoehybrid":
        names = dict(full_attention="attention", linear_attention="mamba")
        config["layer_types"] = [names[name] for name in layer_types]
    return config


def save(folder, family, model, layout, shard_size):
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder, **({"max_shard_size": shard_size} if shard_size else {}))
    (folder / "generation_config.json").unlink(missing_ok=True)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    if layout == "4 flat":
        config = to_transformers_4({**config.pop("text_config"), **config})
    elif layout == "4":
        config = to_transformers_4(config)
    path.write_text(json.dumps(config, indent=2) + "\n")
    if family in llama_names.FAMILIES:
        llama_names.rename(folder, family)
    if family == "qwen3_vl_moe":
        transpose_experts(folder)
    if family == "qwen3_5_moe":
        stack_experts(folder)
    if family == "kimi_linear":
        rename_dense(folder)
    if family == "minimax":
        drop_tables(folder)
    if family == "olmo_hybrid":
        publish_olmo_hybrid(folder)


def drop_tables(folder):
    """As they are published: without transformers' tables of lightning attention, which follow from config.json."""
    path = folder / "model.safetensors"
    tables = ("slope_rate", "query_decay", "key_decay", "diagonal_decay")
    save_file({name: tensor for name, tensor in load_file(path).items() if not name.endswith(tables)}, path,
              metadata={"format": "pt"})


def rename_dense(folder):
    """As they are published; transformers 5 saves the MLPs of dense layers as parts of experts, and reads both."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for name in list(tensors):
        if ".block_sparse_moe." in name and name.split(".block_sparse_moe.")[0] + ".block_sparse_moe.gate.weight" not in tensors:
            tensors[name.replace(".block_sparse_moe.", ".mlp.")] = tensors.pop(name)
    save_file(tensors, path, metadata={"format": "pt"})


def stack_experts(folder):
    """As they are published; transformers 5 saves each expert's, and reads both."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for module in {name.split(".experts.")[0] + ".experts" for name in tensors if ".experts." in name}:
        count = len([name for name in tensors if name.startswith(module) and name.endswith(".down_proj.weight")])
        part = lambda name: torch.stack([tensors.pop(f"{module}.{i}.{name}.weight") for i in range(count)])
        gate, up, down = part("gate_proj"), part("up_proj"), part("down_proj")
        tensors[f"{module}.gate_up_proj"] = torch.cat([gate, up], dim=1).contiguous()
        tensors[f"{module}.down_proj"] = down.contiguous()
    save_file(tensors, path, metadata={"format": "pt"})


def publish_olmo_hybrid(folder):
    """As it is published. transformers 5 saves the norms after attention under the name of those before the MLP of other
    layers, and the convolutions of q, k and v in three equal parts, and reads both."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for name in list(tensors):
        if name.endswith("q_conv1d.weight"):
            names = [name.replace("q_conv1d", f"{part}_conv1d") for part in "qkv"]
            rows = [len(tensors[part.replace("conv1d", "proj")]) for part in names]
            parts = torch.cat([tensors[part] for part in names]).split(rows)
            tensors.update({part: tensor.contiguous() for part, tensor in zip(names, parts)})
        after = name.replace("feedforward_layer_norm", "post_feedforward_layernorm")
        if after != name and after in tensors:
            tensors[name.replace("feedforward_layer_norm", "post_attention_layernorm")] = tensors.pop(name)
    save_file(tensors, path, metadata={"format": "pt"})


def transpose_experts(folder):
    """As they are published; transformers 5 saves rows, and reads both."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for name in tensors:
        if ".experts." in name:
            tensors[name] = tensors[name].transpose(1, 2).contiguous()
    save_file(tensors, path, metadata={"format": "pt"})


def logits_of(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0]


def greedy(model, prompt):
    """Each step computes the whole text anew: the reference has no cache to get wrong."""
    ids, gaps = list(prompt), []
    for _ in range(STEPS):
        values, indices = logits_of(model, ids)[-1].topk(2)
        gaps.append((values[0] - values[1]).item())
        if gaps[-1] < SMALLEST_GAP:  # the seed is not taken
            break
        ids.append(indices[0].item())
    return ids[len(prompt):], gaps


def prompts_of(model, seed):
    generator = torch.Generator().manual_seed(1000 + seed)
    vocab_size = model.config.get_text_config().vocab_size
    return [torch.randint(3, vocab_size, (length,), generator=generator).tolist() for length in LENGTHS]


def make_cases(model, prompts):
    cases, blocks, offset = [], [], 0
    fewest = FEWEST_DISTINCT * model.config.get_text_config().vocab_size
    for prompt in prompts:
        length = len(prompt)
        tokens, gaps = greedy(model, prompt)
        if min(gaps) < SMALLEST_GAP or len(set(tokens)) < fewest:
            return None
        positions = list(range(length)) if length <= ALL_POSITIONS_UP_TO else [length - 1]
        logits = logits_of(model, prompt)[positions].to(torch.float32).numpy().astype("<f4")
        cases.append(dict(prompt=prompt, positions=positions, logits_offset=offset, greedy=tokens,
                          gaps=[float(f"{gap:.6g}") for gap in gaps]))
        blocks.append(logits)
        offset += logits.size
    return cases, numpy.concatenate([block.ravel() for block in blocks])


def error_in(dtype, folder, cases, logits):
    model = llama_names.load(folder, dtype=dtype).eval()
    difference = size = 0
    for case in cases:
        ours = logits_of(model, case["prompt"])[case["positions"]].to(torch.float32).numpy().ravel()
        exact = logits[case["logits_offset"]:][:ours.size]
        difference += numpy.sum((ours - exact).astype("f8") ** 2)
        size += numpy.sum(exact.astype("f8") ** 2)
    return (difference / size) ** 0.5


def has_experts(model):
    return any("experts" in name for name, _ in model.named_parameters())


def logits_rounded_at_random(model, prompts, draw):
    """As a computation in bfloat16 could give them, which rounds elsewhere, or another way: what modules give is off by
    its largest error of one rounding, and more."""
    def move(module, args, out):
        if not isinstance(out, torch.Tensor) or not out.is_floating_point():
            return out
        return out * (1 + 2 ** -8 * torch.randn(out.shape, generator=generator))
    generator = torch.Generator().manual_seed(draw)
    leaves = [module for name, module in model.named_modules()
              if not list(module.children()) or name.endswith("experts")]
    hooks = [module.register_forward_hook(move) for module in leaves]
    logits = torch.cat([logits_of(model, prompt) for prompt in prompts])
    for hook in hooks:
        hook.remove()
    return logits


def is_calm(model, prompts):
    """Whether rounding changes no choice of experts. A choice that changes shows in the errors: they differ."""
    if not has_experts(model):
        return True
    exact, errors = torch.cat([logits_of(model, prompt) for prompt in prompts]), []
    for draw in range(DRAWS):
        errors.append((logits_rounded_at_random(model, prompts, draw) - exact).norm() / exact.norm())
        if max(errors) > min(LARGEST_ERRORS[0], LARGEST_RATIO * min(errors)):
            return False
    narrow = copy.deepcopy(model).to(torch.bfloat16)
    return (torch.cat([logits_of(narrow, prompt) for prompt in prompts]) - exact).norm() / exact.norm() < min(errors)


def is_steady(folder, model, cases, logits):
    """The error in float32 is that against float64."""
    if not has_experts(model):
        return True
    errors = [error_in(dtype, folder, cases, logits) for dtype in (torch.bfloat16, torch.float64)]
    return all(error < largest for error, largest in zip(errors, LARGEST_ERRORS))


def write_golden(folder, cases, logits):
    lines = ",\n".join(json.dumps(case) for case in cases)
    error = error_in(torch.bfloat16, folder, cases, logits)
    config = json.loads((folder / "config.json").read_text())
    vocab_size = config.get("text_config", config)["vocab_size"]
    (folder / "golden.json").write_text('{"vocab_size": %d, "bfloat16_error": %.4g, "cases": [\n%s\n]}\n' %
                                        (vocab_size, error, lines))
    (folder / "golden.bin").write_bytes(logits.tobytes())


def remake_bfloat16_errors(root):
    for name in CHECKPOINTS:
        golden = json.loads((root / name / "golden.json").read_text())
        write_golden(root / name, golden["cases"], numpy.fromfile(root / name / "golden.bin", "<f4"))


def make_checkpoint(root, name):
    family, dtype, layout, shard_size, keys = CHECKPOINTS[name]
    folder = root / name
    for seed in range(1000):
        model = new_model(family, keys).eval()
        randomize(model, seed, GAIN_OFFSETS.get(family, 0))
        prompts = prompts_of(model, seed)
        model.to(getattr(torch, dtype))
        if not is_calm(copy.deepcopy(model).float(), prompts):
            continue
        save(folder, family, model, layout, shard_size)
        # read back what was written: the reference is the checkpoint, not the model that it came from
        model = llama_names.load(folder, dtype=torch.float32, attn_implementation="eager").eval()
        made = make_cases(model, prompts)
        if made and is_steady(folder, model, *made):
            write_golden(folder, *made)
            gaps = [gap for case in made[0] for gap in case["gaps"]]
            size = sum(path.stat().st_size for path in folder.iterdir())
            print(f"{name}: seed {seed}, smallest gap {min(gaps):.2g}, median {numpy.median(gaps):.2g}, "
                  f"distinct tokens {[len(set(case['greedy'])) for case in made[0]]}, {size} bytes")
            return
    sys.exit(f"{name}: no seed gives varied text without near ties")


ROPE_SIZES = dict(model_type="llama", hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4,
                  vocab_size=VOCAB, max_position_embeddings=256)
ROPE_POSITIONS = [0, 1, 2, 7, 63, 100, 255, 1000, 4095]
ROPE_CONFIGS = {
    "default, no key at all": {},
    "default, transformers 4": dict(rope_theta=500000.0, rope_scaling=None),
    "default, transformers 5": dict(rope_parameters=dict(rope_type="default", rope_theta=1000000.0)),
    "default, head_dim": dict(rope_theta=10000.0, head_dim=20),
    "linear, transformers 4": dict(rope_theta=10000.0, rope_scaling=dict(type="linear", factor=2.5)),
    "linear, transformers 5": dict(rope_parameters=dict(rope_type="linear", rope_theta=20000.0, factor=4.0)),
    "dynamic, transformers 4": dict(rope_theta=10000.0, rope_scaling=dict(type="dynamic", factor=4.0)),
    "dynamic, transformers 5": dict(rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, factor=2.0)),
    "llama3, transformers 4": dict(rope_theta=500000.0, rope_scaling=dict(
        rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=128)),
    "llama3, transformers 5": dict(rope_parameters=dict(
        rope_type="llama3", rope_theta=500000.0, factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=8192)),
    "llama3, no interpolation": dict(rope_parameters=dict(
        rope_type="llama3", rope_theta=500000.0, factor=16.0, low_freq_factor=1.0, high_freq_factor=1.0,
        original_max_position_embeddings=64)),
    "yarn": dict(rope_theta=10000.0, rope_scaling=dict(type="yarn", factor=4.0, original_max_position_embeddings=64)),
    "yarn, finetuned": dict(rope_theta=10000.0, rope_scaling=dict(
        type="yarn", factor=16.0, original_max_position_embeddings=4096, finetuned=True)),
    "yarn, betas": dict(rope_parameters=dict(
        rope_type="yarn", rope_theta=10000.0, factor=8.0, original_max_position_embeddings=1024, beta_fast=16.0,
        beta_slow=2.0)),
    "yarn, not truncated": dict(rope_parameters=dict(
        rope_type="yarn", rope_theta=10000.0, factor=8.0, original_max_position_embeddings=1024, truncate=False)),
    "yarn, attention factor": dict(rope_parameters=dict(
        rope_type="yarn", rope_theta=10000.0, factor=8.0, original_max_position_embeddings=1024,
        attention_factor=1.375)),
    "yarn, mscale": dict(rope_parameters=dict(
        rope_type="yarn", rope_theta=10000.0, factor=40.0, original_max_position_embeddings=1024, mscale=1.0,
        mscale_all_dim=0.707)),
    "yarn, mscale alone": dict(rope_parameters=dict(
        rope_type="yarn", rope_theta=10000.0, factor=40.0, original_max_position_embeddings=1024, mscale=0.7)),
    "yarn, no original": dict(rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0)),
    "yarn, original outside": dict(original_max_position_embeddings=32, rope_parameters=dict(
        rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=64)),
    "longrope": dict(model_type="phi3", original_max_position_embeddings=64, rope_scaling=longrope(8)),
    "longrope, an old name, a part of each head": dict(
        model_type="phi3", original_max_position_embeddings=32, partial_rotary_factor=0.75,
        rope_scaling={**longrope(6), "rope_type": "yarn"}),
    "longrope, no original": dict(model_type="phi3", max_position_embeddings=16384, rope_scaling=longrope(8)),
    "longrope, factor": dict(rope_parameters=dict(factor=8.0, original_max_position_embeddings=128, **longrope(8))),
    "longrope, attention factor": dict(rope_parameters=dict(
        attention_factor=1.375, original_max_position_embeddings=64, **longrope(8))),
}


def rope_tables(config, fixed):
    """What the embedding computes; `fixed`: with the frequencies that it has, whatever the positions."""
    rope = LlamaRotaryEmbedding(config)
    rope.rope_type = "fixed" if fixed else rope.rope_type
    positions = torch.tensor([ROPE_POSITIONS])
    if config.rope_parameters["rope_type"] == "dynamic":
        # The fixed table: the base of the longest context, whatever the length of the sequence at hand.
        longest = int(config.max_position_embeddings * config.rope_parameters["factor"])
        rope.inv_freq, _ = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS["dynamic"](config, seq_len=longest)
        rope.rope_type = "fixed"
    cos, sin = rope(torch.zeros(1), positions)
    half = cos.shape[-1] // 2
    table = torch.cat((cos[0, :, :half], sin[0, :, :half]), dim=-1)
    return [[float(f"{value:.9g}") for value in row] for row in table.tolist()]


def make_rope_case(name, keys):
    """"long_table" are the angles of longrope in a sequence past its switch."""
    keys = {**ROPE_SIZES, **keys}
    config = transformers.CONFIG_MAPPING[keys["model_type"]](**json.loads(json.dumps(keys)))
    rope = config.rope_parameters
    case = dict(name=name, config=keys, table=rope_tables(config, fixed=rope["rope_type"] == "longrope"))
    if rope["rope_type"] == "longrope" and rope["original_max_position_embeddings"] <= ROPE_POSITIONS[-1]:
        case["long_table"] = rope_tables(config, fixed=False)
    return case


def make_rope(root):
    cases = [make_rope_case(name, keys) for name, keys in ROPE_CONFIGS.items()]
    lines = ",\n".join(json.dumps(case) for case in cases)
    (root / "rope.json").write_text('{"positions": %s, "cases": [\n%s\n]}\n' % (json.dumps(ROPE_POSITIONS), lines))
    print(f"rope.json: {len(cases)} cases")


def main():
    root = pathlib.Path(__file__).resolve().parent.parent / "data" / "golden"
    names = sys.argv[1:] or ["rope", *CHECKPOINTS]
    unknown = set(names) - {"rope", "bfloat16", *CHECKPOINTS}
    if unknown:
        sys.exit(f"no such checkpoint: {', '.join(sorted(unknown))}")
    root.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    for name in names:
        if name == "rope":
            make_rope(root)
        elif name == "bfloat16":
            remake_bfloat16_errors(root)
        else:
            make_checkpoint(root, name)


if __name__ == "__main__":
    main()
