"""The answer of an episode, with its evidence, searches and scores."""

import re
from collections.abc import Callable, Sequence, Set

from msgspec import Struct

from quaere.api.printing import count
from quaere.chat.spans import find_evidence, shown_passages
from quaere.chat.statements import split_statements
from quaere.errors import NotFound, SamplingFailed, SearchFailed
from quaere.evaluation.reports.lexical import content_words, list_content
from quaere.records import Answer as FinalAnswer
from quaere.records import Episode, Evidence, Failure, Passage, Question, SearchResult, SolveTask
from quaere.rewards.abstention import ABSTENTION
from quaere.rewards.answers import contains, exact_match_score, f1_score, match_as_written, normalise_answer
from quaere.search.words import stem

_OPENING = "\"'(\u201c\u2018\u00ab"  # quotation marks and brackets before a name
_AROUND = f"{_OPENING}\u201d\u2019\u00bb).,;:?!"  # and after it
_LINE = re.compile(r"\S(?:[^\n]*\S)?")


class Answer(Struct, frozen=True):
    """An agent's answer to a question. `text` is "" where the episode ended without one; `episode.end` says why.

    `found` is false where there is no answer, or one whose passage has too few words of the question to be believed
    (`Agent(min_overlap=...)`), or where the agent abstained. `abstained` is true if it says that the documents do not
    answer, or if its `confidence` (the share of attempts that agree on it; of a single attempt, the geometric mean of
    the probabilities of its tokens) is below `Agent(min_confidence=...)`; `confidence` is None without an answer, and
    for a single attempt of an endpoint. `support` is a sentence
    shown to the agent that contains the answer, whether it quoted one or not (see `find_support`); None if there is
    none. `evidence` is the quoted sentence as its document has it, with its place there; None if none was asked for or
    given, or if no passage the agent was shown has it. `span` is the quotation as the model wrote it.

        Answer(text="in 2019", evidence=Evidence("ops.md", 118, 163, "..."), span="...", searches=(...), episode=...)
    """

    text: str
    evidence: Evidence | None
    span: str
    searches: tuple[SearchResult, ...]
    episode: Episode
    support: Evidence | None = None
    found: bool = True
    abstained: bool = False
    confidence: float | None = None

    def __str__(self) -> str:
        return ABSTENTION if self.abstained else self.text

    @property
    def question(self) -> Question:
        """The question that was asked."""
        assert isinstance(self.episode.task, SolveTask)
        return self.episode.task.question

    @property
    def failures(self) -> tuple[Failure, ...]:
        """What went wrong on the way: turns that could not be read, searches that failed, limits that were met."""
        return tuple(turn.failure for turn in self.episode.turns if turn.failure)

    @property
    def scores(self) -> dict[str, float]:
        """Exact match and F1 against the accepted answers, both 0 if the agent abstained; {} without accepted ones."""
        if not (accepted := self.question.answers):
            return {}
        text = "" if self.abstained else self.text
        return {"answer/exact_match": exact_match_score(text, accepted), "answer/f1": f1_score(text, accepted)}


def read_answer(episode: Episode, min_overlap: float = 0.0, min_confidence: float = 0.0) -> Answer:
    """The answer an episode ended with, and whether it counts as found (see `is_found`)."""
    span, evidence, _ = find_span(episode)
    return Answer(
        text=episode.outcome.text if isinstance(episode.outcome, FinalAnswer) else "",
        evidence=evidence,
        span=span,
        searches=tuple(result for turn in episode.turns for result in turn.results),
        episode=episode,
        support=found[0] if (found := find_support(episode)) else None,
        found=is_found(episode, min_overlap, min_confidence),
        abstained=episode.abstains(min_confidence),
        confidence=episode.confidence,
    )


def find_span(episode: Episode) -> tuple[str, Evidence | None, Passage | None]:
    """The span as it was written ("" for none), its evidence, and the passage of this episode that contains it.

    find_span(episode) -> ("The Oss rises in Korrin.", Evidence("rivers.md", 118, 142, "The Oss ..."), Passage(...))
    """
    span = episode.outcome.span if isinstance(episode.outcome, FinalAnswer) else ""
    for passage in shown_passages(episode):
        found = find_evidence(span, [passage])
        if found is not None:
            return span, found, passage
    return span, None, None


