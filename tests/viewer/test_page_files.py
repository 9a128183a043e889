"""`quaere view --export`: pages as files whose links lead to one another."""

import json
import re
import shutil
from html import unescape
from urllib.parse import unquote, urlsplit

import pytest

from hostile_markup import NAMES, PAYLOADS, read_skeleton
from quaere.cli.main import main
from quaere.errors import BadInput
from quaere.evaluation.qa.scores import Evaluation, score_answering, score_episode, write_evaluation
from quaere.runs import Run
from quaere.viewer.page_files import EXPORTED, NOTES, export_pages, name_file
from quaere.viewer.run_folder import open_folder
from viewed_reports import write_reports_run
from viewing import add_episodes, make_candidate, open_client, write_eval, write_hostile, write_learning, write_run


@pytest.fixture(scope="module")
def shared_runs(tmp_path_factory):
    """Two runs, one of them with a group of attempts of which one is long; nobody changes them."""
    folder = tmp_path_factory.mktemp("shared") / "runs"
    with Run.open(write_run(folder / "alpha"), write=True) as run:
        add_episodes(run, step=6)
    write_run(folder / "Beta und Söhne")
    return folder


@pytest.fixture(scope="module")
def exported(shared_runs):
    """The pages of one of the runs."""
    out = shared_runs.parent / "out"
    export(shared_runs / "alpha", out)
    return out


@pytest.fixture
def runs(shared_runs, tmp_path):
    """The runs, to do anything to."""
    return shutil.copytree(shared_runs, tmp_path / "runs")


def export(what, out, **options):
    return export_pages(open_folder(str(what)), out, **{"max_pages": 2000, **options})


def links_of(file):
    """Where the links, scripts and style sheets of a file lead, as files."""
    found = re.findall(r' (?:href|src)="([^"]*)"', file.read_text(encoding="utf-8"))
    for link in map(unescape, found):
        if not link.startswith("#"):
            assert not urlsplit(link).scheme and not link.startswith("/"), f"{file}: {link}"
            yield (file.parent / unquote(urlsplit(link).path)).resolve()


def test_every_link_leads_to_a_file_and_every_kind_of_page_is_there(runs, tmp_path):
    write_reports_run(runs / "oss")
    write_eval(runs / "judged", ["Orsolya Venn", None])
    write_learning(runs / "learned")
    done = export(runs, tmp_path / "out")
    pages = list((tmp_path / "out").rglob("*.html"))
    assert len(pages) == done.num_pages and done.num_left_out == 0
    reached = {target for page in pages for target in links_of(page)}
    assert all(target.is_file() and target.is_relative_to((tmp_path / "out").resolve()) for target in reached)
    assert {page.resolve() for page in pages} <= reached | {done.first.resolve()}
    names = {"runs", *(file.stem for file in (tmp_path / "out/pages").iterdir())}
    for kind in EXPORTED:
        run = {"report": "oss", "reports": "oss", "map": "learned"}.get(kind.path.rpartition("/")[2], "alpha")
        start = name_file(kind.path.replace("/*", f"/{run}", 1).replace("/*", "/6"))
        assert any(name.startswith(start) for name in names), kind.path
    assert not any("document" in name for name in names)


def test_a_page_has_what_the_server_shows_and_its_twin_too(shared_runs, exported):
    client = open_client(shared_runs / "alpha")
    for address in ("/run/alpha/step/4", "/run/alpha/episode?id=s6-a0", "/run/alpha/group?task=q1&step=6"):
        file = exported / "pages" / f"{name_file(address)}.html"
        served, written = client.get(address).text, file.read_text(encoding="utf-8")
        assert read_text(written) == read_text(served)
        assert anchors_of(written) == anchors_of(served) != []
        twin = json.loads(file.with_suffix(".json").read_text(encoding="utf-8"))
        assert twin == client.get(f"/json{address}").json()


def anchors_of(page):
    """Links to places of the same page."""
    return re.findall(r' href="(#[^"]*)"', page)


def read_text(page):
    return re.sub(r"<[^>]*>", "", page.partition("<main")[2].partition("</main>")[0])


def test_the_tokens_of_a_long_episode_come_with_its_page(exported):
    page = (exported / "pages/run--alpha--episode--id=s6-a2.html").read_text(encoding="utf-8")
    (data,) = re.findall(r'<script type="application/json" data-rest>(.*?)</script>', page)
    rows = "".join(json.loads(data))
    assert (
        page.count('<rect class="token ') - page.count('<svg class="key"') + rows.count('<rect class="token ') == 3012
    )
    assert "<title>3011: token 9, environment</title>" in rows


def test_pages_without_room_are_counted_and_not_linked_to(shared_runs, tmp_path):
    told = []
    done = export(shared_runs / "alpha", tmp_path / "out", max_pages=5, on_page=lambda *counts: told.append(counts))
    assert [num_done for num_done, _ in told] == [1, 2, 3, 4, 5] and told[-1] == (5, 5)
    pages = list((tmp_path / "out").rglob("*.html"))
    assert len(pages) == done.num_pages == 5 and done.num_left_out > 5
    assert all(target.is_file() for page in pages for target in links_of(page))
    assert "data-step-link" not in done.first.read_text(encoding="utf-8")  # of its six steps not all have a page


