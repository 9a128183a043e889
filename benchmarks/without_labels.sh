#!/usr/bin/env bash
# Does a model get better without labels? From a model, documents and questions to one table, on one large GPU.
#
#   MODEL=Qwen/Qwen2.5-1.5B-Instruct DEV=data/dev TRAIN=data/train OUT=runs/labels SEED=0 bash benchmarks/without_labels.sh
#
# DEV and TRAIN are folders with corpus.jsonl.gz ({id, title, text}) and questions.jsonl.gz ({id, question, answers, set}).
# Questions of DEV are split by the first hex digit of sha256(id): 0 to 4 are for choosing settings, 5 to f for the table.
# Nothing of DEV's questions is trained on; without labels the model sees DEV's documents alone.
#
#   form       taught the form of an episode in a fictional world
#   own        and then by its own right answers to questions it wrote about DEV's documents
#   free       and then by reinforcement on those of them that not every attempt answered right (no label)
#   direct     form, then reinforcement on the same questions as free (no label)
#   labelled   form, then reinforcement on TRAIN's labelled questions
#   shuffled   labelled, with advantages given to the wrong episodes: must not learn
#
# ARMS chooses among them; MINUTES is how long each arm of reinforcement may take. Arms run one after another. To run two
# at once: the script with ARMS= (index and form only), `nvidia-cuda-mps-control -d`, then the script twice with other ARMS
# and the same OUT; MAX_ROWS=160 MICRO=8192 leaves room for both on 139 GiB. QUAERE is the command, if it is not `quaere`.
set -euo pipefail
: "${MODEL:?}" "${DEV:?}" "${OUT:?}"
SEED=${SEED:-0} ARMS=${ARMS-form own free labelled} MINUTES=${MINUTES:-15} DRAFTS=${DRAFTS:-13000}
MAX_ROWS=${MAX_ROWS:-512} MICRO=${MICRO:-16384}
quaere() { ${QUAERE:-command quaere} "$@"; }
HERE=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$OUT"

LIMITS=(--max-turns 7 --topk 3 --turn-tokens 160 --sequence-tokens 4864 --tool-response-tokens 560)
TEACH=(--style brief --lora-rank 32 --learning-rate 2e-4 --batch 16 --micro-tokens "$MICRO" --seed "$SEED")
wants() { [[ " $ARMS " == *" $1 "* ]]; }

index() { [[ -f $2/manifest.json ]] || quaere index "$1" --out "$2"; }

evaluate() {  # name, then what to evaluate
    quaere eval "${@:2}" --questions "$OUT/report.jsonl" --index "$OUT/dev-index" "${LIMITS[@]}" --max-searches 6 \
        --max-rows 256 --name "$1" --out "$OUT/$1-$SEED.json"
}

stop_in_time() {  # quaere, then what it does
    timeout --signal=INT "$((MINUTES * 60))" ${QUAERE:-quaere} "${@:2}" || [[ $? == 124 ]]
}

TRAIN_MORE=(--preset large-gpu --set seed="$SEED" --set checkpoints.every=5 --set validation.questions=0
    --set solver.steps=100 --set solver.max_draws=3 --set solver.learner.gradient_checkpointing=true)

evolve_labelled() {  # name, further settings
    stop_in_time quaere evolve search-r1 --model "$FORM" --questions "$TRAIN/questions.jsonl.gz" --index "$OUT/train-index" \
        --out "$OUT/$1-$SEED" "${TRAIN_MORE[@]}" "${@:2}"
    evaluate "$1" --run "$OUT/$1-$SEED"
}

evolve_free() {  # name, start: Dr. Zero's solver on questions out of the documents; no proposer is trained
    stop_in_time quaere evolve drzero --solver-dialect search-r1 --model "$2" --index "$OUT/dev-index" \
        --out "$OUT/$1-$SEED" "${TRAIN_MORE[@]}" --set iterations=1 --set proposer.steps=0 --set generation.candidates=0 \
        --set generation.attempts=0 --set generation.given="$PRACTICE"
    evaluate "$1" --run "$OUT/$1-$SEED"
}

"${PYTHON:-python}" "$HERE/split_questions.py" "$DEV/questions.jsonl.gz" --digits 5-f --out "$OUT/report.jsonl"
index "$DEV/corpus.jsonl.gz" "$OUT/dev-index"

FORM=$OUT/form-$SEED OWN=$OUT/own-$SEED QUESTIONS=$OUT/questions-$SEED.jsonl PRACTICE=$OUT/practice-$SEED.jsonl
[[ -d $FORM ]] || quaere warmup search-r1 --model "$MODEL" "${TEACH[@]}" "${LIMITS[@]}" --articles 2000 --facts 3,3,3,2 \
    --episodes 500 --epochs 2 --out "$FORM"
if wants form; then evaluate form --model "$FORM"; fi

if wants own || wants free || wants direct; then
    [[ -f $QUESTIONS ]] || quaere questions --checked --index "$OUT/dev-index" --model "$MODEL" --drafts "$DRAFTS" --topk 3 \
        --max-rows "$MAX_ROWS" --seed "$SEED" --out "$QUESTIONS"
    [[ -d $OWN ]] || quaere warmup search-r1 --model "$FORM" --index "$OUT/dev-index" --questions "$QUESTIONS" --attempts 4 \
        --most 2800 --practice "$PRACTICE" --max-rows "$MAX_ROWS" "${TEACH[@]}" "${LIMITS[@]}" --epochs 1 --out "$OWN"
fi
if wants own; then evaluate own --model "$OWN"; fi
if wants free; then evolve_free free "$OWN"; fi
if wants direct; then evolve_free direct "$FORM"; fi

if wants labelled || wants shuffled; then
    : "${TRAIN:?}"
    index "$TRAIN/corpus.jsonl.gz" "$OUT/train-index"
fi
if wants labelled; then evolve_labelled labelled; fi
if wants shuffled; then
    evolve_labelled shuffled --set solver.shuffle_advantages=true
fi

ROWS=()
for arm in form own free direct labelled shuffled; do
    files=("$OUT/$arm"-*.items.jsonl.gz)
    [[ -f ${files[0]} ]] && ROWS+=(--arm "$arm" "${files[@]}")
done
((${#ROWS[@]})) || exit 0
"${PYTHON:-python}" "$HERE/results_table.py" "${ROWS[@]}" --baseline form
"${PYTHON:-python}" "$HERE/results_table.py" "${ROWS[@]}" --baseline form --where set=2wiki,hotpot
