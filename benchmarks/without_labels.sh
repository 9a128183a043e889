#!/usr/bin/env bash
# Does a model get better without labels, and what is evidence for? From a model, documents and questions to one table, on
# one large GPU.
#
#   MODEL=Qwen/Qwen2.5-1.5B-Instruct DEV=data/dev TRAIN=data/train OUT=runs/labels SEED=0 bash benchmarks/without_labels.sh
#   MODEL=... DEV=data/dev OUT=runs/evidence GIVEN=practice-1.jsonl.gz ARMS="form direct eve" bash benchmarks/without_labels.sh
#
# DEV and TRAIN are folders with corpus.jsonl.gz ({id, title, text}) and questions.jsonl.gz ({id, question, answers, set}).
# Questions of DEV are split by the first hex digit of sha256(id): 0 to 4 are for choosing settings, 5 to f for the table.
# Nothing of DEV's questions is trained on; without labels the model sees DEV's documents alone.
#
#   form        taught the form of an episode in a fictional world
#   own         and then by its own right answers to questions it wrote about DEV's documents
#   free        and then by reinforcement on those of them that not every attempt answered right (no label)
#   direct      form, then reinforcement on the same questions as free (no label): Dr. Zero's solver
#   eve         the same as direct, and the solver is also paid for quoting the sentence that proves its answer: EVE's
#   unpaid      the same as eve, quotations asked for and not paid: what the reward for them is worth
#   strict      the same as eve, and a quotation is paid only if it is verbatim in a text that was shown
#   second      two iterations of direct: in each the solver learns from the questions it solves sometimes
#   second-eve  two iterations of eve
#   labelled    form, then reinforcement on TRAIN's labelled questions
#   shuffled    labelled, with advantages given to the wrong episodes: must not learn
#
# ARMS chooses among them; MINUTES is how long each arm of reinforcement may take. SHUFFLED=1 gives the advantages of free,
# direct, eve and second to the wrong episodes and adds "-shuffled" to their names. GIVEN=FILE are the questions of these
# arms (checked ones, as `warmup --practice` writes them), so that none are written; without it they are those
# of `own`. Where the file has no evidence it is restored from the documents.
#
# QUOTES=1 is for all arms that are compared by their evidence, and implied by eve: form is taught to answer with and
# without a quotation, and every evaluation asks for one; form and direct, which learn without, are also evaluated without
# ("-unasked"; not with UNASKED=). "gold joint" is exact match with a verbatim span of a gold passage that holds the
# answer, on the sets whose gold is complete (GOLD).
#
# Form is kept as an adapter. START=DIR is the form of another seed, to reinforce several seeds from one start. With
# ATTEMPTS=4 direct, eve, unpaid and strict first try every question four times and learn from those solved sometimes.
#
# Arms run one after another; `lanes.sh` runs several at once. MICRO are the tokens of a micro-batch where the model is
# taught, MAX_ROWS and EVAL_ROWS the episodes sampled at once where questions are written and where it is evaluated. SETTINGS
# are further words of `quaere evolve`. QUAERE is the command, if it is not `quaere`; PYTHON the interpreter.
set -euo pipefail
: "${MODEL:?}" "${DEV:?}" "${OUT:?}"
SEED=${SEED:-0} ARMS=${ARMS-form own free labelled} MINUTES=${MINUTES:-15} DRAFTS=${DRAFTS:-13000}
MAX_ROWS=${MAX_ROWS:-512} EVAL_ROWS=${EVAL_ROWS:-256} MICRO=${MICRO:-16384} GIVEN=${GIVEN:-} SHUFFLED=${SHUFFLED:-}
GOLD=${GOLD:-popqa hotpot} UNASKED=${UNASKED-1}
STEPS=${STEPS:-100} EPISODES=${EPISODES:-500} ARTICLES=${ARTICLES:-2000} PRESET=${PRESET:-large-gpu}
quaere() { ${QUAERE:-command quaere} "$@"; }
python() { command "${PYTHON:-python}" "$@"; }
HERE=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$OUT"
wants() { [[ " $ARMS " == *" $1 "* ]]; }
if wants eve || wants unpaid || wants strict || wants second-eve; then QUOTES=1; fi
QUOTES=${QUOTES:-}

