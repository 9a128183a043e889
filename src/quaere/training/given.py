"""Questions given to a run: all that it trains on, or the first of a curriculum to which a proposer adds its own.

    Run.create("runs/notes", "evolve", {}, files=copy_given(config))
    await take_given(step, training, stage, protocol, limits, read_given(store), seen, attempts=4, max_words=50)
    await train_practice(config, store, reporter)

The questions come from a file, from a data set of the hub, or from the curriculum of a run that wrote its own. A run
keeps a copy of all that its config names, so that it can be resumed even if their source has changed or is gone. In a
curriculum they are filtered like a proposer's questions: no duplicates, no leaked answers, not too long; and if the
solver attempts candidates, it attempts these as well.
"""

import math
import shlex
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import field, structs

from quaere.chat.protocol import Protocol
from quaere.chat.spans import check_evidence
from quaere.dialects.registry import UNTRAINED, open_solver, taught_name
from quaere.errors import BadInput
from quaere.records import Candidate, Evidence, Question
from quaere.rewards.answers import contains, find_alternative, gives_away
from quaere.rollout.episode import Limits
from quaere.rollout.question_files import NO_ANSWERS, is_hub, is_table, parse_hub, read_questions
from quaere.runs import Run, find_run, runs_root
from quaere.setting_types import NonNegativeFloat
from quaere.training.progress import Reporter
from quaere.training.proposals import judge_attempts, judge_text
from quaere.training.rollouts import Stage, count_steps_with_questions, rights
from quaere.training.run_setup import check_openable, open_run, plan_memory
from quaere.training.settings import TINY_RUN, RunConfig, ValidationSettings, check_run
from quaere.training.solver_phase import (
    SolverConfig,
    check_solver,
    hold_back,
    plan_validation,
    practise,
    solver_of,
)
from quaere.training.step import Step
from quaere.training.training_run import TrainingRun

GIVEN = "given.jsonl"
QUESTIONS = "questions.jsonl"
COPIES = {  # of the questions that a setting names
    "questions": QUESTIONS,
    "generation.given": GIVEN,
    "proposer.held_back": "held_back.jsonl",
    "prompt_questions": "prompt_questions.jsonl",
}
ReadDocument = Callable[[str], str]
ROLES = ("solver",)

# -------------------------------------------------------------------------------------------------------- the questions


def read_source(source: str, root: Path | None = None, *, answered: bool = True) -> list[Question]:
    """Questions of a file, of the hub, or of a run's curriculum by its directory or its name under `root`.

    With `answered`, every question must have an answer; rows of a data set or Parquet file that have none are left out.

    read_source("train.jsonl"); read_source("hub:acme/qa:train"); read_source("drzero-1")
    """
    if not source:
        raise BadInput("no questions are given: a question file or a run is needed", hint="--questions FILE|RUN")
    found = find_source(source, root or runs_root())
    questions = read_questions(found) if is_hub(found) or Path(found).is_file() else _read_run(Path(found))
    if answered and is_table(found):  # such as SQuAD 2.0, which nobody edits
        questions = [question for question in questions if question.answers] or questions
    if answered:
        _refuse_unanswerable(questions, source)
    return questions


def find_source(source: str, root: Path) -> str:
    """What `source` names: the path of a question file, `hub:...` or a run's directory; BadInput if none of these."""
    if is_hub(source):
        return str(parse_hub(source))
    if Path(source).is_file():
        return source
    try:
        return str(find_run(root, source))
    except BadInput as error:
        raise BadInput(f"{source} is neither a question file nor a run", hint=error.hint) from None


def _read_run(path: Path) -> list[Question]:
    """The questions that a run was given or, without any, its whole curriculum with people's verdicts applied.

    Raises BadInput if the run has neither.
    """
    if (path / QUESTIONS).is_file():
        return read_questions(path / QUESTIONS)
    with Run.open(path) as run:
        questions = [candidate.to_question() for candidate in run.curriculum()]
        kind = run.info.kind
    if not questions:
        why = "kept none" if kind == "evolve" else f"is a run of `quaere {kind}`, which writes none"
        raise BadInput(
            f"run {path.name} has no questions to train on: it {why}",
            hint=f"quaere curriculum {shlex.quote(str(path))}",
        )
    return questions  # candidate ids are unique over all iterations


