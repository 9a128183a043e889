#!/usr/bin/env bash
# Do judges of a model's own searches help it learn? One stage a call, as in own_documents.sh, whose OUT, MODEL, SEED, STEPS, SETTINGS,
# MAX_ROWS, EVAL_ROWS, QUAERE and PYTHON it takes. OUT/NAME-index and OUT/NAME-practice.jsonl (checked questions) are there before.
#
#   bash benchmarks/judges.sh form                          # OUT/form-SEED: three dialects in a world, EPOCHS (2) times; the control of `cold`
#   bash benchmarks/judges.sh cold docs                     # OUT/cold-SEED: scores taught on the pages of docs, by evidence
#   ONLY_SCORES=1 bash benchmarks/judges.sh cold docs       # with loss on the scores alone: the rest is forgotten
#   bash benchmarks/judges.sh cold docs shuffled            # OUT/cold-shuffled-SEED, the control: scores of other searches
#   bash benchmarks/judges.sh learn docs ARM                # OUT/ARM-SEED: STEPS x 64 x 8 from form-SEED (pcar: cold-SEED), by exact match
#   START=cold-0 bash benchmarks/judges.sh learn docs loop  # OUT/loop-from-cold-0-SEED: pcar's control
#   bash benchmarks/judges.sh ask oracle-SEED docs exam.jsonl            # OUT/oracle-SEED-exam.json and its items file
#   bash benchmarks/judges.sh ask cold-SEED docs exam.jsonl evalact      # a model that was not reinforced: name its dialect
#   HIDE=1 bash benchmarks/judges.sh ask cold-SEED docs exam.jsonl evalact   # each question once more with its answer hidden
#
# Arms: search-r1; gain (search-r1 with information gain); loop (evalact without PCAR); oracle, permuted (PCAR with scores by evidence, and
# the same in random order); pcar (its own scores, epsilon 1), pcar-sharp (epsilon 1e-6), pcar-permuted (pcar's scores in
# random order); brier (loop with the scoring rule); notes, unpaid, floor, grounded (evalrar: bonus as published, none, with a least
# deviation, and for grounded notes alone). `ask` in evalact also prints how well the scores agree with the evidence, and writes the scored
# searches to OUT/WHAT-QUESTIONS.scores.jsonl (with HIDE, all files to OUT/WHAT-QUESTIONS-hidden.*).
set -euo pipefail
: "${OUT:?}"
SEED=${SEED:-0} STEPS=${STEPS:-26} MAX_ROWS=${MAX_ROWS:-320} EVAL_ROWS=${EVAL_ROWS:-256} MICRO=${MICRO:-16384} MOST=${MOST:-400} EPOCHS=${EPOCHS:-2}
GAIN=${GAIN:-0.5} BRIER=${BRIER:-0.2} HERE=$(cd "$(dirname "$0")" && pwd)
quaere() { ${QUAERE:-command quaere} "$@"; }
python() { command "${PYTHON:-python}" "$@"; }
LIMITS=(--topk 3 --turn-tokens 160 --sequence-tokens 6144 --tool-response-tokens 700)
TEACH=(--style brief --lora-rank 32 --learning-rate 2e-4 --batch 16 --micro-tokens "$MICRO" --seed "$SEED" --max-turns 14 --adapter)

form() {
    quaere warmup search-r1 --also evalrar --also evalact --model "${MODEL:?}" "${TEACH[@]}" "${LIMITS[@]}" --articles 2000 \
        --facts 3,3,3,2 --episodes 900 --epochs "$EPOCHS" --out "$OUT/form-$SEED"
}

answerable() {  # name, stage: prints a file with those of its questions that have an answer
    grep -v '"answers": *\[\]' "$OUT/$1-practice.jsonl" > "$OUT/$2-$SEED-questions.jsonl"
    echo "$OUT/$2-$SEED-questions.jsonl"
}

