"""Attempts played again with true scores: what is said of each search, what is learnt from, and that half are bad."""

import sys
from collections import Counter

import pytest
from msgspec import structs

import tiny
from evaluating import call
from evaluating import evaluate as write_evaluation
from quaere.chat.renderer import Renderer
from quaere.dialects.evalact import EvaluateSolver, format_fault
from quaere.dialects.evalact_reward import judge_searches, value_episode
from quaere.records import Evaluate, Evidence, Hit, Passage, Question, Search, SolveTask
from quaere.rewards.abstention import ABSTENTION
from quaere.rewards.answers import contains
from quaere.rewards.self_evaluation import auroc, is_good
from quaere.rollout.episode import Limits, run_episode
from quaere.rollout.policy import TokenPolicy
from quaere.training.batches import make_sample
from quaere.warmup.documents.judged_searches import evaluations, mask_others, play_judged
from scripted import ScriptedSampler

RENDERER = Renderer(tiny.tokenizer())
PROTOCOLS = {abstains: EvaluateSolver(style="brief", abstention=abstains) for abstains in (False, True)}
LIMITS = Limits(max_turns=8, turn_tokens=1024, sequence_tokens=20_000, tool_response_tokens=2000, topk=2)
NUM = 24
# Document k has a page with the fact and a page without it.
FACTS = [f"Mason {number} built bridge {number} for the guild." for number in range(NUM)]
NOTES = [f"Of bridge {number} much is told by old people." for number in range(NUM)]


def pages(number):
    start = len(FACTS[number])
    whole = Passage(f"d{number}#0", f"d{number}", f"Bridge {number}", FACTS[number], 0, start)
    other = Passage(f"d{number}#1", f"d{number}", f"Bridge {number}", NOTES[number], start, start + len(NOTES[number]))
    return whole, other


class Shelf:
    """A searcher that returns both pages of the bridge whose number the query ends with, and after them the others."""

    async def search(self, queries, topk):
        found = []
        for query in queries:
            first = int(query.split()[-1])
            order = [first, *(number for number in range(NUM) if number != first)]
            found.append([Hit(page, 1.0) for number in order for page in pages(number)][:topk])
        return found

    async def close(self):
        pass


def question(number):
    fact = FACTS[number]
    evidence = Evidence(f"d{number}", 0, len(fact), fact)
    return Question(f"q{number}", f"Who built bridge {number}?", (f"Mason {number}",), evidence=(evidence,))


async def attempt(number, queries, answer=None, asked=None, abstention=False):
    """An attempt that scores all searches 5, whatever they return."""
    asked = asked or question(number)
    turns = [turn for query in queries for turn in (call("search", query=query), write_evaluation(5))]
    script = [*turns, f"<think>So.</think><answer>{answer or f'Mason {number}'}</answer>"]
    name = f"own-{asked.id}-{len(queries)}"
    policy = TokenPolicy(ScriptedSampler(tiny.tokenizer(), {name: script}), RENDERER)
    return await run_episode(policy, PROTOCOLS[abstention], Shelf(), SolveTask(asked), LIMITS, episode_id=name)


async def judge(attempts, abstention=False, **options):
    return await play_judged(attempts, Shelf(), RENDERER, "evalact", PROTOCOLS[abstention], LIMITS, **options)


def scores(episode):
    return [turn.action.score for turn in episode.turns if isinstance(turn.action, Evaluate)]


def learnt(episode):
    """The text of the tokens that carry loss."""
    sample = make_sample(episode, 1.0)
    return RENDERER.decode([token for token, flag in zip(sample.token_ids, sample.loss_mask, strict=True) if flag])


# -------------------------------------------------------------------------------------------------------------- by hand


