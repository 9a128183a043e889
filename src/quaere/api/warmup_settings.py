"""Everything that can be set about a warm-up, for `quaere.warmup` and for the command."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Struct, structs
from msgspec.structs import FieldInfo

from quaere.errors import BadInput
from quaere.policies.catalogue import BLANK
from quaere.rollout.question_files import is_hub
from quaere.search.json_lines import check_plain
from quaere.setting_types import Count, File, Folder, Number, check_positive, describe_type, fields_of, shorten
from quaere.warmup.dialects import Dialect, needed_turns, scores_searches

if TYPE_CHECKING:
    from quaere.rollout.episode import Limits

FULL_RATE, LORA_RATE = 1e-4, 3e-4
EPISODES = 400  # of a dialect
MAX_TURNS = 5
EVALUATED_MAX_TURNS = 12  # evaluations are turns too: four facts and one more search, two turns each, and the answer
TURN_TOKENS, SEQUENCE_TOKENS = 512, 4096
REPORT_MAX_TURNS, REPORT_TURN_TOKENS, REPORT_SEQUENCE_TOKENS = 8, 1536, 8192  # of score: eight reports and their scores


class WarmupSettings(Struct, frozen=True, kw_only=True):
    """Everything that can be set about a warm-up, by the names of the options of `quaere warmup`.

        WarmupSettings(recipe="drzero", model="smollm2-135m", out=Path("warm"), episodes=200, facts=(4, 3, 2, 1))

    Attributes:
        model: catalogue name, directory or hub id of the model to teach; blank: one made from nothing, which can learn
            drzero in a hamlet (quaere world --family hamlet)
        out: folder to write the model to
        force: replace an earlier warmed-up model at --out
        teacher: model that demonstrates (default: an oracle)
        episodes: episodes in all (default: 400 of each dialect)
        proposer_task: what a proposer is taught out of the documents: to propose questions, to harden checked ones by
            searching, or to reword them with a second page given (default: propose)
        style: prompt style
        abstention: share of a solver's episodes whose answer is hidden from the searches, and which it ends by saying
            that the documents do not answer; from 0 to 1 (default: 0)
        ignore_rubrics: score, a control: reports are written without regard to the rubric they are shown
        world_seed: seed of the world
        articles: articles of the world
        index: after the dialect, learn from questions about these documents: a solver from its own right answers, a
            proposer from demonstrated proposals
        questions: file of checked questions, which is written first if it does not exist (default: OUT-questions.jsonl)
        drafts: facts to ask about
        attempts: attempts at each question
        most: questions to attempt, half of them of several facts as far as they last (default: all)
        scores_only: evalact: learn from the scores of searches alone, not from whole right attempts
        shuffle_scores: evalact, a control that must not learn to judge: the scores of random other searches
        practice: file for the questions that not every attempt answered right, for reinforcement learning (default:
            none)
        max_rows: episodes at once
        max_turns: most turns (default: 5, in evalact 12, in score 8)
        topk: passages per search
        turn_tokens: most tokens per turn (default: 512, in score 1536)
        sequence_tokens: most tokens of an episode (default: 4096, in score 8192)
        tool_response_tokens: most tokens per result
        epochs: passes over the episodes
        batch: episodes per step
        learning_rate: learning rate (default: 0.0001, with LoRA 0.0003)
        lora_rank: 0 trains all weights (default: 0)
        adapter: with --lora-rank: write the adapter alone, not a merged model
        micro_tokens: tokens per pass
        seed: seed of lessons and training (default: 0)
        device: where the model runs
        dtype: precision of the written weights (default: auto, the model's own; float32 for an adapter)
    """

    recipe: Dialect
    model: str
    out: Folder
    force: bool = False
    teacher: Annotated[str, "openai:MODEL@URL"] | None = None
    also: tuple[Dialect, ...] = ()
    roles: tuple[str, ...] | None = None
    episodes: Count | None = None
    facts: tuple[int, ...] = (4, 3, 2, 1)
    proposer_hops: tuple[int, ...] = (4, 3, 2, 1)
    proposer_task: Literal["propose", "harden", "reword"] = "propose"
    lessons: tuple[int, ...] = (5, 2, 3)
    style: Literal["full", "brief"] = "full"
    abstention: Number = 0.0
    ignore_rubrics: bool = False
    world_seed: Count = 1
    articles: Count = 500
    index: Folder | None = None
    questions: File | None = None
    drafts: Count = 6000
    attempts: Count = 4
    most: Count | None = None
    scores_only: bool = False
    shuffle_scores: bool = False
    practice: File | None = None
    max_rows: Count = 32
    max_turns: Count | None = None
    topk: Count = 3
    turn_tokens: Count | None = None
    sequence_tokens: Count | None = None
    tool_response_tokens: Count = 512
    epochs: Count = 2
    batch: Count = 16
    learning_rate: Number | None = None
    lora_rank: Count = 0
    adapter: bool = False
    micro_tokens: Count = 4096
    seed: int = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    base_model: str = ""  # the model that was taught the form first, where `model` is the result of that

    def check(self) -> None:
        """Raise `BadInput` for values out of range or in conflict."""
        positive = ("epochs", "batch", "max_turns", "topk", "turn_tokens", "sequence_tokens", "tool_response_tokens")
        check_positive(self, (*positive, "micro_tokens", "drafts", "attempts", "max_rows", "most"))
        if not 0 <= self.abstention < 1:
            raise BadInput(f"--abstention must be at least 0 and below 1, not {self.abstention}")
        if self.ignore_rubrics and "score" not in self.dialects:
            raise BadInput("--ignore-rubrics is about the reports of score", hint="quaere warmup score")
        if self.proposer_task != "propose" and self.index is None:
            raise BadInput(
                f"--proposer-task {self.proposer_task} needs --index: it rewords questions about its documents"
            )
        for option in ("questions", "most", "practice"):
            if getattr(self, option) is not None and self.index is None:
                said = f"--{option} needs --index: it is about questions on its documents"
                raise BadInput(said, hint="--index DIR")
        for option in ("scores_only", "shuffle_scores"):
            if getattr(self, option) and (self.index is None or not any(map(scores_searches, self.dialects))):
                said = f"--{option.replace('_', '-')} needs --index and a recipe that scores searches"
                raise BadInput(said, hint="quaere warmup evalact --index DIR")
        if self.questions is not None and is_hub(self.questions):
            said = (
                "--questions of a warm-up is a file: each question needs the sentence of your documents that proves it"
            )
            raise BadInput(said, hint="quaere questions --checked --index DIR --model MODEL --out FILE writes one")
        check_plain(self.practice)
        if self.questions is not None and not self.questions.exists():  # it is written then
            check_plain(self.questions)
        if self.model == BLANK:
            self._check_blank()
        if self.lora_rank < 0:
            raise BadInput(f"--lora-rank must be 0 or more, not {self.lora_rank}")
        if self.adapter and not self.lora_rank:
            raise BadInput("--adapter needs --lora-rank: without it all weights are trained", hint="--lora-rank 16")
        if self.learning_rate is not None and self.learning_rate <= 0:
            raise BadInput(f"--learning-rate must be above 0, not {self.learning_rate:g}")

    def _check_blank(self) -> None:
        """Raise `BadInput` for what a blank model cannot learn in a hamlet, where every question is of one fact."""
        if self.recipe != "drzero" or self.also or self.index or self.lora_rank:
            said = f"--model {BLANK} learns drzero in a hamlet, nothing else: no --also, --index or --lora-rank"
        elif len(self.facts) > 1 or len(self.proposer_hops) > 1:
            said = f"--model {BLANK} learns in a hamlet, where every question is of one fact"
        else:
            return
        command = f"quaere warmup drzero --model {BLANK} --style brief --facts 1 --proposer-hops 1 --out DIR"
        raise BadInput(said, hint=command)

    @property
    def dialects(self) -> tuple[Dialect, ...]:
        """The recipes whose protocol is taught."""
        return (self.recipe, *self.also)

    @property
    def family(self) -> str:
        """The family of the world that episodes are demonstrated in."""
        return "hamlet" if self.model == BLANK else "warmup"

    @property
    def num_episodes(self) -> int:
        """The number of episodes of all dialects. Without the option, each has as many as if it were taught alone."""
        return EPISODES * len(self.dialects) if self.episodes is None else self.episodes

    @property
    def rate(self) -> float:
        """The learning rate: as given, else the default for LoRA or for all weights."""
        return float(self.learning_rate or (LORA_RATE if self.lora_rank else FULL_RATE))

    @property
    def limits(self) -> Limits:
        """Limits of an episode."""
        from quaere.rollout.episode import Limits

        return Limits(
            max_turns=MAX_TURNS if self.max_turns is None else self.max_turns,
            turn_tokens=self.turn_tokens or TURN_TOKENS,
            sequence_tokens=self.sequence_tokens or SEQUENCE_TOKENS,
            tool_response_tokens=self.tool_response_tokens,
            topk=self.topk,
        )

    @property
    def report_limits(self) -> Limits:
        """Limits of the episodes of SCORE, larger than others unless given."""
        return structs.replace(
            self.limits,
            max_turns=self.max_turns or REPORT_MAX_TURNS,
            turn_tokens=self.turn_tokens or REPORT_TURN_TOKENS,
            sequence_tokens=self.sequence_tokens or REPORT_SEQUENCE_TOKENS,
        )

    @property
    def turn_limits(self) -> dict[Dialect, int]:
        """The limit of turns of dialects that need another than the default; {} if the option sets it."""
        if self.max_turns is not None:
            return {}
        evaluated = [name for name in self.dialects if needed_turns(name, 1) > 2]
        return dict.fromkeys(evaluated, EVALUATED_MAX_TURNS) | {"score": REPORT_MAX_TURNS}

    def limits_of(self, dialect: Dialect) -> Limits:
        """Limits of an episode in a dialect."""
        from quaere.warmup.oracle import allow_turns

        return allow_turns(self.report_limits if dialect == "score" else self.limits, self.turn_limits, dialect)


def make_settings(given: Mapping[str, object]) -> WarmupSettings:
    """Settings out of values by name; what is no setting is ignored, and a value of the wrong type is refused."""

    def read_path(kind: type, value: object) -> object:
        if kind is Path and isinstance(value, str | Path):
            return Path(value)
        raise TypeError(f"Expected a path, got {type(value).__name__}")

    try:
        return msgspec.convert(given, WarmupSettings, dec_hook=read_path)
    except msgspec.ValidationError as error:
        for field in fields_of(WarmupSettings):
            _check_type(field, given, read_path)
        raise BadInput(f"a warm-up cannot be set like this: {error}") from error


def _check_type(field: FieldInfo, given: Mapping[str, object], read_path: Callable[[type, object], object]) -> None:
    """Raise BadInput if the setting is given with a value of another type."""
    if field.name not in given:
        return
    value = given[field.name]
    try:
        msgspec.convert(value, field.type, dec_hook=read_path)
    except msgspec.ValidationError as error:
        right = describe_type(msgspec.inspect.type_info(field.type))
        usual = field.default if isinstance(field.default, int | float | str | tuple) else None
        raise BadInput(
            f"{field.name} of a warm-up must be {right}, not {shorten(value)}",
            hint="see quaere warmup --help" if usual is None else f"such as {field.name}={usual!r}",
        ) from error