def find_support(episode: Episode) -> tuple[Evidence, Passage] | None:
    """The sentence shown in this episode that contains the answer, and its passage.

    It is of the first passage that has such a sentence, and there the one with most of the question's words: an answer
    such as "1702" may be in several.

    Words are compared as answers are; only if no sentence matches, as they are written: removing punctuation makes one
    word of markup and code (`minimum_size=1000` becomes `minimumsize1000`), and the answer in it would not be found.
    An answer that is another one without its symbols ("C++", "-1", "2^64") is first looked for as it is written. If no
    sentence has the answer, a line may: a heading of a changelog has the version and its date.
    Yes and no are in no sentence: such an answer has no support of this kind.
    """
    answer = episode.outcome.text if isinstance(episode.outcome, FinalAnswer) else ""
    if not normalise_answer(answer) or _is_yes_or_no(answer) or episode.abstained:
        return None
    passages = shown_passages(episode)
    written = match_as_written(answer)
    asked = set(content_words(episode.task.question.text)) if isinstance(episode.task, SolveTask) else set()
    ways: list[_HasAnswer] = [lambda text: contains(text, answer), lambda text: written.search(text) is not None]
    if _has_symbols(answer):
        ways.reverse()
    found = (_find_best(passages, asked, has_answer, split) for split in (_sentences, _lines) for has_answer in ways)
    return next(filter(None, found), None)


_HasAnswer = Callable[[str], bool]
_Spans = list[tuple[int, str]]  # start and text of each


def _find_best(
    passages: Sequence[Passage], asked: Set[str], has_answer: _HasAnswer, split: Callable[[str], _Spans]
) -> tuple[Evidence, Passage] | None:
    for passage in passages:
        if not has_answer(passage.text):
            continue
        if said := [(start, text) for start, text in split(passage.text) if has_answer(text)]:
            start, text = max(said, key=lambda span: len(asked & set(content_words(span[1]))))
            start += passage.start
            return Evidence(passage.doc_id, start, start + len(text), text), passage
    return None


def _sentences(text: str) -> _Spans:
    return [(statement.start, statement.text) for statement in split_statements(text)]


def _lines(text: str) -> _Spans:
    return [(found.start(), found.group()) for found in _LINE.finditer(text)]


def _has_symbols(answer: str) -> bool:
    """True if comparing without punctuation would change what the answer says: "C++", ".bashrc", "10%", "2^64"."""
    bare = answer.strip().lstrip(_OPENING).rstrip(_AROUND)
    return not (bare[:1].isalnum() and bare[-1:].isalnum()) or "^" in bare


def is_about_question(episode: Episode, passage: Passage) -> bool:
    """True if the passage or its title has a word of the question: else an answer in it is there by chance."""
    asked = set(content_words(episode.task.question.text)) if isinstance(episode.task, SolveTask) else set()
    return not asked or not asked.isdisjoint(content_words(passage.titled_text))


BY_CHANCE = "The answer's words, in a passage without any word of the question"
"""The label in place of "Found in" for a sentence that is not `is_about_question`."""


def passage_number(episode: Episode, passage: Passage) -> str:
    """The passage's number as its search showed it first: "[2]", or "[2] of search 3" if there were several.

    Searches are counted by their queries, as they are shown.
    """
    shown = [(turn, result) for turn in episode.turns for result in turn.results]
    for number, (turn, result) in enumerate(shown, start=1):
        for rank, hit in enumerate(result.hits, start=1):
            if hit.passage == passage and turn.failure is None:
                return f"[{rank}]" + (f" of search {number}" if len(shown) > 1 else "")
    return ""


def passage_name(passage: Passage) -> str:
    """A passage as a person would look it up: its document, title and place in the file."""
    named = f" ({passage.title})" if passage.title else ""
    return f"{passage.doc_id}{named}{f', {passage.place}' if passage.place else ''}"


