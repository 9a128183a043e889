"""Tasks given to a policy, the actions read from its turns, and episodes: their tokens, turns and failures."""

import math
from itertools import chain
from typing import Literal

from msgspec import Struct

from quaere.records.questions import Passage, Question, SearchResult
from quaere.records.research import Assessment, AssessTask, ReportTask, Rubric, RubricTask

# -------------------------------------------------------------------------------------------------------------- tasks


class SolveTask(Struct, frozen=True, tag="solve"):
    """Task: answer a question.

    SolveTask(question=Question(id="q1", text="Who built the Halm bridge?"))
    """

    question: Question

    @property
    def id(self) -> str:
        """The question's id."""
        return self.question.id


class ProposeTask(Struct, frozen=True, tag="propose"):
    """Task: write a question of `hops` hops starting from `document`; with `document=None`, from any search result.

    `question_type` asks for a type of question ("causal", ...); "" leaves the type open. With `given`, a checked
    question about the document, the task is to reword it so that it needs one search more; its answer stays. `beside`
    is a page that describes a name in the given question; without it, the policy searches for such a page.

        ProposeTask(id="p1", document=Passage(...), hops=2)
    """

    id: str
    document: Passage | None
    hops: int
    question_type: str = ""
    given: Question | None = None
    beside: Passage | None = None


Task = SolveTask | ProposeTask | ReportTask | RubricTask | AssessTask

# ------------------------------------------------------------------------------------------------------------ actions


class Search(Struct, frozen=True, tag="search"):
    """Action: send queries to the search engine.

    `note` is the text about the passages found before, where the dialect asks for one. `about` is the number of the
    report that an evaluator's search is about; 0 means all of them.

        Search(queries=("builder of the Halm bridge",), note="The year is still missing.")
    """

    queries: tuple[str, ...]
    note: str = ""
    about: int = 0


class Evaluate(Struct, frozen=True, tag="evaluate"):
    """Action: score the last search from 0 to 10, with a reason in words (recipe EvalAct).

    Evaluate(text="Passage 2 names the builder.", score=9.0)
    """

    text: str
    score: float


class Answer(Struct, frozen=True, tag="answer"):
    """Action: end the episode with an answer.

    `span` is the quoted evidence as the policy wrote it, "" if there is none; `note` is its text about the passages
    found before, where the dialect asks for one. `abstained` is true if the policy says that the documents do not
    answer the question, where the dialect lets it.

        Answer(text="Orsolya Venn", span="Orsolya Venn built the Halm bridge in 1702.")
    """

    text: str
    span: str = ""
    note: str = ""
    abstained: bool = False


class Proposal(Struct, frozen=True, tag="proposal"):
    """Action: end the proposer's episode with a question and its answer. `span` is the quoted evidence, "" if none.

    Proposal(question="Who built the bridge at Halmgate?", answer="Orsolya Venn")
    """

    question: str
    answer: str
    span: str = ""


class Malformed(Struct, frozen=True, tag="malformed"):
    """A turn without a valid action; `reason` says why, in a few fixed words.

    Malformed(reason="tool call is not JSON")
    """

    reason: str
    note: str = ""


# Actions that end an episode.
Final = Answer | Proposal | Rubric | Assessment

Action = Search | Evaluate | Answer | Proposal | Rubric | Assessment | Malformed

# ------------------------------------------------------------------------------------------------------------- episodes

Origin = Literal["prompt", "model", "environment"]
StopReason = Literal["end_of_turn", "stop_string", "length", "failed"]
Boundary = Literal["model", "protocol", "search", "limit"]
EndReason = Literal["answered", "turn_limit", "sequence_limit", "failed"]
LIMIT_ENDS: tuple[EndReason, ...] = ("turn_limit", "sequence_limit")


class Segment(Struct, frozen=True):
    """A run of tokens with one origin. The segments' ids, concatenated, are the episode's token sequence.

    Only tokens sampled by the model carry loss and have log-probs.

        Segment(origin="model", token_ids=(1780, 29, 2), logprobs=(-0.1, -1.3, -0.02), loss_mask=(True, True, True))
    """

    origin: Origin
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    loss_mask: tuple[bool, ...]


