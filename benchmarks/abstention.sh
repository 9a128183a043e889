#!/usr/bin/env bash
# Does a model learn to say that the documents do not answer? One stage a call, as in own_documents.sh, whose OUT, MODEL, SEED,
# STEPS, SETTINGS, MAX_ROWS, EVAL_ROWS, QUAERE and PYTHON it takes. OUT/NAME-index and OUT/NAME-practice.jsonl are there before.
#
#   bash benchmarks/abstention.sh form                     # OUT/form-SEED: SHARE of the lessons end with an abstention
#   bash benchmarks/abstention.sh learn docs               # OUT/docs-SEED: HIDDEN of a step is hidden, needless abstaining earns NEEDLESS
#   bash benchmarks/abstention.sh learn docs never         # OUT/docs-never-SEED, the control: it may not abstain
#   bash benchmarks/abstention.sh ask docs-SEED docs exam.jsonl              # every question as it is and with its answer hidden
#   ATTEMPTS=8 bash benchmarks/abstention.sh ask docs-SEED docs exam.jsonl   # the answer of most attempts, however few agree
#   bash benchmarks/abstention.sh ask docs-never-SEED docs exam.jsonl        # the same, never abstaining
#   bash benchmarks/abstention.sh ask docs-never-SEED docs exam.jsonl prompt # the second control: the prompt alone allows it
set -euo pipefail
: "${OUT:?}"
SEED=${SEED:-0} STEPS=${STEPS:-26} EVAL_ROWS=${EVAL_ROWS:-256} MICRO=${MICRO:-16384} SHARE=${SHARE:-0.15} NEEDLESS=${NEEDLESS:-0}
HIDDEN=${HIDDEN:-0.25}
quaere() { ${QUAERE:-command quaere} "$@"; }
LIMITS=(--max-turns 7 --topk 3 --turn-tokens 160 --sequence-tokens 5632 --tool-response-tokens 700)

form() {
    quaere warmup search-r1 --model "${MODEL:?}" --style brief --lora-rank 32 --learning-rate 2e-4 --batch 16 --micro-tokens "$MICRO" \
        --seed "$SEED" "${LIMITS[@]}" --articles 2000 --facts 3,3,3,2 --episodes 600 --epochs 2 --abstention "$SHARE" --adapter \
        --out "$OUT/form-$SEED"
}

learn() {  # name, perhaps "never" or another word for its folder
    local how=(--set solver.abstention.needless="$NEEDLESS" --set solver.abstention.hidden_share="$HIDDEN") questions=$OUT/$1-practice.jsonl
    if [[ ${2:-} == never ]]; then
        how=(--set solver.abstention.allowed=false) questions=$OUT/$1-answerable-$SEED.jsonl
        grep -v '"answers": *\[\]' "$OUT/$1-practice.jsonl" > "$questions"
    fi
    quaere evolve search-r1 --model "$OUT/form-$SEED" --questions "$questions" --index "$OUT/$1-index" \
        --out "$OUT/$1${2:+-$2}-$SEED" --preset large-gpu --set seed="$SEED" --set checkpoints.every=13 --set validation.questions=0 \
        --set solver.steps="$STEPS" --set solver.max_draws=3 --set solver.limits.sequence_tokens=5632 \
        --set solver.limits.tool_response_tokens=700 "${how[@]}" ${SETTINGS:-}
}

ask() {  # what (form-0, docs-0), index, questions, perhaps "prompt"
    local what=(--model "$OUT/$1")
    if [[ -f $OUT/$1/run.db ]]; then what=(--run "$OUT/$1"); fi
    if [[ ${4:-} == prompt ]]; then what+=(--abstention); fi
    if [[ -n ${ATTEMPTS:-} ]]; then what+=(--attempts "$ATTEMPTS" --min-confidence 0); fi
    quaere eval "${what[@]}" --questions "$3" --index "$OUT/$2-index" "${LIMITS[@]}" --max-searches 6 --max-rows "$EVAL_ROWS" \
        --no-evidence --hide-answers --name "$1${4:+-$4}" \
        --out "$OUT/$1${4:+-$4}${ATTEMPTS:+-voted-$ATTEMPTS}-$(basename "${3%.jsonl}").json"
}

if [[ ${1:-} != form ]] && grep -qs '"abstention": 0.0' "$OUT/form-$SEED/warmup.json"; then
    echo "$OUT/form-$SEED is of another script (it was not taught to abstain): choose another OUT" >&2; exit 2
fi
"$@"
