"""The tag dialects Search-R1, Eval-RAR and AutoRefine: queries and results between tags, no JSON.

A turn of the solver, and what the environment puts after it:

    <think>I need the builder.</think><search>builder of the Halm bridge</search>
    <information>
    [1]
    Halm
    Orsolya Venn built the bridge.
    </information>

In Eval-RAR and AutoRefine, the turn after it opens with a note on what was found:

    <evaluate>Passage 1 names the builder: Orsolya Venn.</evaluate><answer>Orsolya Venn</answer>

Notes may earn a reward (`rewards/self_evaluation.py`). A turn without a note can still be read, and only text that the
policy itself wrote counts as a note.
"""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Literal

from msgspec import structs

from quaere.chat.markup import find_blocks
from quaere.chat.protocol import Message, PromptStyle, format_results, read_query, was_searched
from quaere.dialects.roles import (
    AnswerScore,
    DialectSettings,
    Remarks,
    Solver,
    SolverDialect,
    SolverOptions,
    SolverProtocol,
    SolverTurns,
    no_action,
    read_first,
    read_outcome,
    think,
)
from quaere.errors import BadInput
from quaere.records import Action, Answer, Episode, Malformed, Search, SearchResult, SolveTask, Turn
from quaere.rewards.answers import exact_match_score, f1_score
from quaere.rewards.self_evaluation import BONUS, NoteMatch, is_grounded, noted_reward
from quaere.setting_types import Fraction

TagDialect = Literal["search-r1", "evalrar", "autorefine"]
NoteRule = Literal["any", "grounded"]


# The tags in which the dialects differ: around results, and around a note on them ("" for none).
_TAGS: dict[TagDialect, tuple[str, str]] = {
    "search-r1": ("information", ""),
    "evalrar": ("information", "evaluate"),
    "autorefine": ("documents", "refine"),
}


class NoteSettings(DialectSettings, frozen=True, forbid_unknown_fields=True):
    """Settings of the reward for notes.

        NoteSettings(bonus=0.0)  # Eval-RAR without its evaluation reward

    Attributes:
        bonus: Reward for notes that contain the right answer when the given answer is wrong. [Eval-RAR; AutoRefine]
        contain: How a note is matched with the right answer; normalised: whole words, without case and punctuation;
            raw: letter for letter. [Quaere]
        note_rule: Which notes earn the bonus; any: all, as published; grounded: only if a passage shown before the
            note has the answer, the question does not have it, and all notes together have, per search, at most as
            many other content words as the answer has words. [Quaere]
    """

    bonus: Fraction = BONUS
    contain: NoteMatch = "normalised"
    note_rule: NoteRule = "any"

    def check(self, section: str = "evaluation") -> None:
        """Raise `BadInput` for values out of bounds or without effect; `section` prefixes names."""
        super().check(section)
        if self.note_rule != "any" and not self.bonus:
            raise BadInput(
                f"{section}.note_rule={self.note_rule} has no effect without a bonus",
                hint=f"--set {section}.bonus={BONUS:g}",
            )


# ------------------------------------------------------------------------------------------------------------- prompts

_FULL = """\
You answer questions by searching a collection of documents. The documents are right, even where they differ from \
what you remember.

Each turn, think briefly inside <think> and </think>, then do exactly one of two things:
- to search, write <search>your query</search>
- to finish, write {finish}

What a search finds comes back between <{results}> and </{results}>. {note}If it does not hold what you need, search \
again with other words; if the question needs several facts, look them up one after another."""

_NOTES = {
    "": "",
    "evaluate": (
        "Open the turn after it with <evaluate>your verdict</evaluate>: either the words in it that answer the "
        "question, or what is still missing, be it a name, a relation, a time or a place. "
    ),
    "refine": (
        "Open the turn after it with <refine>the facts in it that help to answer the question, and nothing "
        "else</refine>. "
    ),
}
_ANSWER = "<answer>the answer alone, as short as possible</answer>"
_CITED_ANSWER = (
    "<evidence>one sentence copied letter for letter from a text you were shown</evidence>, the one your answer rests "
    f"on, and right after it {_ANSWER}"
)

_BRIEF_NOTES = {"": "", "evaluate": " Evaluate what was found.", "refine": " Refine what was found."}


# ------------------------------------------------------------------------------------------------------------ protocol


class TagSolver(SolverProtocol):
    """Protocol of a solver in one of the tag dialects.

    TagSolver("search-r1").read("<search>Halm bridge</search>") -> Search(("Halm bridge",))
    TagSolver("evalrar").read("<evaluate>No year.</evaluate><search>Halm year</search>")
    -> Search(("Halm year",), note="No year.")
    """

    stop: tuple[str, ...] = ("</search>", "</answer>")
    marks: tuple[str, ...] = ("answer",)
    refused = "That action was wrong"
    # There is no placeholder between the tags: small models would copy it as their query.
    advice = "Try again: to search, put a query between <search> and </search>; to finish,"

    def __init__(
        self, dialect: TagDialect, *, style: PromptStyle = "full", evidence: bool = False, abstention: bool = False
    ) -> None:
        super().__init__(style=style, evidence=evidence, abstention=abstention)
        self.name = f"{dialect}-solver"
        self._results, self._note = _TAGS[dialect]
        self._blocks = ("think", "search", "answer", *filter(None, (self._note, "evidence" if evidence else "")))
        if style == "brief":
            asked = "Answer the question and quote your evidence." if evidence else "Answer the question."
            self.system = f"{asked}{_BRIEF_NOTES[self._note]} Think, then search or answer."
        else:
            finish = _CITED_ANSWER if evidence else _ANSWER
            self.system = _FULL.format(note=_NOTES[self._note], finish=finish, results=self._results)

    def read(self, text: str, earlier: Sequence[Turn] = ()) -> Action:
        """The first search or answer outside a thought, with all notes of the turn."""
        blocks = find_blocks(text, self._blocks)
        notes = [block.content.strip() for block in blocks if block.name == self._note]
        action = read_first(blocks, {"search": read_query})
        action = action or no_action(text, ("search", "answer"), "there is neither a search nor an answer")
        return structs.replace(self.mark(action), note="\n".join(filter(None, notes)))

    def show(self, results: Sequence[SearchResult], earlier: Sequence[Turn]) -> Message:
        """The message with the found passages, between tags."""
        return Message("user", format_results(results), tag=self._results)


