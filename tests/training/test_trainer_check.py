"""What a Tinker server cannot do is refused before a run is created, with what to type."""

import pytest
from msgspec import structs

from described_trainer import described_server
from quaere.errors import BadInput, ExtraMissing
from quaere.policies import tinker
from quaere.recipes.drzero import DrZeroConfig
from quaere.recipes.score.config import ScoreConfig
from quaere.recipes.score.train import check as check_score
from quaere.training import run_setup as trainer_check
from quaere.training.remote_actors import choose_base
from quaere.training.run_setup import check_trainer, find_learners, plan_trainer
from quaere.training.settings import AdapterSettings, EngineSettings, TrainerSettings


@pytest.fixture(autouse=True)
def _sdk(monkeypatch):
    monkeypatch.setattr(trainer_check, "check_sdk", lambda: None)
    monkeypatch.setattr(trainer_check, "sdk_version", lambda: (0, 25))
    monkeypatch.delenv("TINKER_API_KEY", raising=False)


def config(url="", **changes):
    trainer = TrainerSettings(kind="tinker", url=url)
    return DrZeroConfig(**{"model": "m", "trainer": trainer, "adapter": AdapterSettings(rank=8), **changes})


def refused(config):
    with pytest.raises(BadInput) as caught:
        check_trainer(config)
    return str(caught.value), caught.value.hint


def test_all_weights_and_another_alpha_are_refused():
    assert refused(config(adapter=AdapterSettings()))[1] == "--set adapter.rank=16"
    said, hint = refused(config(adapter=AdapterSettings(rank=8, alpha=64)))
    assert "alpha 32" in said
    assert hint == "--set adapter.alpha=32"


def test_samples_that_repeat_bit_for_bit_are_refused():
    assert refused(config(engine=EngineSettings(mode="deterministic")))[1] == "--set engine.mode=fast"


def test_a_server_that_does_not_answer_or_is_none_is_refused():
    said, hint = refused(config("http://127.0.0.1:9"))
    assert said == "no trainer answers at http://127.0.0.1:9"
    assert hint == "quaere trainer start skyrl --model m, then --trainer-url with the URL it prints"
    assert "must begin with http" in refused(config("localhost:8000"))[0]


def test_the_hosted_service_needs_a_key(monkeypatch):
    assert "$TINKER_API_KEY is not set" in refused(config())[0]
    monkeypatch.setenv("TINKER_API_KEY", "tml-x")
    monkeypatch.setattr(tinker, "version", lambda name: "0.28.0")
    check_trainer(config())


def test_the_hosted_service_needs_an_sdk_that_can_download(monkeypatch):
    monkeypatch.setenv("TINKER_API_KEY", "tml-x")
    monkeypatch.setattr(tinker, "version", lambda name: "0.27.2")
    said, hint = refused(config())
    assert said == "tinker 0.27.2 cannot download adapters from the hosted Tinker service"
    assert hint == "pip install 'tinker>=0.28,<0.37'"


def test_clipping_is_refused_where_the_server_has_no_field_for_it():
    with described_server(["learning_rate", "eps"]) as url:
        said, hint = refused(config(url))
        assert "does not clip gradients, and proposer.learner.max_grad_norm is set" in said
        assert hint == "--set proposer.learner.max_grad_norm=0 --set solver.learner.max_grad_norm=0"
        free = config(url)
        for role in ("proposer", "solver"):
            phase = getattr(free, role)
            learner = structs.replace(phase.learner, max_grad_norm=0.0)
            free = structs.replace(free, **{role: structs.replace(phase, learner=learner)})
        check_trainer(free)
    with described_server(["learning_rate", "grad_clip_norm"]) as url:
        check_trainer(config(url))


def test_an_sdk_that_is_too_new_for_the_server_is_refused(monkeypatch):
    with described_server(["grad_clip_norm"], ["request_id"]) as url:
        check_trainer(config(url))
        monkeypatch.setattr(trainer_check, "sdk_version", lambda: (0, 35))
        said, hint = refused(config(url))
        assert "speaks the interface of tinker 0.25, and 0.35 is installed" in said
        assert hint == "pip install 'tinker>=0.25,<0.26'"
    with described_server(["grad_clip_norm"], ["request_id", "sample_sequence_ids"]) as url:
        check_trainer(config(url))


def test_a_url_without_the_trainer_is_refused():
    assert refused(config(trainer=TrainerSettings(url="http://h")))[1] == "add --trainer tinker"
    check_trainer(config(trainer=TrainerSettings(kind="local")))


def test_the_sdk_is_asked_for_by_its_extra(monkeypatch):
    monkeypatch.setattr(tinker, "find_spec", lambda name: None)
    with pytest.raises(ExtraMissing, match="needs the tinker SDK") as caught:
        tinker.check_sdk()
    assert "tinker]" in caught.value.hint
    monkeypatch.setattr(tinker, "find_spec", lambda name: name)
    monkeypatch.setattr(tinker, "version", lambda name: "0.36.0")
    tinker.check_sdk()
    monkeypatch.setattr(tinker, "version", lambda name: "0.37.0")
    with pytest.raises(BadInput, match=r"tinker 0\.37\.0 has not been tested; 0\.36 is the newest tested") as caught:
        tinker.check_sdk()
    assert caught.value.hint == "pip install 'tinker>=0.25,<0.37'"


def test_two_sets_of_moments_are_refused():
    score = ScoreConfig(trainer=TrainerSettings(kind="tinker"))
    own = structs.replace(score, evaluator=structs.replace(score.evaluator, moments="own"))
    with pytest.raises(BadInput, match="one set of optimizer moments"):
        check_score(own)


def test_learners_of_a_config_and_the_plan():
    assert [name for name, _ in find_learners(DrZeroConfig())] == ["proposer.learner", "solver.learner"]
    assert plan_trainer(config("http://h"), 2)[0][1].startswith("http://h: 2 adapters of rank 8")


def test_the_servers_name_of_the_base():
    assert choose_base(["a", "m"], "m", "") == "m"
    assert choose_base(["/models/other"], "m", "") == "/models/other"
    with pytest.raises(BadInput, match="does not offer the model b; it offers a"):
        choose_base(["a"], "m", "b")
    with pytest.raises(BadInput, match="does not offer the model m"):
        choose_base(["a", "b"], "m", "")
