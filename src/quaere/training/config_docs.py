"""What each setting of a config does and where it comes from, as the docstrings of its schema say.

The docstring of a schema has a section `Attributes:`. There each setting has its description and, in brackets, its
sources: papers, or Quaere itself.

    read_docs(AdapterSettings)["rank"] -> SettingDoc("Rank of the adapters; 0 trains all weights ...", ("LoRA",))
"""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Iterator
from inspect import cleandoc
from typing import Any

import msgspec
from msgspec import Struct, inspect, structs

from quaere.runs.config_yaml import write_yaml
from quaere.setting_types import describe_type, is_section, read_attributes

OURS = "Quaere"
PAPERS = {
    "Dr. Zero": ("Dr. Zero: Self-Evolving Search Agents without Training Data", "2601.07055"),
    "EVE-Agent": ("EVE-Agent: Evidence-Verifiable Self-Evolving Agents", "2605.22905"),
    "EvalAct": ("Evaluate-as-Action: Self-Evaluated Process Rewards for Retrieval-Augmented Agents", "2603.09203"),
    "Eval-RAR": ("Eval-RAR: Evaluation-Driven Retrieval-Augmented Reasoning via Reinforcement Learning", ""),
    "SCORE": ("Self-Evolving Deep Research via Joint Generation and Evaluation", "2606.04507"),
    "Search-R1": (
        "Search-R1: Training LLMs to Reason and Leverage Search Engines with Reinforcement Learning",
        "2503.09516",
    ),
    "AutoRefine": (
        "Search and Refine During Think: Facilitating Knowledge Refinement for Improved Retrieval-Augmented Reasoning",
        "2505.11277",
    ),
    "GRPO": ("DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language Models", "2402.03300"),
    "REINFORCE++": ("REINFORCE++: A Simple and Efficient Approach for Aligning Large Language Models", "2501.03262"),
    "PPO": ("Proximal Policy Optimization Algorithms", "1707.06347"),
    "DPO": ("Direct Preference Optimization: Your Language Model is Secretly a Reward Model", "2305.18290"),
    "AdamW": ("Decoupled Weight Decay Regularization", "1711.05101"),
    "LoRA": ("LoRA: Low-Rank Adaptation of Large Language Models", "2106.09685"),
}
"""The papers that settings come from: title and number on arXiv ("" if it has none), by the name used in brackets."""

_WIDTH = 100  # characters of a line of comments


class SettingDoc(Struct, frozen=True):
    """What a setting does, and its sources as they are cited.

    SettingDoc("Weight of the brevity bonus ...", ("EVE-Agent, Eq. 16",))
    """

    text: str
    sources: tuple[str, ...] = ()

    @property
    def papers(self) -> list[str]:
        """The names of its sources, without the place in each."""
        return [source.partition(",")[0] for source in self.sources]


class Setting(Struct, frozen=True):
    """A setting or a section of settings, by its dotted name; a section has no kind.

    Setting("adapter.rank", 0, "a whole number", SettingDoc("Rank of the adapters; ...", ("LoRA",)))
    """

    name: str
    value: Any
    kind: str
    doc: SettingDoc


@functools.cache
def read_docs(schema: type[Struct]) -> dict[str, SettingDoc]:
    """The documented settings of a schema by name, those it inherits among them."""
    found: dict[str, SettingDoc] = {}
    for name, said in read_attributes(schema).items():
        text, _, sources = said.removesuffix("]").rpartition(" [")
        if text:
            found[name] = SettingDoc(text, tuple(sources.split("; ")))
    return found


def list_settings(config: Struct, prefix: str = "") -> Iterator[Setting]:
    """Every setting of a config with its value, in the schema's order, each section before what it holds.

    [setting.name for setting in list_settings(RunConfig())] -> ["model", "index", ..., "adapter", "adapter.rank", ...]
    """
    docs = read_docs(type(config))
    for field in structs.fields(config):
        name, value = prefix + field.name, getattr(config, field.name)
        if is_section(field.type):
            if not structs.fields(value):  # of a dialect without settings
                continue
            summary = cleandoc(type(value).__doc__ or "").partition("\n")[0]
            yield Setting(name, value, "", docs.get(field.name, SettingDoc(summary)))
            yield from list_settings(value, f"{name}.")
        else:
            kind = describe_type(inspect.type_info(field.type))
            yield Setting(name, value, kind, docs.get(field.name, SettingDoc("")))


def describe_paper(name: str) -> str:
    """A paper's title, with its address if it has one; for a setting of no paper, what that means.

    describe_paper("LoRA") == "LoRA: Low-Rank Adaptation of Large Language Models, https://arxiv.org/abs/2106.09685"
    """
    if name == OURS:
        return "no paper: a choice of this program"
    title, number = PAPERS[name]
    return f"{title}, https://arxiv.org/abs/{number}" if number else title


def config_to_commented_yaml(config: Struct) -> str:
    """A config as YAML, with what each setting does and its sources as comments; it reads as the config itself."""
    settings = list(list_settings(config))
    cited = {paper for setting in settings for paper in setting.doc.papers}
    lines = ["# What each setting does, and in brackets where it comes from:"]
    lines += [f"#   [{name}] {describe_paper(name)}" for name in (*PAPERS, OURS) if name in cited]
    for setting in settings:
        *sections, name = setting.name.split(".")
        indent = "  " * len(sections)
        lines += [] if sections else [""]
        lines += textwrap.wrap(_comment(setting), _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")
        value = {name: msgspec.to_builtins(setting.value)}
        lines.append(textwrap.indent(write_yaml(value).rstrip("\n"), indent) if setting.kind else f"{indent}{name}:")
    return "\n".join(lines) + "\n"


def _comment(setting: Setting) -> str:
    choices = f" O{setting.kind[1:]}." if setting.kind.startswith("one of ") else ""
    sources = f" [{'; '.join(setting.doc.sources)}]" if setting.doc.sources else ""
    return f"{setting.doc.text}{choices}{sources}"
