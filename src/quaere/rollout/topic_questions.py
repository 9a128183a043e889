"""Open-ended questions about the documents of an index, generated from templates or rewritten by a model.

    drawn = draw_open_questions(index, num=40, seed=7)
    drawn[0]    # OpenQuestion(id="5f2c1a-00000", question="What is known of River Oss?", kind="overview", ...)
    rewritten, faults = await rewrite_questions(policy, index, drawn)

Every question is about documents that a search for the topic's name returns, and no two questions are equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct, structs

from quaere.chat.question_wordings import FORMS, KINDS, PAIRED, OpenKind, QuestionWriter, fill_form, find_question_fault
from quaere.errors import BadInput, SamplingFailed
from quaere.policies.sampler import SamplingParams
from quaere.records import Episode, Passage, Proposal, ProposeTask
from quaere.rollout.episode import Limits
from quaere.rollout.many import Job, run_many
from quaere.rollout.policy import Policy
from quaere.rollout.topics import Topic, Topics
from quaere.search.index import Index
from quaere.search.searcher import NoSearcher
from quaere.search.words import terms
from quaere.worlds.dice import Dice

TEMPLATE = "template"
_LIMITS = Limits(max_turns=1, turn_tokens=192, sequence_tokens=2048)


class OpenQuestion(Struct, frozen=True):
    """A line of a question file: question, kind, topics, the documents about the topics, and who wrote the question.

    {"id": "5f2c1a-00003", "question": "What connects River Oss with Halm?", "kind": "connection",
     "topics": ["River Oss", "Halm"], "doc_ids": ["rivers.md", "halm.md"], "writer": "template"}
    """

    id: str
    question: str
    kind: OpenKind
    topics: tuple[str, ...]
    doc_ids: tuple[str, ...]
    writer: str = TEMPLATE


def draw_open_questions(
    index: Index,
    num: int,
    seed: int,
    *,
    topk: int = 5,
    report: Callable[[int], None] = lambda num_drawn: None,
) -> list[OpenQuestion]:
    """`num` different questions from templates.

    A document is reused only after every document has a question, and then with another kind or template. A topic is
    used only if a search for its name returns its document among the first `topk` results. Raises BadInput if the index
    has too few topics.
    """
    if num < 1:
        raise BadInput(f"the number of questions must be at least 1, not {num}", hint="--num 1 or more")
    topics, dice = Topics(index, seed, topk), Dice(seed, "open questions")
    drawn: list[OpenQuestion] = []
    asked: set[str] = set()
    for kind, number in _rounds(len(topics), dice):
        topic = topics.find(number)
        worded = _word(topics, topic, kind, dice, asked) if topic else None
        if worded is None:
            continue
        asked.add(_key(worded.question))
        drawn.append(structs.replace(worded, id=f"{index.fingerprint[:6]}-{len(drawn):05d}"))
        report(len(drawn))
        if len(drawn) == num:
            return drawn
    hint = f"--num {len(drawn)}, or index more documents" if drawn else "index documents that have titles"
    raise BadInput(f"the documents allow only {len(drawn)} different open questions, not {num}", hint=hint)


def _rounds(num_topics: int, dice: Dice) -> Iterator[tuple[OpenKind, int]]:
    """Pairs (kind, topic number): each round pairs every topic with one kind, shifted by one in the next round."""
    kinds = list(KINDS)
    dice.shuffle(kinds)
    num_forms = max(map(len, FORMS.values()))
    for round_ in range(len(kinds) * num_forms):
        for number in range(num_topics):
            yield kinds[(round_ + number) % len(kinds)], number


def _word(topics: Topics, topic: Topic, kind: OpenKind, dice: Dice, asked: set[str]) -> OpenQuestion | None:
    """A question of this kind that is not in `asked`; None if the topic has none left."""
    others = _others(topics, topic, kind)
    if kind in PAIRED and not others:
        return None
    forms = list(FORMS[kind])
    dice.shuffle(forms)
    other: Topic | str = dice.pick(others) if others else ""
    name = other.name if isinstance(other, Topic) else other
    for form in forms:
        text = fill_form(form, X=topic.name, Y=name)
        if _key(text) not in asked:
            found = other.doc_ids[:1] if isinstance(other, Topic) else ()
            return OpenQuestion("", text, kind, (topic.name, *([name] if name else [])), (*topic.doc_ids[:1], *found))
    return None


def _others(topics: Topics, topic: Topic, kind: OpenKind) -> Sequence[Topic | str]:
    """Candidates for the second topic of a paired question: topics, or terms of the first topic's document."""
    if kind == "comparison":
        return topics.similar(topic)
    if kind == "connection":
        return topics.linked(topic)
    if kind == "detail":
        return [term for term in topics.terms(topic.passage) if term.lower() != topic.name.lower()]
    return []


def _key(question: str) -> str:
    """Key that is equal for questions with the same words in any order ("How do A and B compare", "... B and A")."""
    return " ".join(sorted(terms(question)))


# ------------------------------------------------------------------------------------------------- written by a model


async def rewrite_questions(
    policy: Policy,
    index: Index,
    drawn: Sequence[OpenQuestion],
    *,
    guided: bool = False,
    temperature: float = 0.8,
    seed: int = 0,
    concurrency: int = 32,
    report: Callable[[int], None] = lambda num_done: None,
) -> tuple[list[OpenQuestion], Counter[str]]:
    """Questions as the model words them after reading the topic's document.

    Where a rewrite is unusable, the template's question stays. The counter holds the reasons why rewrites were refused.
    A rewritten question is about one topic.
    """
    passages = {question.id: _show(index, question) for question in drawn}
    protocol = QuestionWriter({question.id: question.topics[0] for question in drawn}, guided=guided)
    jobs = [Job(protocol, ProposeTask(question.id, passages[question.id], hops=0)) for question in drawn]
    settings = {"params": SamplingParams(temperature=temperature), "seed": seed, "concurrency": concurrency}
    written, faults = list(drawn), Counter[str]()
    taken = {_key(question.question) for question in drawn}
    episodes = run_many(policy, jobs, NoSearcher(), _LIMITS, **settings)  # type: ignore[arg-type]
    number, failures = 0, []
    async for episode in episodes:
        before, text = drawn[number], _read_question(episode)
        fault = _find_fault(text, before, passages[before.id], taken)
        failures += [turn.failure for turn in episode.turns if turn.failure and episode.end == "failed"]
        if fault:
            faults[fault] += 1
        else:
            taken.add(_key(text))
            written[number] = structs.replace(
                before,
                question=text,
                kind="overview" if before.kind in PAIRED else before.kind,
                topics=before.topics[:1],
                doc_ids=before.doc_ids[:1],
                writer=policy.name,
            )
        number += 1
        report(number)
    if failures and len(failures) == len(drawn):
        # No request succeeded: this is an outage, and must not be reported as faults of the model's questions.
        raise SamplingFailed(failures[0].message)
    return written, faults


def _show(index: Index, question: OpenQuestion) -> Passage:
    """The best passage of the topic's own document."""
    hits = index.search([question.topics[0]], 20)[0]
    return next(hit.passage for hit in hits if hit.passage.doc_id == question.doc_ids[0])


def _read_question(episode: Episode) -> str:
    return episode.outcome.question if isinstance(episode.outcome, Proposal) else ""


def _find_fault(text: str, before: OpenQuestion, passage: Passage, taken: set[str]) -> str:
    if not text:
        return "no question was written"
    return find_question_fault(text, before.topics[0], passage) or ("was asked already" if _key(text) in taken else "")