cold() {  # name, perhaps "shuffled"
    local more=() questions
    questions=$(answerable "$1" "cold${2:+-$2}")
    if [[ ${2:-} == shuffled ]]; then more=(--shuffle-scores); fi
    quaere warmup evalact --model "$OUT/${START:-form-$SEED}" --index "$OUT/$1-index" --questions "$questions" \
        "${TEACH[@]}" "${LIMITS[@]}" --most "$MOST" --attempts 3 --max-rows "$MAX_ROWS" --epochs 1 \
        ${ONLY_SCORES:+--scores-only} "${more[@]}" \
        --out "$OUT/cold${2:+-$2}-$SEED"
}

learn() {  # name, arm
    local recipe=evalact how=() questions start=form-$SEED name=$2${START:+-from-$START}
    questions=$(answerable "$1" "$name")
    if [[ $2 == pcar* ]]; then start=cold-$SEED; fi
    case $2 in
        search-r1) recipe=search-r1 ;;
        gain) recipe=search-r1 how=(--set solver.information_gain="$GAIN") ;;
        loop) how=(--set solver.evaluation.pcar=false) ;;
        oracle) how=(--set solver.evaluation.scores=oracle) ;;
        permuted) how=(--set solver.evaluation.scores=oracle --set solver.evaluation.permuted=true) ;;
        pcar) how=(--set solver.evaluation.epsilon=1) ;;
        pcar-sharp) how=(--set solver.evaluation.epsilon=1e-6) ;;
        pcar-permuted) how=(--set solver.evaluation.epsilon=1 --set solver.evaluation.permuted=true) ;;
        brier) how=(--set solver.evaluation.pcar=false --set solver.evaluation.brier="$BRIER") ;;
        notes) recipe=evalrar ;;
        unpaid) recipe=evalrar how=(--set solver.evaluation.bonus=0) ;;
        floor) recipe=evalrar how=(--set solver.min_std=0.1) ;;
        grounded) recipe=evalrar how=(--set solver.evaluation.note_rule=grounded) ;;
        *) echo "no arm $2" >&2; exit 2 ;;
    esac
    if [[ $recipe == evalact ]]; then how+=(--set solver.limits.max_turns=14); else how+=(--set solver.limits.max_turns=7); fi
    quaere evolve "$recipe" --model "$OUT/${START:-$start}" --questions "$questions" --index "$OUT/$1-index" \
        --out "$OUT/$name-$SEED" --preset large-gpu --set seed="$SEED" --set checkpoints.every=13 --set validation.questions=0 \
        --set solver.steps="$STEPS" --set solver.max_draws=3 --set solver.answer_score=exact_match \
        --set solver.limits.sequence_tokens=6144 --set solver.limits.tool_response_tokens=700 "${how[@]}" ${SETTINGS:-}
}

ask() {  # what (form-0, oracle-0), index, questions, the dialect of a model that was not reinforced
    local what=(--model "$OUT/$1") name=$1${4:+-$4}-$(basename "${3%.jsonl}")${HIDE:+-hidden} turns=7
    if [[ -f $OUT/$1/run.db ]]; then what=(--run "$OUT/$1"); fi
    if [[ -n ${4:-} ]]; then what+=(--solver-dialect "$4"); fi
    if [[ ${4:-} == evalact || $1 =~ ^(loop|oracle|permuted|pcar|brier)- ]]; then turns=14; fi
    quaere eval "${what[@]}" --questions "$3" --index "$OUT/$2-index" "${LIMITS[@]}" --max-turns "$turns" --max-searches 6 \
        --max-rows "$EVAL_ROWS" --no-evidence ${HIDE:+--hide-answers} --name "$1${4:+-$4}" --runs "$OUT/$name-episodes" --out "$OUT/$name.json"
    if ((turns == 14)); then python "$HERE/calibration.py" "$OUT/$name-episodes"/* --rows "$OUT/$name.scores.jsonl"; fi
}

if [[ ${1:-} != form ]] && grep -qs '"also": \[\]' "$OUT/form-$SEED/warmup.json"; then
    echo "$OUT/form-$SEED is of another script (it knows one dialect): choose another OUT" >&2; exit 2
fi
"$@"
