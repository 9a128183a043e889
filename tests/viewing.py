"""Runs to look at, and the viewer over them: in the process, or as a real server."""

import math
import os
import threading
from contextlib import contextmanager, suppress

from msgspec import structs
from starlette.testclient import TestClient

from quaere.records import (
    Answer,
    Candidate,
    Episode,
    Evaluate,
    Evidence,
    Failure,
    Hit,
    Malformed,
    Passage,
    Proposal,
    ProposeTask,
    Question,
    Search,
    SearchResult,
    Segment,
    SolveTask,
    Support,
    Turn,
)
from quaere.rewards.abstention import ABSTENTION, hide_answers
from quaere.runs import Run, RunState
from quaere.runs.rows import PLACE
from quaere.serving.server import ServerSettings
from quaere.viewer.app import make_app, make_view_server
from quaere.viewer.run_folder import open_folder

CONFIG = "model: tiny\nsolver:\n  batch: {batch}\n  learner:\n    learning_rate: 1e-06\n"


def write_run(path, *, num_steps=6, batch=8, recipe="drzero", model="tiny", title="", ended="done", index=""):
    """A training run of one iteration: a proposer's phase, then a solver's, with an alarm and some candidates."""
    settings = {"recipe": recipe, "model": model, "note": title} | ({"index": str(index)} if index else {})
    with Run.create(path, "evolve", settings, config=CONFIG.format(batch=batch)) as run:
        for step in range(1, num_steps + 1):
            log_step(run, step, num_steps)
        run.add_event(min(4, num_steps), "entropy", f"entropy: 0.01 nats a token, 3 steps in a row {title}")
        run.add_candidates([make_candidate(f"c{number}", number, title) for number in range(4)])
        run.note_end(RunState(ended, f"the gradient is not finite {title}" if ended == "failed" else ""))
    return path


@contextmanager
def make_pipe(path, patience_s=20.0):
    """A pipe in place of a file. Who waits at it finds it empty in the end, so that tests fail and do not hang."""
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    over, waited = threading.Event(), []

    def release():
        wait_s = patience_s
        while not over.wait(wait_s):
            with suppress(OSError):  # nobody waits
                os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
                waited.append(path)
            wait_s = 0.05

    releasing = threading.Thread(target=release)
    releasing.start()
    try:
        yield path
    finally:
        over.set()
        releasing.join()
    assert not waited


def log_step(run, step, num_steps):
    """The metrics of one step, among them one that is NaN at even steps and one that no chart knows."""
    solves = step > num_steps // 2
    run.log_metrics(
        step,
        {
            "run/iteration": 0.0,
            "run/phase": 2.0 if solves else 0.0,
            "reward/mean": 0.1 * step,
            "reward/format": 0.5,
            "passes/mean": 0.3 if step % 2 else math.nan,
            "policy/entropy": 1.0 / step,
            "odd/thing": float(step),
        },
    )


def make_episode(id, task_id="q1", *, title="", answer="Orsolya Venn", num_tokens=4, score=None, ends=True):
    """A search, EvalAct's score of it where there is one, and an answer that quotes the second passage."""
    texts = (f"The Oss is a river.{title}", f"It is old. Orsolya Venn built it.{title}")
    hits = tuple(
        Hit(Passage(f"d{n}#0", f"d{n}", f"Title {n} {title}", text, 0, len(text)), 2.0 - n)
        for n, text in enumerate(texts)
    )
    result = SearchResult(f"Halm bridge {title}", hits)
    turns = [Turn(0, f"I look. {title}", Search((f"Halm bridge {title}",)), "stop_string", (result,), num_tokens=2)]
    if score is not None:
        turns.append(Turn(1, "hm", Evaluate(f"Passage 2 has it. {title}", score), "stop_string"))
    final = Answer(f"{answer}{title}", span="Orsolya Venn built it.")
    last = Turn(len(turns), f"So. {title}", final if ends else Malformed(f"no call {title}"), "end_of_turn")
    failure = None if ends else Failure("protocol", "malformed", f"not closed {title}")
    turns.append(structs.replace(last, failure=failure))
    segments = (
        Segment("prompt", tuple(range(10)), (), (False,) * 10),
        Segment("model", (7,) * num_tokens, (-0.25,) * num_tokens, (True,) * num_tokens),
        Segment("environment", (8, 9), (), (False, False)),
    )
    question = Question(task_id, f"Who built the Halm bridge? {title}", (f"Orsolya Venn{title}",))
    outcome, end = (final, "answered") if ends else (None, "turn_limit")
    return Episode(id, SolveTask(question), "solver", f"tiny {title}", 7, segments, tuple(turns), outcome, end)


