"""The plan of `quaere learn`: its stages in counts, fitted into the minutes, and what the machine has for them.

    plan = make_plan(Asked(sources=("notes",), model="Qwen/Qwen2.5-1.5B-Instruct"), Path("notes-learned"))
    plan.describe() -> [("questions", "at most 20,000 drafts in 9 minutes, ..."), ...]

The plan is stored before anything else is done, so that a resumed call follows it, also on a machine that is busier.
Steps are decided a second time, by what the first evaluation measured (`fit_steps`), and then no more.
"""

import math
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, structs

from quaere.api.checked_questions import read_checked
from quaere.api.evolution import ConfigOptions
from quaere.api.learning_request import FORM, WRITER, Asked, settings_of
from quaere.api.learning_times import count_steps, measure_tflops
from quaere.api.printing import count, format_duration
from quaere.api.warmup import check_lessons
from quaere.api.warmup_settings import WarmupSettings, make_settings
from quaere.dialects.notes import find_notes, read_json
from quaere.disk import remove_leftovers, write_file
from quaere.errors import BadInput
from quaere.policies.tinker import HOSTED
from quaere.recipes.registry import LEARNED, Recipe, find_recipe
from quaere.search.corpus import CorpusReader
from quaere.search.index import is_index, open_index, refuse_indexes
from quaere.setting_types import refuse_unknown
from quaere.warmup.documents.checked_question import CheckedQuestion, WriterSettings

PLAN, HELD = "plan.json", "held.jsonl"

_GIB = 2**30
_LARGE_GPU_BYTES = 78e9  # a card that is sold as one of 80 GB
_MOST_ON_CPU = 20_000_000  # weights: a larger model would take days
_MOST_NAMED = 3  # settings in a message
_WRITING, _TEACHING, _REINFORCING, _MEASURING = 0.3, 0.15, 0.4, 0.15  # shares of the minutes
_DRAFTS, _MOST_STEPS, _LEAST_STEPS = 20_000, 80, 4
# A step of 512 episodes with 1.5 B weights, on a card that multiplies bfloat16 matrices at 600 TFLOP/s.
_STEP_S, _STEP_EPISODES, _STEP_WEIGHTS, _STEP_TFLOPS = 15.0, 512, 1.5e9, 600.0
_LEAST_STEP_S = 0.1
# Of each token of an episode, in steps of 64 episodes: measured with 0.15 M and 14 M weights.
_CPU_TOKEN_S, _CPU_WEIGHT_S, _CPU_EPISODES = 0.005, 6e-10, 64
_STEP_PER_SAMPLING = {
    "cuda": 2.8,  # means of 19 steps of 1.5 B weights on an H200
    "cpu": 1.9,  # 22.9 s by 12.4 s, 135 M weights
}
# Those of `benchmarks/own_documents.sh`, with which a 1.5 B model learned the form of an episode.
_FACTS, _HOPS = (3, 3, 3, 2), (4, 3, 2, 1)
_FORM_SETTINGS: dict[str, Any] = {
    "style": "brief",
    "lora_rank": 32,
    "adapter": True,
    "learning_rate": 2e-4,
    "episodes": 500,
    "articles": 2000,
    "abstention": 0.15,
}


class Machine(Struct, frozen=True):
    """What was measured of the machine, and what training needs of it. Unknown sizes are 0.

    Machine(device="cuda", name="NVIDIA H200", memory_gib=139.8, disk_gib=60.2, num_parameters=1_543_714_304,
            needed_gib=41.3, needed_disk_gib=2.4, step_s=14.1)
    """

    device: Literal["cpu", "cuda"]
    name: str
    memory_gib: float
    disk_gib: float
    num_parameters: int = 0
    needed_gib: float = 0.0
    needed_disk_gib: float = 0.0
    step_s: float = 0.0  # expected


