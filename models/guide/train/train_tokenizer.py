"""Trains ../tokenizer.model on text that make_data.py writes, and writes ../tokenizer_config.json beside it.

    python train_tokenizer.py

SentencePiece BPE, 4096 pieces: 0 <unk>, 1 <s>, 2 </s>, the four control symbols of the chat format, 256 bytes, then
what was learned. Digits are single pieces, so that sums are written digit by digit. Control symbols are never made
from text: whatever a user types, "<|end|>" included, stays text.
"""
import json
import os
import tempfile

import sentencepiece

import make_data
from facts import HERE

OUT = os.path.join(HERE, "..")
CONTROL = ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]
CHAT_TEMPLATE = ("{{ bos_token }}{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
                 "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}")


def write_text(path):
    """Conversations, every fact several times, and made-up words, so that any English word gets pieces of some length."""
    import random
    rng = random.Random(99)
    with open(path, "w", encoding="utf-8") as file:
        file.write(" ".join(map(chr, range(33, 127))) + "\n")     # every printable character is a piece
        for fact in make_data.FACTS + make_data.TALK:
            for text in fact.ask + fact.thing + fact.do + [fact.say, fact.more]:
                file.write((text + "\n") * 3)
        for _ in range(6000):
            for user, answer in make_data.conversation(rng, 6).turns:
                file.write(f"{user}\n{answer}\n")


def config():
    tokens = ["<unk>", "<s>", "</s>"] + CONTROL
    return {
        "tokenizer_class": "LlamaTokenizer",
        "legacy": True,
        "add_prefix_space": True,
        "add_bos_token": False,
        "add_eos_token": False,
        "clean_up_tokenization_spaces": False,
        "bos_token": "<s>",
        "eos_token": "<|end|>",
        "unk_token": "<unk>",
        "pad_token": "</s>",
        "model_max_length": 2048,
        "additional_special_tokens": CONTROL,
        "added_tokens_decoder": {str(i): {"content": t, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False,
                                          "special": True} for i, t in enumerate(tokens)},
        "chat_template": CHAT_TEMPLATE,
    }


def main():
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "text")
        write_text(text)
        sentencepiece.SentencePieceTrainer.train(
            input=text, model_prefix=os.path.join(folder, "tokenizer"), model_type="bpe", vocab_size=4096, byte_fallback=True,
            split_digits=True, normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=True,
            character_coverage=1.0, unk_id=0, bos_id=1, eos_id=2, pad_id=-1, control_symbols=CONTROL, num_threads=2,
            max_sentence_length=8192, minloglevel=1)
        os.replace(os.path.join(folder, "tokenizer.model"), os.path.join(OUT, "tokenizer.model"))
    with open(os.path.join(OUT, "tokenizer_config.json"), "w", encoding="utf-8") as file:
        json.dump(config(), file, indent=2)
        file.write("\n")


if __name__ == "__main__":
    main()