def make_proposal(id, question, answer):
    """A proposer that read a document named "Halm" and wrote a question."""
    proposal = Proposal(question, answer)
    turns = (Turn(0, "I ask.", proposal, "end_of_turn"),)
    segments = (Segment("prompt", (1,), (), (False,)), Segment("model", (7,), (-0.25,), (True,)))
    text = "Halm is a bridge."
    task = ProposeTask(id, Passage("halm#0", "halm", "Halm", text, 0, len(text)), 1)
    return Episode(id, task, "proposer", "tiny", 7, segments, turns, proposal, "answered")


def add_episodes(run, *, title="", step=1, longest=3000):
    """A group of three attempts at one question: two right ones, of which one is long, and one that a limit ended."""
    episodes = [
        make_episode(f"s{step}-a0", title=title, score=9.0),
        make_episode(f"s{step}-a1", title=title, ends=False),
        make_episode(f"s{step}-a2", title=title, num_tokens=longest),
    ]
    metrics = [
        {"reward/total": 1.0, "reward/answer": 1.2, "reward/brevity": -0.2, "advantage": 0.5, f"odd {title}": 1.0},
        {"reward/total": 0.0, "reward/answer": 0.0, "reward/brevity": 0.0, "advantage": -1.0},
        {"reward/total": 0.75, "reward/answer": 1.0, "reward/brevity": -0.2, "advantage": 0.5},
    ]
    run.add_episodes(episodes, metrics, step=step, phase="solver")


def add_scored(run, step, answers, *, phase="solver", start=False, title=""):
    """Scored attempts at some questions at a step: {"q1": ["Orsolya Venn", "x"]}, of which that name is right.

    None is no answer, and the phrase that abstains is one; `start` is a validation before the first step of a phase.
    """
    name = "validation_start-" if start else "validation-" if phase == "validation" else ""
    episodes, metrics = [], []
    for task, given in answers.items():
        for number, answer in enumerate(given):
            made = make_episode(f"i0-s{step - 1}-{name}{task}-a{number}", task, ends=answer is not None)
            question = Question(task, f"Who built {task}? {title}", (f"Orsolya Venn{title}", "Orsolya Venn"))
            abstained = answer == ABSTENTION
            outcome = None if answer is None else Answer(answer + title * (not abstained), abstained=abstained)
            episodes.append(structs.replace(made, task=SolveTask(question), outcome=outcome))
            metrics.append({"answer/exact_match": float(answer == "Orsolya Venn")})
    run.add_episodes(episodes, metrics, step=step, phase=phase)


def write_learning(path, *, title="", validated=True):
    """A run in which q1 is learned at the second of four steps, q2 always known, q3 never, and q4 forgotten."""
    right, wrong = ["Orsolya Venn"] * 3 + ["x"], ["x"] * 3 + ["Orsolya Venn"]
    courses = {"q1": "0111", "q2": "1111", "q3": "0000", "q4": "1100"}
    with Run.create(path, "evolve", {"recipe": "drzero", "model": "tiny"}, config=CONFIG.format(batch=4)) as run:
        for step in range(1, 5):
            states = {task: course[step - 1] == "1" for task, course in courses.items()}
            share = sum(0.75 if known else 0.25 for known in states.values()) / 4
            logged = {"run/phase": 2.0, "answer/exact_match": share, "reward/mean": share, "step/seconds": 30.0}
            attempts = {
                task: right if known else wrong if task != "q3" else ["y"] * 4 for task, known in states.items()
            }
            add_scored(run, step, attempts, title=title)
            if validated and step in (1, 4):
                held = {"h1": ["x"], "h2": ["Orsolya Venn"]} if step == 1 else {"h1": right[:1], "h2": right[:1]}
                add_scored(run, step, held, phase="validation", start=step == 1, title=title)
                logged["validation_start/exact_match" if step == 1 else "validation/exact_match"] = 0.5 * step**0.5
            run.log_metrics(step, logged)
        run.note_end(RunState("done"))
    return path


def write_refusing(path):
    """A run that learns to refuse a question whose answer is hidden, and refuses one that has an answer, too."""
    hidden = hide_answers(Question("q1", "Who built it?", ("Orsolya Venn",))).id
    with Run.create(path, "evolve") as run:
        for step in (1, 2):
            run.log_metrics(step, {"answer/exact_match": 0.0})
            add_scored(run, step, {hidden: [ABSTENTION if step == 2 else "x"], "q1": [ABSTENTION]})
    return path


def make_candidate(id, number, title=""):
    text = f"Orsolya Venn built it.{title}"
    kept = number % 2 == 0
    return Candidate(
        id=id,
        step=1,
        iteration=0,
        episode_id=id,
        document_id="halm.md",
        hops=2,
        question=f"Who built the bridge {number}? {title}",
        answer=f"Orsolya Venn {title}",
        num_right=number % 6,
        num_attempts=5,
        reason="" if kept else "never solved",
        scores={"format": 1.0},
        span=text,
        evidence=Evidence("halm.md", 0, len(text), text),
        support=Support(0.8, 0.2, 5),
    )