class Plan(Asked, frozen=True, kw_only=True):
    """What was asked, and the counts of every stage.

    Plan(sources=("/home/ada/notes",), model="...", preset="large-gpu", teaches_form=True, drafts=20_000,
         writer_minutes=9.0, num_held_back=300, episodes=500, steps=48, machine=Machine(...))
    """

    preset: str
    teaches_form: bool
    drafts: int
    writer_minutes: float
    num_held_back: int
    episodes: int  # that teach the form
    steps: int
    machine: Machine
    num_measured: int = 0  # questions of an evaluation; 0: all that are held back

    def config(self, model: str = "") -> Any:
        """The config of the training, which begins with this model; by default the one that was asked for."""
        options = ConfigOptions(model=model or self.model, preset=self.preset, settings=self.training_settings())
        return options.load(find_recipe(self.recipe))

    @property
    def is_exact(self) -> bool:
        """True if results repeat bit for bit, so that nothing may depend on the time."""
        return bool(self.config().engine.mode == "deterministic")

    def training_settings(self, questions: str | None = None) -> dict[str, Any]:
        """Settings of the recipe: the plan's, overruled by those that were asked for."""
        every = max(1, min(10, self.steps // 4))
        chosen: dict[str, Any] = {"seed": self.seed, "engine.device": self.machine.device, "solver.steps": self.steps}
        chosen |= {"solver.max_draws": 3, "solver.abstention.allowed": True}
        chosen |= {"validation.every": every, "checkpoints.every": every}
        chosen |= {"trainer.kind": self.trainer, "trainer.url": self.trainer_url}
        if questions and not find_recipe(self.recipe).takes_questions:
            chosen["generation.given"] = questions  # besides what its proposer writes
            chosen["proposer.held_back"] = str(Path(questions).with_name(HELD))
        return chosen | settings_of(self.settings, "")

    def form_settings(self) -> dict[str, Any]:
        """Settings of the warm-up that teaches the form; episodes have the limits of the training."""
        limits = self.config().solver.limits
        chosen = {name: getattr(limits, name) for name in ("max_turns", "topk", "turn_tokens", "sequence_tokens")}
        chosen |= {"tool_response_tokens": limits.tool_response_tokens, "micro_tokens": 4 * limits.sequence_tokens}
        chosen |= {"seed": self.seed, "device": self.machine.device, "episodes": self.episodes}
        # A fact takes a search, and so does finding nothing; the answer takes a turn. Of n hops, n - 1 are searches.
        chosen |= {"facts": _FACTS[: max(1, limits.max_turns - 2)], "proposer_hops": _HOPS[: limits.max_turns]}
        return _FORM_SETTINGS | chosen | settings_of(self.settings, FORM)

    def writer_settings(self) -> WriterSettings:
        """Settings of the question writer."""
        rows = self.config().engine.max_rows
        given = settings_of(self.settings, WRITER)
        chosen = {"drafts": self.drafts, "minutes": self.writer_minutes, "seed": self.seed, "concurrency": rows}
        return WriterSettings(**chosen | given)

    @property
    def practises_given(self) -> bool:
        """True if the questions are practised on; False if the recipe writes its own and was told to add no others."""
        return find_recipe(self.recipe).takes_questions or self.settings.get("generation.given") != ""

    def choose_practice(self, questions: Sequence[CheckedQuestion]) -> list[CheckedQuestion]:
        """Those of the questions that can be practised on: a proposer's curriculum takes none without an answer."""
        takes_all = find_recipe(self.recipe).takes_questions
        return [one for one in questions if takes_all or one.answers] if self.practises_given else []

    @property
    def fits_steps(self) -> bool:
        """True if the first evaluation decides how many steps there are (`fit_steps`).

        Steps that were asked for stay, and so do those of a deterministic run, which must not depend on the time. So do
        those of a trainer, whose time was not measured, and of a recipe that writes questions, which takes time as
        well.
        """
        is_measured = self.trainer == "local" and find_recipe(self.recipe).takes_questions
        is_fixed = "solver.steps" in self.settings or self.is_exact
        return is_measured and not is_fixed

    @property
    def expected_s(self) -> float:
        """Seconds that all stages are expected to take; form and evaluations have their shares of the minutes.

        Writing questions without a limit of time is not counted.
        """
        shares = _MEASURING + (_TEACHING if self.teaches_form else 0.0)
        written = 0.0 if self.questions else self.writer_minutes
        return 60 * (written + shares * self.minutes) + count_steps(self.config(), self.steps) * self.machine.step_s

    def describe(self) -> list[tuple[str, str]]:
        """The stages in counts, then what they cost: lines of a name and a text."""
        machine, solver = self.machine, self.config().solver
        within = f" in {self.writer_minutes:.3g} minutes" if self.writer_minutes else ", however long they take"
        memory = f" of {machine.memory_gib:.1f}" if machine.memory_gib else ""
        written = f"those of {self.questions}" if self.questions else f"at most {self.drafts:,} drafts{within}, checked"
        form = f"{count(self.episodes, 'episode')} in a fictional world" if self.teaches_form else "known to the model"
        size = f"{solver.batch} questions x {solver.attempts} attempts"
        trainer = "" if self.trainer == "local" else f", the model on {self.trainer_url or HOSTED}"
        measured = f"on about {self.num_measured} of" if self.num_measured else "on"
        most = "about" if self.fits_steps else "at most"
        least = "about" if self.questions or self.writer_minutes else "more than"
        step = f"about {format_duration(machine.step_s)} each" if machine.step_s else "of unknown length"
        return [
            ("documents", ", ".join(self.sources)),
            ("questions", written),
            ("held back", f"about {self.num_held_back}, by document, and never more than a quarter"),
            ("form", form),
            ("reinforcement", f"{self.recipe}, {most} {self.steps} steps of {size}, {step}"),
            ("evaluations", f"2, before and after, {measured} the questions held back"),
            ("time", f"{least} {format_duration(self.expected_s)} on {machine.name}{trainer}"),
            ("memory", f"about {machine.needed_gib:.1f}{memory} GiB for {machine.num_parameters:,} weights"),
            ("disk", f"about {machine.needed_disk_gib:.1f} of {machine.disk_gib:.1f} GiB free, and the index"),
        ]


# ------------------------------------------------------------------------------------------------------------- planning


def obtain_plan(asked: Asked, out: Path) -> Plan:
    """The plan of the folder, which is stored there if it is new."""
    plan = find_plan(asked, out)
    if not (out / PLAN).is_file():
        out.mkdir(parents=True, exist_ok=True)
        store_plan(plan, out)
    return plan


def store_plan(plan: Plan, out: Path) -> None:
    """Write the plan into its folder, in place of an earlier one."""
    write_file(out / PLAN, msgspec.json.format(msgspec.json.encode(plan), indent=2))


def find_plan(asked: Asked, out: Path) -> Plan:
    """The stored plan if the folder has one, else a new one; BadInput if the folder is of another call."""
    path = out / PLAN
    if not path.is_file():
        _check_places(asked.sources, out)
        if out.is_dir():
            remove_leftovers(out, PLAN)  # of a call that was killed before its plan was stored
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise BadInput(f"{out} exists and is not a folder of `quaere learn`", hint="choose another --out")
        return make_plan(asked, out)
    plan = read_json(path, Plan)
    given = msgspec.convert(msgspec.to_builtins(asked), Asked)  # tuples in settings are lists in the file
    fixed = (name for name in Asked.__struct_fields__ if name != "trainer_url")
    if changed := [name for name in fixed if getattr(plan, name) != getattr(given, name)]:
        said = ", ".join(_describe_change(name, plan, given) for name in changed)
        raise BadInput(f"{out} was begun with {said}", hint="the same command as then, or another --out")
    return structs.replace(plan, trainer_url=asked.trainer_url or plan.trainer_url)


def _describe_change(name: str, plan: Plan, given: Asked) -> str:
    """The planned value of what was given otherwise; of settings the names of those that differ."""
    if name != "settings":
        return f"{name} {getattr(plan, name)!r}"
    both = plan.settings, given.settings
    names = [key for key in both[0] | both[1] if both[0].get(key) != both[1].get(key)]
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"other values of {', '.join(names[:_MOST_NAMED])}{more}"


def make_plan(asked: Asked, out: Path) -> Plan:
    """Fit the stages into the minutes; BadInput for what cannot be done here, before anything is written."""
    from quaere.policies.native.device import choose_device, name_device
    from quaere.training.estimate import machine_bytes

    recipe = _check(asked)
    device: Literal["cpu", "cuda"] = "cuda" if choose_device(asked.device) == "cuda" else "cpu"
    memory = machine_bytes(device)
    preset = "demo" if device == "cpu" else "large-gpu" if memory >= _LARGE_GPU_BYTES else "single-gpu"
    preset = preset if asked.trainer == "local" else "single-gpu"
    near = next(folder for folder in (out.absolute(), *out.absolute().parents) if folder.exists())
    known = 0.0 if memory == float("inf") else memory / _GIB
    machine = Machine(device, name_device(device), known, shutil.disk_usage(near).free / _GIB)
    own = settings_of(asked.settings, "")
    writer, form = settings_of(asked.settings, WRITER), settings_of(asked.settings, FORM)
    plan = Plan(
        **structs.asdict(asked),
        preset=preset,
        teaches_form=asked.recipe not in find_notes(asked.model).taught,
        drafts=writer.get("drafts", _DRAFTS),
        writer_minutes=writer.get("minutes", round(_WRITING * asked.minutes, 2)),
        num_held_back=100 if device == "cpu" else 300,
        episodes=form.get("episodes", _FORM_SETTINGS["episodes"]),
        steps=own.get("solver.steps", _MOST_STEPS),
        machine=machine,
    )
    if "minutes" not in writer and plan.is_exact:
        plan = structs.replace(plan, writer_minutes=0.0)  # the questions must not depend on the time
    plan.writer_settings().check()
    _check_trainer(plan)
    if plan.teaches_form or form:
        form_of = {"recipe": asked.recipe, "model": asked.model, "out": out}
        with naming_form():
            check_lessons(make_settings({**plan.form_settings(), **form_of}))
    plan = structs.replace(plan, machine=_estimate(plan, recipe, asked.command(out)))
    if "solver.steps" in own:
        return plan
    first, least_steps = (count_steps(plan.config(), num) for num in (0, _LEAST_STEPS))
    per_step = (least_steps - first) / _LEAST_STEPS
    steps = max(0, int((_REINFORCING * asked.minutes * 60 / plan.machine.step_s - first) / per_step))
    if steps < _LEAST_STEPS:
        least = least_steps * plan.machine.step_s / 60 / _REINFORCING
        said = f"in {asked.minutes:.3g} minutes there is time for {count(steps, 'step')} of {asked.recipe} here"
        raise BadInput(said, hint=f"--minutes {math.ceil(least)}, or a smaller --model")
    return structs.replace(plan, steps=min(steps, _MOST_STEPS))


_WARMUP_OPTION = re.compile(
    r"--(max-turns|turn-tokens|sequence-tokens|tool-response-tokens|facts|proposer-hops)(?: (\d+(?:,\d+)*))?"
)


@contextmanager
def naming_form() -> Iterator[None]:
    """Context in which a hint at an option of `quaere warmup` names the setting that `learn` has for it.

    "--max-turns 3, or fewer facts such as --facts 1,1" becomes
    "--set form.max_turns=3, or fewer facts such as --set form.facts=[1,1]"
    """

    def rename(found: re.Match[str]) -> str:
        option, value = found[1], found[2] or "N"
        shown = f"[{value}]" if option in ("facts", "proposer-hops") else value
        return f"--set {FORM}{option.replace('-', '_')}={shown}"

    try:
        yield
    except BadInput as error:
        if error.hint.startswith("quaere "):  # a command of its own
            raise
        raise BadInput(str(error), hint=_WARMUP_OPTION.sub(rename, error.hint)) from error


def fit_steps(plan: Plan, episode_s: float, left_s: float) -> Plan:
    """The plan with as many steps as the seconds that are left have room for, by the measured time of an episode."""
    if not plan.fits_steps:
        return plan
    config = plan.config()
    step_s = episode_s * config.solver.num_samples * _STEP_PER_SAMPLING[plan.machine.device]
    steps = max(_LEAST_STEPS, min(_MOST_STEPS, int(left_s / step_s)))
    return structs.replace(plan, steps=steps, machine=structs.replace(plan.machine, step_s=round(step_s, 2)))


def _check(asked: Asked) -> Recipe:
    """The recipe asked for; BadInput for values that are wrong on every machine."""
    if asked.recipe not in LEARNED:
        raise BadInput(f"learn knows no recipe {asked.recipe}", hint=f"--recipe {'|'.join(LEARNED)}")
    if not 0 < asked.minutes < math.inf:
        raise BadInput(f"minutes must be above 0 and below inf, not {asked.minutes:g}", hint="--minutes 30")
    if asked.model.startswith("openai:"):
        raise BadInput("the weights behind an endpoint cannot be trained", hint="--model FOLDER, or a hub id")
    _check_files(asked)
    refuse_unknown(settings_of(asked.settings, FORM), WarmupSettings.__struct_fields__, "setting of a warm-up called")
    writer = settings_of(asked.settings, WRITER)
    refuse_unknown(writer, WriterSettings.__struct_fields__, "setting of the question writer called")
    return find_recipe(asked.recipe)


def _check_places(sources: Sequence[str], out: Path) -> None:
    """Raise BadInput if the output folder lies inside a folder of documents, contains one, or is the same."""
    for source in sources:
        both = sorted([Path(source).resolve(), out.resolve()])
        if both[1].is_relative_to(both[0]):
            said = f"--out {out} and the documents {source} are one folder, or one is inside the other"
            raise BadInput(said, hint="an --out beside the documents")


def _check_files(asked: Asked) -> None:
    """Raise BadInput for documents or questions that cannot be read."""
    sources = [Path(source) for source in asked.sources]
    for place in (*sources, *map(Path, filter(None, [asked.questions]))):
        if not place.exists():
            raise BadInput(f"{place} does not exist", hint="quaere learn FOLDER --model M --out DIR")
    if len(sources) == 1 and is_index(sources[0]):
        open_index(sources[0], check_sources=False)
    else:
        refuse_indexes(sources)
        next(iter(CorpusReader(sources)), None)  # looks for a first document
    if asked.questions:
        read_checked(Path(asked.questions))


def _check_trainer(plan: Plan) -> None:
    """Raise BadInput if the trainer cannot be used: it trains adapters of a model that it serves, from their start."""
    from quaere.training.run_setup import check_trainer

    check_trainer(plan.config())
    if plan.trainer != "local" and plan.teaches_form:
        raise BadInput(
            f"a trainer reinforces a model that was taught the form of {plan.recipe}, and {plan.model} was not",
            hint=f"quaere warmup {plan.recipe} --style brief --model {plan.model} --out WARM, "
            "quaere trainer start skyrl --model WARM, then --model WARM",
        )


def _estimate(plan: Plan, recipe: Recipe, command: str) -> Machine:
    """The machine with the memory and disk space that training needs; BadInput if it has too little."""
    from quaere.policies.catalogue import needs_guide, resolve_model
    from quaere.training.estimate import estimate_run

    machine, config = plan.machine, plan.config()
    found = estimate_run(
        resolve_model(plan.model).path,
        adapter=config.adapter,
        engine=config.engine,
        learner=config.solver.learner,
        sequence_tokens=config.solver.limits.sequence_tokens,
        device=machine.device,
        num_roles=1 if recipe.takes_questions else 2,
        num_samples=config.solver.num_samples,
    )
    is_local = plan.trainer == "local"
    needed = found.memory.total / _GIB if is_local else 0.0  # a trainer samples as well
    # Checkpoints hold weights and two moments in float32; four are kept at most, and the agent is exported.
    needed_disk = 5 * 12 * found.num_trainable / _GIB
    if is_local and machine.device == "cpu" and found.num_parameters > _MOST_ON_CPU:
        writes = "" if needs_guide(plan.model) else "`quaere questions --checked`, "  # a small one finds none
        raise BadInput(
            f"no GPU was found, and {plan.model} has {found.num_parameters / 1e6:,.0f} M weights: here work `quaere "
            f"index`, {writes}`quaere ask`, and learning with a model of at most {_MOST_ON_CPU / 1e6:.0f} M weights",
            hint=f"on a machine with a GPU, or with --trainer tinker: {command}",
        )
    if machine.memory_gib and needed > machine.memory_gib:
        there = f"there are {machine.memory_gib:.1f} on {machine.name}"
        said = f"to train {plan.model} takes about {needed:.1f} GiB, and {there}"
        raise BadInput(said, hint="a smaller --model, or --set engine.max_rows=N with a lower N")
    if needed_disk > machine.disk_gib:
        said = f"learning writes about {needed_disk:.2g} GiB, and {machine.disk_gib:.2g} GiB of the disk are free"
        raise BadInput(said, hint="another --out, or make room")
    limits = config.solver.limits
    token_s = _CPU_TOKEN_S + found.num_parameters * _CPU_WEIGHT_S
    share = config.solver.num_samples / _CPU_EPISODES
    step_s = round(max(_LEAST_STEP_S, share * limits.max_turns * limits.turn_tokens * token_s), 1)
    if machine.device == "cuda" or not is_local:
        share = config.solver.num_samples / _STEP_EPISODES * found.num_parameters / _STEP_WEIGHTS
        tflops = measure_tflops() if is_local else _STEP_TFLOPS
        step_s = round(max(_LEAST_STEP_S, _STEP_S * share * _STEP_TFLOPS / tflops), 1)
    return structs.replace(
        machine,
        num_parameters=found.num_parameters,
        needed_gib=round(needed, 2),
        needed_disk_gib=round(needed_disk, 2),
        step_s=step_s,
    )
