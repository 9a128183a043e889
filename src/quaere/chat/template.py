"""A tokenizer's chat template as a function from turns to text, and limits on what it computes.

    template = ChatTemplate(tokenizer)
    template.render([("system", "You search."), ("user", "Who?")])  -> "<|im_start|>system\\nYou search.<|im_end|>..."
    template.speaks_tools                                            -> True for Qwen's

Which roles and tools a template supports is found out by rendering placeholders; only the markup of calls is chosen by
strings in its source.

A template is an untrusted program. Jinja's sandbox restricts what it can access, not how long it runs or what it makes.
Two nested loops of 100,000 take an hour, so the executed lines are counted (not seconds, so that the same templates are
refused on slow and fast machines). A single line may cost any amount of work too, such as `"%999999999d" % 1` or the
last of forty lines `{% set n = n * n %}`. So operations whose result may be far larger than their operands are checked
before they run, by the largest result that the operands allow, and the bytes of all results of a rendering are counted.
What a template can call and see is otherwise as in transformers' `apply_chat_template`.
"""

import json
import re
import sys
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Sequence, ValuesView
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from functools import wraps
from types import FrameType
from typing import Any

import jinja2.ext
from jinja2 import Environment, Template, TemplateError, TemplateSyntaxError, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from quaere.chat.known_markups import choose_markup
from quaere.chat.markup import SEARCH, ToolSchema, describe_tools
from quaere.chat.protocol import Role, wrap_tool_result
from quaere.errors import TemplateRefused

# Placeholder for text while a template is rendered. Letters and digits only, so that no template trims, escapes or
# splits it.
SLOT = "Slot{}OfQuaere"
SLOT_PATTERN = re.compile(r"(Slot\d+OfQuaere)")

# Template for tokenizers without one: no roles, no control tokens, a blank line after every message. A turn ends with a
# stop string of its protocol or the end-of-text token; the template writes no end-of-turn token.
_PARAGRAPHS = "{% for message in messages %}{{ message.content }}\n\n{% endfor %}"

# Names of functions and filters that may give another text in a later rendering of the same turns.
_CHANGING = ("strftime_now", "random", "lipsum")


