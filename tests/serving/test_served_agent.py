"""The search agent of `quaere serve --index`, over a real socket; its model follows a script, the rest is real."""

import http.client
import json
from contextlib import contextmanager

import pytest
from msgspec import structs

import tiny
from asked import SCRIPTS, ByQuestion, wait_until, write_documents
from backups import SENTENCE, call
from quaere.api.served_agent import ServedAgent
from quaere.chat.renderer import Renderer
from quaere.dialects.notes import Notes
from quaere.rollout.episode import Limits
from quaere.rollout.policy import TokenPolicy
from served import serving, text_of

QUESTION = "When did we move the backups?"
WITHOUT_PROOF = "When did we move the backups, without proof?"
NOTES = Notes(limits=Limits(sequence_tokens=20_000), evidence=True)


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    return write_documents(tmp_path_factory.mktemp("agent")).opened


@contextmanager
def serving_agent(index, notes=NOTES, attempts=1, **options):
    """A client of a server whose agent follows the script of its question; `sampler` is that of the script."""
    tokenizer = tiny.tokenizer()
    sampler = ByQuestion(tokenizer, {"without proof": SCRIPTS["without proof"], **SCRIPTS})
    agent = ServedAgent(TokenPolicy(sampler, Renderer(tokenizer)), index, notes, attempts=attempts)
    with serving(agent=agent, **options) as client:
        client.sampler = sampler
        yield client


@pytest.fixture(scope="module")
def client(documents):
    with serving_agent(documents) as served:
        yield served


def test_the_reply_is_the_answer_with_its_sentence_and_the_place_it_has_in_the_documents(client, documents):
    reply = client.chat(QUESTION, max_tokens=None)
    answer, quoted, place = text_of(reply).replace("\n\n", "\n").split("\n")
    start = documents.document("ops.md").index(SENTENCE)
    assert (answer, quoted) == ("May 2019", f"Evidence: {SENTENCE}")
    assert place.startswith("[1] ops.md (Backups), ")
    assert place.endswith(f"characters {start} to {start + len(SENTENCE)}")
    found = reply.json()
    assert found["model"] == "tiny" and found["choices"][0]["finish_reason"] == "stop"
    asked = client.sampler.seen["ask-0"]
    assert found["usage"]["completion_tokens"] == sum(len(sampled) for _, sampled in asked)
    assert found["usage"]["prompt_tokens"] == len(asked[-1][0]) - len(asked[0][1])  # all but what it wrote before


def test_a_sentence_that_has_the_answer_is_named_where_none_was_quoted(client):
    assert f"May 2019\n\nFound in: {SENTENCE}\n[1] ops.md" in text_of(client.chat(WITHOUT_PROOF, max_tokens=None))
    said = text_of(client.chat("What came out of nowhere?", max_tokens=None))
    assert said == "Atlantis\n\nNo sentence it was shown contains this answer."


def test_what_is_not_found_is_said(client, documents):
    assert text_of(client.chat("Is there no answer?", max_tokens=None)).startswith("not found in these documents (")
    with serving_agent(documents, structs.replace(NOTES, min_overlap=0.5)) as strict:
        said = text_of(strict.chat("When did Orsolya Venn of Halmgate move, without proof?", max_tokens=None))
        assert said.startswith("not found in these documents (")


def test_an_abstention_says_what_was_searched_for(client):
    said = text_of(client.chat("What is not said?", max_tokens=None))
    assert said == "not in these documents; searched for: Korrin; Korrin hills"


def test_of_several_attempts_the_answer_of_most_counts_unless_too_few_give_it(documents):
    with serving_agent(documents, attempts=5) as client:
        said = {"ask-0-a1": "Korrin", **{f"ask-1-a{number}": f"in {2010 + number}" for number in range(5)}}
        client.sampler._scripts = {name: [call("backups"), f"<answer>{one}</answer>"] for name, one in said.items()}
        assert text_of(client.chat(WITHOUT_PROOF, max_tokens=None)).startswith("May 2019\n\nFound in")
        assert text_of(client.chat(WITHOUT_PROOF, max_tokens=None)) == (
            "not in these documents (it has an answer, with a confidence of 0.20, below 0.25); searched for: backups"
        )


def test_a_stream_has_the_same_text_and_the_usage(client):
    messages = [{"role": "user", "content": QUESTION}]
    body = {"messages": messages, "max_tokens": None, "stream_options": {"include_usage": True}}
    *events, usage = client.stream("/v1/chat/completions", body)
    deltas = [event["choices"][0]["delta"] for event in events]
    whole = client.chat(QUESTION, max_tokens=None)
    assert "".join(delta.get("content", "") for delta in deltas) == text_of(whole)
    assert deltas[0]["role"] == "assistant" and events[-1]["choices"][0]["finish_reason"] == "stop"
    assert usage["usage"] == whole.json()["usage"]