async def test_every_score_is_the_value_of_its_search():
    # Another bridge, then the right one, then the same again.
    played = await attempt(3, ["bridge 7", "bridge 3", "the bridge 3"])
    episode, *_ = (await judge([played], whole=frozenset({played.id}))).lessons.episodes
    assert scores(episode) == [1, 10, 1] == list(value_episode(episode).values())
    assert [turn.text for turn in episode.turns if isinstance(turn.action, Search)] == [
        turn.text for turn in played.turns if isinstance(turn.action, Search)
    ]
    assert format_fault(episode.turns, episode.end) == "" and episode.outcome == played.outcome
    said = [turn.action.text for turn in episode.turns if isinstance(turn.action, Evaluate)]
    assert "assage 1" in said[1] and "Mason 3" not in said[0]


async def test_two_facts_in_any_order():
    spans = tuple(Evidence(f"d{number}", 0, len(FACTS[number]), FACTS[number]) for number in (3, 4))
    both = structs.replace(question(3), evidence=spans)
    for queries in (["bridge 3", "bridge 4"], ["bridge 4", "bridge 3"]):
        played = await attempt(3, queries, asked=both)
        (episode,) = (await judge([played])).lessons.episodes
        assert scores(episode) == [8, 10]


async def test_only_evaluations_are_learnt_from_unless_the_attempt_is_a_good_one():
    played = await attempt(3, ["bridge 3"])
    (part,) = (await judge([played])).lessons.episodes
    assert learnt(part).startswith('<tool_call>{"name": "evaluate"') and learnt(part).count("tool_call>") == 2
    whole, *_ = (await judge([played], whole=frozenset({played.id}))).lessons.episodes
    assert learnt(whole).count("tool_call>") == 4 and "<answer>Mason 3</answer>" in learnt(whole)
    assert mask_others(whole, whole.turns) == whole
    assert mask_others(whole, evaluations(whole)).segments == part.segments
    assert mask_others(part, evaluations(part)).segments == part.segments


async def test_a_good_lesson_also_shows_how_to_go_on_after_a_bad_search():
    other, played = await attempt(7, ["bridge 7"]), await attempt(3, ["bridge 3"])
    judged = await judge([other, played], whole=frozenset({played.id}))
    spoilt = next(one for one in judged.lessons.episodes if one.id == f"{played.id}-spoilt")
    assert scores(spoilt) == [1, 10] and [turn.action.queries for turn in spoilt.turns[::2][:2]] == [
        ("bridge 7",),
        ("bridge 3",),
    ]
    # Not the query of another question; all that follows it, the search and the right answer included.
    said = [turn.text for turn in spoilt.turns]
    assert said[0] not in learnt(spoilt) and all(text in learnt(spoilt) for text in said[1:])
    assert "<answer>Mason 3</answer>" in said[-1] and len(said) == 5
    # Without the evidence the answer would be a guess.
    withheld = [one for one in judged.lessons.episodes if one.id == f"{played.id}-withheld"]
    assert not any("<answer>" in learnt(one) for one in withheld)


@pytest.mark.parametrize(
    ("other", "own", "said"),
    [
        ("bridge 3", ["the bridge 3"], [10, 1]),  # the query of another question finds the evidence
        ("bridge 7", ["bridge 8"], [1, 1]),  # nothing does
    ],
)
async def test_a_spoilt_lesson_searches_on_after_a_bad_search_to_find_what_it_answers(other, own, said):
    """Else it would teach to search on after a good search, or to guess."""
    first, played = await attempt(7, [other]), await attempt(3, own)
    judged = await judge([first, played], whole=frozenset({played.id}))
    spoilt = next(one for one in judged.lessons.episodes if one.id == f"{played.id}-spoilt")
    assert scores(spoilt) == said and "<answer>Mason 3</answer>" in spoilt.turns[-1].text
    assert mask_others(spoilt, evaluations(spoilt)).segments == spoilt.segments


