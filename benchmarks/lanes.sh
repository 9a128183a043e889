#!/usr/bin/env bash
# Several runs of `without_labels.sh` from one start, as many at a time as there are lanes, on one large GPU.
#
#   MODEL=... DEV=data/dev OUT=out GIVEN=practice-1.jsonl.gz RUNS="1:eve 2:eve 3:eve 3:direct" bash benchmarks/lanes.sh
#
# A run is SEED:ARM, SEED:ARM:MINUTES or SEED:ARM:MINUTES:STEPS; lanes take them in their order. More can be added to
# OUT/queue, one a line, until the last one ends. First the form is taught (seed 1; with quotations if QUOTES=1, or if a run
# needs them), and evaluated beside the runs. Every run has its log in OUT/logs; OUT/times says when each began and ended. All
# other variables are those of `without_labels.sh`. `nvidia-cuda-mps-control -d` lets the lanes share the card; two trainings
# of a 1.5B model and an evaluation fit into 139 GiB with MICRO=8192 EVAL_ROWS=128 and
#   SETTINGS="--set engine.max_rows=192 --set solver.learner.micro_tokens=8192 --set solver.learner.gradient_checkpointing=false"
set -euo pipefail
: "${OUT:?}" "${RUNS:?}"
LANES=${LANES:-2}
command -v flock >/dev/null || { echo "lanes.sh needs flock (util-linux): run the arms one by one with without_labels.sh" >&2; exit 2; }
for run in $RUNS; do
    [[ $run =~ ^[0-9]:[a-z-]+(:[0-9]+){0,2}$ ]] || { echo "RUNS: $run is not SEED:ARM[:MINUTES[:STEPS]], such as 3:eve:9:26" >&2; exit 2; }
done
if [[ $RUNS =~ :(eve|unpaid|strict|second-eve) ]]; then QUOTES=1; fi
export QUOTES=${QUOTES:-} OUT START=${START:-$OUT/form${QUOTES:+-quotes}-1}
HERE=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$OUT/logs"
tr ' ' '\n' <<<"$RUNS" >"$OUT/queue"
: >"$OUT/times"

note() { echo "$(date +%T) $*" | tee -a "$OUT/times"; }

take() {  # the first run of the queue, which is then no longer in it
    flock "$OUT/queue.lock" bash -c 'head -n 1 "$0"; sed -i 1d "$0"' "$OUT/queue"
}

perform() {  # SEED:ARM[:MINUTES[:STEPS]]; a run that fails does not end the others
    local seed arm minutes steps
    IFS=: read -r seed arm minutes steps <<<"$1"
    note "$1 begins"
    if SEED=$seed ARMS=$arm MINUTES=${minutes:-${MINUTES:-15}} STEPS=${steps:-${STEPS:-100}} TWICE_STEPS=${steps:-${TWICE_STEPS:-30}} \
        bash "$HERE/without_labels.sh" >"$OUT/logs/$arm-$seed.log" 2>&1 </dev/null; then
        note "$1 ended"
    else
        note "$1 failed: $OUT/logs/$arm-$seed.log"
    fi
}

lane() {
    local run
    while run=$(take) && [[ $run ]]; do perform "$run"; done
}

[[ -d $START ]] || SEED=1 ARMS="" START="" bash "$HERE/without_labels.sh" >"$OUT/logs/teach.log" 2>&1
note "form taught"
perform 1:form &
for ((number = 1; number <= LANES; number++)); do
    lane &
    sleep "${APART:-5}"  # two that load at once would both wait for the disk
done
wait
! grep -q failed "$OUT/times"
