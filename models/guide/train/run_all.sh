#!/bin/sh
# Makes the guide again from nothing: tokenizer, data, training, export, held-out test, draft model. About six minutes on one large GPU.
#
#     models/guide/train/run_all.sh            PYTHON, ROWS, STEPS, DRAFT_STEPS and SECONDS_MAX may be set in the environment
#
# Needs Python with torch, numpy, sentencepiece, safetensors and transformers.
set -eu
cd "$(dirname "$0")"
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" make_data.py --test
"$python" train_tokenizer.py
"$python" make_data.py --rows "$work/rows.npy" --count "${ROWS:-200000}"
"$python" train.py "$work/rows.npy" --compile --steps "${STEPS:-12500}" --seconds "${SECONDS_MAX:-1e9}"
"$python" train.py "$work/rows.npy" --draft --compile --batch 16 --lr 4e-3 --steps "${DRAFT_STEPS:-4000}" --seconds "${SECONDS_MAX:-1e9}"
"$python" evaluate.py --errors
"$python" speculation.py
