"""Pages of questions, groups of attempts, and episodes."""

import math
import re
from functools import partial

import pytest
from msgspec import structs

import viewing
from quaere.records import Answer, Search, Turn
from quaere.records.episodes import TokenTrace
from quaere.runs import Run
from quaere.viewer import page_formats
from quaere.viewer.attempt_groups import GroupQuery, describe_turn, read_group, reward_of
from quaere.viewer.token_lane import NUM_TOKENS, TokenCell, read_lane
from quaere.viewer.transcript import REST, WIDTH, stack_rewards
from viewing import add_episodes, make_episode, make_proposal, open_client, write_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    with Run.open(write_run(folder / "alpha"), write=True) as run:
        add_episodes(run, step=4)
        add_episodes(run, step=6)
        run.add_episode(make_episode("other", "q/2 & 3"), {"answer/exact_match": math.nan}, step=6, phase="validation")
    return folder


@pytest.fixture(scope="module")
def client(runs):
    return open_client(runs)


twin = partial(viewing.twin, run="alpha")


# ------------------------------------------------------------------------------------------------------------- groups


def test_questions_are_listed_by_step(client):
    lines = twin(client, "questions")["page"]["items"]
    assert [(line["group"]["task_id"], line["group"]["step"], line["group"]["num_attempts"]) for line in lines] == [
        ("q1", 4, 3),
        ("q1", 6, 3),
        ("q/2 & 3", 6, 1),
    ]
    assert (lines[0]["least_reward"], lines[0]["most_reward"]) == (0.0, 1.0)
    assert lines[0]["mean_reward"] == pytest.approx(1.75 / 3) and lines[2]["mean_reward"] is None
    page = client.get("/run/alpha/questions").text
    assert "group?task=q/2%20%26%203&amp;step=6" in page


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("step=4", [4]),
        ("phase=validation", [6]),
        ("end=turn_limit", [4, 6]),
        ("end=failed", []),
        ("least_searches=2", []),
        ("most_searches=1&step=6", [6, 6]),
        ("part=reward/total&most=0", [4, 6]),
        ("part=reward/total&least=0.5&end=turn_limit", []),
        ("part=reward/brevity&most=-0.1&step=4", [4]),
        ("text=HALM", [4, 6, 6]),
        ("text=%25", []),
        ("text=_", []),
        ("end=&step=&text=", [4, 6, 6]),
    ],
)
def test_groups_are_found_by_reward_end_and_searches(client, query, found):
    assert [line["group"]["step"] for line in twin(client, f"questions?{query}")["page"]["items"]] == found


def test_questions_have_pages(client, monkeypatch):
    monkeypatch.setattr(page_formats, "PAGE_SIZE", 2)
    assert len(twin(client, "questions?page=2")["page"]["items"]) == 1
    assert 'href="?page=2"' in client.get("/run/alpha/questions").text


def test_attempts_are_ranked_by_reward_within_a_step(client):
    shown = twin(client, "group?task=q1")
    assert [section["step"] for section in shown["sections"]] == [4, 6]  # the same question at two steps
    first = shown["sections"][0]["attempts"]
    assert [(one["id"], one["number"], one["reward"], one["advantage"]) for one in first] == [
        ("s4-a0", 1, 1.0, 0.5),
        ("s4-a2", 2, 0.75, 0.5),
        ("s4-a1", 3, 0.0, -1.0),
    ]
    parts = {"reward/total": 1.0, "reward/answer": 1.2, "reward/brevity": -0.2, "odd ": 1.0}
    assert first[0]["parts"] == parts  # the advantage is no part of the reward
    assert [turn["kind"] for turn in first[0]["turns"]] == ["search", "evaluate", "answer"]
    assert first[2]["turns"][1] == {"kind": "malformed", "text": "no call", "fault": "protocol: not closed "}
    page = client.get("/run/alpha/group?task=q1").text
    for text in ("Accepted: Orsolya Venn", "9 of 10: Passage 2 has it.", "turn limit", "episode?id=s4-a0"):
        assert text in page


def test_attempts_of_a_group_are_filtered(client):
    shown = twin(client, "group?task=q1&step=6&part=reward/total&most=0.8")
    assert [one["id"] for section in shown["sections"] for one in section["attempts"]] == ["s6-a2", "s6-a1"]
    assert twin(client, "group?task=q1&least_searches=2")["sections"] == []  # each searched once
    assert len(twin(client, "group?task=q1&least_searches=1&most_searches=1")["sections"]) == 2
    assert "No attempt is within these bounds" in client.get("/run/alpha/group?task=q1&end=failed").text
    assert twin(client, "group?task=q/2%20%26%203")["sections"][0]["attempts"][0]["reward"] is None


