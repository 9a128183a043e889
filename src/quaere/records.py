"""What the data looks like. Imports nothing of Quaere; every other room speaks in these records.

All records are frozen `msgspec` structs: cheap to make, comparable, and written to or read from JSON without code of
their own. Each docstring shows a tiny literal instance.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

# ---------------------------------------------------------------------------------------------- facts and questions


class Passage(Struct, frozen=True):
    """A stretch of a source document, the unit that is indexed and returned by a search.

    `text` is exactly `document[start:end]`, so evidence found in a passage can be traced to its source.

        Passage(id="rivers.md#0", doc_id="rivers.md", title="The Oss", text="The Oss rises in ...", start=0, end=412)
    """

    id: str
    doc_id: str
    title: str
    text: str
    start: int
    end: int

    @property
    def titled_text(self) -> str:
        """The title on a line of its own, if there is one, then the text: how a passage is shown and embedded."""
        return f"{self.title}\n{self.text}" if self.title else self.text


class Hit(Struct, frozen=True):
    """One search result.

    Hit(passage=Passage(...), score=7.25)
    """

    passage: Passage
    score: float


class Evidence(Struct, frozen=True):
    """A verbatim span of a document: `document[start:end] == text`.

    Evidence(doc_id="w7-000012", start=118, end=163, text="Orsolya Venn was born in the town of Halmgate.")
    """

    doc_id: str
    start: int
    end: int
    text: str


class Question(Struct, frozen=True):
    """A question with every accepted answer; `evidence` holds one span per hop where it is known.

    Question(id="w7-q3", text="In which valley does ... rise?", answers=("Korrin", "Korrin Vale"), hops=2)
    """

    id: str
    text: str
    answers: tuple[str, ...] = ()
    hops: int = 0
    evidence: tuple[Evidence, ...] = ()


# ------------------------------------------------------------------------------------------------- tasks and actions


class SolveTask(Struct, frozen=True, tag="solve"):
    """Answer this question.

    SolveTask(question=Question(id="q1", text="Who built the Halm bridge?"))
    """

    question: Question

    @property
    def id(self) -> str:
        """The question's id."""
        return self.question.id


class ProposeTask(Struct, frozen=True, tag="propose"):
    """Write a question of `hops` hops that starts from this document; without one, from whatever a search finds.

    `question_type` asks for one of a kind ("causal", ...); "" leaves the kind open.

        ProposeTask(id="p1", document=Passage(...), hops=2)
    """

    id: str
    document: Passage | None
    hops: int
    question_type: str = ""


Task = SolveTask | ProposeTask


class Search(Struct, frozen=True, tag="search"):
    """The policy asks the search engine. `note` is what it first wrote down about the passages before, if it did.

    Search(queries=("builder of the Halm bridge",), note="The year is still missing.")
    """

    queries: tuple[str, ...]
    note: str = ""


class Evaluate(Struct, frozen=True, tag="evaluate"):
    """The policy says what its last search was worth, in words and as a score from 0 to 10.

    Evaluate(text="Passage 2 names the builder.", score=9.0)
    """

    text: str
    score: float


class Answer(Struct, frozen=True, tag="answer"):
    """The policy ends the episode with an answer. `span` is the evidence as it wrote it, where it gave any; `note` is
    what it first wrote down about the passages before.

    Answer(text="Orsolya Venn", span="Orsolya Venn built the Halm bridge in 1702.")
    """

    text: str
    span: str = ""
    note: str = ""


class Proposal(Struct, frozen=True, tag="proposal"):
    """The proposer ends the episode with a question and its answer. `span` is the evidence as it wrote it, if any.

    Proposal(question="Who built the bridge at Halmgate?", answer="Orsolya Venn")
    """

    question: str
    answer: str
    span: str = ""


class Malformed(Struct, frozen=True, tag="malformed"):
    """The turn held no action the protocol can read; `reason` says why, in a few fixed words.

    Malformed(reason="tool call is not JSON")
    """

    reason: str
    note: str = ""


Action = Search | Evaluate | Answer | Proposal | Malformed

# ---------------------------------------------------------------------------------------------------------- episodes

Origin = Literal["prompt", "model", "environment"]
StopReason = Literal["end_of_turn", "stop_string", "length", "failed"]
Boundary = Literal["model", "protocol", "search", "limit"]
EndReason = Literal["answered", "turn_limit", "sequence_limit", "failed"]


class Segment(Struct, frozen=True):
    """A run of tokens with one origin. The concatenated ids of an episode's segments are what the sampler saw.

    Only tokens the model sampled carry loss; they alone have log-probs.

        Segment(origin="model", token_ids=(1780, 29, 2), logprobs=(-0.1, -1.3, -0.02), loss_mask=(True, True, True))
    """

    origin: Origin
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    loss_mask: tuple[bool, ...]


class Failure(Struct, frozen=True):
    """Something that went wrong, kept as data with the boundary it came from.

    Failure(boundary="search", kind="timeout", message="the retriever did not answer within 10 s")
    """

    boundary: Boundary
    kind: str
    message: str


