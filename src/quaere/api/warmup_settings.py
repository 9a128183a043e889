"""Everything that can be set about a warm-up, for `quaere.warmup` and for the command."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Struct, structs

from quaere.api.options import check_positive
from quaere.errors import BadInput
from quaere.rollout.question_files import is_hub
from quaere.warmup.dialects import Dialect, needed_turns

if TYPE_CHECKING:
    from quaere.rollout.episode import Limits

BLANK = "blank"  # a model made from nothing
FULL_RATE, LORA_RATE = 1e-4, 3e-4
EPISODES = 400  # of a dialect
MAX_TURNS = 5
EVALUATED_MAX_TURNS = 12  # evaluations are turns too: four facts and one more search, two turns each, and the answer
TURN_TOKENS, SEQUENCE_TOKENS = 512, 4096
REPORT_MAX_TURNS, REPORT_TURN_TOKENS, REPORT_SEQUENCE_TOKENS = 8, 1536, 8192  # of score: eight reports and their scores


class WarmupSettings(Struct, frozen=True, kw_only=True):
    """Everything that can be set about a warm-up, by the names of the options of `quaere warmup`.

    WarmupSettings(recipe="drzero", model="smollm2-135m", out=Path("warm"), episodes=200, facts=(4, 3, 2, 1))
    """

    recipe: Dialect
    model: str
    out: Path
    force: bool = False
    teacher: str | None = None
    also: tuple[Dialect, ...] = ()
    roles: tuple[str, ...] | None = None
    episodes: int | None = None
    facts: tuple[int, ...] = (4, 3, 2, 1)
    proposer_hops: tuple[int, ...] = (4, 3, 2, 1)
    lessons: tuple[int, ...] = (5, 2, 3)
    style: Literal["full", "brief"] = "full"
    world_seed: int = 1
    articles: int = 500
    index: Path | None = None
    questions: Path | None = None
    drafts: int = 6000
    attempts: int = 4
    most: int | None = None
    practice: Path | None = None
    max_rows: int = 32
    max_turns: int | None = None
    topk: int = 3
    turn_tokens: int | None = None
    sequence_tokens: int | None = None
    tool_response_tokens: int = 512
    epochs: int = 2
    batch: int = 16
    learning_rate: float | None = None
    lora_rank: int = 0
    adapter: bool = False
    micro_tokens: int = 4096
    seed: int = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    base_model: str = ""  # the model that was taught the form first, where `model` is the result of that

    def check(self) -> None:
        """Refuse numbers and combinations that cannot be."""
        positive = ("epochs", "batch", "max_turns", "topk", "turn_tokens", "sequence_tokens", "tool_response_tokens")
        check_positive(self, (*positive, "micro_tokens", "drafts", "attempts", "max_rows", "most"))
        for option in ("questions", "most", "practice"):
            if getattr(self, option) is not None and self.index is None:
                said = f"--{option} needs --index: it is about questions on its documents"
                raise BadInput(said, hint="--index DIR")
        if self.questions is not None and is_hub(self.questions):
            said = (
                "--questions of a warm-up is a file: each question needs the sentence of your documents that proves it"
            )
            raise BadInput(said, hint="quaere questions --checked --index DIR --model MODEL --out FILE writes one")
        if self.model == BLANK:
            self._check_blank()
        if self.lora_rank < 0:
            raise BadInput(f"--lora-rank must be 0 or more, not {self.lora_rank}")
        if self.adapter and not self.lora_rank:
            raise BadInput("--adapter needs --lora-rank: without it all weights are trained", hint="--lora-rank 16")
        if self.learning_rate is not None and self.learning_rate <= 0:
            raise BadInput(f"--learning-rate must be above 0, not {self.learning_rate:g}")

    def _check_blank(self) -> None:
        """Refuse what cannot be learned with the words of a hamlet, where every question is of one fact."""
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
        """The learning rate, where none is given that of the kind of teaching."""
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
        """Limits of score's episodes, which take more room, unless the numbers were given."""
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
        raise BadInput(f"a warm-up cannot be set like this: {error}") from error