def test_a_combination_of_facets_is_no_page(exported):
    names = [file.stem for file in (exported / "pages").glob("run--alpha--curriculum*.html")]
    assert "run--alpha--curriculum--state=kept" in names and all(name.count("=") <= 1 for name in names)


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("/", "runs"),
        ("/?page=2", "runs--page=2"),
        ("/run/notes/step/12", "run--notes--step--12"),
        ("/run/notes/episode?id=i0-s3-a1", "run--notes--episode--id=i0-s3-a1"),
    ],
)
def test_plain_names_are_kept(address, name):
    assert name_file(address) == name


def test_names_differ_on_every_file_system():
    ids = ["a", "A", "a/b", "a-b", "a--b", "a b", "..", ".", "con:", "x" * 300, "x" * 299, *NAMES]
    names = [name_file(f"/run/n/item?id={re.sub('[^a-zA-Z0-9]', lambda one: f'%{ord(one[0]):02x}', id)}") for id in ids]
    assert len({name.lower() for name in names}) == len(ids)
    assert all(re.fullmatch(r"[a-z0-9._=~-]{1,120}", name) for name in names)


@pytest.mark.parametrize(("max_pages", "share"), [(16, 5), pytest.param(160, 1, marks=pytest.mark.slow)])
def test_payloads_change_no_element_and_lead_nowhere(tmp_path, max_pages, share):
    """Of every fifth payload, or of all; test_viewer_safety.py has all of them on the pages of the server."""
    parts = []
    hostile, harmless = PAYLOADS[::share], [f"payload {n}" for n in range(len(PAYLOADS[::share]))]
    for kind, payloads in (("hostile", hostile), ("harmless", harmless)):
        write_hostile(tmp_path / kind, payloads)
        done = export(tmp_path / kind / "main", tmp_path / f"{kind}-out", max_pages=max_pages)
        found = [read_skeleton(page.read_text(encoding="utf-8")) for page in pages_of(tmp_path / f"{kind}-out")]
        parts.append([page.parts for page in found])
        addresses = {address for page in found for address in page.addresses}
        assert all(
            re.match(r"(\.\./)?(pages/|static/|index\.html|run|evaluations|#)", address) for address in addresses
        )
        assert done.num_pages == max_pages and len(found) > 5
    assert parts[0] == parts[1]


def pages_of(out):
    return [out / "index.html", *sorted((out / "pages").glob("run--main*step*.html"))]


def test_embedded_data_cannot_end_its_script(tmp_path):
    with Run.open(write_run(tmp_path / "a", num_steps=1), write=True) as run:
        add_episodes(run, title="</script><script>window.hit=1</script>")
    export(tmp_path / "a", tmp_path / "out")
    page = (tmp_path / "out/pages/run--a--episode--id=s1-a2.html").read_text(encoding="utf-8")
    (data,) = re.findall(r"data-rest>(.*?)</script>", page)
    assert "<" not in data and "window.hit=1</script>" not in page


def test_results_in_files_are_exported_beside_the_runs(tmp_path):
    with Run.open(write_eval(tmp_path / "runs/judged", ["Orsolya Venn", None])) as run:
        scores = [score_episode(episode, evidence=False) for episode in run.episodes()]
    stored = Evaluation("stored", "tiny", {"questions": "eval.jsonl"}, score_answering(scores), tuple(scores))
    write_evaluation(stored, tmp_path / "stored.json")
    main(
        ["view", str(tmp_path / "runs"), "--export", str(tmp_path / "out"), "--results", str(tmp_path / "stored.json")]
    )
    listed = (tmp_path / "out/pages/evaluations.html").read_text(encoding="utf-8")
    assert "stored.json" in listed and "judged" in listed
    assert len(list((tmp_path / "out/pages").glob("evaluation--of=*.html"))) >= 2


def test_an_export_is_replaced_only_with_force_and_nothing_else_ever_is(runs, tmp_path):
    out = tmp_path / "out"
    export(runs / "alpha", out, max_pages=2)
    with pytest.raises(BadInput, match="exists already"):
        export(runs / "alpha", out)
    with Run.open(runs / "alpha", write=True) as run:
        run.add_candidates([make_candidate("c9", 9)])
    export(runs / "alpha", out, force=True)
    assert (out / "pages/run--alpha--item--id=c9.html").is_file()
    (out / NOTES).unlink()
    with pytest.raises(BadInput, match="not an export of pages"):
        export(runs / "alpha", out, force=True)
    assert (out / "index.html").is_file()


def test_what_fails_half_way_leaves_nothing(shared_runs, tmp_path, monkeypatch):
    monkeypatch.setattr("quaere.viewer.page_files.read_static", lambda name: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        export(shared_runs / "alpha", tmp_path / "made" / "out", max_pages=5)
    assert list((tmp_path / "made").iterdir()) == []


def test_the_command_says_what_it_wrote(shared_runs, tmp_path, capsys):
    runs = shared_runs
    out = str(tmp_path / "out")
    main(["view", str(runs / "alpha"), "--export", out, "--pages", "4"])
    said = capsys.readouterr().err.splitlines()
    assert said[0] == f"4 pages in {out}; open {out}/index.html" and "--pages N" in said[1]
    assert main(["view", str(runs / "alpha"), "--export", out]) == 2
    assert "--force" in capsys.readouterr().err
    assert main(["view", str(runs / "alpha"), "--export", out, "--pages", "0"]) == 2
    assert "--pages must be at least 1" in capsys.readouterr().err