class SearchResult(Struct, frozen=True):
    """What one query brought back, in rank order.

    SearchResult(query="builder of the Halm bridge", hits=(Hit(...), Hit(...)))
    """

    query: str
    hits: tuple[Hit, ...]


class Turn(Struct, frozen=True):
    """One turn: what the policy wrote, how it was read, and what the environment answered.

    `results` and `reply` are what was shown: where the reply was cut, they end there. `failure` says what went wrong in
    it, if anything did: the policy failed, its turn could not be read, the search could not be carried out, a limit was
    met. What was written are the tokens `[start, start + num_tokens)` of the episode; those from `acts_at` on are its
    action, where the protocol marks it.

    Turn(index=0, text="<tool_call>...</tool_call>", action=Search(queries=("Halm bridge",)), stop_reason="stop_string",
         results=(SearchResult(...),), reply="[1] The Halm bridge ...", num_tokens=23, start=212, acts_at=220)
    """

    index: int
    text: str
    action: Action
    stop_reason: StopReason
    results: tuple[SearchResult, ...] = ()
    reply: str = ""
    failure: Failure | None = None
    num_tokens: int = 0
    start: int = 0
    acts_at: int = 0
    sample_s: float = 0.0
    search_s: float = 0.0

    @property
    def search_failed(self) -> bool:
        """Was it a search that could not be carried out?"""
        return self.failure is not None and self.failure.boundary == "search"


class Episode(Struct, frozen=True):
    """A whole episode: a policy wrote turns and the environment answered, until an answer or a limit.

    Episode(id="ask-0", task=SolveTask(...), protocol="drzero-solver", model="smollm2-135m", seed=7,
            segments=(Segment(origin="prompt", ...), Segment(origin="model", ...)), turns=(Turn(...),),
            outcome=Answer(text="Orsolya Venn"), end="answered")
    """

    id: str
    task: Task
    protocol: str
    model: str
    seed: int
    segments: tuple[Segment, ...]
    turns: tuple[Turn, ...]
    outcome: Answer | Proposal | None
    end: EndReason

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Every token in order: what the sampler saw and sampled."""
        return tuple(token for segment in self.segments for token in segment.token_ids)

    @property
    def loss_mask(self) -> tuple[bool, ...]:
        """Per token of `token_ids`: did the model sample it?"""
        return tuple(flag for segment in self.segments for flag in segment.loss_mask)

    @property
    def search_failed(self) -> bool:
        """Did a search fail in it? Then nothing it did or did not find can be held against anybody."""
        return any(turn.search_failed for turn in self.turns)

    @property
    def num_searches(self) -> int:
        """How many queries were sent to the search engine and answered."""
        return sum(len(turn.results) for turn in self.turns)


# -------------------------------------------------------------------------------------------------------- curriculum

DropReason = Literal[
    "", "invalid", "leaked answer", "refused", "duplicate", "never solved", "always solved", "unfinished"
]


class Support(Struct, frozen=True):
    """What evidence does for a question: how often its answer is given with the span and without it.

    Of `num_samples` samples each; 0 where the chances were computed rather than sampled.

        Support(chance_with=0.8, chance_without=0.2, num_samples=5).value == 0.6
    """

    chance_with: float
    chance_without: float
    num_samples: int = 0

    @property
    def value(self) -> float:
        """What the span is worth, from -1 to 1."""
        return self.chance_with - self.chance_without


class Candidate(Struct, frozen=True):
    """A question a proposer wrote for the solver to learn from, and why it was kept (`reason=""`) or dropped.

    One that a person added was written in no episode (`episode_id=""`) and is kept. `num_attempts` is 0 where the
    solver was not asked to try it. An episode that a failed search kept from its end is "unfinished": nothing can be
    said of its question. Where a proposer gives evidence, `span` is what it wrote, `evidence` where that stands in a
    text it was shown (None if nowhere), `support` what the verifier found, and `refusals` are the guards it did not
    pass. `cluster` and `question_type` say what a corpus selector has chosen.

        Candidate(id="i0-g0001", step=51, iteration=0, episode_id="i0-g0001", document_id="w7-000012", hops=2,
                  question="Who built the bridge at Halmgate?", answer="Orsolya Venn", num_right=2, num_attempts=5,
                  reason="", scores={"format": 1.0})
    """

    id: str
    step: int
    iteration: int
    episode_id: str
    document_id: str
    hops: int
    question: str
    answer: str
    num_right: int = 0
    num_attempts: int = 0
    reason: DropReason = ""
    scores: dict[str, float] = {}
    span: str = ""
    evidence: Evidence | None = None
    support: Support | None = None
    refusals: tuple[str, ...] = ()
    cluster: int = -1
    question_type: str = ""

    @property
    def gold_span(self) -> str:
        """The span a solver's is compared with: the document's own text where there is one, else what was written."""
        return self.evidence.text if self.evidence else self.span

    @property
    def kept(self) -> bool:
        """Is it part of the curriculum?"""
        return not self.reason

    @property
    def added(self) -> bool:
        """Did a person add it, rather than a proposer write it?"""
        return not self.episode_id
