"""Grades: proxies by hand and in range, models whose words are checked, weights, dimensions a judge writes."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

import tiny
from loopback import serve_chat
from properties import examples
from quaere.chat.renderer import Renderer
from quaere.errors import BadInput
from quaere.evaluation.reports.criteria import (
    GENERAL,
    Criteria,
    Criterion,
    GradedDimension,
    check_dimensions,
    general_criteria,
    read_criteria,
    weighted_mean,
)
from quaere.evaluation.reports.grades import (
    PROXIES,
    ModelGrader,
    ProxyGrader,
    Submission,
    count_proxies,
    write_dimensions,
)
from quaere.records import Question
from quaere.rollout.policy import TokenPolicy, open_policy
from reported import GOOD, make_report
from scripted import ScriptedSampler

COVERAGE = GradedDimension("coverage", "All of it.", 1.0)
DATES = GradedDimension("dates", "", 3.0, (Criterion("Says when", "", 0.75), Criterion("Says since when", "", 0.25)))
CRITERIA = Criteria((COVERAGE, DATES))


def test_overall_is_weighted_by_the_criteria():
    assert CRITERIA.overall({"coverage": 2.0, "dates": 6.0}) == 5.0
    assert CRITERIA.overall({"coverage": 2.0}) is None
    assert weighted_mean([(4, 1), (8, 3)]) == 7.0


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(1e-3, 1e3)), min_size=1, max_size=20))
def test_a_weighted_mean_stays_among_its_values(pairs):
    assert min(value for value, _ in pairs) <= weighted_mean(pairs) <= max(value for value, _ in pairs)


# ------------------------------------------------------------------------------------------------------------ proxies


def test_proxies_by_hand():
    found = count_proxies(make_report())
    assert set(found) == set(PROXIES.names)
    assert found["question-terms"] == pytest.approx(10 * 3 / 4)  # halm, bridge, oss; not "known"
    assert found["sources"] == pytest.approx(6.0)  # three of five
    assert found["cited"] == found["structure"] == found["conclusion"] == 10.0
    assert 5 < found["variety"] < 10  # the conclusion repeats
    num_words = len(GOOD.replace("#", "").split()) - GOOD.count(" [")
    assert found["length"] == pytest.approx(10 * (num_words + 1) / 150)  # the sign of a heading counts as a word


def test_a_report_of_one_paragraph_is_cited_too():
    text = "The Halm bridge has 12 arches [1]. The Oss rises in the Korrin hills [2]. It is old."
    report = structs.replace(make_report(text), conclusion=text)  # as the last paragraph is
    assert count_proxies(report)["cited"] == pytest.approx(20 / 3)
    citations_alone = count_proxies(make_report("[1]. [2]."))
    assert citations_alone["cited"] == citations_alone["variety"] == 0


def test_proxies_fall_with_what_they_count():
    good = count_proxies(make_report())
    bare = count_proxies(make_report(GOOD.replace(" [1]", "")))
    assert bare["cited"] < good["cited"] and bare["sources"] < good["sources"]
    again = count_proxies(make_report(GOOD.replace("It has 12 arches [1].", "It has 12 arches [1]. " * 5)))
    assert again["variety"] < good["variety"]
    wrong = count_proxies(
        make_report(GOOD.replace("Conclusion: The Halm bridge was", "Conclusion: The Halm bridge was not"))
    )
    assert wrong["conclusion"] == 5.0
    lost = count_proxies(make_report(GOOD.replace("[3]", "[8]")))
    assert lost["cited"] < 10 and lost["sources"] == 4.0
    long = count_proxies(make_report("Words and more words. " * 1125))
    assert long["length"] == pytest.approx(5.0)


@settings(max_examples=examples(100), deadline=None)
@given(st.text(max_size=300))
def test_proxies_stay_in_range(text):
    for value in count_proxies(make_report(text)).values():
        assert 0 <= value <= 10
    for value in count_proxies(make_report(f"{GOOD}\n\n{text}")).values():
        assert 0 <= value <= 10


async def test_the_proxy_grader_grades_by_its_own_names_only():
    grader = ProxyGrader()
    assert grader.criteria_of(general_criteria()) is PROXIES
    advanced = []
    found = await grader.grade(
        [Submission(make_report(), PROXIES), Submission(make_report(""), PROXIES)], advance=lambda: advanced.append(1)
    )
    assert len(advanced) == 2 and set(found[1].values()) == {0.0}
    assert not set(PROXIES.names) & {dimension.name for dimension in GENERAL}
    assert "not a judge" in grader.name


# ------------------------------------------------------------------------------------------------------------- models


def scripted(lines, **options):
    tokenizer = tiny.tokenizer()
    sampler = ScriptedSampler(tokenizer, {f"judge-{number}": [line] for number, line in enumerate(lines)})
    return ModelGrader(TokenPolicy(sampler, Renderer(tokenizer)), **options), sampler


async def test_a_model_grades_one_dimension_a_turn():
    lines = ["<grades>\n1: 7\n</grades>", "<grades>1: 4\n \n2: 8/10</grades>", "<grades>1: 11</grades>", "<grades>1: 5"]
    grader, sampler = scripted(lines)
    advanced = []
    items = [
        Submission(make_report(), CRITERIA),
        Submission(make_report(""), CRITERIA),
        Submission(make_report(), CRITERIA),
    ]
    found = await grader.grade(items, advance=lambda: advanced.append(1))
    assert found == [{"coverage": 7.0, "dates": 5.0}, {"coverage": 0.0, "dates": 0.0}, {}]
    assert len(advanced) == 3
    shown = tiny.tokenizer().decode(sampler.seen["judge-1"][0][0])
    assert "Criteria:\n1. Says when\n2. Says since when" in shown and "What is known of the Halm" in shown
    guided, sampler = scripted([" 7</grades>"], guided=True)
    assert await guided.grade([Submission(make_report(), Criteria((COVERAGE,)))]) == [{"coverage": 7.0}]
    assert tiny.tokenizer().decode(sampler.seen["judge-0"][0][0]).endswith("<grades>\n1:")


@pytest.mark.parametrize(
    "said",
    [
        "",
        "<grades></grades>",
        "<grades>1: 4</grades>",
        "<grades>1: 4\n2: 5\n3: 6</grades>",
        "<grades>1: 4\n1: 4</grades>",
        "<grades>1: nan\n2: 5</grades>",
        "<grades>1: -1\n2: 5</grades>",
        "<grades>1: 4\n2: 5\nfine</grades>",
        "<grades>1: 4\n2: 5</grades><grades>1: 9\n2: 9</grades>",
    ],
)
async def test_grades_that_are_not_one_for_each_criterion_are_missing(said):
    grader, _ = scripted([said])
    assert await grader.grade([Submission(make_report(), Criteria((DATES,)))]) == [{}]


async def test_an_endpoint_grades_as_a_list_and_writes_dimensions():
    def answer(body):
        system, asked = body["messages"][0]["content"], body["messages"][-1]["content"]
        if "You plan" in system:
            made = [
                {"name": " dates ", "text": "Says when.\n", "weight": 2},
                {"name": "costs", "text": "What it cost."},
            ]
            return json.dumps(made if "Halm" in asked else made[:1])
        numbers = range(1, asked.partition("Criteria:")[2].count("\n") + 1)
        return json.dumps([{"number": number, "grade": 10 - number, "why": "so"} for number in numbers])

    with serve_chat(answer) as url:
        policy = open_policy(f"openai:judge@{url}")
        grades = await ModelGrader(policy, listed=True).grade([Submission(make_report(), CRITERIA)])
        made = await write_dimensions(policy, [Question("a", "The Halm?"), Question("b", "The Oss?")], 2)
        await policy.stop()
    assert grades == [{"coverage": 9.0, "dates": 0.75 * 9 + 0.25 * 8}]
    assert made == [(GradedDimension("dates", "Says when.", 2.0), GradedDimension("costs", "What it cost.")), ()]


# ---------------------------------------------------------------------------------------------------------- criteria


def test_criteria_from_a_file(tmp_path):
    path = tmp_path / "criteria.jsonl"
    rows = [
        {"question": "Who  built it?", "dimensions": [{"name": "dates", "text": "Says when.", "weight": 2}]},
        {"id": 7, "dimensions": [{"name": "clarity", "weight": 0.5}]},
        {"id": "9", "dimensions": [{"name": "dates"}]},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    book = read_criteria(path)
    found = book.find("x", "Who built it?")
    assert found.names == ("coverage", "insight", "instruction_following", "clarity", "dates")
    assert found.dimensions[-1].weight == 2
    assert [one.weight for one in book.find("7", "?").dimensions] == [1, 1, 1, 0.5]
    assert [one.weight for one in book.find("9", "?").dimensions] == [1, 1, 1, 1, 1]  # where a row says none
    assert book.find("8", "?") is None


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{}", "missing required field"),
        ('{"dimensions": []}', "`question` or `id` is missing"),
        ('{"question": " ", "dimensions": []}', "`question` or `id` is missing"),
        ('{"id": 1, "dimensions": [{"name": "a"}, {"name": "a"}]}', "different names"),
        ('{"id": 1, "dimensions": [{"name": "a", "weight": 0}]}', "weights must be"),
        ("", "contains no criteria"),
    ],
)
def test_bad_criteria_are_refused_in_a_line(tmp_path, line, said):
    path = tmp_path / "criteria.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(BadInput, match=said):
        read_criteria(path)


def test_dimensions_are_checked():
    assert check_dimensions(GENERAL) == ""
    assert "1 to 20" in check_dimensions(())
    assert "weights" in check_dimensions([GradedDimension("a", criteria=(Criterion("x", weight=float("inf")),))])
