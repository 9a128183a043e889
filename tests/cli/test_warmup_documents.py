"""`quaere warmup RECIPE --index DIR`: a model that knows the form learns from its own documents, in both roles."""

import json
import shutil

import pytest

import village
from quaere.api.checked_questions import read_checked
from quaere.api.printing import count
from quaere.cli.main import build_parser
from quaere.errors import BadInput, QuaereError
from quaere.search.index import open_index

LIMITS = ["--topk", "1", "--style", "brief", "--turn-tokens", "400", "--tool-response-tokens", "24"]
SMALL = ["--epochs", "1", "--batch", "8", "--attempts", "4", "--device", "cpu", "--hops", "1,1", *LIMITS]


def main(*words):
    args = build_parser("warmup").parse_args(["warmup", *map(str, words)])
    return args.run(args)


def row(name, number, document):
    """Who built a bridge, as `quaere questions --checked` writes it: the sentence stands at the document's start."""
    builder = village.builder(number)
    sentence = f"{builder} built it."
    assert document.startswith(sentence)
    return {
        "id": f"{name}#0:0",
        "question": f"Who built {name}?",
        "answers": [builder],
        "kind": "single",
        "facts": 1,
        "searches": 1,
        "hops": 1,
        "evidence": [{"doc_id": name, "start": 0, "end": len(sentence), "text": sentence}],
    }


@pytest.fixture
def place(village_paths, tmp_path):
    """The village's index, its model with a note that it was taught Dr. Zero's dialect, and questions."""
    index, model = village_paths
    known = tmp_path / "known"
    shutil.copytree(model, known)
    (known / "warmup.json").write_text(json.dumps({"recipe": "drzero", "style": "brief"}))
    documents = open_index(index)
    questions = tmp_path / "questions.jsonl"
    rows = [row(name, number, documents.document(name)) for number, name in enumerate(village.BRIDGES)]
    questions.write_text("".join(json.dumps(line) + "\n" for line in rows))
    return ["--index", index, "--model", known, "--questions", questions]


def read(out):
    return json.loads((out / "warmup.json").read_text())


def test_both_roles_are_taught_in_about_equal_shares(place, tmp_path, capsys):
    out = tmp_path / "out"
    main("drzero", *place, "--out", out, *SMALL)
    said = capsys.readouterr().err
    num_answered = int(said.split("drzero: ")[1].split(" of 16 questions answered well")[0])
    assert num_answered >= 8  # it picks builder or payer by chance, and has four attempts
    num_shown = int(said.split("drzero: ")[2].split(" questions shown")[0])
    assert 0 < num_shown <= num_answered
    manifest = read(out)
    assert (manifest["data"], manifest["roles"]) == ("documents", ["solver", "proposer"])
    assert manifest["num_episodes"] == num_answered + num_shown
    assert manifest["loss_after"] < manifest["loss_before"]


@pytest.mark.parametrize(("role", "absent"), [("solver", "questions shown"), ("proposer", "answered well")])
def test_a_role_can_be_taught_alone(place, tmp_path, capsys, role, absent):
    out = tmp_path / "out"
    main("drzero", *place, "--out", out, *SMALL, "--roles", role)
    said = capsys.readouterr()
    assert absent not in said.err
    assert said.out.endswith(f'quaere ask "your question" --index {place[1]} --model {out}\n')
    assert read(out)["roles"] == [role] and read(out)["num_episodes"] >= 8


def test_what_it_is_unsure_of_is_written_to_practise_on(place, tmp_path, capsys):
    practice = tmp_path / "practice.jsonl"
    main(
        "drzero", *place, "--out", tmp_path / "out", *SMALL, "--roles", "solver", "--most", "12", "--practice", practice
    )
    said = capsys.readouterr().err
    unsure = read_checked(practice)
    assert " of 12 questions answered well" in said
    assert f"{count(len(unsure), 'question')} that not every attempt" in said
    assert unsure and all(question.scores["solved"] in (0, 0.25, 0.5, 0.75) for question in unsure)


@pytest.mark.parametrize("words", [["--most", "3"], ["--practice", "file.jsonl"], ["--questions", "file.jsonl"]])
def test_options_about_documents_need_an_index(words, tmp_path):
    with pytest.raises(BadInput, match=f"{words[0]} needs --index"):
        main("drzero", "--model", "m", "--out", tmp_path / "out", *words)


def test_documents_that_teach_nothing_are_told_in_a_line(place, tmp_path):
    questions = place[-1]
    first, *_ = questions.read_text().splitlines()
    questions.write_text(json.dumps(json.loads(first) | {"answers": ["nobody"]}) + "\n")
    with pytest.raises(BadInput, match="only 0 of 1 questions became good episodes"):
        main("drzero", *place, "--out", tmp_path / "out", *SMALL)
    assert not (tmp_path / "out").exists()


def test_what_documents_cannot_teach_is_refused(place, tmp_path):
    for words, match in (
        (["score"], "score cannot be taught from documents"),
        (["drzero", "--teacher", "openai:m@http://127.0.0.1:9/v1"], "--index and --teacher exclude each other"),
        (["search-r1", "--roles", "proposer"], "search-r1 has no proposer"),
    ):
        with pytest.raises(BadInput, match=match):
            main(*words, *place, "--out", tmp_path / "out")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--index", "nowhere"], "nowhere does not exist"),
        (["--model", "./nowhere"], "there is no model directory at ./nowhere"),
    ],
)
def test_a_missing_index_or_model_is_refused_before_the_form_is_taught(place, tmp_path, wrong, said, capsys):
    with pytest.raises(QuaereError, match=said):
        main("evalact", *place, *wrong, "--out", tmp_path / "out", *SMALL)
    assert "questions" not in capsys.readouterr().err  # the file of questions was not even read
    assert not (tmp_path / "out").exists()
