#!/usr/bin/env bash
# Is a proposer that hardens checked questions worth training? One stage a call, as in own_documents.sh, whose OUT, MODEL, SEED,
# SETTINGS, EVAL_ROWS, MICRO, QUAERE and PYTHON it takes. OUT/NAME-index and OUT/NAME-practice.jsonl (with chains) are there before.
#
#   bash benchmarks/proposer.sh form                      # OUT/roles-SEED: both roles' form, in a world
#   bash benchmarks/proposer.sh lessons docs              # OUT/hard-SEED: hardenings out of the chains of OUT/docs-practice.jsonl;
#                                                         # OUT/docs-facts.jsonl: the facts that no lesson rewords
#   bash benchmarks/proposer.sh harden-yield docs         # OUT/docs-yield-SEED: CANDIDATES by the untrained proposer; no update
#   bash benchmarks/proposer.sh propose docs              # OUT/docs-gated-SEED: STEPS steps of 64, then CANDIDATES about held-out facts
#   bash benchmarks/proposer.sh propose docs frozen       # the controls: learning rate 0; or shuffled, or grpo (16 facts x 4)
#   bash benchmarks/proposer.sh practice docs gated       # OUT/docs-on-gated-SEED: a solver on what OUT/docs-gated-SEED kept
#                                                         # (with NUM and START: OUT/docs-on-gated-NUM-from-START-SEED)
#   bash benchmarks/proposer.sh practice docs yield       # the same on the untrained proposer's
#   bash benchmarks/proposer.sh practice docs fresh       # the control that matters: OUT/docs-fresh.jsonl, new questions of the writer
#   bash benchmarks/proposer.sh ask docs-on-gated-SEED docs exam.jsonl
#
# Too few pass? The second warm-up also learns from what passed: HARD=$OUT/again PASSED=$OUT/docs-yield-SEED-passed.jsonl before
# `lessons docs`, then HARD=$OUT/again before `harden-yield docs again`, and HARD=$OUT/again UNTRAINED=again before `propose`, which ends at
# once if less than a tenth of OUT/docs-UNTRAINED-SEED (yield by default) passes; FORCE=1 asks nothing.
#
# TASK=reword gives the proposer the page that describes a name, so that it does not search for one.
#
# `harden-yield` and `propose` end with a table of the gates and examples, OUT/NAME-ARM-SEED.txt, and the kept questions,
# OUT/NAME-ARM-SEED.jsonl. START is the model that `practice` begins with; PRACTICE_STEPS are its steps of 64 x 8. No
# question is drawn more than three times, so 600 are needed for 26 steps: NUM=300 PRACTICE_STEPS=13 gives arms with fewer the same
# number of questions and of steps.
set -euo pipefail
: "${OUT:?}"
SEED=${SEED:-0} STEPS=${STEPS:-40} CANDIDATES=${CANDIDATES:-1000} PRACTICE_STEPS=${PRACTICE_STEPS:-26} EVAL_ROWS=${EVAL_ROWS:-256}
TASK=${TASK:-harden} HARD=${HARD:-$OUT/hard-$SEED} MICRO=${MICRO:-16384} START=${START:-$OUT/roles-$SEED} HERE=$(cd "$(dirname "$0")" && pwd)
quaere() { ${QUAERE:-command quaere} "$@"; }
python() { command "${PYTHON:-python}" "$@"; }
LIMITS=(--max-turns 7 --topk 3 --turn-tokens 192 --sequence-tokens 5632 --tool-response-tokens 700)
TAUGHT=(--style brief --lora-rank 32 --learning-rate 2e-4 --batch 16 --micro-tokens "$MICRO" --seed "$SEED" "${LIMITS[@]}" --epochs 2)
RUN=(--preset large-gpu --set seed="$SEED" --set iterations=1 --set validation.questions=0 --set solver.limits.sequence_tokens=5632
    --set solver.limits.tool_response_tokens=700)

form() {
    quaere warmup drzero --model "${MODEL:?}" "${TAUGHT[@]}" --articles 2000 --facts 3,3,3,2 --proposer-hops 2,2,2 --episodes 600 \
        --out "$OUT/roles-$SEED"
}