def _refuse_unanswerable(questions: Sequence[Question], source: str) -> None:
    without = [question.id for question in questions if not any(answer.strip() for answer in question.answers)]
    if without:
        others = f" and {len(without) - 1} more" if len(without) > 1 else ""
        needed = NO_ANSWERS if is_table(source) else 'each line needs {"question": "...", "answers": ["..."]}'
        allow = "leave them out; or, with --questions, let the solver abstain: --set solver.abstention.allowed=true"
        raise BadInput(
            f"{source}: question {without[0]}{others} cannot be trained on: `answers` is missing or empty",
            hint=allow if len(without) < len(questions) else needed,
        )


def encode_questions(questions: Sequence[Question]) -> bytes:
    """The questions as the bytes of a file that `read_questions` can read."""
    rows = map(structs.asdict, questions)
    return msgspec.json.Encoder().encode_lines({"question": row.pop("text"), **row} for row in rows)


# ----------------------------------------------------------------------------------------------- a run's copies of them


def copy_given(config: RunConfig) -> dict[str, bytes]:
    """The files, by name, in which a new run keeps copies of the questions of its config, except those of `questions`.

    copy_given(DrZeroConfig()) == {}
    """
    copies = {}
    for setting, file in COPIES.items():
        source = find_source_of(config, setting)
        if source and file != QUESTIONS:  # whether those need answers depends on the recipe
            questions = read_source(source) if file == GIVEN else read_questions(source)
            copies[file] = encode_questions(questions)
    return copies


def find_source_of(config: RunConfig, setting: str) -> str:
    """The value of a setting of `COPIES`; "" if it is not set, or if the recipe has no such setting."""
    value: Any = config
    for name in setting.split("."):
        value = getattr(value, name, "")
    return str(value)


def use_copies(config: Any, folder: Path) -> Any:
    """The config with a run's copies in place of the questions that it names, for those that the run's folder has."""
    for setting, file in COPIES.items():
        if find_source_of(config, setting) and (folder / file).exists():
            config = _replace(config, setting.split("."), str(folder / file))
    return config


def _replace(config: Any, names: Sequence[str], value: str) -> Any:
    first, *rest = names
    return structs.replace(config, **{first: _replace(getattr(config, first), rest, value) if rest else value})


# --------------------------------------------------------------------------- given questions in a proposer's curriculum


def read_given(store: Run) -> list[Question]:
    """The run's copy of the given questions; [] if it has none."""
    path = store.path / GIVEN
    return read_questions(path) if path.exists() else []


async def take_given(
    step: Step,
    training: TrainingRun,
    stage: Stage,
    protocol: Protocol,
    limits: Limits,
    questions: Sequence[Question],
    seen: set[str],
    *,
    attempts: int,
    max_words: int,
    is_held: Callable[[Question], bool] = lambda question: False,
) -> None:
    """Add given questions to the step's candidates, with the reason if one is dropped.

    Those that repeat a question on which the solver is measured (`is_held`) are duplicates. With `attempts`, the solver
    attempts each question, and those it never or always solves are dropped. `seen` is the set of normalised questions
    so far and is extended. Evidence is kept if it is in the documents verbatim; otherwise only its text is kept, as the
    span.
    """
    made = [_make(question, step, seen, max_words, training.read_document) for question in questions]
    made = [
        structs.replace(candidate, reason="duplicate") if candidate.kept and is_held(question) else candidate
        for candidate, question in zip(made, questions, strict=True)
    ]
    tried = [candidate.to_question() if candidate.kept else None for candidate in made]
    groups = await stage.attempt(step, protocol, tried, attempts, limits)
    for candidate, group in zip(made, groups, strict=True):
        num_right, reason = int(sum(rights(group))), candidate.reason
        if candidate.kept and attempts:
            reason = judge_attempts(num_right, len(group))
        step.candidates.append(structs.replace(candidate, num_right=num_right, num_attempts=len(group), reason=reason))
    step.metrics["curriculum/given"] = float(len(made))


def _make(
    question: Question, step: Step, seen: set[str], max_words: int, read_document: ReadDocument | None
) -> Candidate:
    told = _find_proof(question)
    leaked = any(gives_away(question.text, answer) for answer in question.answers)
    evidence, (known,) = _settle(told, read_document), keep_known([question], read_document)
    answer, *aliases = (text for text in question.answers if text.strip())
    return Candidate(
        id=f"given-{question.id}" if step.iteration == 0 else f"i{step.iteration}-given-{question.id}",
        step=step.step,
        iteration=step.iteration,
        episode_id="",  # no episode wrote it
        document_id=told.doc_id if told else "",
        hops=question.facts or question.hops,
        question=question.text,
        answer=answer,
        aliases=tuple(aliases),
        reason=judge_text(question.text, seen, max_words, leaked=leaked),
        scores={"given": 1.0},
        span=told.text if told else "",
        evidence=evidence,
        searches=question.searches,
        proof=known.evidence,
    )