def test_a_failure_is_an_error_whole_and_in_a_stream(client):
    reply = client.chat("What breaks?", max_tokens=None)
    assert reply.status_code == 500 and "a fault of the engine" not in reply.json()["error"]["message"]
    body = {"messages": [{"role": "user", "content": "What breaks?"}], "max_tokens": None}
    assert client.stream("/v1/chat/completions", body)[-1]["error"] == reply.json()["error"]


def test_only_the_last_message_is_the_question(client):
    messages = [
        {"role": "system", "content": "Answer in French."},
        {"role": "user", "content": "What breaks?"},
        {"role": "assistant", "content": "Nothing."},
        {"role": "user", "content": QUESTION},
    ]
    assert "May 2019" in text_of(client.chat(messages=messages, max_tokens=None))
    (prompt, _), *_ = list(client.sampler.seen.values())[-1]
    assert "French" not in tiny.tokenizer().decode(prompt)


def test_tokens_and_temperature_are_those_of_the_request(client, documents):
    seen = []
    sample = client.sampler.sample

    async def remember(session, token_ids, params):
        seen.append(params)
        return await sample(session, token_ids, params)

    client.sampler.sample = remember
    client.chat(QUESTION, max_tokens=9)
    client.chat(QUESTION, temperature=0.7, seed=3, max_tokens=None)
    del client.sampler.sample
    first, last = seen[0], seen[-1]
    assert first.temperature == 0 and first.max_tokens == 9
    assert last.temperature == 0.7 and last.max_tokens == Limits().turn_tokens


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 2),
        ("stop", "Oslo"),
        ("tools", [{"type": "function", "function": {"name": "search"}}]),
        ("logprobs", True),
        ("response_format", {"type": "json_object"}),
        ("messages", [{"role": "user", "content": " "}]),
        ("messages", [{"role": "assistant", "content": "Hello"}]),
        ("messages", [{"role": "user", "content": "a" * 10_000_000}]),
        ("temperature", 3),
    ],
)
def test_what_an_agent_does_not_take_is_refused_by_name(client, field, value):
    reply = client.chat(QUESTION, **{field: value})
    assert reply.status_code in (400, 413)
    if reply.status_code == 400:
        assert reply.json()["error"]["param"] == field


def test_the_model_alone_has_a_name_of_its_own(client):
    with serving() as plain:
        expected = text_of(plain.chat("Hello"))
    reply = client.chat("Hello", model="tiny:model")
    assert text_of(reply) == expected and reply.json()["model"] == "tiny:model"
    assert client.chat("Hello", model="tiny:list").status_code == 200
    names = [model["id"] for model in client.get("/v1/models").json()["data"]]
    assert names[:3] == ["tiny", "tiny:model", "tiny:list"]
    body = {"prompt": "Hello", "max_tokens": 2}
    assert client.post("/v1/completions", {"model": "tiny:model", **body}).status_code == 200
    assert "it is tiny:model" in client.post("/v1/completions", {"model": "tiny", **body}).json()["error"]["message"]
    said = client.chat("Hello", model="gpt-4").json()["error"]["message"]
    assert said.endswith("it is tiny, or tiny:model without documents")


@pytest.mark.parametrize("stream", [False, True])
def test_an_agent_whose_client_is_gone_stops(client, stream):
    assert not client.sampler.sessions
    body = {"model": "tiny", "messages": [{"role": "user", "content": "Please wait for it"}], "stream": stream}
    connection = http.client.HTTPConnection(client.url.removeprefix("http://"))
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    wait_until(lambda: client.sampler.sessions)  # it would wait for ever
    connection.close()
    wait_until(lambda: not client.sampler.sessions)


def test_more_agents_than_the_server_has_room_for_are_turned_away(documents):
    with serving_agent(documents, max_waiting=0) as client:
        connections = []
        for number in range(4):  # as many as there are rows
            body = {"model": "tiny", "messages": [{"role": "user", "content": "Please wait for it"}]}
            connections.append(http.client.HTTPConnection(client.url.removeprefix("http://")))
            connections[-1].request(
                "POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"}
            )
            wait_until(lambda number=number: len(client.sampler.sessions) > number)
        for options in ({}, {"stream": True}):
            assert client.chat(QUESTION, **options).status_code == 429
        for connection in connections:
            connection.close()
        wait_until(lambda: not client.sampler.sessions)
        assert "May 2019" in text_of(client.chat(QUESTION, max_tokens=None))
