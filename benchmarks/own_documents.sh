#!/usr/bin/env bash
# Does a model learn from a folder of documents, without labels? One stage a call, so that several can run at once on a GPU.
#
#   export MODEL=Qwen/Qwen2.5-1.5B-Instruct OUT=runs/own SEED=0
#   bash benchmarks/own_documents.sh index docs ~/manuals              # OUT/docs-index
#   bash benchmarks/own_documents.sh write docs                        # OUT/docs.jsonl; practice and held-back questions
#   bash benchmarks/own_documents.sh form                              # OUT/form-SEED: the form of an episode, in a world
#   bash benchmarks/own_documents.sh learn docs                        # OUT/docs-SEED: GRPO on OUT/docs-practice.jsonl
#   bash benchmarks/own_documents.sh learn docs shuffled               # the control: advantages of the wrong episodes
#   bash benchmarks/own_documents.sh ask docs-SEED docs exam.jsonl     # OUT/docs-SEED-exam.json and its items file
#
# `write` stops drafting after MINUTES; `learn` takes STEPS steps of 64 x 8. SETTINGS are further words of `quaere evolve`,
# MAX_ROWS and EVAL_ROWS the episodes sampled at once. QUAERE is the command, if it is not `quaere`; PYTHON the interpreter.
set -euo pipefail
: "${OUT:?}"
SEED=${SEED:-0} STEPS=${STEPS:-26} MINUTES=${MINUTES:-4} DRAFTS=${DRAFTS:-20000} MAX_ROWS=${MAX_ROWS:-320} EVAL_ROWS=${EVAL_ROWS:-256}
MICRO=${MICRO:-16384} HERE=$(cd "$(dirname "$0")" && pwd)
quaere() { ${QUAERE:-command quaere} "$@"; }
python() { command "${PYTHON:-python}" "$@"; }
LIMITS=(--max-turns 7 --topk 3 --turn-tokens 160 --sequence-tokens 5632 --tool-response-tokens 700)
mkdir -p "$OUT"

index() {  # name, documents
    [[ -f $OUT/$1-index/manifest.json ]] || quaere index "$2" --out "$OUT/$1-index"
}

write() {  # name
    quaere questions --checked --index "$OUT/$1-index" --model "${MODEL:?}" --drafts "$DRAFTS" --minutes "$MINUTES" \
        --max-rows "$MAX_ROWS" --seed "$SEED" --out "$OUT/$1.jsonl" --dropped "$OUT/$1-dropped.jsonl"
    python "$HERE/hold_back.py" "$OUT/$1.jsonl" --practice "$OUT/$1-practice.jsonl" --held "$OUT/$1-held.jsonl"
}

form() {
    quaere warmup search-r1 --model "${MODEL:?}" --style brief --lora-rank 32 --learning-rate 2e-4 --batch 16 --micro-tokens "$MICRO" \
        --seed "$SEED" "${LIMITS[@]}" --articles 2000 --facts 3,3,3,2 --episodes 500 --epochs 2 --adapter --out "$OUT/form-$SEED"
}

learn() {  # name, perhaps "shuffled"
    local more=()
    if [[ ${2:-} == shuffled ]]; then more=(--set solver.shuffle_advantages=true); fi
    quaere evolve search-r1 --model "$OUT/form-$SEED" --questions "$OUT/$1-practice.jsonl" --index "$OUT/$1-index" \
        --out "$OUT/$1${2:+-$2}-$SEED" --preset large-gpu --set seed="$SEED" --set checkpoints.every=13 --set validation.questions=0 \
        --set solver.steps="$STEPS" --set solver.max_draws=3 --set solver.limits.sequence_tokens=5632 \
        --set solver.limits.tool_response_tokens=700 "${more[@]}" ${SETTINGS:-}
}

ask() {  # what (form-0, docs-0), index, questions
    local what=(--model "$OUT/$1")
    if [[ -f $OUT/$1/run.db ]]; then what=(--run "$OUT/$1"); fi
    quaere eval "${what[@]}" --questions "$3" --index "$OUT/$2-index" "${LIMITS[@]}" --max-searches 6 --max-rows "$EVAL_ROWS" \
        --no-evidence --name "$1" --out "$OUT/$1-$(basename "${3%.jsonl}").json"
}

"$@"