def describe_place(found: Evidence, passage: Passage) -> str:
    """The place of a sentence in its document: "ops.md (Backups), characters 118 to 163"."""
    return f"{passage_name(passage)}, characters {found.start} to {found.end}"


def describe_found(episode: Episode, min_overlap: float = 0.0, min_confidence: float = 0.0) -> str:
    """The answer, and below it the sentence and the place it was found in; or that it was not found.

    "Orsolya Venn\\n\\nFound in: Orsolya Venn built the bridge.\\n[1] rivers.md (The Oss), characters 38 to 68"
    """
    try:
        refuse_unanswered(episode, min_overlap, min_confidence)
    except (NotFound, SearchFailed) as error:
        return str(error)
    assert isinstance(episode.outcome, FinalAnswer)
    _, quoted, passage = find_span(episode)
    found = (quoted, passage) if quoted and passage else find_support(episode)
    if not found:
        return f"{episode.outcome.text}\n\nNo sentence it was shown contains this answer."
    sentence, source = found
    found_in = "Found in" if is_about_question(episode, source) else BY_CHANCE
    label = "Evidence" if quoted else found_in
    place = f"{passage_number(episode, source)} {describe_place(sentence, source)}"
    return f"{episode.outcome.text}\n\n{label}: {sentence.text}\n{place}"


def _is_yes_or_no(answer: str) -> bool:
    return normalise_answer(answer) in ("yes", "no")


# -------------------------------------------------------------------------------------------------------- not found


def say_abstained(episode: Episode, min_confidence: float = 0.0) -> str:
    """One line: that the documents do not answer, why if the model itself did answer, and what was searched for.

    say_abstained(episode) -> "not in these documents; searched for: Halm bridge; builder of the Halm bridge"
    """
    queries = [result.query for turn in episode.turns for result in turn.results]
    searched = f"searched for: {'; '.join(queries)}" if queries else "nothing was searched for"
    return f"{say_doubt(episode, min_confidence)}; {searched}"


def say_doubt(episode: Episode, min_confidence: float = 0.0) -> str:
    """That the documents do not answer, and why if the model itself did answer."""
    if episode.abstained:
        return ABSTENTION
    return f"{ABSTENTION} (it has an answer, with a confidence of {episode.confidence:.2f}, below {min_confidence:g})"


def is_found(episode: Episode, min_overlap: float, min_confidence: float = 0.0) -> bool:
    """True if the episode has an answer, and the passage it stands in has enough of the question's key words.

    A small model answers whatever it is asked: of a passage about another bridge it takes another builder. Such a
    passage shares few words with the question. With a `min_overlap` of 0 every answer counts, but for one that
    abstains.
    """
    if not isinstance(episode.outcome, FinalAnswer) or episode.abstains(min_confidence):
        return False
    return min_overlap == 0 or question_overlap(episode) >= min_overlap


def question_overlap(episode: Episode) -> float:
    """The share of the question's key words (see `key_words`) that are in the passage with the answer, or in its title.

    Without a supporting sentence it is 0, and with one 1 if the question has no key words ("Who was he?"). Yes and no
    stand in no passage: theirs is the highest of all passages shown.
    """
    asked, missing = _find_missing(episode)
    if not asked:  # nothing can be missing, so what is left to ask is whether the answer is there
        return float(bool(_find_passages(episode)))
    return (len(asked) - len(missing)) / len(asked)


def say_unproven(episode: Episode) -> str:
    """Why an answer is not to be relied on: it stands nowhere, or its passage is about something else.

    say_unproven(episode) -> "the passage with this answer does not mention: Halm, Oss"
    """
    assert isinstance(episode.task, SolveTask)
    if not _find_passages(episode):
        return "no sentence it was shown contains this answer"
    _, missing = _find_missing(episode)
    named = [word.strip(_AROUND) for word in _key_words(episode.task.question.text) if _stem_words(word) & missing]
    return f"the passage with this answer does not mention: {', '.join(dict.fromkeys(named))}"