def test_attempts_that_ended_alike_are_folded(tmp_path):
    answers = ["Tavi", "the tavi.", "Orsolya Venn", "Tavi"]
    with Run.create(tmp_path / "alpha", "evolve") as run:
        made = [make_episode(f"a{number}", answer=answer) for number, answer in enumerate(answers)]
        rewards = [0.0, 0.0, 1.0, 0.5]
        run.add_episodes(made, [{"reward/total": reward} for reward in rewards], step=1, phase="solver")
        page = read_group(run, "alpha", GroupQuery(task="q1"))
    assert [[one.id for one in alike] for alike in page.sections[0].alike] == [["a2"], ["a3"], ["a0", "a1"]]
    shown = open_client(tmp_path).get("/run/alpha/group?task=q1").text
    assert shown.count('class="attempt"') == 3 and "1 more ended alike" in shown
    folded = shown.partition("1 more ended alike")[2]
    assert "4. the tavi." in folded and "episode?id=a1" in folded


def test_an_answer_without_turns_is_shown(tmp_path):
    with Run.create(tmp_path / "alpha", "evolve") as run:
        run.add_episode(structs.replace(make_episode("a0"), turns=()), step=1)
    assert twin(open_client(tmp_path), "episode?id=a0")["answer"] == "Orsolya Venn"


def test_conditions_are_unfolded_where_one_is_set(client):
    for address, is_open in (("", False), ("&end=answered", True), ("&least_searches=0", True)):
        page = client.get(f"/run/alpha/group?task=q1{address}").text
        assert ('<details class="more" open>' in page, '<details class="more">' in page) == (is_open, not is_open)


def test_attempts_of_equal_reward_are_numbered_in_the_order_they_were_made(tmp_path):
    with Run.create(tmp_path / "alpha", "evolve") as run:
        made = [make_episode(f"a{number}") for number in range(3)]
        run.add_episodes(made, [{"reward/total": reward} for reward in (0.0, 0.0, 1.0)], step=1, phase="solver")
    client = open_client(tmp_path)
    (section,) = twin(client, "group?task=q1")["sections"]
    assert [(one["number"], one["id"]) for one in section["attempts"]] == [(1, "a2"), (2, "a0"), (3, "a1")]
    page = client.get("/run/alpha/group?task=q1").text
    assert re.findall(r"a(\d)\">(\d)\. Orsolya Venn<", page) == [("2", "1"), ("0", "2"), ("1", "3")]


def test_a_reward_that_is_no_number_is_none():
    assert reward_of({"reward/total": math.nan, "answer/exact_match": 1.0}) == 1.0 and reward_of({}) is None


@pytest.mark.parametrize(("query", "line"), [("x" * 200, "x" * 200), ("x" * 201, "x" * 200 + " …"), ("a\n b", "a b")])
def test_a_turn_is_one_line_of_200_characters(query, line):
    assert describe_turn(Turn(0, "", Search((query,)), "stop_string")).text == line


@pytest.mark.parametrize(("num_solved", "answers"), [(0, ["Tavi"]), (2, ["Orsolya Venn"])])
def test_a_group_is_titled_by_its_question_and_not_by_the_document(tmp_path, num_solved, answers):
    """A proposer's own episode belongs to the group of its question, and comes first."""
    with Run.create(tmp_path / "alpha", "evolve") as run:
        episodes = [make_proposal("p1", "Who built the Halm bridge?", "Tavi")]
        episodes += [make_episode(f"a{number}", "p1") for number in range(num_solved)]
        run.add_episodes(episodes, [{}] * len(episodes), step=1, phase="proposer")
    client = open_client(tmp_path)
    shown = twin(client, "group?task=p1")
    assert (shown["question"].strip(), shown["answers"]) == ("Who built the Halm bridge?", answers)
    assert "<h1>Who built the Halm bridge?" in client.get("/run/alpha/group?task=p1").text
    assert "Who built the Halm bridge? -&gt; Tavi" in client.get("/run/alpha/questions").text


def test_a_group_of_several_proposals_is_titled_by_what_they_are_about(tmp_path):
    with Run.create(tmp_path / "alpha", "evolve") as run:
        asked = ["Who built it?", "Who paid for it?"]
        episodes = [
            structs.replace(make_proposal("p1", text, "Tavi"), id=f"p1-{number}") for number, text in enumerate(asked)
        ]
        run.add_episodes(episodes, [{}, {}], step=1, phase="proposer")
    assert twin(open_client(tmp_path), "group?task=p1")["question"] == "Halm"


