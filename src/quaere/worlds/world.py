"""A world: a seeded fictional encyclopedia. No model can have memorised it, so it measures search.

    world = generate_world(seed=7, num_articles=500)
    for article in world.articles(): ...            # streamed: no text is kept
    for question in world.questions(100): ...       # one to four facts, each with its proof
    world.facts_of(world.entities[12])              # the graph behind them
    write_world(world, Path("demo"))                # corpus.jsonl, questions.jsonl; world.json with the hashes of both
    open_world(Path("demo"))                        # the same world, generated again

All files are written to a temporary folder and moved to their destination when complete. `world.json` is moved last, so
a folder that has one is complete.
"""

import hashlib
import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from quaere.disk import new_folder, scratch_folder, sync
from quaere.errors import BadInput
from quaere.worlds.gold_questions import GoldQuestion, ask_questions
from quaere.worlds.graph import Entity, Fact, Graph
from quaere.worlds.prose import Article, write_article
from quaere.worlds.schema import load_family

FAMILIES = ("evaluation", "warmup")
SMALL_FAMILIES = ("village", "hamlet")  # no encyclopedias: for models made from nothing
MIN_ARTICLES = 200
MAX_DEFAULT_QUESTIONS = 1000
GENERATOR_VERSION = 2  # raise it whenever the same seed gives other bytes
OLDEST_VERSION = 1  # the oldest with the same articles per seed; 2 added `facts` and `searches` to question lines
CORPUS, QUESTIONS, MANIFEST = "corpus.jsonl", "questions.jsonl", "world.json"

Progress = Callable[[str, int], None]


