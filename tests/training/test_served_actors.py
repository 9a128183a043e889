"""What a training with a sampling server refuses by its settings alone, and by the server's log-probs."""

import pytest

import tiny
import village
from quaere.errors import BadInput
from quaere.recipes.drzero import DrZeroConfig
from quaere.training.run_setup import plan_memory
from quaere.training.served_actors import check_engine, open_served_actors
from quaere.training.settings import AdapterSettings, EngineSettings, TrainerSettings
from sampling_server import serve_samples

URL = "http://127.0.0.1:9"


def config(**engine):
    return DrZeroConfig(model="m", adapter=AdapterSettings(rank=8), engine=EngineSettings(**engine))


def refused(config):
    with pytest.raises(BadInput) as caught:
        check_engine(config)
    return str(caught.value), caught.value.hint


def test_settings_of_a_server_are_refused_without_one():
    check_engine(config())
    for name in ("folder", "served_model"):
        said, hint = refused(config(**{name: "x"}))
        assert said.startswith(f"engine.{name} is for a server that samples")
        assert hint == "--set engine.url=URL"


def test_a_server_that_does_not_answer_or_is_none_is_refused():
    said, hint = refused(config(url=URL))
    assert said.startswith(f"no engine answers at {URL}/v1: ")
    assert hint == f"is it running? try: curl {URL}/v1/models"
    assert "must begin with http" in refused(config(url="localhost:8000"))[0]


def test_a_tinker_server_samples_itself():
    both = DrZeroConfig(model="m", trainer=TrainerSettings(kind="tinker"), engine=EngineSettings(url=URL))
    assert refused(both) == ("a Tinker server samples itself, and engine.url is set", "--set engine.url=")


@pytest.fixture
def models(tmp_path):
    """Folders of two models with the same tokenizer and other weights."""
    for seed in (0, 1):
        tiny.model("llama", seed=seed, vocab_size=len(village.tokenizer())).save_pretrained(tmp_path / f"{seed}")
        village.tokenizer().save_pretrained(tmp_path / f"{seed}")
    return [str(tmp_path / f"{seed}") for seed in (0, 1)]


def test_a_server_with_another_model_is_refused(models, tmp_path):
    with serve_samples(models[0]) as (_, url):
        engine = EngineSettings(url=url, folder=str(tmp_path), device="cpu")
        adapter, said = AdapterSettings(rank=2), []
        open_served_actors(DrZeroConfig(model=models[0], engine=engine, adapter=adapter), ("solver",), said.append)
        assert said[-1] == f"sampling on {url}: adapters of base, read from {tmp_path}"
        other = DrZeroConfig(model=models[1], engine=engine, adapter=adapter)
        with pytest.raises(BadInput, match=r"the engine's model base is not .*/1: log-probs differ by \d"):
            open_served_actors(other, ("solver",), said.append)


def test_weights_that_are_loaded_from_a_checkpoint_reach_the_server(models, tmp_path):
    """As after a rollback; weights that are the same are not loaded there again."""
    with serve_samples(models[0]) as (server, url):
        engine = EngineSettings(url=url, folder=str(tmp_path), device="cpu")
        config = DrZeroConfig(model=models[0], engine=engine, adapter=AdapterSettings(rank=2))
        actors = open_served_actors(config, ("solver",), lambda line: None)
        actors.become("solver")
        actors.save(tmp_path / "saved")
        actors.become("solver")
        assert len(server.loaded) == 1
        actors.load(tmp_path / "saved")
        actors.become("solver")
        assert len(server.loaded) == 2


def test_a_dry_run_counts_no_memory_for_sampling(models):
    here = DrZeroConfig(model=models[0], adapter=AdapterSettings(rank=2), engine=EngineSettings(device="cpu"))
    there = DrZeroConfig(model=models[0], adapter=here.adapter, engine=EngineSettings(device="cpu", url=URL))
    phases = (here.proposer, here.solver)
    assert "kv cache" in dict(plan_memory(here, phases))["memory"]
    lines = dict(plan_memory(there, phases))
    assert "kv cache" not in lines["memory"] and "sampling copy" not in lines["memory"]
    assert lines["sampling"] == f"on {URL}; adapters of rank 2 are loaded there"
