"""A trained role of a run that is still being written to: loaded by an agent, and exported."""

import pytest

import exported_runs
import quaere
from quaere.api.agent import _find_model
from quaere.api.evolution import export
from quaere.runs.checkpoints import save_checkpoint


@pytest.fixture(scope="module")
def adapted(tmp_path_factory):
    """A run with adapters, at its first step."""
    root = tmp_path_factory.mktemp("adapted")
    exported_runs.make_base(root)
    return exported_runs.make_run(root, "lora", exported_runs.write_adapters, steps=(1,))


def test_an_adapter_is_exported_by_itself_unless_it_is_merged(adapted, tmp_path):
    alone, merged = export(adapted, tmp_path / "alone"), export(adapted, tmp_path / "merged", merge=True)
    assert (alone / "adapter_config.json").exists() and not (alone / "model.safetensors").exists()
    assert (merged / "model.safetensors").exists() and not (merged / "adapter_config.json").exists()


async def test_an_agent_loads_the_weights_that_it_read_the_notes_of(adapted):
    """Training may have saved others since."""
    with quaere.Run.open(adapted) as run:
        _, load = _find_model(run, {"device": "cpu"})
        save_checkpoint(adapted / "checkpoints", 2, lambda folder: exported_runs.write_adapters(folder, 2), {})
        policy = load()
    assert policy.name == "lora/solver@1"
    await policy.stop()