class ChatTemplate:
    """Renders turns with a tokenizer's chat template, or as plain paragraphs if it has none.

    `repeats` is True if the same turns are always rendered as the same text; False if, say, the date is written.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.has_template = bool(getattr(tokenizer, "chat_template", None))
        templates = tokenizer.chat_template if self.has_template else ""
        sources = tuple(templates.values()) if isinstance(templates, dict) else (templates,)
        for source in sources:
            refuse_powers(source)
        self._environment = ChatEnvironment()
        self.markup = choose_markup("\n".join(sources))
        self.repeats = not any(word in source for word in _CHANGING for source in sources)
        self.folds_system = self.speaks_tools = self.lists_tools = self._lists_content = False
        if not self._shows(user=SLOT.format(0)):  # some templates take content only as a list
            self._lists_content = True
            self._lists_content = self._shows(user=SLOT.format(0))
        self.folds_system = not self._shows(system=SLOT.format(0), user=SLOT.format(1))
        # Both are found out by rendering as if tools were supported.
        self.lists_tools = self.speaks_tools = True
        self.speaks_tools = self._shows_tools()
        if not self.speaks_tools:  # it may list tools and not show their results
            asked = self.try_render([("system", "You search."), ("user", SLOT.format(0))], (SEARCH,))
            self.lists_tools = self.markup.lists_tools and SEARCH.description in asked

    def render(
        self, turns: Sequence[tuple[str, str]], tools: Sequence[ToolSchema] = (), *, opens_turn: bool = True
    ) -> str:
        """The text of `(role, text)` pairs, with `opens_turn` up to where the model starts to write."""
        listed: list[dict[str, Any]] = [{"role": role, "content": text} for role, text in turns]
        if listed and listed[0]["role"] == "system":
            if tools and not self.lists_tools:
                listed[0]["content"] += describe_tools(tools)
            if self.folds_system and len(listed) > 1:  # into the first user message
                listed[:2] = [{"role": "user", "content": f"{listed[0]['content']}\n\n{listed[1]['content']}"}]
        if self._lists_content:
            listed = [{**turn, "content": [{"type": "text", "text": turn["content"]}]} for turn in listed]
        known = [tool.as_json() for tool in tools] if tools and self.lists_tools else None
        source = self.tokenizer.get_chat_template(tools=known) if self.has_template else self._paragraphs()
        values = {**self.tokenizer.special_tokens_map, "messages": listed, "tools": known, "documents": None}
        with limited_work():
            return self._environment.render(source, {**values, "add_generation_prompt": opens_turn})

    def try_render(self, turns: Sequence[tuple[str, str]], tools: Sequence[ToolSchema] = ()) -> str:
        """As `render`; "" if the template rejects the turns, which templates do by raising exceptions of any type."""
        try:
            return self.render(turns, tools)
        except TemplateRefused:
            raise
        except Exception:
            return ""

    def turn(self, role: Role, text: str) -> tuple[str, str]:
        """Role and text for the template; without tool support, a tool result is a user turn in `<tool_response>`."""
        return ("user", wrap_tool_result(text)) if role == "tool" and not self.speaks_tools else (role, text)

    def _paragraphs(self) -> str:
        """The template for a tokenizer without one; begins with the start token (BOS) if the tokenizer adds it."""
        begins_text = self.tokenizer.encode("")[:1] == [self.tokenizer.bos_token_id]
        return "{{ bos_token }}" + _PARAGRAPHS if begins_text else _PARAGRAPHS

    def _shows(self, **turns: str) -> bool:
        text = self.try_render(list(turns.items()))
        return all(shown in text for shown in turns.values())

    def _shows_tools(self) -> bool:
        """True if the template lists tools and shows tool results in the `<tool_call>` format."""
        slots = [SLOT.format(number) for number in range(3)]
        turns = zip(("user", "assistant", "tool"), slots, strict=True)
        text = self.try_render([("system", "You search."), *turns], (SEARCH,))
        return all(shown in text for shown in (SEARCH.name, "<tool_call>", *slots))


# ------------------------------------------------------------------------------------------------------ bounded values

MAX_VALUE = 1 << 26  # bytes of one result, at most
MAX_TOTAL = 1 << 29  # bytes of all results of one rendering
MAX_BITS = 4096  # bits of an integer
_ITEM = 64  # bytes of a list's or dict's entry
# Filters whose result is one of their operands or a part of it: the sizes of operands do not multiply.
_CHOOSING = {"default", "d", "map", "select", "reject", "selectattr", "rejectattr", "list", "first", "last", "length"}
_DIGITS = re.compile(r"\d+")
_left: ContextVar[list[int]] = ContextVar("bytes_left")


def _refuse() -> TemplateRefused:
    return TemplateRefused(f"the chat template makes values of more than {MAX_VALUE:,} bytes and was stopped")


def _measure(value: Any) -> int:
    """Bytes of a value with its contents (repeated ones each time); raises `TemplateRefused` above the limit of one."""
    total, waiting = 0, [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str | bytes):
            total += sys.getsizeof(part)
        elif isinstance(part, int) and part.bit_length() > MAX_BITS:
            raise TemplateRefused(f"the chat template computes a number of more than {MAX_BITS:,} bits")
        elif isinstance(part, dict):
            total += _ITEM * len(part)
            waiting += (*part.keys(), *part.values())
        elif isinstance(part, Namespace):  # whose text has all its values
            waiting.append(part._Namespace__attrs)
        elif isinstance(part, list | tuple | set | frozenset | KeysView | ValuesView | ItemsView):
            total += _ITEM * len(part)
            waiting += part
        else:
            total += _ITEM
        if total > MAX_VALUE:
            raise _refuse()
    return total


def charge(value: Any) -> Any:
    """Count the value's bytes against the rendering's total and return it; raises `TemplateRefused` above the total."""
    left = _left.get()
    left[0] -= _measure(value)
    if left[0] < 0:
        raise TemplateRefused(f"the chat template makes more than {MAX_TOTAL:,} bytes of values and was stopped")
    return value


def _factor(value: Any) -> int:
    """The largest factor by which an operand can enlarge a result: a number's absolute value, or a value's size."""
    if isinstance(value, int):
        return abs(value)
    return len(value) if isinstance(value, str | bytes) else _measure(value)


def _check_product(values: Iterable[Any]) -> None:
    """Raise `TemplateRefused` if the product of the two largest operands, a bound of the result, is too large."""
    first, second = 1, 1
    for factor in map(_factor, values):
        first, second = max(first, factor), max(second, min(first, factor))
    if first * second > MAX_VALUE:
        raise _refuse()


def _check_format(form: str, values: Iterable[Any]) -> None:
    """Raise `TemplateRefused` if a format string's widths and fields could make too long a result from `values`."""
    widths = sum(int(digits[:20]) for digits in _DIGITS.findall(form))
    if widths + (form.count("%") + form.count("{")) * max(map(_factor, values), default=0) > MAX_VALUE:
        raise _refuse()


