"""Warm-up for SCORE: reports that say only what was shown, rubrics within their rules, scores that follow the flaws."""

import asyncio
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

import tiny
from properties import examples
from quaere.chat.dimensions import POOL
from quaere.chat.renderer import Renderer
from quaere.dialects.report.assessment import count_searches, read_assessment
from quaere.dialects.report.report_writer import bind_report, numbered_sources
from quaere.errors import BadInput, SamplingFailed
from quaere.records import AssessTask, Malformed, ReportTask, RubricTask, Search
from quaere.rollout.episode import Limits
from quaere.search.searcher import LocalSearcher
from quaere.training.learner import Learner
from quaere.warmup.dialects import DIALECTS, role_of, roles_of
from quaere.warmup.imitation import imitation, teach
from quaere.warmup.lessons import LessonSettings, Portion, build_world, plan_lessons
from quaere.warmup.oracle import play_oracle
from quaere.warmup.oracle_reports import FLAWS, explain, facts_in, mark, write_draft
from quaere.warmup.report_lessons import MAX_REPORTS, MAX_SCORES, MAX_SEARCHES, MIN_REPORTS, Research
from quaere.warmup.scripted_episodes import demonstrate
from quaere.worlds import generate_world
from quaere.worlds.dice import Dice
from quaere.worlds.open_questions import ask_open_questions

