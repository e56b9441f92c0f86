#!/bin/sh
# Makes the guide again from nothing: tokenizer, data, training, export, held-out test. About ten minutes on one GPU.
#
#     models/guide/train/run_all.sh            PYTHON, ROWS, STEPS and SECONDS_MAX may be set in the environment
#
# Needs Python with torch, numpy, sentencepiece, safetensors and transformers.
set -eu
cd "$(dirname "$0")"
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" make_data.py --test
"$python" train_tokenizer.py
"$python" make_data.py --rows "$work/rows.npy" --count "${ROWS:-60000}"
"$python" train.py "$work/rows.npy" --compile --steps "${STEPS:-6000}" --seconds "${SECONDS_MAX:-300}"
"$python" evaluate.py --dtype bfloat16
"$python" evaluate.py --errors