def _find_proof(question: Question) -> Evidence | None:
    """The span that a solver should quote: the last span of the question's evidence that contains an answer.

    If none does, the last span (in a comparison, the last about the thing that is the answer); None without evidence.
    """
    holding = [one for one in question.evidence if any(contains(one.text, answer) for answer in question.answers)]
    return next(reversed(holding or _about_answer(question)), None)


def _about_answer(question: Question) -> Sequence[Evidence]:
    """In a comparison of two things, the evidence about the one that is the answer; else all evidence.

    Checked questions have a sentence for each fact, in the order in which the question names the two things: the first
    half of the evidence is about the first.
    """
    evidence, half = question.evidence, len(question.evidence) // 2
    sides = (find_alternative(question.text, answer) for answer in question.answers)
    side = next((number for number in sides if number is not None), None)
    if side is None or len(evidence) % 2:
        return evidence
    return evidence[half:] if side else evidence[:half]


def _settle(evidence: Evidence | None, read_document: ReadDocument | None) -> Evidence | None:
    """The evidence if it is in its document; None if it is not or cannot be checked."""
    if evidence is None or read_document is None:
        return None
    try:
        check_evidence(evidence, read_document(evidence.doc_id))
    except BadInput:
        return None
    return evidence


def keep_known(questions: Sequence[Question], read_document: ReadDocument | None) -> list[Question]:
    """The questions; without evidence and gold documents if the index lacks one of these.

    Otherwise every search for them would count as bad, as none can return what is missing. All are kept as they are if
    the documents cannot be read.
    """
    if read_document is None:
        return list(questions)
    return [
        question if _is_known(question, read_document) else structs.replace(question, evidence=(), gold_ids=())
        for question in questions
    ]


def _is_known(question: Question, read_document: ReadDocument) -> bool:
    try:
        for doc_id in {*question.gold_ids, *(one.doc_id for one in question.evidence)}:
            read_document(doc_id)
    except BadInput:
        return False
    return True


# ---------------------------------------------------------------------------------------- runs on given questions alone


# Values of the presets of these names, for recipes to extend; loss aggregation differs per paper and is set there.
PAPER: dict[str, object] = {
    "engine.max_rows": 256,
    "solver.max_draws": 0,
    "solver.several_share": 0.0,
    "solver.limits.answer_turn": False,  # the papers reserve no turn for the answer
    "validation.questions": 0,  # the papers use the last checkpoint
    "solver.learner.kl_beta": 0.001,
    "solver.learner.kl_flat": True,
}
SINGLE_GPU: dict[str, object] = {
    "solver.batch": 32,
    "solver.learner.learning_rate": 2e-5,
    "solver.learner.warmup_ratio": 0.1,
    "solver.learner.min_warmup_steps": 5,
    "solver.learner.gradient_checkpointing": True,
    "adapter.rank": 16,
}
# For a GPU of 80 GB or more and a model of about 1.5 B parameters; with these values a labelled run improved in less
# than half an hour.
LARGE_GPU: dict[str, object] = {
    "prompts": "brief",
    "solver.steps": 80,
    "solver.batch": 64,
    "solver.attempts": 8,
    "solver.limits.max_turns": 7,
    "solver.limits.max_searches": 6,
    "solver.limits.turn_tokens": 160,
    "solver.limits.sequence_tokens": 4864,
    "solver.limits.tool_response_tokens": 560,
    "solver.learner.learning_rate": 5e-5,
    "solver.learner.warmup_ratio": 0.1,
    "solver.learner.min_warmup_steps": 5,
    "solver.learner.micro_tokens": 32768,
    "adapter.rank": 32,
    "adapter.alpha": 64,
    "engine.max_rows": 256,
    "checkpoints.every": 10,
    "validation.questions": 256,  # at most; answering 64 takes 1 to 2 s, and a step 12 s
}
DEMO: dict[str, object] = {
    **TINY_RUN,
    "solver.limits.max_turns": 3,
    "solver.limits.turn_tokens": 96,
    "solver.limits.sequence_tokens": 640,
    "solver.limits.tool_response_tokens": 160,
    "solver.limits.topk": 1,
    "validation.questions": 0,  # with two steps there is no checkpoint to choose
}