# The tiny tokenizer takes three times as many tokens as a real one.
LIMITS = Limits(max_turns=8, turn_tokens=6000, sequence_tokens=60_000, tool_response_tokens=2500)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A world, its index and a renderer."""
    return *build_world(1, 300, tmp_path_factory.mktemp("warmup")), Renderer(tiny.tokenizer())


def play(place, **changes):
    given = {"num_episodes": 40, "dialects": ("score",), "report_limits": LIMITS, "seed": 5, "style": "brief"} | changes
    return asyncio.run(play_oracle(*place, LessonSettings(**given)))


@pytest.fixture(scope="module", params=["full", "brief"])
def played(place, request):
    return play(place, num_episodes=40, style=request.param)


def by_task(played, kind):
    return [episode for episode in played.episodes if isinstance(episode.task, kind)]


# ------------------------------------------------------------------------------------------------------ every episode


def test_every_turn_is_one_its_protocol_reads(place, played):
    _, _, renderer = place
    assert [len(by_task(played, kind)) for kind in (ReportTask, RubricTask, AssessTask)] == [20, 8, 12]
    assert len({episode.id for episode in played.episodes}) == 40
    for episode in played.episodes:
        assert episode.end == "answered"
        for turn in episode.turns:
            assert turn.failure is None and turn.stop_reason == "stop_string"
            assert not isinstance(turn.action, Malformed)
            assert turn.text.startswith("<think>") and not re.search(r"\{|\}|\|| \.|  ", turn.text)
        written = [segment for segment in episode.segments if segment.origin == "model"]
        assert [renderer.decode(segment.token_ids) for segment in written] == [turn.text for turn in episode.turns]
        assert all(set(segment.loss_mask) == {segment.origin == "model"} for segment in episode.segments)


def test_the_seed_decides(place):
    def texts(seed):
        return [turn.text for episode in play(place, num_episodes=8, seed=seed).episodes for turn in episode.turns]

    assert texts(1) == texts(1) != texts(2)


# ------------------------------------------------------------------------------------------------------------ reports


def test_what_a_report_states_was_shown_where_it_says(place, played):
    """Every citation leads to a passage, and that passage states a fact with the subject and the object named."""
    world, _, _ = place
    num_citations = 0
    for episode in by_task(played, ReportTask):
        report, shown = bind_report(episode), numbered_sources(episode.turns)
        assert report.citations and not report.unresolved and report.resolved_share == 1.0
        for statement in report.statements:
            text = statement.text.lower()
            for number in statement.citations:
                num_citations += 1
                passage = shown[number].passage
                assert world.entity(passage.doc_id).name.lower() in text
                assert any(said.lower() in text for _, said in facts_in(world, passage))
    assert num_citations > 85


def test_gaps_are_real(place, played):
    """A sentence without a citation admits that something is not known, which then no article says; or it concludes.

    Under a rubric without citation it may also share the mark of the sentence that follows.
    """
    world, _, _ = place
    golds = {gold.id: gold for gold in ask_open_questions(world.graph, world.seed, 200)}
    num_admitted = 0
    for episode in by_task(played, ReportTask):
        gold, rubric = golds[episode.task.question.id], episode.task.rubric
        statements = bind_report(episode).statements
        for statement, following in zip(statements, [*statements[1:], None], strict=True):
            if statement.citations or re.search("record on|more is certain", statement.text):
                continue
            if re.match("The documents do not|Nothing was|No passage|.* is not documented", statement.text):
                assert any(gap.lower() in statement.text.lower() for gap in gold.unknown)
                num_admitted += 1
            else:
                assert rubric is not None and "citation" not in rubric.dimensions
                assert following.start - statement.end == 1  # of the same paragraph
    assert num_admitted >= 5


def test_reports_search_one_at_a_time_and_end_with_a_conclusion(played):
    lengths = set()
    for episode in by_task(played, ReportTask):
        searches = [turn.action for turn in episode.turns[:-1]]
        assert all(isinstance(action, Search) and len(action.queries) == 1 for action in searches)
        assert 2 <= len(searches) <= MAX_SEARCHES
        assert len({action.queries for action in searches}) == len(searches)
        text = episode.outcome.text
        assert text.split("\n\n")[-1].startswith("Conclusion: ")
        lengths.add(len(bind_report(episode).statements))
    assert min(lengths) >= 3 and max(lengths) <= 12 and len(lengths) > 3
    rubrics = [episode.task.rubric is not None for episode in by_task(played, ReportTask)]
    assert any(rubrics) and not all(rubrics)


# ------------------------------------------------------------------------------------------------------------ rubrics


def test_a_writer_plans_two_to_four_searches_and_is_shown_two_to_six_dimensions(place):
    world, index, _ = place
    research = Research(world, index, LIMITS, style="brief", seed=0)
    drawn = [research.draw("report") for _ in range(60)]
    assert {attempt.script.num_searches for attempt in drawn} == {2, 3, MAX_SEARCHES}
    assert {len(attempt.task.rubric.dimensions) for attempt in drawn if attempt.task.rubric} == {2, 3, 4, 5, 6}


def test_rubric_turns_vary(played):
    episodes = by_task(played, RubricTask)
    assert all(len(episode.turns) == 1 for episode in episodes)
    assert len({episode.outcome.text for episode in episodes}) == len(episodes)
    assert len({episode.task.harness.dimensions for episode in episodes}) > 4
    assert any(episode.task.passages for episode in episodes)


# -------------------------------------------------------------------------------------------------------- assessments


def test_assessments_score_every_report_after_looking(played):
    sizes = set()
    for episode in by_task(played, AssessTask):
        task, outcome = episode.task, episode.outcome
        sizes.add(len(task.reports))
        assert [item.number for item in outcome.reports] == list(range(1, len(task.reports) + 1))
        for item in outcome.reports:
            assert set(item.scores) == set(task.rubric.dimensions)
            assert item.verification and item.gaps
            assert len(f"{item.verification} {item.gaps}".split()) < 70
        assert min(count_searches(episode, len(task.reports))) >= task.harness.process.min_tool_calls
        searches = [turn.action for turn in episode.turns[:-1]]
        assert any(action.about for action in searches) or len(searches) >= MAX_SEARCHES - 1
        assert (about := [action.about for action in searches if action.about]) == sorted(about)
    assert min(sizes) <= 3 and max(sizes) >= 6
    assert min(sizes) >= MIN_REPORTS and max(sizes) <= MAX_REPORTS


def test_an_assessment_can_be_read_back(place, played):
    for episode in by_task(played, AssessTask):
        task = episode.task
        assert read_assessment(episode.turns[-1].text, task.rubric, len(task.reports), 10.0, False) == episode.outcome
        assert len(task.rubric.dimensions) * len(task.reports) <= MAX_SCORES


def test_few_reports_may_be_verified_one_by_one(place, monkeypatch):
    for name, value in (("MAX_REPORTS", 3), ("_FULL_PERCENT", 100), ("_EACH_PERCENT", 100)):
        monkeypatch.setattr(f"quaere.warmup.report_lessons.{name}", value)
    world, index, renderer = place
    research, searcher = Research(world, index, LIMITS, style="brief", seed=0), LocalSearcher(index)
    attempts = (research.draw("assessment") for _ in range(20))
    attempt = next(one for one in attempts if one.task.harness.process.min_tool_calls == 1)
    episode = asyncio.run(demonstrate(attempt, searcher, renderer, LIMITS, name="hand"))
    assert [turn.action.about for turn in episode.turns[:-1]] == [1, 2, 3]


def test_reports_may_have_to_be_verified_by_their_number(place):
    world, index, renderer = place
    research, searcher = Research(world, index, LIMITS, style="brief", seed=0), LocalSearcher(index)
    attempts = [research.draw("assessment") for _ in range(48)]
    numbered = [one for one in attempts if one.protocol.verification == "each"]
    assert 4 <= len(numbered) < 40
    assert {one.task.harness.process.min_tool_calls for one in numbered} == {1, 2}
    for attempt in numbered:
        num_reports, least = len(attempt.task.reports), attempt.task.harness.process.min_tool_calls
        assert num_reports * least < LIMITS.max_turns and len(attempt.script.searches) == num_reports * least
        assert len({query for _, query in attempt.script.searches}) == num_reports * least  # of different claims
    episode = asyncio.run(demonstrate(numbered[0], searcher, renderer, LIMITS, name="hand"))
    assert numbered[0].find_fault(episode) == ""
    assert min(count_searches(episode, len(numbered[0].task.reports), "each")) >= 1
    assert "by its number" in renderer.decode(episode.segments[0].token_ids)


@pytest.fixture(scope="module")
def drafted(place):
    """For many questions, sources and reports with every single flaw and with none."""
    world, index, _ = place
    research = Research(world, index, LIMITS, style="brief", seed=0)
    made = []
    for gold in ask_open_questions(world.graph, world.seed, 40):
        sources = numbered_sources(research._gather(gold, Dice(gold.id)))
        try:
            drafts = {flaw: write_draft(world, gold, sources, Dice(gold.id), (flaw,)) for flaw in FLAWS}
            made.append((gold, sources, write_draft(world, gold, sources, Dice(gold.id)), drafts))
        except SamplingFailed:
            continue
    assert len(made) > 25
    return made


def test_flaws_are_what_they_are_called(place, drafted):
    world, _, _ = place
    for gold, sources, sound, drafts in drafted:
        assert not any(claim.flaw for claim in sound.claims)
        report = sound.bind(gold, sources)
        assert report.resolved_share == 1.0 and report.conclusion
        assert sound.num_treated == sound.num_named == len(gold.entities)
        assert any(claim.flaw == "false" for claim in drafts["false"].claims)
        for claim in drafts["false"].claims:
            assert (claim.said != claim.finding.said) == (claim.flaw == "false")
        assert drafts["uncited"].bind(gold, sources).citations == ()
        assert drafts["unresolved"].bind(gold, sources).unresolved
        assert [claim.flaw for claim in drafts["missing"].claims] == ["", ""]
        miscited = drafts["miscited"]
        for claim in miscited.claims:
            if claim.flaw == "miscited":
                passage = sources[claim.citations[0]].passage
                assert all((fact.subject, fact.relation) != claim.finding.key for fact, _ in facts_in(world, passage))
            else:
                assert claim.flaw in ("", "unresolved")
        assert any(claim.flaw for claim in miscited.claims)


def test_a_conclusion_is_on_what_was_asked_and_what_it_is_linked_with(place, drafted):
    world, _, _ = place
    seen = set()
    for gold, sources, sound, drafts in drafted:
        things = [world.entity(entity) for entity in gold.entities]
        for draft in (sound, drafts["missing"]):
            about = [[claim for claim in draft.claims if claim.finding.fact.subject == thing.index] for thing in things]
            links = [[claim.said for claim in claims if claim.finding.fact.object is not None] for claims in about]
            named = [things[0].name]
            if all(links):
                named = [thing.name for thing in things] if len(things) > 1 else [*named, *links[0][:2]]
            first, *_ = re.split(r"(?<=\.) ", conclusion := draft.bind(gold, sources).conclusion)
            assert all(name.lower() in (conclusion if links[0] else first).lower() for name in named)
            assert sum(map(len, about)) <= 6  # the longest has two sentences left for what is linked with it
            seen.add((len(things), min(2, len(links[0]))))
    assert seen >= {(1, 1), (1, 2), (2, 0), (2, 1), (2, 2)}


def test_scores_order_reports_by_their_flaws(drafted):
    telling = {"false": "factuality", "miscited": "citation", "unresolved": "citation", "uncited": "citation"}
    for _, _, sound, drafts in drafted:
        assert mark(sound, "factuality") == mark(sound, "citation") == 9
        for flaw, dimension in telling.items():
            assert mark(drafts[flaw], dimension) < mark(sound, dimension)
        assert mark(drafts["uncited"], "citation") == 0
        assert mark(drafts["missing"], "coverage") <= mark(sound, "coverage")
        assert mark(drafts["miscited"], "factuality") == 9
    lost = [mark(sound, "coverage") - mark(drafts["missing"], "coverage") for _, _, sound, drafts in drafted]
    assert sum(lost) / len(lost) > 2


@settings(max_examples=examples(60))
@given(st.data())
def test_one_flaw_more_never_raises_a_score(drafted, data):
    _, _, sound, _ = data.draw(st.sampled_from(drafted))
    at = data.draw(st.integers(0, len(sound.claims) - 1))
    flaw = data.draw(st.sampled_from([flaw for flaw in FLAWS if flaw != "missing"]))
    claims = list(sound.claims)
    claims[at] = structs.replace(claims[at], flaw=flaw)
    key = claims[at].finding.key
    moved = (key,) if flaw == "false" and key in sound.covered else ()
    covered = tuple(one for one in sound.covered if one not in moved)
    worse = structs.replace(sound, claims=tuple(claims), covered=covered, missed=(*sound.missed, *moved))
    for dimension in POOL:
        assert 0 <= mark(worse, dimension.name) <= mark(sound, dimension.name) <= 10
    assert any(mark(worse, dimension.name) < mark(sound, dimension.name) for dimension in POOL)


def test_what_a_claim_really_is_is_said_only_where_it_was_seen(place, drafted):
    world, _, _ = place
    for _, sources, _, drafts in drafted:
        draft = drafts["false"]
        wrong = next(claim for claim in draft.claims if claim.flaw == "false")
        shown = [source.passage for source in sources.values()]
        assert wrong.finding.said in explain(world, draft, Dice(1), shown)[0]
        assert "Not confirmed" in explain(world, draft, Dice(1), ())[0]


# ------------------------------------------------------------------------------------------------- plans and refusals


def test_shares_are_as_asked_for():
    assert roles_of("score") == ("solver", "evaluator") and "score" in DIALECTS
    assert [role_of(kind) for kind in ("report", "rubric", "assessment")] == ["solver", "evaluator", "evaluator"]
    assert plan_lessons(None, 10, (1,), ("score",)) == [
        Portion("score", "solver", 0, 5, "report"),
        Portion("score", "evaluator", 0, 2, "rubric"),
        Portion("score", "evaluator", 0, 3, "assessment"),
    ]
    assert plan_lessons(("evaluator",), 4, (1,), ("score",), (9, 1, 1)) == [
        Portion("score", "evaluator", 0, 2, "rubric"),
        Portion("score", "evaluator", 0, 2, "assessment"),
    ]
    mixed = plan_lessons(None, 12, (1,), ("drzero", "score"), (1, 0, 1), hop_ratio=(1,))
    assert [(part.dialect, part.num) for part in mixed] == [("drzero", 3), ("drzero", 3), ("score", 3), ("score", 3)]


@pytest.mark.parametrize(
    ("roles", "ratio", "said"),
    [
        (None, (1, 1), "lessons must be 3 weights"),
        (None, (1, -1, 1), "lessons must be 3 weights"),
        (None, (0, 0, 0), "give weight 0 to every kind of lesson of solver and evaluator"),
        (("solver",), (0, 1, 1), "give weight 0 to every kind of lesson of solver"),
        (("proposer",), (1, 1, 1), "score has no proposer to teach, only solver and evaluator"),
        (("judge",), (1, 1, 1), "roles must be some of"),
    ],
)
def test_plans_that_make_no_sense_are_refused(roles, ratio, said):
    with pytest.raises(BadInput, match=said):
        plan_lessons(roles, 10, (1,), ("score",), ratio)


def test_the_evaluation_family_and_few_turns_are_refused(place):
    _, index, renderer = place
    with pytest.raises(BadInput, match="for evaluation only"):
        play((generate_world(1, 200, "evaluation"), index, renderer))
    with pytest.raises(BadInput, match="needs 3 turns at least, and 2 are allowed"):
        play(place, report_limits=structs.replace(LIMITS, max_turns=2))


def test_a_world_can_run_out(place):
    world, index, _ = place
    research = Research(world, index, LIMITS, style="brief", seed=0)

    def ask_once():
        yield from ask_open_questions(world.graph, world.seed, 1)
        raise BadInput("this world has no room")

    research._questions = ask_once()
    research.draw("report")
    with pytest.raises(BadInput, match="too few open questions"):
        research.draw("report")


# ----------------------------------------------------------------------------------------------------------- teaching


def test_two_steps_on_a_tiny_model(place):
    limits = Limits(max_turns=4, turn_tokens=6000, sequence_tokens=30_000, tool_response_tokens=250, topk=1)
    episodes = play(place, num_episodes=4, report_limits=limits, lesson_ratio=(1, 2, 1)).episodes
    model = tiny.model(scale=1, num_hidden_layers=1, max_position_embeddings=32768)
    taught = teach(Learner(model, imitation(1e-2)), episodes, epochs=1, batch=2)
    assert taught.num_steps == 2 and taught.loss_after < taught.loss_before


def test_from_the_command_line_to_notes_that_name_the_dialect(tmp_path, monkeypatch):
    from quaere.api.warmup_settings import WarmupSettings
    from quaere.cli.main import main
    from quaere.dialects.notes import find_notes

    # What was hardly taught writes to its limits when it is tried.
    monkeypatch.setattr(WarmupSettings, "limits_of", lambda self, dialect: Limits(max_turns=2, turn_tokens=8))
    base, out = tmp_path / "base", tmp_path / "warm"
    tiny.model(scale=1, num_hidden_layers=1, max_position_embeddings=32768).save_pretrained(base)
    tiny.tokenizer().save_pretrained(base)
    words = ["--episodes", "3", "--lessons", "1,1,1", "--epochs", "1", "--batch", "2", "--articles", "200"]
    room = ["--topk", "1", "--turn-tokens", "6000", "--sequence-tokens", "30000", "--tool-response-tokens", "250"]
    where = ["--model", str(base), "--out", str(out), "--style", "brief", "--device", "cpu"]
    assert main(["warmup", "score", *where, *words, *room]) == 0
    notes = find_notes(str(out))
    assert notes.taught == ("score",) and notes.style == "brief" and notes.dialect is None
    manifest = Path(out / "warmup.json").read_text()
    assert '"lesson_ratio"' in manifest and '"evaluator"' in manifest
    again = ["warmup", "score", "--model", str(base), "--out", str(tmp_path / "w2")]
    assert main([*again, "--lessons", "5:2"]) == 2
    assert main([*again, "--teacher", "openai:m@http://127.0.0.1:9/v1", "--episodes", "3"]) == 2
    assert not (tmp_path / "w2").exists()
