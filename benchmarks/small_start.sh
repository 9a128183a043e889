#!/usr/bin/env bash
# The adapter of smollm2-135m (src/quaere/policies/adapters): form, then reinforcement on labelled questions, on one GPU.
#
#   INDEX=train-index QUESTIONS=questions.jsonl OUT=small bash benchmarks/small_start.sh
#
# QUESTIONS are labelled and can be answered by one search of INDEX; the folder's README.md says which ones were used.
# SECONDS_OF_TRAINING is how long the reinforcement may take (900 s: 88 steps beside two trainings of a 1.5B on an H200).
set -euo pipefail
: "${INDEX:?}" "${QUESTIONS:?}" "${OUT:?}"
SECONDS_OF_TRAINING=${SECONDS_OF_TRAINING:-900}
mkdir -p "$OUT"

quaere warmup search-r1 --model smollm2-135m-plain --style brief --facts 5,1 --articles 2000 --episodes 3000 --epochs 2 \
    --batch 32 --lora-rank 5 --adapter --dtype bfloat16 --learning-rate 1e-3 --micro-tokens 16384 --max-turns 4 --topk 3 \
    --turn-tokens 96 --sequence-tokens 1792 --tool-response-tokens 512 --out "$OUT/warm"

timeout --signal=INT "$SECONDS_OF_TRAINING" quaere evolve search-r1 --model "$OUT/warm" --questions "$QUESTIONS" \
    --index "$INDEX" --out "$OUT/run" --preset large-gpu --set seed=1 --set checkpoints.every=20 \
    --set validation.questions=0 --set solver.steps=200 --set solver.max_draws=3 --set adapter.rank=4 --set adapter.alpha=8 \
    --set solver.learner.learning_rate=1.5e-4 --set solver.learner.micro_tokens=16384 --set solver.limits.max_turns=4 \
    --set solver.limits.max_searches=3 --set solver.limits.turn_tokens=96 --set solver.limits.sequence_tokens=1792 \
    --set solver.limits.tool_response_tokens=512 || [[ $? == 124 ]]

quaere export "$OUT/run" --adapter --dtype bfloat16 --checkpoint last --out "$OUT/solver"
python "$(dirname "$0")/join_adapters.py" "$OUT/warm" "$OUT/solver" --base smollm2-135m-plain --out "$OUT/adapter"