# --------------------------------------------------------------------------------------------------- notes and rewards


def read_note(turn: Turn) -> str:
    """The policy's note in this turn; "" if there is none.

    read_note(Turn(action=Answer("Venn", note="Passage 1 names her."), ...)) -> "Passage 1 names her."
    """
    return turn.action.note if isinstance(turn.action, Search | Answer | Malformed) else ""


def notes_searches(turns: Sequence[Turn]) -> bool:
    """True if every turn could be read and the turn after each executed search has a note."""
    if any(isinstance(turn.action, Malformed) for turn in turns):
        return False
    return all(read_note(after) for turn, after in pairwise(turns) if was_searched(turn))


def pay_noted(
    episode: Episode,
    score: AnswerScore = "exact_match",
    settings: NoteSettings = NoteSettings(),  # noqa: B008 (it is frozen)
) -> dict[str, float]:
    """The answer's score or, if that is 0, a bonus if a note contains an accepted answer (Eval-RAR, Eq. 2 to 5).

    `reward/note` is the bonus of the notes, also where the answer's score replaced it in `reward/total`.
    """
    answer, accepted = read_outcome(episode)
    scores = {"exact_match": exact_match_score(answer, accepted), "f1": f1_score(answer, accepted)}
    notes = _paid_notes(episode, settings)
    reward = noted_reward(scores[score], notes, accepted, bonus=settings.bonus, contain=settings.contain)
    return {
        "answer/exact_match": scores["exact_match"],
        "answer/f1": scores["f1"],
        "reward/answer": reward.answer,
        "reward/note": reward.note,
        "reward/total": reward.total,
        "format/held": float(notes_searches(episode.turns)),
    }


def _paid_notes(episode: Episode, settings: NoteSettings) -> list[str]:
    """The notes of an episode, if they may earn the bonus, else []."""
    assert isinstance(episode.task, SolveTask)
    question, shown, notes = episode.task.question, list[str](), list[tuple[str, Sequence[str]]]()
    for turn in episode.turns:
        if note := read_note(turn):
            notes.append((note, tuple(shown)))
        if was_searched(turn):
            shown += [hit.passage.titled_text for result in turn.results for hit in result.hits]
    num_searches = sum(map(was_searched, episode.turns))
    how: dict[str, Any] = {"num_searches": num_searches, "contain": settings.contain}
    is_paid = settings.note_rule == "any" or is_grounded(notes, question.text, question.answers, **how)
    return [note for note, _ in notes] if is_paid else []


class TagTurns(SolverTurns):
    """A demonstrated solver of one of the tag dialects; Eval-RAR and AutoRefine add notes on the results.

    TagTurns("evalrar", "note").search("I look it up.", "Halm bridge", note="No builder is named.")
    -> '<evaluate>No builder is named.</evaluate>\\n<think>I look it up.</think>\\n<search>Halm bridge</search>'
    """

    def __init__(self, dialect: TagDialect, remarks: Remarks = "none") -> None:
        self.remarks = remarks
        _, self._tag = _TAGS[dialect]

    def search(self, thought: str, query: str, note: str = "") -> str:
        """The note on the previous search if the dialect has notes, a thought, and a query between tags."""
        return f"{self._note(note)}{think(thought)}<search>{query}</search>"

    def answer(self, thought: str, answer: str, *, span: str = "", note: str = "") -> str:
        """The note on the last search, then thought, evidence and answer."""
        return self._note(note) + super().answer(thought, answer, span=span)

    def find_fault(self, episode: Episode) -> str:
        """The format fault of an episode in which the turn after a search has no note; "" if there is none."""
        return "what a search found was not noted" if self._tag and not notes_searches(episode.turns) else ""

    def find_flaw(self, episode: Episode) -> str:
        """The flaw of an episode in which no note contains the answer and so earns a reward; "" if there is none."""
        return "no note holds the answer" if self._tag and not pay_noted(episode)["reward/note"] > 0 else ""

    def _note(self, note: str) -> str:
        return f"<{self._tag}>{note}</{self._tag}>\n" if self._tag and note else ""


# ------------------------------------------------------------------------------------------------------------ dialects


def _open_tagged(dialect: TagDialect, options: SolverOptions) -> Solver:
    """A tag dialect's solver: reward for the answer, else for a note that contains it if the dialect has notes."""
    protocol = TagSolver(dialect, **options.prompts)
    if not isinstance(options.settings, NoteSettings):
        return Solver(protocol, options.plain_pay)
    return Solver(protocol, partial(pay_noted, score=options.score, settings=options.settings))


SEARCH_R1 = SolverDialect(partial(_open_tagged, "search-r1"), demonstration=TagTurns("search-r1"))
EVALRAR = SolverDialect(
    partial(_open_tagged, "evalrar"), demonstration=TagTurns("evalrar", "note"), settings=NoteSettings
)
AUTOREFINE = SolverDialect(
    partial(_open_tagged, "autorefine"),
    score="f1",
    demonstration=TagTurns("autorefine", "facts"),
    settings=NoteSettings,
)
