"""Optimizer states that roles go on with in a later iteration, kept in the checkpoints of the phases in between."""

from __future__ import annotations

from pathlib import Path

from quaere.disk import link_file
from quaere.training.learner import OPTIMIZER_FILE
from quaere.training.role_learner import RoleLearner

_PREFIX, _SUFFIX = "carried-", ".safetensors"


class CarriedOptimizers:
    """The roles whose state is carried, and each state's file in the newest checkpoint."""

    def __init__(self) -> None:
        self._roles: set[str] = set()
        self._files: dict[str, Path] = {}

    def plan(self, role: str, *, is_carried: bool) -> None:
        """Say whether a later iteration goes on with the state that this phase of the role ends with."""
        if is_carried:
            self._roles.add(role)
        else:
            self._roles.discard(role)

    def load(self, learner: RoleLearner, role: str) -> bool:
        """Let the learner go on with the role's state; False if no checkpoint has it."""
        if role not in self._files:
            return False
        learner.load_optimizer(self._files[role])
        return True

    def save(self, folder: Path, role: str) -> None:
        """Put the states of other roles than the one in training into a new checkpoint."""
        for other, file in self._files.items():
            if other in self._roles and other != role:
                link_file(file, folder / f"{_PREFIX}{other}{_SUFFIX}")

    def find(self, folder: Path, role: str) -> None:
        """Find the states in the newest checkpoint: that of the role in training, and those carried for others."""
        carried = sorted(folder.glob(f"{_PREFIX}*{_SUFFIX}"))
        self._files = {file.name.removeprefix(_PREFIX).removesuffix(_SUFFIX): file for file in carried}
        if (folder / OPTIMIZER_FILE).exists():
            self._files[role] = folder / OPTIMIZER_FILE
