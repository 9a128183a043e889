"""`quaere.Agent`: ask, ask many, search with any function, inside a running loop too."""

import asyncio
import threading

import pytest

import quaere
from backups import DOCUMENT, SENTENCE, TURNS, call
from quaere.api import printing
from quaere.dialects.closed_book import ClosedBook
from quaere.errors import SamplingFailed
from scripted import ScriptedSampler


@pytest.fixture
def index(notes):
    return quaere.Index.build("notes/", "notes-index")


def test_an_answer_has_its_text_evidence_searches_and_episode(index, says):
    says(TURNS)
    seen = []
    with quaere.Agent("a-model", index, evidence=True) as agent:
        answer = agent.ask("When did we move the backups?", on_turn=seen.append)
    start = DOCUMENT.index(SENTENCE)
    assert answer.text == str(answer) == "May 2019" and answer.span == SENTENCE
    assert answer.evidence == quaere.Evidence("ops.md", start, start + len(SENTENCE), SENTENCE)
    assert index.document("ops.md")[answer.evidence.start : answer.evidence.end] == SENTENCE
    assert [result.query for result in answer.searches] == ["backups"]
    assert answer.searches[0].hits[0].passage.doc_id == "ops.md"
    assert answer.episode.end == "answered" and answer.episode.turns == tuple(seen)
    assert answer.question.text == "When did we move the backups?" and answer.failures == ()


async def test_it_works_inside_a_running_loop(index, says):
    says(TURNS)
    assert asyncio.get_running_loop().is_running()
    agent = quaere.Agent("a-model", "notes-index")
    assert agent.ask("When?").text == "May 2019"
    agent.close()


def test_evidence_that_was_never_shown_is_none(index, says):
    says([call("korrin"), "<evidence>We never moved.</evidence><answer>never</answer>"])
    with quaere.Agent("a-model", index, evidence=True) as agent:
        answer = agent.ask("When?")
    assert answer.evidence is None and answer.span == "We never moved."


def test_an_episode_without_an_answer_has_no_text(index, says):
    says([call("backups")] * 2)
    with quaere.Agent("a-model", index, max_turns=2) as agent:
        answer = agent.ask("When?")
    assert answer.text == "" and answer.episode.end == "turn_limit" and answer.failures[-1].kind == "turns"


def test_many_answers_stand_in_the_order_of_their_questions(index, says, capsys, monkeypatch):
    """The first question is answered last."""
    monkeypatch.setattr(printing, "LOG_S", 0.0)
    names = [f"ask-0-{number}" for number in range(3)]
    scripts = {name: [*[call("oss")] * (2 - number), f"<answer>{number}</answer>"] for number, name in enumerate(names)}
    says([], scripts)
    told = []
    with quaere.Agent("a-model", index) as agent:
        answers = agent.ask_many(["a?", quaere.Question("mine", "b?"), "c?"], on_answer=told.append)
    assert [answer.text for answer in answers] == ["0", "1", "2"] and told == answers
    assert [answer.question.text for answer in answers] == ["a?", "b?", "c?"] and answers[1].question.id == "mine"
    assert capsys.readouterr().err.splitlines()[-1] == "answering: 3 of 3"


def test_many_may_say_nothing_on_the_way(index, says, capsys):
    says(TURNS)
    with quaere.Agent("a-model", index) as agent:
        assert len(agent.ask_many(["a?", "b?"], progress=False)) == 2 and agent.ask_many([]) == []
    assert capsys.readouterr().err == ""


def test_what_is_drawn_follows_the_seed_of_the_agent(index, says):
    def seeds(**options):
        says(TURNS)
        with quaere.Agent("a-model", index, min_overlap=1.0, **options) as agent:
            answers = [agent.ask("a?"), *agent.ask_many(["a?", "b?"], progress=False)]
            return [one.episode.seed for one in answers] + [quaere.report(agent, "What?").episode.seed]

    usual, other = seeds(), seeds(seed=7)
    assert usual == seeds(seed=0)
    assert all(one != another for one, another in zip(usual, other, strict=True))


def test_any_function_can_be_the_search(says):
    says(TURNS)
    asked = []

    def my_function(query):
        asked.append((query, threading.current_thread().name))
        return [f"A page. {SENTENCE}", {"title": "Other", "text": "Nothing."}]

    with quaere.Agent("a-model", search=my_function, evidence=True, topk=1) as agent:
        answer = agent.ask("When?")
    [(query, thread)] = asked
    assert query == "backups" and thread.startswith("search-function")
    assert answer.evidence.text == SENTENCE and answer.evidence.start == len("A page. ")
    assert len(answer.searches[0].hits) == 1


def test_a_search_that_fails_is_part_of_the_episode(says):
    says([call("backups"), "<answer>unknown</answer>"])

    def broken(query):
        raise OSError("the shelf is gone")

    with quaere.Agent("a-model", search=broken) as agent, pytest.warns(UserWarning, match="the shelf is gone"):
        answer = agent.ask("When?")
    assert answer.text == "unknown" and "the shelf is gone" in answer.failures[0].message


def test_a_function_that_returns_something_else_is_bad_input(says):
    says(TURNS)
    with quaere.Agent("a-model", search=lambda query: None) as agent:
        with pytest.raises(quaere.BadInput, match="must return a list of passages, not NoneType"):
            agent.ask("When?")
        with pytest.raises(quaere.BadInput, match="NoneType"):
            agent.ask_many(["When?"])


def test_a_model_that_fails_is_an_error(index, says):
    says([SamplingFailed("the endpoint is down")])
    with quaere.Agent("a-model", index) as agent, pytest.raises(SamplingFailed, match="the endpoint is down"):
        agent.ask("When?")


