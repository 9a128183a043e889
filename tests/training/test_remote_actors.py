"""Which states of a run stay on a trainer: those that its checkpoints name, before and after it is resumed."""

import itertools
import shutil
from types import SimpleNamespace

import pytest

import tiny
from quaere.errors import BadInput
from quaere.recipes.drzero import DrZeroConfig
from quaere.training import remote_actors
from quaere.training.remote_actors import RemoteActors, open_remote_actors, open_remote_policy
from quaere.training.settings import AdapterSettings, TrainerSettings

NUMBERS = itertools.count()


class Role:
    """A role that saves states under running numbers on a server that has a set of them."""

    def __init__(self, states, name):
        self.service = SimpleNamespace(url="http://h", delete_saved=states.remove)
        self._states, self._name = states, name
        self.state = None  # that it went back to

    def save_state(self):
        path = f"tinker://{self._name}/weights/{next(NUMBERS)}"
        self._states.add(path)
        return path

    def download(self, folder, base):
        folder.mkdir(parents=True)

    def go_back(self, state):
        assert state in self._states
        self.state = state


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


@pytest.mark.parametrize("restored", [("proposer", "solver"), ("solver",)])
def test_roles_continue_from_the_states_of_the_checkpoint(restored, tmp_path):
    """Of all roles with `load`, of one with `load_role`; the states of a later checkpoint are not taken."""
    actors = open_actors(states := set())
    checkpoint(actors, tmp_path, 0)
    first = {path.removeprefix("tinker://").partition("/")[0]: path for path in states}
    for role in first:
        actors.weights_changed(role)
    checkpoint(actors, tmp_path, 1)
    if len(restored) == 2:
        actors.load(tmp_path / "step-0")
    else:
        actors.load_role(tmp_path / "step-0", *restored)
    assert {name: role.state for name, role in actors._roles.items() if role.state} == {
        name: first[name] for name in restored
    }


def test_a_damaged_checkpoint_that_was_set_aside_does_not_stop_the_run(tmp_path):
    """Its state cannot be read, so it names none; a run resumes from the one before it, and saves further ones."""
    actors = open_actors(states := set())
    for step in range(2):
        checkpoint(actors, tmp_path, step)
        actors.weights_changed("solver")
    (tmp_path / "step-1").rename(tmp_path / "step-1.damaged")
    (tmp_path / "step-1.damaged" / "solver" / remote_actors.STATE_FILE).write_bytes(b'{"path": "tink')
    actors = open_actors(states)
    actors.load(tmp_path / "step-0")
    actors.weights_changed("solver")
    checkpoint(actors, tmp_path, 1)
    shutil.rmtree(tmp_path / "step-0" / "solver")
    with pytest.raises(BadInput, match="was not written by a trainer"):
        actors.load(tmp_path / "step-0")


@pytest.fixture
def there(monkeypatch, tmp_path):
    """A server with one base model, and the clients that samplers were given."""
    service = SimpleNamespace(
        name="the trainer at h",
        models=lambda: ["base"],
        call=lambda request: request(),
        sdk=SimpleNamespace(create_sampling_client=lambda base_model: f"client of {base_model}"),
    )
    used = []
    sampler = SimpleNamespace(name="m", lockstep=False, use=used.append)

    def resolve(name, report=print):
        report(f"{name} is downloaded")
        return SimpleNamespace(path=str(tmp_path), tokenizer=str(tmp_path))

    monkeypatch.setattr(remote_actors, "resolve_model", resolve)
    monkeypatch.setattr("quaere.policies.model_folders.load_tokenizer", lambda path: tiny.tokenizer())
    monkeypatch.setattr(remote_actors, "TinkerService", lambda url, patience_s: service)
    monkeypatch.setattr(remote_actors, "TinkerSampler", lambda *given, **options: sampler)
    return used


CONFIG = DrZeroConfig(
    model="m", trainer=TrainerSettings(kind="tinker", url="http://h"), adapter=AdapterSettings(rank=8)
)


def test_a_run_on_a_trainer_says_what_it_fetches_and_where_it_trains(there, monkeypatch):
    """The model's tokenizer is needed here, its weights are there."""
    used, notes = there, []
    monkeypatch.setattr(remote_actors, "RemoteRole", lambda service, base, rank, seed: (base, rank, seed))
    actors = open_remote_actors(CONFIG, ("proposer", "solver"), notes.append)
    assert notes[0] == "m is downloaded"
    assert notes[-1] == "sampling and gradients on the trainer at h: adapters of base"
    assert used == ["client of base"]
    (proposer, solver) = actors._roles.values()
    assert proposer[:2] == solver[:2] == ("base", 8) and proposer[2] != solver[2]


def test_a_trainer_samples_from_its_base_or_from_a_checkpoint(there, monkeypatch, tmp_path):
    made = []

    def make_role(service, base, rank, seed):
        made.append(Role({"tinker://solver/weights/7"}, base))
        made[-1].open_sampler = lambda: f"client of {made[-1].state}"
        return made[-1]

    monkeypatch.setattr(remote_actors, "RemoteRole", make_role)
    assert open_remote_policy(CONFIG, None, print).name == "m" and not made
    (tmp_path / "trainer_state.json").write_text('{"path": "tinker://solver/weights/7", "url": "http://h"}')
    open_remote_policy(CONFIG, tmp_path, print)
    assert there == ["client of base", "client of tinker://solver/weights/7"]
    with pytest.raises(BadInput, match="was not written by a trainer"):
        open_remote_policy(CONFIG, tmp_path / "other", print)


def test_files_that_are_not_utf_8_are_said_in_one_line(tmp_path):
    for name in ("config.json", remote_actors.STATE_FILE):
        (tmp_path / name).write_bytes(b'{"path": "\xff"}')
    assert remote_actors.read_positions(tmp_path) == 1 << 20  # as without a config
    with pytest.raises(BadInput, match="cannot be read"):
        remote_actors.read_state(tmp_path)