def write_hostile(folder, payloads):
    """A run with every payload in every text that its pages show, and one to compare it with."""
    settings = {**{text: text for text in payloads}, "recipe": payloads[0], "model": payloads[1]}
    config = "".join(f"{number}: {text!a}\n" for number, text in enumerate(payloads))
    for name, more in (("main", ""), ("other", " too")):
        with Run.create(folder / name, "evolve", settings, config=config + f"more: '{more}'\n") as run:
            for step in (1, 2):
                run.log_metrics(step, {f"x {text}": float(step) for text in payloads})
            for text in payloads:
                run.add_event(1, text, text)
            if name == "main":
                for number, text in enumerate(payloads, start=1):
                    add_episodes(run, title=text, step=number, longest=3000 if number == 1 else 40)
                run.add_candidates([make_candidate(f"c{number}", number, text) for number, text in enumerate(payloads)])
            _learn_payloads(run, payloads, len(payloads) if name == "main" else 2)
            run.note_end(RunState("failed", payloads[2]))


def _learn_payloads(run, payloads, last_step):
    """Two more steps: questions that are named by payloads, answered with them, and every other one learned."""
    for step in (last_step + 1, last_step + 2):
        known = payloads[::2] if step > last_step + 1 else ()
        add_scored(run, step, {text: ["Orsolya Venn" if text in known else text] for text in payloads})
        run.log_metrics(step, {"answer/exact_match": len(known) / len(payloads)})


def write_eval(path, answers, *, titles=("",), evidence=False, sets=(), order=None):
    """A run of `quaere eval`: a question for each answer, of which "Orsolya Venn" is right and None is no answer.

    The episodes ended in the given order of their places in the file, if there is one.
    """
    settings = {"name": f"{path.name} {titles[0]}", "model": f"tiny {titles[-1]}", "questions": f"x {titles[0]}"}
    with Run.create(path, "eval", {**settings, "evidence": evidence}) as run:
        for number in range(len(answers)) if order is None else order:
            answer, title = answers[number], titles[number % len(titles)]
            episode = make_episode(f"q{number}", f"q{number}", answer=answer or "", ends=answer is not None)
            question = Question(
                f"q{number}",
                f"Who built bridge {number}? {title}",
                (f"Orsolya Venn{title}", "Orsolya Venn"),
                hops=1 + number % 2,
                set=sets[number % len(sets)] if sets else "",
            )
            if episode.outcome is not None:
                outcome = structs.replace(episode.outcome, text=episode.outcome.text + title)
                episode = structs.replace(episode, outcome=outcome)
            episode = structs.replace(episode, task=SolveTask(question))
            right = float(answer == "Orsolya Venn")
            placed = {} if order is None else {PLACE: float(number)}
            run.add_episode(episode, {"answer/exact_match": right, "answer/f1": right} | placed)
        run.note_end(RunState("done"))
    return path


def write_asked(path, answers, *, titles=("",), spans=("",), scored=False, abstained=False, **settings):
    """A run of `quaere ask`: a question for each answer; None is no answer."""
    with Run.create(path, "ask", {"model": f"tiny {titles[-1]}", "min_overlap": 0.0, **settings}) as run:
        for number, answer in enumerate(answers):
            title, span = titles[number % len(titles)], spans[number % len(spans)]
            made = make_episode(
                f"ask-{number}", f"q{number}", title=title, answer=answer or "", ends=answer is not None
            )
            outcome = None if answer is None else Answer(answer, span=span, abstained=abstained)
            right = float(answer == "Orsolya Venn")
            turns = (*made.turns[:-1], structs.replace(made.turns[-1], start=10, num_tokens=4))
            episode = structs.replace(made, outcome=outcome, turns=turns, seed=409_052_349_433_385_006)
            run.add_episode(episode, {"answer/exact_match": right, "answer/f1": right} if scored else None)
        run.note_end(RunState("done"))
    return path


def twin(client, path, run=""):
    """The JSON twin of a page; with a run, of one of its pages: `twin(client, "item?id=i0", run="alpha")`."""
    reply = client.get(f"/json/run/{run}/{path}" if run else f"/json{path}")
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"] == "application/json"
    return reply.json()


def open_client(folder, queue=None, files=()):
    """The pages of a folder, or of one run, without a server around them."""
    return TestClient(make_app(open_folder(str(folder)), queue=queue, files=files), base_url="http://127.0.0.1")


@contextmanager
def serve_view(folder, key="", queue=None, **settings):
    """A real server on a free port; gives its URL."""
    server = make_view_server(open_folder(str(folder)), ServerSettings(port=0, **settings), key=key, queue=queue)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield server.url
    finally:
        server.should_exit = True
        thread.join(timeout=30)
        assert not thread.is_alive()