def test_an_episode_that_proposes_is_titled_by_its_question(tmp_path):
    with Run.create(tmp_path / "alpha", "evolve") as run:
        run.add_episode(make_proposal("p1", "Who built the Halm bridge?", "Tavi"), step=1, phase="proposer")
    shown = twin(open_client(tmp_path), "episode?id=p1")
    assert (shown["question"], shown["answer"]) == ("Who built the Halm bridge?", "Tavi")


@pytest.mark.parametrize(("seed", "said"), [(7, "7"), (12_345_678, "12345678"), (409_052_349_433_385_006, "4090…5006")])
def test_a_long_seed_is_shortened_and_whole_in_its_title(tmp_path, seed, said):
    with Run.create(tmp_path / "alpha", "evolve") as run:
        run.add_episode(structs.replace(make_episode("a0"), seed=seed))
    page = open_client(tmp_path).get("/run/alpha/episode?id=a0").text
    assert f'<span title="seed {seed}">{said}</span>' in page


@pytest.mark.parametrize(("seconds", "said"), [(0.00081, "0.8 ms"), (0.0839, "84 ms"), (4.21, "4.2 s"), (300, "5 min")])
def test_durations_have_the_unit_that_suits_them(tmp_path, seconds, said):
    with Run.create(tmp_path / "alpha", "evolve") as run:
        episode = make_episode("a0")
        first, *others = episode.turns
        turns = (structs.replace(first, sample_s=seconds), *others)
        run.add_episode(structs.replace(episode, turns=turns))
    assert f"sampled in {said}<" in open_client(tmp_path).get("/run/alpha/episode?id=a0").text


def test_unknown_questions_and_episodes_are_said(client):
    for path, says in (("group?task=nothing", "no attempts at a question nothing"), ("episode?id=x", "no episode x")):
        for prefix in ("", "/json"):
            reply = client.get(f"{prefix}/run/alpha/{path}")
            assert reply.status_code == 404 and says in reply.text


# ------------------------------------------------------------------------------------------------------------ episodes


def test_an_episode_has_its_turns_passages_and_quotation(client):
    shown = twin(client, "episode?id=s4-a0")
    search, scored, answered = shown["turns"]
    assert [passage["is_quoted"] for passage in search["results"][0]["passages"]] == [False, True]
    assert search["results"][0]["passages"][1]["parts"] == [
        {"text": "It is old. ", "is_quoted": False},
        {"text": "Orsolya Venn built it.", "is_quoted": True},
    ]
    assert (scored["score"], answered["score"], shown["quotation"]) == (9.0, None, "verbatim")
    assert (shown["before"], shown["after"]) == ("", "s4-a2")
    assert shown["command"].endswith("/alpha s4-a0 --full --tokens")
    page = client.get("/run/alpha/episode?id=s4-a0").text
    for text in ("<mark>Orsolya Venn built it.</mark>", "9 of 10", "not recorded", "quaere runs show", "verbatim"):
        assert text in page


def test_an_episode_without_an_answer_says_why(client):
    shown = twin(client, "episode?id=s4-a1")
    assert (shown["answer"], shown["quotation"], shown["after"]) == ("", "none", "")
    page = client.get("/run/alpha/episode?id=s4-a1").text
    assert "it ended without an answer: turn limit" in page and "not closed" in page


def test_a_quotation_that_was_not_shown_is_told(tmp_path):
    with Run.open(write_run(tmp_path / "alpha"), write=True) as run:
        run.add_episode(structs.replace(make_episode("made-up"), outcome=Answer("Venn", span="Venn fell.")), step=6)
    client = open_client(tmp_path)
    assert twin(client, "episode?id=made-up")["quotation"] == "not found"
    page = client.get("/run/alpha/episode?id=made-up").text
    assert '<b class="bad">not found</b> in anything it was shown' in page


def test_reward_parts_are_a_waterfall():
    first, second, total = stack_rewards({"reward/total": 1.0, "reward/answer": 1.25, "reward/brevity": -0.25})
    assert (first.x, first.width) == (0.0, WIDTH) and (total.x, total.width) == (0.0, 240.0)
    assert (second.x, second.width) == (240.0, 60.0)  # downwards, from the end of the first
    names = [bar.name for bar in stack_rewards({"reward/total": 0.75, "reward/answer": 1.0, "answer/f1": 0.5})]
    assert names == ["reward/answer", REST, "reward/total"]
    assert stack_rewards({"answer/exact_match": 1.0}) == stack_rewards({"reward/total": math.nan}) == []