# A turn that quotes a sentence is longer, and the form has two ways to answer to learn.
TURN_TOKENS=${TURN_TOKENS:-$((QUOTES ? 224 : 160))} SEQUENCE_TOKENS=$((QUOTES ? 5120 : 4864)) TEACHES=() ASKS=()
if [[ $QUOTES ]]; then
    EPISODES=$((2 * EPISODES)) TEACHES=(--also eve-search-r1)
    read -ra sets <<<"$GOLD"
    ASKS=(--evidence --judge string --gold-sets "${sets[@]}")
fi
LIMITS=(--max-turns 7 --topk 3 --turn-tokens "$TURN_TOKENS" --sequence-tokens "$SEQUENCE_TOKENS" --tool-response-tokens 560)
TEACH=(--style brief --lora-rank 32 --learning-rate 2e-4 --batch 16 --micro-tokens "$MICRO" --seed "$SEED")

index() { [[ -f $2/manifest.json ]] || quaere index "$1" --out "$2"; }

evaluate() {  # name, then what to evaluate
    local same=(--questions "$OUT/report.jsonl" --index "$OUT/dev-index" "${LIMITS[@]}" --max-searches 6 --max-rows "$EVAL_ROWS")
    if [[ $QUOTES && $UNASKED && $1 =~ ^(form|direct) ]]; then
        quaere eval "${@:2}" "${same[@]}" --no-evidence --name "$1-unasked" --out "$OUT/$1-unasked-$SEED.json"
    fi
    quaere eval "${@:2}" "${same[@]}" "${ASKS[@]}" --name "$1" --out "$OUT/$1-$SEED.json"
}

stop_in_time() {  # quaere, then what it does
    timeout --signal=INT "$((MINUTES * 60))" ${QUAERE:-quaere} "${@:2}" || [[ $? == 124 ]]
}

TRAIN_MORE=(--preset "$PRESET" --set seed="$SEED" --set checkpoints.every=5 --set validation.questions=0
    --set solver.steps="$STEPS" --set solver.max_draws=3 --set solver.learner.gradient_checkpointing=true
    --set solver.limits.turn_tokens="$TURN_TOKENS" --set solver.limits.sequence_tokens="$SEQUENCE_TOKENS" ${SETTINGS:-})
# Questions out of the documents; no proposer is trained.
NO_PROPOSER=(--solver-dialect search-r1 --index "$OUT/dev-index" --set proposer.steps=0 --set generation.candidates=0)
SUFFIX=""
if [[ $SHUFFLED ]]; then
    SUFFIX=-shuffled NO_PROPOSER+=(--set solver.shuffle_advantages=true)
fi

evolve_labelled() {  # name, further settings
    stop_in_time quaere evolve search-r1 --model "$FORM" --questions "$TRAIN/questions.jsonl.gz" --index "$OUT/train-index" \
        --out "$OUT/$1-$SEED" "${TRAIN_MORE[@]}" "${@:2}"
    evaluate "$1" --run "$OUT/$1-$SEED"
}

evolve_given() {  # name, recipe, start, further settings: one iteration on the given questions
    stop_in_time quaere evolve "$2" --model "$3" --out "$OUT/$1$SUFFIX-$SEED" "${NO_PROPOSER[@]}" "${TRAIN_MORE[@]}" \
        --set iterations=1 --set generation.attempts="${ATTEMPTS:-0}" --set generation.given="$PRACTICE" "${@:4}"
    evaluate "$1$SUFFIX" --run "$OUT/$1$SUFFIX-$SEED"
}

evolve_twice() {  # name, recipe: two iterations, each on what its solver solves sometimes; both are evaluated
    local run=$OUT/$1$SUFFIX-$SEED
    stop_in_time quaere evolve "$2" --model "$FORM" --out "$run" "${NO_PROPOSER[@]}" "${TRAIN_MORE[@]}" --set iterations=2 \
        --set generation.given="$PRACTICE" --set generation.given_again=true --set generation.attempts=4 \
        --set solver.steps="${TWICE_STEPS:-30}" --set checkpoints.keep=20
    quaere runs show "$run"
    evaluate "$1$SUFFIX-first" --run "$run" --checkpoint "$(python "$HERE/last_checkpoint.py" "$run" --iteration 0)"
    evaluate "$1$SUFFIX" --run "$run" --checkpoint last
}