class World:
    """An encyclopedia and its fact graph: a function of seed, size and family.

    World("evaluation", seed=7, num_articles=500).article(world.entities[12]).title == "River Oss"
    """

    def __init__(self, family: str, seed: int, num_articles: int) -> None:
        self.family, self.seed = load_family(family), seed
        self.graph = Graph(self.family, seed, num_articles)
        self.entities: Sequence[Entity] = self.graph.entities  # the subjects of the articles, in the order of their ids

    def entity(self, entity_id: str) -> Entity:
        """The entity with this id, which is also the id of its article."""
        return self.graph.entities[int(entity_id.rpartition("-")[2])]

    def facts(self) -> Iterator[Fact]:
        """All facts; each is stated in its subject's article and nowhere else."""
        return self.graph.facts()

    def facts_of(self, entity: Entity) -> tuple[Fact, ...]:
        """All facts of this entity."""
        return self.graph.facts_of(entity.index)

    def article(self, entity: Entity) -> Article:
        """The article about this entity, with the span of every fact."""
        return write_article(self.graph, self.seed, entity.index)

    def articles(self) -> Iterator[Article]:
        """All articles, written one at a time."""
        return map(self.article, self.graph.entities)

    def questions(self, num: int | None = None, facts: Sequence[int] | None = None) -> Iterator[GoldQuestion]:
        """Gold questions whose numbers of facts cycle through `facts`; by default one per article, up to 1,000.

        Without `facts` they cycle through all numbers that the family has: 1 to 4, in a village only 1. In a hamlet
        there are by default half as many: it has one fact per article, and the last ones are not found by drawing.
        """
        most, facts = self.family.max_facts, range(1, self.family.max_facts + 1) if facts is None else facts
        if num is None:
            is_sparse = all(kind.max_facts == 1 for kind in self.family.kinds)
            num = min(len(self.entities) // (2 if is_sparse else 1), MAX_DEFAULT_QUESTIONS)
        if num < 0:
            raise BadInput(f"the number of questions must be 0 or more, not {num}")
        if not facts or not all(1 <= number <= most for number in facts):
            raise BadInput(f"every number of facts must be from 1 to {most}, not {list(facts)}")
        return ask_questions(self.graph, self.seed, num, facts)


def generate_world(seed: int, num_articles: int, family: str = "evaluation") -> World:
    """The world of this seed, size and family; the same arguments give the same bytes on every machine.

    generate_world(7, 500).entities[12].title == "River Oss"
    """
    if family not in (*FAMILIES, *SMALL_FAMILIES):
        raise BadInput(f"there is no family {family!r}; the families are {', '.join((*FAMILIES, *SMALL_FAMILIES))}")
    most = load_family(family).max_articles
    if not MIN_ARTICLES <= num_articles <= most:
        raise BadInput(
            f"a world of the {family} family must have {MIN_ARTICLES} to {most} articles, not {num_articles}",
            hint=f"--articles {min(max(num_articles, MIN_ARTICLES), most)}",
        )
    if seed < 0:
        raise BadInput(f"the seed must be 0 or more, not {seed}")
    return World(family, seed, num_articles)


# ------------------------------------------------------------------------------------------------------ on disk


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

    `progress` gets what is being written ("articles", "questions") and how many of them are.

    write_world(generate_world(7, 500), Path("demo")).num_articles == 500
    """
    check_destination(out, force)
    questions = list(world.questions(num_questions))
    counts = Counter(question.facts for question in questions)
    by_facts = {str(facts): num for facts, num in sorted(counts.items())}
    with _world_folder(out) as partial:
        corpus = ({"id": article.id, "title": article.title, "text": article.text} for article in world.articles())
        manifest = Manifest(
            seed=world.seed,
            family=world.family.name,
            generator_version=GENERATOR_VERSION,
            num_articles=len(world.entities),
            num_entities={kind: len(members) for kind, members in world.graph.members.items()},
            num_facts=sum(1 for _ in world.facts()),
            num_questions=len(questions),
            num_questions_by_hops=by_facts,
            corpus_sha256=_write_lines(partial / CORPUS, corpus, "articles", progress),
            questions_sha256=_write_lines(partial / QUESTIONS, map(_question_line, questions), "questions", progress),
            num_questions_by_facts=by_facts,
        )
        (partial / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
    return manifest


def open_world(folder: Path) -> World:
    """The world in a folder written by `write_world`, generated again from its `world.json`.

    open_world(Path("demo")).entities[12].title == "River Oss"
    """
    path, again = folder / MANIFEST, f"quaere world --out {shlex.quote(str(folder))}"
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except OSError as error:
        again = "quaere world --out WORLD" if folder.exists() else again  # a folder of something else is not written to
        raise BadInput(f"{folder} is not a world: cannot read {path}", hint=again) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is damaged: {error}", hint=f"{again} --force") from error
    if not OLDEST_VERSION <= (version := manifest.generator_version) <= GENERATOR_VERSION:
        raise BadInput(
            f"the world in {folder} has generator version {version}; this Quaere supports "
            f"{OLDEST_VERSION} to {GENERATOR_VERSION}",
            hint=f"write it again: {again} --force",
        )
    return generate_world(manifest.seed, manifest.num_articles, manifest.family)


def check_destination(out: Path, force: bool) -> None:
    """Raise `BadInput` for a file, or for a folder that is not empty unless `force` is set."""
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out} is a file, but --out needs a folder", hint="quaere world --out NEW_FOLDER")
    if out.is_dir() and any(out.iterdir()) and not force:
        raise BadInput(f"{out} is not empty", hint="choose another folder, or add --force to replace the world in it")


def _question_line(question: GoldQuestion) -> dict[str, Any]:
    """A line of `questions.jsonl`: the evidence of each hop of `chain` has the same index in `evidence`.

    {"id": "e7-q00003", "question": "In which valley ...?", "answers": ["Korrin Vale"], "facts": 1, ...}
    """
    chain = [structs.asdict(hop) for hop in question.chain]
    return {
        "id": question.id,
        "question": question.text,
        "answers": question.answers,
        "facts": question.facts,
        "searches": question.facts,
        "hops": question.facts,  # for readers of older files
        "gold_ids": question.gold_ids,
        "evidence": [hop.pop("evidence") for hop in chain],
        "chain": chain,
        "set": question.family,
    }


def _write_lines(path: Path, rows: Iterable[dict[str, Any]], what: str, progress: Progress | None) -> str:
    """Write one JSON object per line; returns the file's SHA-256."""
    digest, encoder = hashlib.sha256(), msgspec.json.Encoder()
    with path.open("wb") as file:
        for num, row in enumerate(rows, start=1):
            line = encoder.encode(row) + b"\n"
            digest.update(line)
            file.write(line)
            if progress:
                progress(what, num)
    return digest.hexdigest()


@contextmanager
def _world_folder(out: Path) -> Iterator[Path]:
    """Context manager: a temporary folder whose files are moved to `out`; other files in `out` (an index, say) stay."""
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
