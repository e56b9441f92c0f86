#!/usr/bin/env python3
"""Compares what quire sends as OpenAI's API with the models of the package openai.

usage: build/release/test_api --print | python3 tests/scripts/check_openai_shapes.py

Each line is a kind, a tab and a JSON object. The object must be valid for the model of its kind, and a field that the
model does not have must be one that vLLM's server sends, too. Prints a verdict; the exit status is 1 if there is a
difference, or if there is no object of some kind. Needs the package openai (pip install openai)."""

import json
import sys

from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import BaseModel, ValidationError

MODELS = {"chat": ChatCompletion, "chat_chunk": ChatCompletionChunk, "completion": Completion,
          "completion_chunk": Completion}

# What vLLM's server has beside OpenAI's fields, by the model that has it.
VLLM = {("Choice", "stop_reason"), ("Choice", "token_ids"), ("CompletionChoice", "stop_reason"),
        ("CompletionChoice", "token_ids"), ("CompletionChoice", "prompt_token_ids"),
        ("CompletionChoice", "prompt_logprobs"), ("ChatCompletionMessage", "reasoning"),
        ("ChatCompletionMessage", "reasoning_content"), ("ChoiceDelta", "reasoning"),
        ("ChoiceDelta", "reasoning_content"), ("ChatCompletion", "prompt_token_ids"),
        ("ChatCompletion", "prompt_logprobs"), ("ChatCompletionChunk", "prompt_token_ids")}
# OpenAI's own field, of stored chats.
OWN = {("ChatCompletion", "metadata")}



def may_be_null(kind, place):
    """What OpenAI's server sends as null, though the package says otherwise (its client does not check): the finish
    reason of a completion's chunks but for the last one, and the log-probability of a prompt's first token."""
    return (kind == "completion_chunk" and place[-1] == "finish_reason") or (
        place[-2] in ("token_logprobs", "top_logprobs") and place[-1] == 0)


def extra_fields(value, found):
    """Names of (model, field) that the models do not have."""
    if isinstance(value, BaseModel):
        for name in value.model_extra or {}:
            found.add((type(value).__name__, name))
        for name in type(value).model_fields:
            extra_fields(getattr(value, name), found)
    elif isinstance(value, list):
        for element in value:
            extra_fields(element, found)


def check(kind, object_):
    """Sentences about what is wrong."""
    wrong = []
    try:
        MODELS[kind].model_validate(object_, strict=True)
    except ValidationError as error:
        wrong += [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()
                  if not (e["input"] is None and may_be_null(kind, e["loc"]))]
    found = set()
    extra_fields(MODELS[kind].construct(**object_), found)
    return wrong + [f"{model} has no field {name}" for model, name in sorted(found - VLLM - OWN)]


def main():
    counts = dict.fromkeys(MODELS, 0)
    num_wrong = 0
    for line in sys.stdin:
        kind, text = line.rstrip("\n").split("\t", 1)
        counts[kind] += 1
        for sentence in check(kind, json.loads(text)):
            num_wrong += 1
            print(f"{kind}: {sentence}: {text}")
    print(", ".join(f"{count} of {kind}" for kind, count in counts.items()))
    missing = [kind for kind, count in counts.items() if count == 0]
    if missing:
        print("none of " + ", ".join(missing))
    print("the shapes are OpenAI's" if not num_wrong and not missing else f"{num_wrong} differences")
    return 1 if num_wrong or missing else 0


if __name__ == "__main__":
    sys.exit(main())
