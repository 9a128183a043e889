#!/usr/bin/env bash
# Does an evaluator that learns to choose rubrics help? One stage a call, as in own_documents.sh, whose OUT, MODEL, SEED, STEPS,
# SETTINGS, EVAL_ROWS, MICRO, QUAERE and PYTHON it takes.
#
#   bash benchmarks/rubrics.sh world                 # OUT/rubrics-index, questions to practise on and 100 with known facts held out
#   bash benchmarks/rubrics.sh form                  # OUT/writer-SEED: writing under a rubric, choosing one, grading
#   bash benchmarks/rubrics.sh learn learned         # OUT/learned-SEED: two rubrics on the same questions, A = C1 - C2
#   bash benchmarks/rubrics.sh learn frozen          # the control: rubrics are chosen, never learned; or shuffled
#   bash benchmarks/rubrics.sh compare learned frozen            # C and features on the questions held out, paired
#   bash benchmarks/rubrics.sh facts learned frozen              # known facts that reports state and prove
#
# C compares conclusions by numbers and longer words, without citations; both roles' losses are means over tokens.
set -euo pipefail
: "${OUT:?}"
SEED=${SEED:-0} STEPS=${STEPS:-40} EVAL_ROWS=${EVAL_ROWS:-128} MICRO=${MICRO:-8192} HERE=$(cd "$(dirname "$0")" && pwd)
quaere() { ${QUAERE:-command quaere} "$@"; }
python() { command "${PYTHON:-python}" "$@"; }

world() {
    quaere world --seed 7 --articles 400 --out "$OUT/rubrics-world"
    quaere index "$OUT/rubrics-world/corpus.jsonl" --out "$OUT/rubrics-index"
    quaere questions --index "$OUT/rubrics-index" --num 320 --out "$OUT/rubrics-practice.jsonl"
    quaere questions --world "$OUT/rubrics-world" --num 100 --out "$OUT/rubrics-held.jsonl"
}

form() {
    quaere warmup score --model "${MODEL:?}" --style brief --lora-rank 32 --learning-rate 2e-4 --batch 16 \
        --micro-tokens "$MICRO" --seed "$SEED" --out "$OUT/writer-$SEED"
}

learn() {  # arm
    local how=()
    case $1 in
        learned) ;;
        frozen) how=(--set evaluator.frozen=true) ;;
        shuffled) how=(--set shuffle_advantages=true) ;;
        *) echo "no arm $1: learned, frozen or shuffled" >&2; exit 2 ;;
    esac
    quaere evolve score --model "$OUT/writer-$SEED" --questions "$OUT/rubrics-practice.jsonl" --index "$OUT/rubrics-index" \
        --config "$HERE/score-small.yaml" --out "$OUT/$1-$SEED" --set seed="$SEED" --set solver.steps="$STEPS" \
        --set evaluator.baseline=pair --set evaluator.agreement=content --set evaluator.aggregation=token_mean \
        --set evaluator.moments=own --set evaluator.shown_questions=3 "${how[@]}" ${SETTINGS:-}
}

compare() {  # arms
    local models=() arm
    for arm in "$@"; do
        [[ -d $OUT/$arm-$SEED-model ]] || quaere export "$OUT/$arm-$SEED" --out "$OUT/$arm-$SEED-model"
        models+=("$OUT/$arm-$SEED-model")
    done
    python "$HERE/rubric_probe.py" "${models[@]}" --chosen --index "$OUT/rubrics-index" --questions "$OUT/rubrics-held.jsonl" \
        --num-questions 100 --max-rows "$EVAL_ROWS" --out "$OUT/chosen-$SEED"
}

facts() {  # arms
    local runs=() arm
    for arm in "$@"; do
        quaere report --model "$OUT/$arm-$SEED-model" --questions "$OUT/rubrics-held.jsonl" --index "$OUT/rubrics-index" \
            --runs "$OUT/$arm-$SEED-reports"
        runs+=("$OUT/$arm-$SEED-reports"/*)
    done
    quaere grade "${runs[@]}" --facts "$OUT/rubrics-held.jsonl" --out "$OUT/facts-$SEED.json"
}

"$@"
