"""A small copy of a training run, as one archive: everything but the text of most episodes.

    python benchmarks/shrink_run.py notes-learned/run benchmarks/results/notes.tar.xz
    python benchmarks/shrink_run.py runs/notes notes.tar.xz --groups 6

For pictures of a real run (`screenshots.py`), in less than a MB. It has the metrics, and answer and rewards of every
episode. Text is kept of the attempts that the run's page shows, and of those at the first questions of the first step
and of the last: these are not chosen. Of what `quaere learn` made, the two measurements and their scores are copied
too. Checkpoints and token traces are left out, and paths are shortened to their last part.
"""

from __future__ import annotations

import argparse
import json
import re
import tarfile
import tempfile
from collections.abc import Collection
from contextlib import closing
from itertools import groupby, islice
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from msgspec import structs

from quaere.runs import Run
from quaere.runs.directory import CONFIG, DATABASE, EPISODES, connect
from quaere.runs.rows import EpisodeFilter, EpisodeRow, encode_episode
from quaere.runs.run import ShardWriter
from quaere.viewer.evaluation_pages import EvaluationResults
from quaere.viewer.run_folder import RunFolder, open_folder
from quaere.viewer.run_list import RunCards
from quaere.viewer.run_overview import RunQuery, read_run

_PATH = re.compile(r"(?<!\S)/\S*/(?=[^/\s]+)")
_QUESTIONS = ("questions.jsonl", "given.jsonl")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path, metavar="NAME.tar.xz")
    parser.add_argument("--groups", type=int, default=4, help="questions of each of the two steps")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        shrink(args.run, Path(folder), args.groups)
        with tarfile.open(args.out, "w:xz", preset=9) as archive:
            archive.add(folder, args.out.name.partition(".")[0], filter=_forget_owner)
    print(f"{args.out.stat().st_size / 1000:.0f} kB")


def shrink(path: Path, out: Path, num_groups: int) -> None:
    """Copy a run and its measurements to the folder `out`."""
    folder = open_folder(str(path))
    shown = find_shown(folder)
    for name, source in folder.paths().items():
        with Run.open(source) as run:
            kept = shown | {row.id for row in first_attempts(run.rows(EpisodeFilter()), num_groups)}
            copy_run(run, out / name, kept)
        scores = source.with_suffix(".json")
        if scores.is_file():
            stored = json.loads(scores.read_text(encoding="utf-8"))
            (out / scores.name).write_text(json.dumps(stored | shorten_values(stored)), encoding="utf-8")


def find_shown(folder: RunFolder) -> set[str]:
    """Ids of the attempts that the run's page shows."""
    results = EvaluationResults(folder, RunCards(folder))
    with folder.open(folder.only) as run:
        glance = read_run(run, folder.only, RunQuery(), folder=folder, results=results).glance
    found = [*glance.learned, *glance.wrong] if glance else []
    return {tried.episode for one in found for tried in (one.before, one.after) if tried}


def first_attempts(rows: list[EpisodeRow], num_groups: int) -> list[EpisodeRow]:
    """The attempts at the first questions of the first step and of the last."""
    found: list[EpisodeRow] = []
    for step in sorted({row.step for row in (*rows[:1], *rows[-1:])}):
        members = [row for row in rows if row.step == step]
        tasks = set(islice(dict.fromkeys(row.task_id for row in members), num_groups))
        found += [row for row in members if row.task_id in tasks]
    return found


def copy_run(run: Run, out: Path, kept: Collection[str]) -> None:
    """Copy a run with the text of the episodes `kept`."""
    out.mkdir(parents=True)
    with closing(connect(run.path / DATABASE, write=False)) as database:
        database.execute("VACUUM INTO ?", [str(out / DATABASE)])
    with closing(connect(out / DATABASE, write=True)) as database, database:
        database.execute("DELETE FROM token_traces")
        database.execute("UPDATE runs SET settings = ?", [json.dumps(shorten_values(run.info.settings))])
        database.execute("UPDATE episodes SET shard = 0, offset = 0, length = 0, line = 0")
        database.create_function("shorten", 1, shorten)
        database.execute("UPDATE episodes SET model = shorten(model)")
        copy_episodes(run, out, kept, database)
    for name in _QUESTIONS:
        if (run.path / name).is_file():
            (out / name).write_bytes((run.path / name).read_bytes())
    if (run.path / CONFIG).is_file():
        (out / CONFIG).write_text(shorten(run.config_text()), encoding="utf-8")


def copy_episodes(run: Run, out: Path, kept: Collection[str], database: Connection) -> None:
    """Copy these episodes, a frame for each step, and index them."""
    shards = ShardWriter(out / EPISODES, {})
    for _, members in groupby(run.rows(EpisodeFilter()), key=lambda row: row.step):
        ids = [row.id for row in members if row.id in kept]
        episodes = [run.episode(id) for id in ids]
        if not episodes:
            continue
        frame = shards.append(
            [encode_episode(structs.replace(episode, model=shorten(episode.model))) for episode in episodes]
        )
        places = [(frame.offset, frame.length, line, id) for line, id in enumerate(ids)]
        database.executemany("UPDATE episodes SET offset = ?, length = ?, line = ? WHERE id = ?", places)
    shards.close()


def shorten_values(values: dict[str, Any]) -> dict[str, Any]:
    """The texts among these values with their paths shortened."""
    return {name: shorten(value) if isinstance(value, str) else value for name, value in values.items()}


def shorten(text: str) -> str:
    """The text with every absolute path as its last part.

    shorten("model: /data/models/form") == "model: form"
    """
    return _PATH.sub("", text)


def _forget_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = 0
    return member


if __name__ == "__main__":
    main()