lessons() {  # name; of both roles, as the solver that attempts what is hardened would forget its own
    python "$HERE/split_chains.py" "$OUT/$1-practice.jsonl" ${PASSED:-} --lessons "$OUT/$1-lessons.jsonl" --facts "$OUT/$1-facts.jsonl"
    quaere warmup drzero --model "$OUT/roles-$SEED" "${TAUGHT[@]}" --index "$OUT/$1-index" --questions "$OUT/$1-lessons.jsonl" \
        --attempts 3 --max-rows "$EVAL_ROWS" --proposer-task "$TASK" --out "$HARD"
}

harden() {  # name, arm, further settings
    local name=$1 arm=$2 status=0
    shift 2
    quaere evolve drzero --model "$HARD" --index "$OUT/$name-index" --out "$OUT/$name-$arm-$SEED" "${RUN[@]}" \
        --set proposer.task="$TASK" --set proposer.hardening.examiner="${MODEL:?}" --set generation.given="$OUT/$name-facts.jsonl" \
        --set generation.candidates="$CANDIDATES" --set generation.batch=250 --set generation.attempts=5 --set proposer.attempts=5 \
        --set proposer.learner.learning_rate=2e-5 --set proposer.limits.max_turns=5 --set proposer.limits.sequence_tokens=5632 \
        --set proposer.limits.tool_response_tokens=700 --set solver.steps=0 "$@" ${SETTINGS:-} || status=$?
    if [[ $status != 0 ]]; then echo "evolve ended with $status: the table is of what it wrote" >&2; fi  # it fails if it keeps none
    python "$HERE/hardening_yield.py" "$OUT/$name-$arm-$SEED" --kept "$OUT/$name-$arm-$SEED.jsonl" \
        --lessons "$OUT/$name-$arm-$SEED-passed.jsonl" | tee "$OUT/$name-$arm-$SEED.txt"
}

harden-yield() { harden "$1" "${2:-yield}" --set proposer.steps=0; }  # name, perhaps another word for its folder

propose() {  # name, perhaps an arm
    local arm=${2:-gated} more=()
    case $arm in
        gated) ;;
        frozen) more=(--set proposer.learner.learning_rate=1e-30) ;;  # 0 is no rate
        shuffled) more=(--set proposer.shuffle_advantages=true) ;;
        grpo) more=(--set proposer.advantage=grpo --set proposer.batch=16 --set proposer.questions=4) ;;
        *) echo "no arm $arm: gated, frozen, shuffled or grpo" >&2; exit 2 ;;
    esac
    if [[ -z ${FORCE:-} ]]; then
        python "$HERE/hardening_yield.py" "$OUT/$1-${UNTRAINED:-yield}-$SEED" --examples 0 --at-least 0.1
    fi
    harden "$1" "$arm" --set proposer.steps="$STEPS" "${more[@]}"
}

practice() {  # name, arm whose questions are practised
    local questions=$OUT/$1-$2-$SEED.jsonl from=
    if [[ $2 == fresh ]]; then questions=$OUT/$1-fresh.jsonl; fi
    if [[ -n ${NUM:-} ]]; then  # not by shuf: its sources for a seed repeat, and draw alike for many seeds
        python -c 'import random, sys; rows = [*sys.stdin]; num = min(len(rows), int(sys.argv[2]))
print(end="".join(random.Random(sys.argv[1]).sample(rows, num)))' \
            "$SEED" "$NUM" < "$questions" > "$OUT/$1-$2-$SEED-$NUM.jsonl"
        questions=$OUT/$1-$2-$SEED-$NUM.jsonl
    fi
    if [[ $START != "$OUT/roles-$SEED" ]]; then from=-from-$(basename "$START"); fi
    quaere evolve drzero --model "$START" --index "$OUT/$1-index" --out "$OUT/$1-on-$2${NUM:+-$NUM}$from-$SEED" "${RUN[@]}" \
        --set proposer.steps=0 --set generation.candidates=0 --set generation.given="$questions" --set generation.attempts=0 \
        --set solver.steps="$PRACTICE_STEPS" --set solver.max_draws=3 --set checkpoints.every=13 ${SETTINGS:-}
}

ask() {  # what (roles-0, docs-on-gated-0), index, questions
    local what=(--model "$OUT/$1")
    if [[ -f $OUT/$1/run.db ]]; then what=(--run "$OUT/$1"); fi
    quaere eval "${what[@]}" --questions "$3" --index "$OUT/$2-index" "${LIMITS[@]}" --max-searches 6 --max-rows "$EVAL_ROWS" \
        --no-evidence --name "$1" --out "$OUT/$1-$(basename "${3%.jsonl}").json"
}

"$@"