def _find_missing(episode: Episode) -> tuple[set[str], set[str]]:
    """The stems of the question's key words, and those that the passage with the answer lacks."""
    assert isinstance(episode.task, SolveTask)
    asked = key_words(episode.task.question.text)
    lacking = (asked - _stem_words(passage.titled_text) for passage in _find_passages(episode))
    return asked, min(lacking, key=len, default=asked)


def _find_passages(episode: Episode) -> list[Passage]:
    """The passage with the answer; of yes and no, which stand in none, all that were shown."""
    assert isinstance(episode.outcome, FinalAnswer)
    if found := find_support(episode):
        return [found[1]]
    return shown_passages(episode) if _is_yes_or_no(episode.outcome.text) else []


def key_words(question: str) -> set[str]:
    """The stems of a question's names (capitalised words after the first), or of its content words if it has no name.

    A passage may state a fact in other words than the question's, but must contain the name of what it is about.

        key_words("Which river runs beneath the Halm Bridge?") == {"halm", "bridg"}
    """
    return _stem_words(" ".join(_key_words(question)))


def _key_words(question: str) -> list[str]:
    """The words of a question that are names; of one without names, all."""
    names = [word for word in question.split()[1:] if word.lstrip(_OPENING)[:1].isupper()]
    return names if _stem_words(" ".join(names)) else question.split()


def _stem_words(text: str) -> set[str]:
    """The stems of a text's content words, as the index has them; those of `content_words` keep short words whole."""
    return set(stem(list_content(text), "english"))


def refuse_unanswered(episode: Episode, min_overlap: float = 0.0, min_confidence: float = 0.0) -> None:
    """Raise `NotFound` if the episode ended without an answer, or with one that does not count as found.

    If it searched and every search failed, `SearchFailed` with the first failure: the documents were never asked.
    """
    failures = [turn.failure for turn in episode.turns if turn.failure and turn.search_failed]
    if failures and not any(turn.results for turn in episode.turns):
        hint = "start what is searched, or name another --search PLACE"
        raise SearchFailed(failures[0].message, kind=failures[0].kind, hint=hint)
    if episode.abstains(min_confidence):
        raise NotFound(say_abstained(episode, min_confidence), hint="other words, or documents that answer it")
    if not is_found(episode, min_overlap):
        said = f"not found in these documents ({count(len(shown_passages(episode)), 'passage')} seen)"
        more = "--sequence-tokens" if episode.end == "sequence_limit" else "--max-turns"
        raise NotFound(said, hint=f"other words, a larger --model, or more {more}")


def summarise_answers(answers: Sequence[Answer], *, evidence: bool) -> str:
    """One line on the answers to a file of questions; with `evidence`, also on their quotations.

    summarise_answers(answers, evidence=False) -> "2 questions, 2 answered, 1 of 2 exactly right, mean F1 0.50"
    """
    num_abstained = sum(answer.abstained for answer in answers)
    num_answered = sum(answer.episode.end == "answered" for answer in answers) - num_abstained
    line = f"{count(len(answers), 'question')}, {num_answered} answered"
    line += f", {num_abstained} not in these documents" if num_abstained else ""
    if num_doubted := num_answered - sum(answer.found for answer in answers):
        line += f", {num_doubted} of these not found"
    if marked := [answer.scores for answer in answers if answer.scores]:
        exact = sum(score["answer/exact_match"] for score in marked)
        f1 = sum(score["answer/f1"] for score in marked) / len(marked)
        line += f", {exact:.0f} of {len(marked)} exactly right, mean F1 {f1:.2f}"
    if evidence:
        line += f", evidence of {sum(answer.evidence is not None for answer in answers)} found verbatim"
    return line


def refuse_all_failed(episodes: Sequence[Episode]) -> None:
    """Raise the model's first failure if every episode failed: an endpoint that is down is no answer."""
    failures = [episode.turns[-1].failure for episode in episodes if episode.end == "failed"]
    if failures and len(failures) == len(episodes) and failures[0]:
        raise SamplingFailed(failures[0].message)