[[ -f $OUT/report.jsonl ]] || python "$HERE/split_questions.py" "$DEV/questions.jsonl.gz" --digits 5-f --out "$OUT/report.jsonl"
index "$DEV/corpus.jsonl.gz" "$OUT/dev-index"

FORM=${START:-$OUT/form${QUOTES:+-quotes}-$SEED} OWN=$OUT/own-$SEED
QUESTIONS=$OUT/questions-$SEED.jsonl UNSURE=$OUT/practice-$SEED.jsonl
PRACTICE=${GIVEN:+$OUT/given-$SEED.jsonl} PRACTICE=${PRACTICE:-$UNSURE}
[[ -d $FORM ]] || quaere warmup search-r1 "${TEACHES[@]}" --model "$MODEL" "${TEACH[@]}" "${LIMITS[@]}" \
    --articles "$ARTICLES" --facts 3,3,3,2 --episodes "$EPISODES" --epochs 2 --adapter --out "$FORM"
if wants form; then evaluate form --model "$FORM"; fi

if [[ $GIVEN && ! -f $PRACTICE ]]; then
    python "$HERE/restore_evidence.py" "$GIVEN" --index "$OUT/dev-index" --out "$PRACTICE"
fi
if wants own || wants free || { [[ ! $GIVEN ]] && [[ $ARMS =~ direct|eve|unpaid|strict|second ]]; }; then
    [[ -f $QUESTIONS ]] || quaere questions --checked --index "$OUT/dev-index" --model "$MODEL" --drafts "$DRAFTS" --topk 3 \
        --max-rows "$MAX_ROWS" --seed "$SEED" --out "$QUESTIONS"
    [[ -d $OWN ]] || quaere warmup search-r1 --model "$FORM" --index "$OUT/dev-index" --questions "$QUESTIONS" --attempts 4 \
        --most 2800 --practice "$UNSURE" --max-rows "$MAX_ROWS" "${TEACH[@]}" "${LIMITS[@]}" --epochs 1 --out "$OWN"
fi
if wants own; then evaluate own --model "$OWN"; fi
if wants free; then evolve_given free drzero "$OWN"; fi
if wants direct; then evolve_given direct drzero "$FORM"; fi
if wants eve; then evolve_given eve eve "$FORM"; fi
if wants unpaid; then evolve_given unpaid eve "$FORM" --set evidence.span_weight=0; fi
if wants strict; then evolve_given strict eve "$FORM" --set evidence.paid=verbatim; fi
if wants second; then evolve_twice second drzero; fi
if wants second-eve; then evolve_twice second-eve eve; fi

if wants labelled || wants shuffled; then
    : "${TRAIN:?}"
    index "$TRAIN/corpus.jsonl.gz" "$OUT/train-index"
fi
if wants labelled; then evolve_labelled labelled; fi
if wants shuffled; then
    evolve_labelled shuffled --set solver.shuffle_advantages=true
fi

ROWS=()
for arm in form form-unasked own free direct direct-unasked eve unpaid strict second-first second second-eve-first second-eve labelled shuffled \
    {free,direct,eve,unpaid,strict,second-first,second,second-eve-first,second-eve}-shuffled; do
    files=("$OUT/$arm"-[0-9].items.jsonl.gz)
    [[ -f ${files[0]} ]] && ROWS+=(--arm "$arm" "${files[@]}")
done
((${#ROWS[@]})) || exit 0
BASELINE=form
[[ " ${ROWS[*]} " == *" --arm form "* ]] || BASELINE=${ROWS[1]}
WHERE=()
if grep -qE '"set": ?"(2wiki|hotpot)"' "$OUT/report.jsonl"; then WHERE=(--where set=2wiki,hotpot); fi
python "$HERE/results_table.py" "${ROWS[@]}" --baseline "$BASELINE" "${WHERE[@]}"
for pair in "direct eve" "unpaid eve" "eve strict" "second second-eve"; do  # what evidence is for: one arm against the other
    read -r other arm <<<"$pair"
    if [[ " ${ROWS[*]} " == *" --arm $other "*" --arm $arm "* || " ${ROWS[*]} " == *" --arm $arm "*" --arm $other "* ]]; then
        python "$HERE/results_table.py" --arm "$other" "$OUT/$other"-[0-9].items.jsonl.gz \
            --arm "$arm" "$OUT/$arm"-[0-9].items.jsonl.gz --baseline "$other"
    fi
done