class PracticeConfig(RunConfig, frozen=True, forbid_unknown_fields=True):
    """A whole run of one role that practises on given questions.

        PracticeConfig(model="smollm2-135m", index="demo/index", questions="train.jsonl", epochs=2)

    Attributes:
        questions: What to learn from: a JSONL file of questions with answers, a run that wrote some, or a data set of
            the hub, hub:OWNER/NAME[/SUBSET][@REVISION][:SPLIT].
            [Quaere]
        epochs: With `solver.steps=0`: how often each question is drawn, whatever `solver.max_draws` says.
            [EvalAct]
    """

    questions: str = ""
    epochs: NonNegativeFloat = 1.0
    solver: SolverConfig = field(default_factory=SolverConfig)
    validation: ValidationSettings = ValidationSettings()


def check_config(config: PracticeConfig) -> None:
    """Raise BadInput for values out of range or in conflict."""
    check_run(config)
    check_solver(config.solver)
    config.validation.check()
    if not config.solver.steps and math.isinf(config.epochs):
        raise BadInput("epochs must be a finite number with solver.steps=0, or the run would have no end")


def check_practice(config: PracticeConfig, recipe: str) -> None:
    """Raise BadInput for a config that cannot run, before anything is loaded; the questions are checked elsewhere."""
    check_config(config)
    dialect = config.solver.dialect
    check_openable(config, recipe, [] if dialect in UNTRAINED else [taught_name(dialect)])


def count_steps(config: PracticeConfig, num_questions: int) -> int:
    """Number of steps of a run that trains on `num_questions` questions.

    count_steps(PracticeConfig(epochs=2, solver=SolverConfig(steps=0, batch=256)), 27_000) == 211
    """
    solver = config.solver
    if solver.steps:
        return count_steps_with_questions(solver.steps, num_questions, solver.batch, solver.max_draws)
    return math.ceil(config.epochs * num_questions / min(config.solver.batch, num_questions))


async def train_practice(
    config: PracticeConfig, store: Run, reporter: Reporter, practise: Callable[..., Awaitable[None]] = practise
) -> None:
    """Train the config's solver on the run's questions, with GRPO unless `practise` is another phase.

    It goes on from the last checkpoint, or begins.
    """
    questions, phase = read_questions(store.path / QUESTIONS), config.solver
    solver = solver_of(phase, config.prompts)
    async with open_run(config, ROLES, reporter) as opened:
        is_judged = open_solver(phase.dialect).measure is not None  # abstaining, which has measures too, judges none
        known = keep_known(questions, opened.read_document) if is_judged else questions
        if num := sum(one != other for one, other in zip(known, questions, strict=True)):
            said = "name documents that the index does not have: their searches are judged by the answers"
            reporter.note(f"{num} of {len(questions)} questions {said}")
        num_steps = count_steps(config, len(hold_back(known, config.validation, config.seed)[0]))
        training = TrainingRun(config, store, opened.actors, reporter, num_steps)
        if not phase.steps:  # `epochs` then determines how often a question is drawn
            phase = structs.replace(phase, steps=num_steps, max_draws=0)

        async def iterate(iteration: int) -> None:
            stage = Stage(opened.actors, opened.searcher)
            await practise(
                training,
                stage,
                iteration,
                phase,
                solver=solver,
                questions=known,
                validation=config.validation,
            )

        await training.iterate(1, iterate)


def plan_practice(config: PracticeConfig) -> list[tuple[str, str]]:
    """Lines of a dry run: the phases, and the maximum cost of a step."""
    answered = not config.solver.abstention.allowed
    given = read_source(config.questions, answered=answered)
    num_questions = len(hold_back(given, config.validation, config.seed)[0])
    solver, num_steps = config.solver, count_steps(config, num_questions)
    batch = min(solver.batch, num_questions)
    num_tokens = batch * solver.attempts * solver.limits.sequence_tokens
    return [
        ("questions", f"{num_questions}, each seen {num_steps * batch / num_questions:.3g} times"),
        plan_validation(len(given), config.validation),
        (
            "solver",
            f"{solver.dialect}, at most {solver.limits.max_turns} turns and {solver.limits.max_searches} searches",
        ),
        (
            "solver phase",
            f"{num_steps} steps of {batch} questions; a step plays {batch * solver.attempts} episodes, "
            f"{num_tokens:,} tokens at most",
        ),
        *plan_memory(config, (structs.replace(solver, batch=batch),)),
    ]