async def test_a_wrong_or_unfinished_attempt_is_judged_as_well():
    wrong = await attempt(3, ["bridge 7"], answer="nobody")
    unfinished = structs.replace(wrong, id="cut", turns=wrong.turns[:2], outcome=None, end="turn_limit")
    episodes = (await judge([wrong, unfinished])).lessons.episodes
    assert [scores(episode) for episode in episodes] == [[1], [1]]
    assert all("nobody" not in learnt(episode) for episode in episodes)


async def test_a_replay_that_found_the_answer_elsewhere_is_left_out(monkeypatch):
    # Bridge 7 has the same mason: a search for it returns the answer, in a sentence about something else.
    shared = [*FACTS[:7], "Mason 3 built bridge 7 for the guild.", *FACTS[8:]]
    monkeypatch.setattr(sys.modules[__name__], "FACTS", shared)
    found = await attempt(3, ["bridge 7", "bridge 3"])
    judged = await judge([found])
    assert not judged.lessons.episodes and not judged.values
    assert judged.lessons.dropped == {"the answer was found elsewhere": 1}
    # Once the evidence was found, nothing is missing: a further search is bad, whatever it returns.
    (episode,) = (await judge([await attempt(3, ["bridge 3", "bridge 7"])])).lessons.episodes
    assert scores(episode) == [10, 1]


async def test_what_cannot_be_judged_is_left_out():
    silent = await attempt(3, [])
    unknown = await attempt(3, ["bridge 3"], asked=structs.replace(question(3), evidence=()))
    judged = await judge([silent, unknown])
    assert not judged.lessons.episodes and not judged.values
    # A good lesson stays one.
    assert (await judge([silent, unknown], whole=frozenset({unknown.id}))).lessons.episodes == [unknown]
    # Without an answer to end with, an attempt that did not end cannot be played to its end.
    unnamed = await attempt(3, ["bridge 7"], asked=structs.replace(question(3), answers=()))
    cut = structs.replace(unnamed, turns=unnamed.turns[:2], outcome=None, end="turn_limit")
    assert not (await judge([cut])).lessons.episodes
    # One whose prompt filled the sequence has no turn at all.
    assert not (await judge([structs.replace(cut, turns=(), end="sequence_limit")])).lessons.episodes


async def test_a_right_abstention_says_that_its_searches_found_nothing():
    unanswerable = structs.replace(question(3), answers=(), evidence=())
    played = await attempt(3, ["bridge 3"], answer=ABSTENTION, asked=unanswerable, abstention=True)
    judged = await judge([played], whole=frozenset({played.id}), abstention=True)
    (episode,) = judged.lessons.episodes
    assert scores(episode) == [1] and judged.values == {1: 1}
    assert learnt(episode).count("tool_call>") == 4 and ABSTENTION in learnt(episode)
    # Another attempt at it is no lesson.
    assert not (await judge([played], abstention=True)).lessons.episodes


# ------------------------------------------------------------------------------------------------------- half are bad


@pytest.fixture
async def many():
    """One search each, and every one is good."""
    return [await attempt(number, [f"bridge {number}"]) for number in range(NUM)]


async def test_bad_searches_are_added_until_there_are_as_many(many):
    judged = await judge(many)
    assert len(judged.lessons.episodes) == NUM
    assert abs(judged.num_good - judged.num_bad) <= 2
    kinds = Counter(episode.id.rpartition("-")[2] for episode in judged.lessons.episodes)
    assert kinds.keys() == {"own", "spoilt", "withheld"}
    # A page without the sentence is near; a page of something else is not.
    assert judged.values[5] and judged.values[1] and judged.values[10]
    for episode in judged.lessons.episodes:
        assert scores(episode) == list(value_episode(episode).values())
        assert len(scores(episode)) == (2 if episode.id.endswith("spoilt") else 1)
        if episode.id.endswith("withheld"):
            assert not any(judge_searches(episode).values())
    # Pages are withheld as well as whole documents.
    withheld = [episode for episode in judged.lessons.episodes if episode.id.endswith("withheld")]
    assert {score for episode in withheld for score in scores(episode)} == {1, 5}
    again = await judge(many)
    assert [one.token_ids for one in again.lessons.episodes] == [one.token_ids for one in judged.lessons.episodes]
    other = await judge(many, seed=1)
    assert [one.token_ids for one in other.lessons.episodes] != [one.token_ids for one in judged.lessons.episodes]