def test_the_model_is_let_go_of_however_the_block_ends(index, says):
    stopped = says(TURNS)
    with pytest.raises(ZeroDivisionError), quaere.Agent("a-model", index) as agent:
        raise ZeroDivisionError
    agent.close()
    assert stopped == ["a-model"] and "closed" in repr(agent)
    with pytest.raises(quaere.BadInput, match="closed"):
        agent.ask("When?")


def test_a_callback_that_asks_again_is_refused_rather_than_never_ending(index, says):
    says(TURNS)
    with quaere.Agent("a-model", index) as agent, pytest.raises(quaere.BadInput, match="callback"):
        agent.ask("When?", on_turn=lambda turn: agent.ask("And then?"))


@pytest.fixture
def sampled(monkeypatch):
    """How each turn was sampled."""
    given = []
    sample = ScriptedSampler.sample

    async def noted(self, session, token_ids, params):
        given.append(params)
        return await sample(self, session, token_ids, params)

    monkeypatch.setattr(ScriptedSampler, "sample", noted)
    return given


def test_options_say_how_the_model_is_asked(says, sampled):
    says(["<answer>1066</answer>"])
    options = {"temperature": 0.7, "turn_tokens": 99, "style": "brief", "dialect": "search-r1"}
    with quaere.Agent("a-model", search=list, **options) as agent:
        agent.ask("When?")
        agent.ask_many(["When?"], progress=False)
    assert [(params.temperature, params.max_tokens) for params in sampled] == [(0.7, 99)] * 2
    assert (agent.protocol.name, agent.limits.turn_tokens) == ("search-r1-solver", 99)


def test_a_closed_book_is_one_turn_without_search_and_without_chance(says, sampled):
    says(["<answer>1066</answer>"])
    with quaere.Agent("a-model", closed_book=True) as agent:
        assert isinstance(agent.protocol, ClosedBook) and agent.ask("When?").text == "1066"
    assert [params.temperature for params in sampled] == [0.0]


@pytest.mark.parametrize("share", [0, 0.5, 1])
def test_any_share_of_a_questions_key_words_may_be_required(says, share):
    says([])
    with quaere.Agent("a-model", closed_book=True, min_overlap=share) as agent:
        assert agent.min_overlap == share


@pytest.mark.parametrize(
    ("attempt", "said"),
    [
        (lambda index: quaere.Agent("m"), "one of: an index, search"),
        (lambda index: quaere.Agent("m", index, search=print), "one of: an index, search"),
        (lambda index: quaere.Agent("m", index, max_trns=3), "did you mean max_turns?"),
        (lambda index: quaere.Agent("m", index, max_turns=0), "at least 1"),
        (lambda index: quaere.Agent("m", index, max_turns=1), "max_turns must be at least 2"),
        (lambda index: quaere.Agent("m", search="notes-index"), "must be a function"),
        (lambda index: quaere.Agent("openai:m@http://me:secret@host/v1", index), "password"),
        (lambda index: quaere.Agent("m", "http://me:secret@host"), "password"),
        (lambda index: quaere.Agent("m", index).ask(" "), "a question is a text"),
        (lambda index: quaere.Agent("m", index).ask(None), "a question is a text"),
        (lambda index: quaere.Agent("m", index).ask_many("When?"), "a list of questions"),
    ],
)
def test_bad_input_is_said_before_anything_is_asked(index, says, attempt, said):
    says(TURNS)
    with pytest.raises(quaere.BadInput, match=said):
        attempt(index)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"temperature": -0.1}, "temperature must be 0 or more, not -0.1"),
        ({"min_overlap": -0.1}, "min_overlap must be from 0 to 1, not -0.1"),
        ({"min_overlap": 1.1}, "min_overlap must be from 0 to 1, not 1.1"),
        ({"max_rows": 0}, "max_rows must be at least 1, not 0"),
    ],
)
def test_numbers_out_of_range_are_refused_before_a_model_is_looked_for(options, said):
    with pytest.raises(quaere.BadInput, match=said):
        quaere.Agent("no-such-folder/model", closed_book=True, **options)


def test_a_model_that_is_not_there_leaves_no_thread(index):
    before = threading.active_count()
    with pytest.raises(quaere.QuaereError):
        quaere.Agent("no-such-folder/model", index)
    with pytest.raises(quaere.QuaereError):
        quaere.Agent("a-model", "http://127.0.0.1:9")
    assert threading.active_count() == before


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_callback_that_fails_leaves_no_question_being_answered(says, attempts):
    says(TURNS)
    asked = []

    async def search(query):
        asked.append(query)
        if len(asked) > attempts:
            await asyncio.Event().wait()
        return [SENTENCE]

    def fail(answer):
        raise ZeroDivisionError

    async def list_tasks():
        return [str(task.get_coro()) for task in asyncio.all_tasks() - {asyncio.current_task()}]

    with quaere.Agent("a-model", search=search, attempts=attempts) as agent:
        with pytest.raises(
            ZeroDivisionError
        ) as caught:  # it is kept, as in a notebook, and with it what it went through
            agent.ask_many(["When?", "Who?"], progress=False, on_answer=fail)
        [left] = agent.run(list_tasks())
        assert "BackgroundLoop._serve" in left and caught.value


def test_a_searcher_that_cannot_be_closed_leaves_no_model(says):
    stopped = says(TURNS)
    agent = quaere.Agent("a-model", search=lambda query: [SENTENCE])

    async def fail():
        raise OSError("the connection is gone")

    agent.searcher.close = fail
    with pytest.raises(OSError, match="gone"):
        agent.close()
    assert stopped == ["a-model"] and "closed" in repr(agent)
