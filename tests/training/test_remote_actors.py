"""Which states of a run stay on a trainer: those that its checkpoints name, before and after it is resumed."""

import itertools
import shutil
from types import SimpleNamespace

import pytest

from quaere.recipes.drzero.config import DrZeroConfig
from quaere.training.remote.remote_actors import RemoteActors

NUMBERS = itertools.count()


class Role:
    """A role that saves states under running numbers on a server that has a set of them."""

    def __init__(self, states, name):
        self.service = SimpleNamespace(url="http://h", delete_saved=states.remove)
        self._states, self._name = states, name

    def save_state(self):
        path = f"tinker://{self._name}/weights/{next(NUMBERS)}"
        self._states.add(path)
        return path

    def download(self, folder, base):
        folder.mkdir(parents=True)

    def go_back(self, state):
        assert state in self._states


def open_actors(states):
    roles = {name: Role(states, name) for name in ("proposer", "solver")}
    return RemoteActors(SimpleNamespace(), roles, DrZeroConfig(), None, "base")


def checkpoint(actors, root, step):
    actors.save(root / f"step-{step}")
    actors.saved_at(root / f"step-{step}")


@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_state_goes_with_the_last_checkpoint_that_names_it(is_resumed, tmp_path):
    states = set()
    actors = open_actors(states)
    checkpoint(actors, tmp_path, 0)
    first = set(states)
    actors.weights_changed("solver")
    checkpoint(actors, tmp_path, 1)  # the proposer's state is that of step 0
    assert len(first) == 2
    assert len(states) == 3
    if is_resumed:
        actors = open_actors(states)
        actors.load(tmp_path / "step-1")
    shutil.rmtree(tmp_path / "step-0")
    actors.weights_changed("solver")
    checkpoint(actors, tmp_path, 2)
    (proposers,) = (path for path in first if "proposer" in path)
    assert proposers in states
    assert len(states) == 3
    assert len(first & states) == 1