class Failure(Struct, frozen=True):
    """A failure recorded as data: its boundary is the part of the system that it came from.

    Failure(boundary="search", kind="timeout", message="the retriever did not answer within 10 s")
    """

    boundary: Boundary
    kind: str
    message: str


class Turn(Struct, frozen=True):
    """One turn: the policy's text, the action read from it, and the environment's reply.

    `results` and `reply` hold only what the policy was shown: where the reply was cut, both end there. `failure` is set
    if the policy failed, the turn could not be read, the search failed or a limit was reached. The policy's tokens are
    `[start, start + num_tokens)` of the episode's tokens; the action begins at `acts_at` where the protocol marks it.
    With `note_tokens`, the policy read the results in a conversation of its own, where it wrote the notes in `reply`;
    `search_s` includes that.

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
    note_tokens: int = 0

    @property
    def search_failed(self) -> bool:
        """True if the turn's search failed."""
        return self.failure is not None and self.failure.boundary == "search"


class Episode(Struct, frozen=True):
    """An episode: a policy's turns and the environment's replies, until an answer or a limit.

    `agreement` is the share of several attempts at the task that ended with this answer; None for a single attempt.

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
    outcome: Final | None
    end: EndReason
    agreement: float | None = None

    @property
    def token_ids(self) -> tuple[int, ...]:
        """All token ids in order: prompts, sampled turns and replies."""
        return tuple(chain.from_iterable(segment.token_ids for segment in self.segments))

    @property
    def logprobs(self) -> tuple[float, ...]:
        """The sampler's log-prob of each token of `token_ids`; 0 for those that were not sampled."""
        return tuple(chain.from_iterable(part.logprobs or (0.0,) * len(part.token_ids) for part in self.segments))

    @property
    def loss_mask(self) -> tuple[bool, ...]:
        """Per token of `token_ids`: True if the model sampled it."""
        return tuple(chain.from_iterable(segment.loss_mask for segment in self.segments))

    @property
    def search_failed(self) -> bool:
        """True if any search of the episode failed; then its result says nothing about the policy or the question."""
        return any(turn.search_failed for turn in self.turns)

    @property
    def abstained(self) -> bool:
        """True if the policy ended the episode by saying that the documents do not answer the question."""
        return isinstance(self.outcome, Answer) and self.outcome.abstained

    @property
    def confidence(self) -> float | None:
        """The share of attempts that agree on the answer; of a single attempt, the probability of its tokens.

        The probability is the geometric mean from the opening tag of the answer on, None for an endpoint that returns
        no tokens. Without an answer the confidence is None.
        """
        if not isinstance(self.outcome, Answer):
            return None
        if self.agreement is not None or not self.segments or not self.turns:
            return self.agreement
        turn = self.turns[-1]
        of_answer = self.logprobs[max(turn.start, turn.acts_at) : turn.start + turn.num_tokens]
        return math.exp(sum(of_answer) / len(of_answer)) if of_answer else None

    def abstains(self, min_confidence: float = 0.0) -> bool:
        """True if the policy abstained, or if its confidence in its answer is below `min_confidence`."""
        confidence = self.confidence if min_confidence else None
        return self.abstained or (confidence is not None and confidence < min_confidence)

    @property
    def num_searches(self) -> int:
        """Number of queries that the search engine answered."""
        return sum(len(turn.results) for turn in self.turns)


class TokenTrace(Struct, frozen=True):
    """Advantage of each token that an update trained on, with the learner's log-prob and entropy before the update.

    `places` are positions in the episode's tokens. An episode has one only if training was asked to store it.

        TokenTrace(places=(212, 213), advantages=(0.5, 0.5), logprobs=(-0.26, -1.1), entropies=(0.8, 1.9))
    """

    places: tuple[int, ...]
    advantages: tuple[float, ...]
    logprobs: tuple[float, ...]
    entropies: tuple[float, ...]