class CopyingShelf(Shelf):
    """Each page with a fact is followed by a copy of it and by a page that tells it in other words."""

    async def search(self, queries, topk):
        found = []
        for hits in await super().search(queries, 2 * NUM):
            pages = []
            for hit in hits:
                page, name = hit.passage, hit.passage.title
                told = f"{name} is the work of {page.text.partition(' built')[0]}."
                more = [("copy", f"Once more. {page.text}"), ("told", told)] if page.text in FACTS else []
                others = [
                    Passage(f"{kind}-{page.id}", f"{kind}-{page.doc_id}", name, text, 0, len(text))
                    for kind, text in more
                ]
                pages += [hit, *(Hit(other, 1.0) for other in others)]
            found.append(pages[:topk])
        return found


async def test_where_evidence_is_withheld_no_other_passage_states_the_answer(many):
    judged = await play_judged(many, CopyingShelf(), RENDERER, "evalact", PROTOCOLS[False], LIMITS)
    withheld = [episode for episode in judged.lessons.episodes if episode.id.endswith("withheld")]
    assert len(withheld) > 2
    for episode in withheld:
        shown = [hit.passage for turn in episode.turns for result in turn.results for hit in result.hits]
        assert shown and not any(contains(page.text, episode.task.question.answers[0]) for page in shown)
        assert all(score < 8 for score in scores(episode))
    # Played as it was, the copy of a sentence is no second piece of evidence.
    own = [episode for episode in judged.lessons.episodes if episode.id.endswith("own")]
    assert own and all(scores(episode) == [10] for episode in own)


@pytest.mark.parametrize("num_whole", [NUM // 2, NUM])
async def test_good_lessons_are_played_again_with_bad_searches(many, num_whole):
    whole = frozenset(one.id for one in many[NUM - num_whole :])
    judged = await judge(many, whole=whole)
    assert abs(judged.num_good - judged.num_bad) <= 2
    kinds = Counter(episode.id.rpartition("-")[2] for episode in judged.lessons.episodes)
    assert kinds["spoilt"] and kinds["withheld"] and len(judged.lessons.episodes) <= 3 * NUM
    # Each is learnt from as it was and spoilt; of its other plays and of other attempts, the evaluations alone.
    for episode in judged.lessons.episodes:
        name, _, kind = episode.id.rpartition("-")
        assert ("<answer>" in learnt(episode)) == (kind != "withheld" and name in whole)
    assert sum("<answer>" in learnt(episode) for episode in judged.lessons.episodes) == 2 * num_whole


async def test_where_all_are_bad_the_question_itself_is_searched_for():
    bad = [await attempt(number, [f"bridge {(number + 1) % NUM}"] * 2) for number in range(NUM)]
    judged = await judge([structs.replace(one, task=SolveTask(ending_in(number))) for number, one in enumerate(bad)])
    assert len(judged.lessons.episodes) == NUM and abs(judged.num_good - judged.num_bad) <= 4
    assert {episode.id.rpartition("-")[2] for episode in judged.lessons.episodes} >= {"own", "asked"}


def ending_in(number):
    """The question as a query that this shelf understands."""
    return structs.replace(question(number), text=f"Who built bridge {number}")


async def test_shuffled_scores_say_nothing_of_their_searches(many):
    def found(judged):
        pairs = [
            (score, is_good(value))
            for episode in judged.lessons.episodes
            for score, value in zip(scores(episode), value_episode(episode).values(), strict=True)
        ]
        return auroc(*map(list, zip(*pairs, strict=True)))

    assert found(await judge(many)) == 1.0
    assert 0.25 < found(await judge(many, shuffled=True)) < 0.75