def test_a_negative_reward_is_a_waterfall_from_zero_downwards():
    bars = stack_rewards({"reward/total": -1.0, "reward/answer": 0.5, "reward/brevity": -1.5})
    assert [(bar.x, bar.width) for bar in bars] == [(200.0, 100.0), (0.0, 300.0), (0.0, 200.0)]  # 200 is zero


@pytest.mark.parametrize("sign", [1, -1])
def test_what_rounding_leaves_of_a_large_reward_is_no_part_of_it(sign):
    parts = {"reward/total": sign * 30.00001, "reward/answer": sign * 30.0}
    assert [bar.name for bar in stack_rewards(parts)] == ["reward/answer", "reward/total"]


def test_tokens_are_read_by_range(client):
    lane = twin(client, "episode?id=s4-a2")["lane"]
    assert (lane["num_tokens"], lane["next"], len(lane["rows"])) == (3012, NUM_TOKENS, 16)
    assert lane["rows"][0]["cells"][9:11] == [
        {"token_id": 9, "origin": "prompt", "is_trained": False, "logprob": None},
        {"token_id": 7, "origin": "model", "is_trained": True, "logprob": -0.25},
    ]
    assert [segment["start"] for segment in lane["segments"]] == [0, 10, 3010]
    last = twin(client, "episode?id=s4-a2&start=2048")["lane"]
    assert (last["start"], last["next"]) == (2048, 0) and sum(len(row["cells"]) for row in last["rows"]) == 964
    assert "start=1024" in client.get("/run/alpha/episode?id=s4-a2").text


def test_what_an_update_saw_is_shown_below_its_tokens(tmp_path):
    with Run.open(write_run(tmp_path / "alpha"), write=True) as run:
        add_episodes(run, step=6)
        run.add_traces(6, {"s6-a0": TokenTrace((10, 11, 13), (0.5, -0.5, 0.0), (-0.5, -2.0, -0.25), (0.75, 1.5, 0.0))})
    client = open_client(tmp_path)
    shown = twin(client, "episode?id=s6-a0")
    assert (shown["learner"], shown["lane"]["is_traced"]) == ("recorded", True)
    cells = shown["lane"]["rows"][0]["cells"]
    assert cells[11]["advantage"] == -0.5 and cells[11]["learner_logprob"] == -2.0 and cells[11]["entropy"] == 1.5
    assert "advantage" not in cells[12]  # a token that the update did not train on
    model = shown["lane"]["segments"][1]
    assert (model["mean_advantage"], model["mean_entropy"]) == (0.0, 0.75)
    page = client.get("/run/alpha/episode?id=s6-a0").text
    assert "log-prob -0.25, of the learner -2, entropy 1.5, advantage -0.5" in page
    assert page.count('<rect class="advantage') - 2 == page.count('<rect class="entropy') - 2 == 3
    assert 'class="advantage less a2"' in page and 'class="entropy e0"' in page
    other = twin(client, "episode?id=s6-a1")
    assert (other["learner"], other["lane"]["is_traced"]) == ("not recorded", False)
    assert "<code>traced_episodes</code>" in client.get("/run/alpha/episode?id=s6-a1").text


@pytest.mark.parametrize("start", [-5, 0, 63, 10**9])
def test_any_start_is_rounded_to_a_row(start):
    lane = read_lane(make_episode("a", num_tokens=100), None, start)
    assert lane.start in (0, 64) and lane.rows and lane.next == 0


@pytest.mark.parametrize(
    ("logprob", "entropy", "advantage", "shade"),
    [
        (None, None, None, 0),
        (-0.05, 0.05, 0.0, 0),
        (-0.15, 0.15, 0.01, 1),
        (-0.5, 0.3, -0.1, 1),
        (-1.0, 1.0, 0.5, 2),
        (-3.0, 2.0, -1.0, 3),
    ],
)
def test_a_token_is_the_darker_the_more_surprising_it_was(logprob, entropy, advantage, shade):
    cell = TokenCell(1, "policy", True, logprob, advantage, entropy=entropy)
    assert (cell.shade, cell.entropy_shade, cell.advantage_shade) == (shade, shade, shade)
    darkest = TokenCell(1, "policy", True, -9.0, 2.0, entropy=4.0)
    assert (darkest.shade, darkest.entropy_shade, darkest.advantage_shade) == (4, 4, 4)
