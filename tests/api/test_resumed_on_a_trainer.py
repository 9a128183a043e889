"""A run on a trainer goes on at another address without --force, and under other settings only with it."""

import pytest

from described_trainer import described_server
from quaere.api.evolution import ConfigOptions, create_store, open_stopped
from quaere.errors import BadInput
from quaere.recipes.registry import find_recipe
from quaere.training.config import config_from_yaml
from village_runs import SMALL

SETTINGS = {**SMALL, "adapter.rank": 8, "engine.mode": "fast", "trainer.kind": "tinker"}


@pytest.fixture
def stopped(village_paths, tmp_path, monkeypatch):
    """A run that was begun on a server that is gone."""
    monkeypatch.setattr("quaere.training.run_setup.check_sdk", lambda: None)
    monkeypatch.setattr("quaere.training.run_setup.sdk_version", lambda: (0, 25))
    index, model = map(str, village_paths)
    options = ConfigOptions(model=model, index=index, trainer_url="http://127.0.0.1:9", settings=SETTINGS)
    recipe = find_recipe("drzero")
    create_store(recipe, options.load(recipe), out=tmp_path / "run", runs=None, writers=()).close()
    return tmp_path / "run"


def test_the_address_may_change(stopped):
    with pytest.raises(BadInput, match=r"no trainer answers at http://127\.0\.0\.1:9"):
        open_stopped(stopped, ConfigOptions())
    with described_server(["grad_clip_norm"]) as url:
        found = open_stopped(stopped, ConfigOptions(trainer_url=url))
        stored = config_from_yaml(found.recipe.schema, found.store.config_text())
        found.store.close()
        assert found.config.trainer.url == stored.trainer.url == url
        open_stopped(stopped, ConfigOptions()).store.close()  # it is remembered


def test_nothing_else_may_change_unasked(stopped):
    with described_server(["grad_clip_norm"]) as url:
        changed = ConfigOptions(trainer_url=url, assignments=("trainer.patience_s=5",))
        with pytest.raises(BadInput, match=r"the config has changed: trainer\.patience_s: 120\.0 -> 5\.0\n"):
            open_stopped(stopped, changed)
        open_stopped(stopped, changed, force=True).store.close()
