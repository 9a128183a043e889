"""A proposer's scripted episodes in which it rewords a checked question: from a single fact to a chain.

    plan_hardenings(Pages(index), questions)[0].names == ("builder Orsolya Venn", "Orsolya Venn")
    played = await play_proposals(plan_hardenings(pages, questions), searcher, renderer, "drzero", Limits())

The last fact of a chain in a question file is usually also asked for by a single question of the file. The proposer is
given this single question and should arrive at the chain: by searching for the name that the chain describes or, if it
is also given the page that describes the name, without a search.
"""

from collections.abc import Iterator, Sequence

from msgspec import structs

from quaere.grouping import group_by
from quaere.records import Episode, Passage, ProposeTask, Question, Turn
from quaere.training.proposals import read_proposal
from quaere.warmup.dialects import Dialect
from quaere.warmup.documents.checked_question import CheckedQuestion
from quaere.warmup.documents.checks import is_asking
from quaere.warmup.documents.document_lessons import ProposerScript, Proposing, find_stating, shows
from quaere.warmup.documents.page_names import Pages
from quaere.warmup.scripted_episodes import find_failure
from quaere.worlds.dice import Dice

_HOPS = 3  # Dr. Zero's count of a chain of two facts

_LOOK = (
    "{name} can be described by what another document says of it. I search for that.",
    "I look for a page that says something about {name}, besides this one.",
    "Where else is {name} mentioned? A search will show it.",
)
_AGAIN = (
    "Nothing there describes {name}. I try it with other words.",
    "That is not enough to describe {name}. Another search.",
)
_GIVEN = (
    "Now {name} can be called {description}. The answer stays {answer}.",
    "In place of {name} I write {description}; it is still {answer}.",
)
_FOUND = (*_GIVEN, "The results lead from {description} to {name}. The answer is the same, {answer}.")


class Rewording(Proposing, frozen=True, kw_only=True):
    """A plan of a hardening: `given` is reworded to `question`, a chain; `names` are the queries, tried in order.

    `name` is the name that is replaced by `description`. With `beside`, the proposer is given the describing page too.

        Rewording(question=CheckedQuestion(...), hops=3, document=Passage(...), names=("Orsolya Venn",),
                  given=Question(...), name="Orsolya Venn", description="the builder of Halm Bridge")
    """

    given: Question
    name: str
    description: str
    beside: Passage | None = None

    @property
    def id(self) -> str:
        """An id, unique for a chain."""
        return f"hardening-{self.question.id}"

    @property
    def task(self) -> ProposeTask:
        """The given question, with its page."""
        return ProposeTask(self.id, self.document, self.hops, given=self.given, beside=self.beside)

    def write(self, dialect: Dialect, dice: Dice) -> ProposerScript:
        """The script of the episode."""
        return _Script(self, dialect, dice)

    def find_flaw(self, episode: Episode, dialect: Dialect) -> str:
        """Why the episode should not be learnt from, in a few words; "" if it should. Searches are not counted."""
        is_valid = read_proposal(episode).score.valid
        return find_failure(episode) or ("" if is_valid else "the question is not valid")


def plan_hardenings(pages: Pages, questions: Sequence[CheckedQuestion], *, is_given: bool = False) -> list[Rewording]:
    """Plans for all chains whose last fact is asked for by itself as well, in the order of the questions.

    With `is_given`, the proposer is given the page that describes the name and does not search.
    """
    singles = {question.id: question for question in questions if question.kind == "single"}
    wanted = {evidence.doc_id for question in questions for evidence in question.evidence}
    by_document = group_by((one for one in pages.passages if one.doc_id in wanted), lambda passage: passage.doc_id)
    planned = []
    for chain in questions:
        given = singles.get(chain.id.rpartition(">")[2]) if chain.kind == "chain" else None
        if given is None:
            continue
        name, description = find_difference(given.question, chain.question)
        document, source = (
            find_stating(by_document.get(evidence.doc_id, ()), evidence)
            for evidence in (given.evidence[0], chain.evidence[0])
        )
        if document is None or source is None or not name or not description:
            continue
        queries, beside = tuple(_write_queries(name, description)), source if is_given else None
        plan = Rewording(
            chain,
            _HOPS,
            document,
            queries,
            given=given.to_question(),
            name=name,
            description=description,
            beside=beside,
        )
        planned.append(plan)
    return planned


def find_difference(given: str, reworded: str) -> tuple[str, str]:
    """The parts in which the two questions differ, without the words that they share at both ends.

    find_difference("When was Venn born?", "When was the builder of Halm born?") == ("Venn", "the builder of Halm")
    """
    one, other = given.rstrip("?").split(), reworded.rstrip("?").split()
    for _ in range(2):  # from both ends
        while one and other and one[-1].lower() == other[-1].lower():
            one, other = one[:-1], other[:-1]
        one, other = one[::-1], other[::-1]
    return " ".join(one).removesuffix("'s"), " ".join(other).removesuffix("'s")


def _write_queries(name: str, description: str) -> Iterator[str]:
    """The name with the plain words of the description, such as "builder", if there are any; then the name alone."""
    plain = [word for word in description.split() if word.isalpha() and word.islower() and not is_asking(word)]
    if plain:
        yield " ".join([*plain, name])
    yield name


class _Script(ProposerScript):
    """Script of a hardening: searches until the page that describes the name is shown, then the rewording."""

    proposing: Rewording

    def __init__(self, proposing: Rewording, dialect: Dialect, dice: Dice) -> None:
        super().__init__(proposing, dialect, dice)
        self.outcome = structs.replace(self.outcome, answer=proposing.given.answers[-1])  # as the prompt shows it

    def __call__(self, turns: Sequence[Turn], news: str) -> str:
        plan = self.proposing
        if plan.beside or (turns and shows(turns[-1], plan.question.evidence[0])):
            thought = self._fill(_GIVEN if plan.beside else _FOUND)
            return self.turns.proposal(thought, self.outcome.question, self.outcome.answer, self.outcome.span)
        if len(turns) == len(plan.names):
            return self.give_up()
        return self.turns.search(self._fill(_AGAIN if turns else _LOOK), plan.names[len(turns)])

    def _fill(self, forms: Sequence[str]) -> str:
        told = {name: getattr(self.proposing, name) for name in ("name", "description")}
        return self.dice.pick(forms).format(**told, answer=self.outcome.answer)
