"""What a Tinker server cannot do, refused before a run is created: one line each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
from msgspec import Struct, structs

from quaere.errors import BadInput, requirement_hint
from quaere.policies.tinker import HOSTED, answers, check_hosted, check_sdk, sdk_version
from quaere.training.learner_settings import LearnerSettings
from quaere.training.settings import RunConfig

ALPHA = 32  # of the servers' adapters; the interface has no field for it


def check_trainer(config: RunConfig) -> None:
    """Raise BadInput if the config asks for what the trainer cannot do, or if its server does not answer."""
    trainer = config.trainer
    if trainer.kind == "local":
        if trainer.url:
            raise BadInput("--trainer-url is the URL of a Tinker server", hint="add --trainer tinker")
        return
    check_sdk()
    _check_adapter(config)
    if config.engine.mode == "deterministic":
        raise BadInput("a trainer's samples do not repeat bit for bit", hint="--set engine.mode=fast")
    if config.traced_episodes:
        raise BadInput("a Tinker server gives no entropy of tokens to store", hint="--set traced_episodes=0")
    if trainer.url:
        if not trainer.url.startswith(("http://", "https://")):
            raise BadInput(f"--trainer-url must begin with http:// or https://, not {trainer.url}")
        if not answers(trainer.url):
            raise BadInput(
                f"no trainer answers at {trainer.url}",
                hint=f"quaere trainer start skyrl --model {config.model}, then --trainer-url with the URL it prints",
            )
        described = _describe(trainer.url)
        _check_version(trainer.url, described)
        _check_clipping(config, described)
    else:
        check_hosted()


def plan_trainer(config: RunConfig, num_roles: int) -> list[tuple[str, str]]:
    """Lines of a dry run about the trainer; memory is the server's."""
    where = config.trainer.url or HOSTED
    return [("trainer", f"{where}: {num_roles} adapters of rank {config.adapter.rank}; weights and memory are there")]


def _check_adapter(config: RunConfig) -> None:
    if not config.adapter.rank:
        raise BadInput(
            "a Tinker server trains adapters, and adapter.rank is 0: all weights", hint="--set adapter.rank=16"
        )
    if config.adapter.alpha != ALPHA:
        raise BadInput(
            f"adapters of a Tinker server have alpha {ALPHA}, and adapter.alpha is {config.adapter.alpha}",
            hint=f"--set adapter.alpha={ALPHA}",
        )


def _check_version(url: str, described: dict[str, Any]) -> None:
    """Refuse an SDK that wants ids of samples from a server whose answers have none (SkyRL 0.4)."""
    answer = described.get("FutureResponse")
    installed = sdk_version()
    if answer and "sample_sequence_ids" not in answer and installed > (0, 25):
        raise BadInput(
            f"the trainer at {url} speaks the interface of tinker 0.25, and {installed[0]}.{installed[1]} is installed",
            hint=requirement_hint("tinker>=0.25,<0.26"),
        )


def _check_clipping(config: RunConfig, described: dict[str, Any]) -> None:
    """Refuse clipping by a server whose description has no such field: it would ignore the field."""
    clipping = [name for name, learner in find_learners(config) if learner.max_grad_norm]
    adam = described.get("AdamParams")
    if clipping and adam and "grad_clip_norm" not in adam:
        sets = " ".join(f"--set {name}.max_grad_norm=0" for name in clipping)
        raise BadInput(
            f"the trainer at {config.trainer.url} does not clip gradients, and {clipping[0]}.max_grad_norm is set",
            hint=sets,
        )


def find_learners(config: Struct, prefix: str = "") -> Iterator[tuple[str, LearnerSettings]]:
    """All learners' settings in a config, with their names.

    [name for name, _ in find_learners(DrZeroConfig())] == ["proposer.learner", "solver.learner"]
    """
    for field in structs.fields(config):
        value = getattr(config, field.name)
        if isinstance(value, LearnerSettings):
            yield f"{prefix}{field.name}", value
        elif isinstance(value, Struct):
            yield from find_learners(value, f"{prefix}{field.name}.")


def _describe(url: str) -> dict[str, Any]:
    """Fields of the server's records, by record, if it describes itself (`/openapi.json`)."""
    try:
        described: Any = httpx.get(f"{url.rstrip('/')}/openapi.json", timeout=10.0).json()
        return {name: one.get("properties", {}) for name, one in described["components"]["schemas"].items()}
    except (httpx.HTTPError, ValueError, KeyError, TypeError, AttributeError):
        return {}
