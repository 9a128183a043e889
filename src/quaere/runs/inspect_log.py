"""Export of a run as a log of the evaluation tool Inspect, for `inspect view`: one sample per episode.

    write_inspect_log(run, Path("logs/notes.json"))

    log          Inspect                  here
    eval         task, model, dataset     name, model and index of the run, its settings as metadata
    samples      id, epoch                question and attempt at it; step, phase and end are metadata
                 input, target            question and accepted answers
                 messages                 the turns; a search is a tool call, what it found the tool's reply
                 scores                   every metric of the episode that is a finite number
    results      metrics                  the mean of each

The format is JSON, so nothing of Inspect is needed to write it. Samples are written one after another, so that only
one frame of episodes is in memory.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

import quaere
from quaere.disk import new_file
from quaere.errors import BadInput
from quaere.records import Episode, Search, SolveTask
from quaere.rewards.abstention import ABSTAINED
from quaere.runs.reader import RunReader
from quaere.runs.rows import PLACE, EpisodeRow

_LOG_VERSION = 2  # of Inspect's format
_STATUS = {"done": "success", "failed": "error", "stopped": "cancelled", "running": "started", "unknown": "success"}


def write_inspect_log(run: RunReader, out: Path, *, step: int | None = None, phase: str | None = None) -> int:
    """Write the episodes of a run, or of one step or phase, to an Inspect log; returns their number.

    Raises BadInput if there are none.
    """
    rows = run.index(step=step, phase=phase)
    if not rows:
        raise BadInput(f"run {run.info.id} has no such episodes", hint=f"{run.show_command} --episodes")
    head = {
        "version": _LOG_VERSION,
        "status": _STATUS[run.state().name],
        "eval": _describe_run(run, rows),
        "plan": {"name": run.info.kind, "steps": []},
        "results": _describe_results(rows),
        "stats": {"started_at": run.info.created},
    }
    samples = _samples(rows, run.episodes(step=step, phase=phase), run.info.id)
    with new_file(out) as partial, partial.open("wb") as file:
        file.write(msgspec.json.encode(head)[:-1] + b',"samples":[')
        for number, sample in enumerate(samples):
            file.write((b",\n" if number else b"\n") + msgspec.json.encode(sample))
        file.write(b"\n]}\n")
    return len(rows)


def _describe_run(run: RunReader, rows: list[EpisodeRow]) -> dict[str, Any]:
    info, counts = run.info, Counter(row.task_id for row in rows)
    index = info.settings.get("index") or info.settings.get("search_url") or ""
    return {
        "eval_id": _identify(info.id, info.created),
        "run_id": _identify(info.id, info.created, "run"),
        "created": info.created,
        "task": info.id,
        "task_id": _identify(info.id, info.created, "task"),
        "dataset": {"name": str(index), "samples": len(counts), "sample_ids": list(counts)},
        "model": str(info.settings.get("model") or rows[0].model),
        "config": {"epochs": max(counts.values())},
        "packages": {"quaere": info.version},
        "metadata": {"kind": info.kind, "settings": info.settings, "written_by": f"quaere {quaere.__version__}"},
    }


def _describe_results(rows: list[EpisodeRow]) -> dict[str, Any]:
    scored: dict[str, list[float]] = {}
    for row in rows:
        for name, value in _scores(row.metrics).items():
            scored.setdefault(name, []).append(value)
    if ABSTAINED in scored:  # episodes that did not abstain may lack the metric
        scored[ABSTAINED] = [float(row.is_abstained) for row in rows]
    return {
        "total_samples": len(rows),
        "completed_samples": len(rows),
        "scores": [
            {
                "name": name,
                "scorer": "quaere",
                "scored_samples": len(values),
                "unscored_samples": len(rows) - len(values),
                "metrics": {"mean": {"name": "mean", "value": math.fsum(values) / len(values)}},
            }
            for name, values in scored.items()
        ],
    }


def _samples(rows: list[EpisodeRow], episodes: Iterable[Episode], run_id: str) -> Iterator[dict[str, Any]]:
    attempts: Counter[str] = Counter()
    for row, episode in zip(rows, episodes, strict=False):  # a run that goes on may have more by now
        attempts[row.task_id] += 1
        yield _sample(row, episode, attempts[row.task_id], run_id)


def _sample(row: EpisodeRow, episode: Episode, epoch: int, run_id: str) -> dict[str, Any]:
    messages = list(_messages(row, episode))
    answers = [message for message in messages if message["role"] == "assistant"]
    return {
        "id": row.task_id,
        "epoch": epoch,
        "uuid": _identify(run_id, row.id),
        "input": row.question,
        "target": list(episode.task.question.answers) if isinstance(episode.task, SolveTask) else [],
        "messages": messages,
        "output": {
            "model": row.model,
            "choices": [{"message": message, "stop_reason": "stop"} for message in answers[-1:]],
            "completion": row.answer or "",
        },
        "scores": {name: {"value": value, "answer": row.answer or ""} for name, value in _scores(row.metrics).items()},
        "metadata": {
            "episode": row.id,
            **{name: getattr(row, name) for name in ("step", "phase", "protocol", "end")},
            "seed": episode.seed,
            "num_searches": row.num_searches,
            "num_tokens": row.num_tokens,
        },
        "total_time": sum(turn.sample_s + turn.search_s for turn in episode.turns),
    }


def _messages(row: EpisodeRow, episode: Episode) -> Iterator[dict[str, Any]]:
    yield {"role": "user", "content": row.question}
    for turn in episode.turns:
        call = f"{row.id}-{turn.index}"
        said: dict[str, Any] = {"role": "assistant", "content": turn.text, "source": "generate", "model": row.model}
        if not isinstance(turn.action, Search):
            yield said
            if turn.reply:
                yield {"role": "user", "content": turn.reply}
            continue
        arguments = {"queries": list(turn.action.queries)}
        yield {**said, "tool_calls": [{"id": call, "function": "search", "arguments": arguments, "type": "function"}]}
        passages = [hit.passage for result in turn.results for hit in result.hits]
        yield {
            "role": "tool",
            "tool_call_id": call,
            "function": "search",
            **({"error": {"type": "unknown", "message": turn.failure.message}} if turn.failure else {}),
            "content": "\n\n".join(f"[{one.id}] {one.titled_text}" for one in passages) or turn.reply,
        }


def _scores(metrics: Mapping[str, float]) -> dict[str, float]:
    """The finite metrics; a question's place is no score."""
    return {name: value for name, value in metrics.items() if math.isfinite(value) and name != PLACE}


def _identify(*parts: str) -> str:
    """A short hash of the parts: ids stay the same whenever a run is exported, so that a new log replaces the old."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:22]