class _Code(CodeGenerator):
    """Jinja code generator that also counts container literals, slices and `~`; the sandbox intercepts only calls."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        joins = "markup_join" if frame.eval_ctx.autoescape else "str_join"
        if frame.eval_ctx.volatile:
            joins = "(markup_join if context.eval_ctx.volatile else str_join)"
        self.write(f"environment.join_parts({joins}, (")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")

    def visit(self, node: nodes.Node, *args: Any, **options: Any) -> Any:
        is_slice = isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
        is_tuple = isinstance(node, nodes.Tuple) and node.ctx == "load"
        if not (is_slice or is_tuple or isinstance(node, nodes.List | nodes.Dict)):
            return super().visit(node, *args, **options)
        self.write("environment.charge(")
        super().visit(node, *args, **options)
        return self.write(")")


class _Generation(jinja2.ext.Extension):
    """Jinja extension for the block `{% generation %}`, with which templates mark text written by the model."""

    tags = {"generation"}  # noqa: RUF012 - as jinja declares it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_write"), [], [], body).set_lineno(line)

    def _write(self, caller: Callable[[], str]) -> str:
        return caller()


class _Names(Namespace):
    """The function `namespace` of templates, without attributes that begin with an underscore."""

    def __init__(*args: Any, **names: Any) -> None:
        self, *rest = args
        for name in dict(*rest, **names):
            _Names.check(name)
        Namespace.__init__(self, *rest, **names)

    def __setitem__(self, name: str, value: Any) -> None:
        _Names.check(name)
        super().__setitem__(name, value)

    @staticmethod
    def check(name: Any) -> None:
        if isinstance(name, str) and name.startswith("_"):
            raise SecurityError(f"names of a namespace cannot begin with an underscore: {name!r}")


class _Dict:
    """The function `dict` of templates, without the class's attributes."""

    def __call__(self, *args: Any, **items: Any) -> dict[Any, Any]:
        return dict(*args, **items)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """Compiles and renders chat templates within the bounds above."""

    intercepted_binops = frozenset({"+", "*", "%", "**"})
    code_generator_class = _Code
    charge = staticmethod(charge)

    def __init__(self) -> None:
        extensions = [_Generation, jinja2.ext.loopcontrols]
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=extensions, finalize=charge)
        self.globals.update(raise_exception=_raise, strftime_now=_now, dict=_Dict(), namespace=_Names)
        self.filters["tojson"] = _to_json
        self.filters = {name: self._bounded(name, filter) for name, filter in self.filters.items()}
        self._compiled: dict[str, Template] = {}

    def render(self, source: str, values: dict[str, Any]) -> str:
        """Render a template to text; raises `TemplateRefused` if it exceeds the bounds."""
        token = _left.set([MAX_TOTAL])
        try:
            if source not in self._compiled:
                self._compiled[source] = self.from_string(source)
            return self._compiled[source].render(values)
        except MemoryError:
            raise TemplateRefused("the chat template needs more memory than there is") from None
        finally:
            _left.reset(token)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Apply a binary operator after checking the size of its result; raises `TemplateRefused` if too large."""
        if operator == "**":
            raise TemplateRefused("the chat template uses the power operator **, whose work has no limit")
        if operator == "%" and isinstance(left, str):
            _check_format(left, right if isinstance(right, tuple) else (right,))
        elif operator == "*" and not (isinstance(left, int | float) and isinstance(right, int | float)):
            _check_product((left, right))
        return charge(super().call_binop(context, operator, left, right))

    def call(__self, __context: Context, __obj: Any, *args: Any, **options: Any) -> Any:  # noqa: N805
        """Call a function, method or macro after checking its result's size; raises `TemplateRefused` if too large."""
        if not isinstance(__obj, jinja2.runtime.Macro | _Dict) and __obj is not _Names:
            method = getattr(__obj, "__wrapped__", __obj)  # of str.format, which the sandbox wraps
            owner = getattr(method, "__self__", None)
            values = (*args, *options.values())
            if getattr(method, "__name__", "") in ("format", "format_map") and isinstance(owner, str):
                _check_format(owner, values)
            elif __obj is _now:
                _check_format(str(values), ())
            else:
                _check_product((owner, *values) if isinstance(owner, str | bytes | list | dict) else values)
        return charge(super().call(__context, __obj, *args, **options))

    def join_parts(self, join: Callable[[Iterable[Any]], str], parts: tuple[Any, ...]) -> str:
        """The operands of `~` joined to one text, with its bytes counted."""
        _measure(parts)
        return str(charge(join(parts))) if join.__name__ == "str_join" else charge(join(parts))

    def concat(self, parts: Iterable[str]) -> str:
        """The output parts of a template, macro or block joined to one text; raises `TemplateRefused` if too long."""
        found, size = [], 0
        for part in parts:
            found.append(part)
            size += len(part)
            if size > MAX_VALUE:
                raise _refuse()
        return str(charge("".join(found)))

    def _bounded(self, name: str, filter: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(filter)  # with the mark of filters that are given the context
        def checked(*args: Any, **options: Any) -> Any:
            values = [*args, *options.values()]
            if name == "format":
                _check_format(str(charge(args[0])), values[1:])
            if name not in _CHOOSING:
                _check_product(value for value in values if not isinstance(value, Context | ChatEnvironment))
            return charge(filter(*args, **options))

        return checked


def _raise(message: str) -> None:
    raise TemplateError(message)


def _now(format: str) -> str:
    return datetime.now().strftime(format)


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


# ----------------------------------------------------------------------------------------------------------------- work

MAX_LINES = 3_000_000  # compiling and rendering a long template takes a few hundred thousand


def refuse_powers(template: str) -> None:
    """Raise `TemplateRefused` if the template uses `**`: `9 ** 9 ** 9` is one line, so `limited_work` cannot stop it.

    refuse_powers("{{ 2 ** n }}") raises TemplateRefused; "**bold**" outside of an expression is text
    """
    before = ""
    try:
        for _, kind, value in Environment().lex(template):
            if kind == "operator" and value == "**" and before not in ("(", ","):  # f(**options) is not a power
                raise TemplateRefused("the chat template uses the power operator **, whose work has no limit")
            before = before if kind == "whitespace" else value
    except TemplateSyntaxError:
        return  # rendering reports the syntax error


@contextmanager
def limited_work() -> Iterator[None]:
    """Context manager: raises `TemplateRefused` once the Python code inside has run more than `MAX_LINES` lines."""
    left = MAX_LINES

    def count(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise TemplateRefused(f"the chat template ran more than {MAX_LINES:,} lines and was stopped")
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        yield
    finally:
        sys.settrace(before)
