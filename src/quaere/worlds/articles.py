"""Worlds on disk: `corpus.jsonl`, `questions.jsonl`, and `world.json` with the hashes of both.

All files are written beside the destination and moved there when complete. `world.json` is moved last, so a folder that
has one is complete.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from quaere.disk import new_folder, scratch_folder, sync
from quaere.errors import BadInput
from quaere.records import Evidence
from quaere.worlds.gold_questions import GoldQuestion
from quaere.worlds.open_questions import KnownFact, OpenGold
from quaere.worlds.world import World, generate_world

GENERATOR_VERSION = 2  # raise it whenever the same seed gives other bytes
OLDEST_VERSION = 1  # the oldest with the same articles per seed; 2 added `facts` and `searches` to question lines
CORPUS, QUESTIONS, MANIFEST = "corpus.jsonl", "questions.jsonl", "world.json"

Progress = Callable[[str, int], None]


class CorpusLine(Struct, frozen=True):
    """A line of `corpus.jsonl`.

    {"id": "e7-000012", "title": "River Oss", "text": "The Oss is a slow river ..."}
    """

    id: str
    title: str
    text: str


class ChainLine(Struct, frozen=True):
    """One fact of a question in `questions.jsonl`; its evidence has the same index in the line's `evidence`.

    {"entity": "e7-000012", "mention": "the Oss", "relation": "source", "inverse": false, "answer": "Korrin Vale", ...}
    """

    entity: str
    mention: str
    relation: str
    inverse: bool
    answer: str
    answer_id: str | None
    said: str


class QuestionLine(Struct, frozen=True):
    """A line of `questions.jsonl`.

    {"id": "e7-q00003", "question": "In which valley ...?", "answers": ["Korrin Vale"], "facts": 1, "set": "evaluation"}
    """

    id: str
    question: str
    answers: tuple[str, ...]
    facts: int
    searches: int
    hops: int  # the same as `facts`, for readers of older files
    gold_ids: tuple[str, ...]
    evidence: tuple[Evidence, ...]
    chain: tuple[ChainLine, ...]
    set: str


class ReportLine(Struct, frozen=True):
    """A line of a file of open-ended questions; `facts` and `unknown` are used for evaluation only.

    {"id": "e7-r0-00003", "question": "What is known of the Oss?", "kind": "overview", "entities": ["e7-000012"], ...}
    """

    id: str
    question: str
    kind: str
    entities: tuple[str, ...]
    facts: tuple[KnownFact, ...]
    unknown: tuple[str, ...]
    set: str


class Manifest(Struct, frozen=True):
    """Content of `world.json`.

    {"seed": 7, "family": "evaluation", "generator_version": 2, "num_articles": 500, "num_questions": 500, ...}
    """

    seed: int
    family: str
    generator_version: int
    num_articles: int
    num_entities: dict[str, int]  # by kind
    num_facts: int
    num_questions: int
    num_questions_by_hops: dict[str, int]
    corpus_sha256: str
    questions_sha256: str
    num_questions_by_facts: dict[str, int] = {}  # `num_questions_by_hops` is its earlier name


def write_world(
    world: World, out: Path, num_questions: int | None = None, force: bool = False, progress: Progress | None = None
) -> Manifest:
    """Write the world to the folder `out`, which must be new or empty unless `force` is set.

    write_world(generate_world(7, 500), Path("demo")).num_articles == 500
    """
    check_destination(out, force)
    tell = progress or (lambda what, num: None)
    questions = list(world.questions(num_questions))
    with _world_folder(out) as partial:
        corpus = (CorpusLine(article.id, article.title, article.text) for article in world.articles())
        corpus_sha256 = _write_lines(partial / CORPUS, _told(corpus, "articles", tell))
        lines = map(question_line, questions)
        questions_sha256 = _write_lines(partial / QUESTIONS, _told(lines, "questions", tell))
        manifest = _describe(world, questions, corpus_sha256, questions_sha256)
        (partial / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
    return manifest


def open_world(folder: Path) -> World:
    """The world in a folder written by `write_world`, generated again from its `world.json`.

    open_world(Path("demo")).entities[12].title == "River Oss"
    """
    path = folder / MANIFEST
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except OSError as error:
        raise BadInput(f"{folder} is not a world: cannot read {path}", hint=f"quaere world --out {folder}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is damaged: {error}", hint=f"quaere world --out {folder} --force") from error
    if not OLDEST_VERSION <= manifest.generator_version <= GENERATOR_VERSION:
        raise BadInput(
            f"the world in {folder} has generator version {manifest.generator_version}; this Quaere supports "
            f"{OLDEST_VERSION} to {GENERATOR_VERSION}",
            hint=f"write it again: quaere world --out {folder} --force",
        )
    return generate_world(manifest.seed, manifest.num_articles, manifest.family)


def report_line(asked: OpenGold) -> ReportLine:
    """The line of an open-ended question for a file."""
    return ReportLine(asked.id, asked.text, asked.kind, asked.entities, asked.facts, asked.unknown, asked.family)


def check_destination(out: Path, force: bool) -> None:
    """Raise `BadInput` for a file, or for a folder that is not empty unless `force` is set."""
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out} is a file, but --out needs a folder", hint="quaere world --out NEW_FOLDER")
    if out.is_dir() and any(out.iterdir()) and not force:
        raise BadInput(f"{out} is not empty", hint="choose another folder, or add --force to replace the world in it")


def question_line(question: GoldQuestion) -> QuestionLine:
    """The line of a question in `questions.jsonl`."""
    return QuestionLine(
        id=question.id,
        question=question.text,
        answers=question.answers,
        facts=question.facts,
        searches=question.facts,
        hops=question.hops,
        gold_ids=question.gold_ids,
        evidence=tuple(hop.evidence for hop in question.chain),
        chain=tuple(
            ChainLine(hop.entity, hop.mention, hop.relation, hop.inverse, hop.answer, hop.answer_id, hop.said)
            for hop in question.chain
        ),
        set=question.family,
    )


def _told(items: Iterable[Struct], what: str, tell: Progress) -> Iterator[Struct]:
    for num, item in enumerate(items, start=1):
        yield item
        tell(what, num)


def _write_lines(path: Path, items: Iterable[Struct]) -> str:
    """Write one JSON object per line; returns the file's SHA-256."""
    digest, encoder = hashlib.sha256(), msgspec.json.Encoder()
    with path.open("wb") as file:
        for item in items:
            line = encoder.encode(item) + b"\n"
            digest.update(line)
            file.write(line)
    return digest.hexdigest()


