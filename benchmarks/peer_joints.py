"""Joints derived from chat templates beside those that the package `renderers` has as code, token by token.

    pip install renderers trl
    python benchmarks/peer_joints.py [--templates FOLDER]

For each family that both know: an opening (system and user message), a sampled turn with and without a thought, then a
message of the user or a tool's result. The two sequences of ids are compared. "Rendered anew" is a peer that gives up
the sampled ids and would render the conversation again.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

TEMPLATES = {
    "qwen3": "qwen3",
    "qwen3-vl": "qwen3_vl",
    "qwen3.5": "qwen3_5_think",
    "qwen3.6": "qwen3_6",
    "qwen3.8": "qwen3_8",
    "glm-4.5": "glm4moe",
    "deepseek-v3": "deepseekv3",
    "deepseek-r1": "deepseek_r1_distill",
    "llama-3": "llama3_1",
    "nemotron-3": "nemotron_3_nano",
    "nemotron-3-ultra": "nemotron_3_ultra",
    "nemotron-3.5": "nemotron_3_5_lightning",
    "gemma4": "gemma4",
    "gpt-oss": "gptoss",
}
SAID = [("system", "Answer by searching."), ("user", "Who built the Halm bridge?")]
REPLY = "it was built in 1702."
TURNS = {"a turn": "The bridge is old.", "a thought": "<think>\nWho was it?\n</think>\n\nThe bridge is old."}
_NAMED = {"name": "search", "tool_call_id": "1"}
# Tokens that a peer wants in a vocabulary, whether or not the template writes them.
WANTED = """<think> </think> <tool_call> </tool_call> <arg_key> </arg_key> <arg_value> </arg_value> <bos> <eos> <pad>
<|begin_of_text|> <|end_of_text|> <|eom_id|> <|python_tag|> <|endoftext|> <|observation|> [gMASK] <sop> <|system|>
<|user|> <|assistant|>
<｜begin▁of▁sentence｜> <｜end▁of▁sentence｜> <tool_response> </tool_response>""".split()


def compare(name: str, source: str) -> str:
    """What is equal for one family, or why it was not compared."""
    from renderers import base, create_renderer
    from tokenizers import AddedToken

    from modern_templates import make_tokenizer
    from quaere.chat.protocol import Message
    from quaere.chat.renderer import Renderer

    base._populate_registry()
    tokenizer = make_tokenizer(source)
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in WANTED])
    try:
        theirs: Any = create_renderer(tokenizer, _config(name))
    except Exception as error:  # whatever a peer raises is a result
        return f"not compared: {type(error).__name__} {str(error)[:90]}"
    ours = Renderer(tokenizer)
    opening = ours.opening([Message(role, text) for role, text in SAID])
    rendered = theirs.render_ids([{"role": role, "content": text} for role, text in SAID], add_generation_prompt=True)
    found = ["opening " + _equal(tokenizer, opening, rendered)]
    roles = ("user", "tool") if ours.speaks_tools else ("user",)
    for role, (kind, text) in itertools.product(roles, TURNS.items()):
        sampled = [*tokenizer.encode(text, add_special_tokens=False), ours.stop_token_ids[0]]
        grown = [*opening, *sampled, *ours.reply(Message(role, REPLY), sampled[-1])]
        bridged = theirs.bridge_to_next_turn(list(opening), sampled, [{"role": role, "content": REPLY, **_NAMED}])
        same = "rendered anew" if bridged is None else _equal(tokenizer, grown, list(bridged.token_ids))
        found.append(f"{kind}, {role}: {same}")
    return "; ".join(found)


def _config(name: str) -> Any:
    import renderers.configs as configs
    from pydantic import TypeAdapter

    return TypeAdapter(configs.RendererConfig).validate_python({"name": name})


def _equal(tokenizer: Any, one: list[int], other: list[int]) -> str:
    """Quoted text may have other ids and be the same text: here it is encoded so that it can make no control token."""
    if one == other:
        return "equal"
    if tokenizer.decode(one) == tokenizer.decode(other):
        return "same text"
    same = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return f"differs at {same} of {len(one)} ({len(other)})"


def main() -> None:
    """Print a line for each family."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--templates", type=Path, help="folder of .jinja files (default: those of an installed trl)")
    folder = parser.parse_args().templates
    if folder is None:
        found = importlib.util.find_spec("trl")
        if found is None or found.origin is None:
            sys.exit("trl is not installed: pip install trl, or name a folder of .jinja files")
        folder = Path(found.origin).parent / "chat_templates"
    for name, template in TEMPLATES.items():
        print(f"{name:17} {compare(name, (folder / f'{template}.jinja').read_text('utf-8'))}")


if __name__ == "__main__":
    main()