def _describe(world: World, questions: list[GoldQuestion], corpus_sha256: str, questions_sha256: str) -> Manifest:
    counts = Counter(question.facts for question in questions)
    by_facts = {str(facts): num for facts, num in sorted(counts.items())}
    return Manifest(
        seed=world.seed,
        family=world.family.name,
        generator_version=GENERATOR_VERSION,
        num_articles=len(world.entities),
        num_entities={kind: len(members) for kind, members in world.graph.members.items()},
        num_facts=sum(1 for _ in world.facts()),
        num_questions=len(questions),
        num_questions_by_hops=by_facts,
        corpus_sha256=corpus_sha256,
        questions_sha256=questions_sha256,
        num_questions_by_facts=by_facts,
    )


@contextmanager
def _world_folder(out: Path) -> Iterator[Path]:
    """Context manager: a folder for the world, which becomes `out`; other files in `out` (an index, say) are kept."""
    if not out.is_dir() or {path.name for path in out.iterdir()} <= {CORPUS, QUESTIONS, MANIFEST}:
        with new_folder(out) as partial:
            yield partial
        return
    with scratch_folder(out) as partial:
        yield partial
        (out / MANIFEST).unlink(missing_ok=True)  # marks the folder as incomplete until all files are replaced
        for name in (CORPUS, QUESTIONS, MANIFEST):
            sync(partial / name)
            os.replace(partial / name, out / name)
        sync(out)
