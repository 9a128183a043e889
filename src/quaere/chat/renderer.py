"""Renderer from messages to token ids, for one tokenizer and its chat template.

The template is rendered once per episode, for the opening. After that the token sequence only grows: the ids the model
sampled, then the *joint* (the template's text between two turns), then the environment's reply. Joints are derived from
the template when a `Renderer` is made: a joint is what the template writes around the *newest* turn of a conversation,
and it must be the same after the first turn as after the second. Some templates write a turn differently once it is not
the newest (most cut thoughts out); they are used all the same: the episode keeps turns as sampled, and
`Renderer.differences` lists what differs.

    renderer = Renderer(tokenizer)
    context = renderer.opening(messages, tools)            # [1, 9690, ...]
    context += sampled_ids                                 # straight from the sampler
    context += renderer.reply(message, sampled_ids[-1])    # end of turn if it is missing, message, next turn's start

A base model has no chat template; it gets plain paragraphs, the form of the text it was pretrained on.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from itertools import chain, pairwise
from typing import Any

import msgspec
from msgspec import Struct, structs

from quaere.chat.markup import SEARCH, THOUGHT, Reading, ToolSchema, has_unclosed, read_turn, write_prompt, write_turn
from quaere.chat.protocol import Message, Part, Quoted, Role
from quaere.chat.template import SLOT, SLOT_PATTERN, ChatTemplate
from quaere.endpoint import one_line
from quaere.errors import TemplateRefused

ROLES: tuple[Role, ...] = ("user", "tool")  # the roles of an environment message
NUM_REMEMBERED = 2048  # encoded texts kept in the cache
NUM_OPENINGS = 128  # rendered openings, which are longer


class Renderer:
    """Writes conversations in a tokenizer's chat template, or as plain paragraphs if it has none.

    `opened` is the start of a thought that the template itself writes before each turn ("<think>\\n"), or "". What the
    model samples then begins inside that thought. `speaks_tools` and `lists_tools` are those of the template;
    `thought_end` ends a thought, `thought_stop` are strings with which the model ends one, and `call_stop` those that
    end a turn with a call in its own markup. `joints` maps a role to the joint around an environment message.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.template = template = ChatTemplate(tokenizer)
        self.has_template, self.speaks_tools = template.has_template, template.speaks_tools
        self.lists_tools, markup = template.lists_tools, template.markup
        self.thought_end, self.thought_stop, self.call_stop = markup.thought_end, markup.thought_stop, markup.stop
        self._plain = PlainEncoder(tokenizer)
        # Cached: the rollouts of one question are shown the same passages, and all rollouts the same instructions.
        self._encode_quoted = lru_cache(NUM_REMEMBERED)(lambda text: tuple(self._plain.encode(text)))
        self._encode = lru_cache(NUM_REMEMBERED)(lambda text: tuple(tokenizer.encode(text, add_special_tokens=False)))
        # Quoted texts are placeholders, so all rollouts of a dialect have the same opening; rendering it under a limit
        # takes longer than encoding a question.
        self._pieces = lru_cache(NUM_OPENINGS)(self._render) if template.repeats else self._render
        texts = {role: derive_joint(template, role) for role in ROLES}
        self.joints: dict[Role, Joint] = {role: self._encode_joint(text) for role, text in texts.items()}
        opening = texts["user"].opening
        self.opened = opening[opening.rfind(f"<{THOUGHT}>") :] if has_unclosed(opening, THOUGHT) else ""
        # The environment begins a turn with this text: the end of a thought, or a channel.
        self.turn_start = self.thought_end if self.opened else markup.begin
        self._differences = texts["user"].differences

    @cached_property
    def differences(self) -> tuple[str, ...]:
        """How the template's own rendering of a conversation differs from an episode, each in a few words.

        Renderer(tokenizer).differences -> ("cuts thoughts out of earlier turns",)
        """
        found: tuple[str, ...] = ("cuts thoughts out of earlier turns",) if cuts_thoughts(self.template) else ()
        joint = self.joints["user"]
        ends, end = joint.closing[joint.num_ending - 1 : joint.num_ending], joint.end_of_turn
        if end is not None and ends != (end,):
            found += (f"ends earlier turns with {self.decode(ends)!r} instead of {self.decode([end])!r}",)
        return found + self._differences

    @property
    def note(self) -> str:
        """`differences`, and the tags that are spelled out, as one line for a user; "" if there are none."""
        named = " and ".join(self.differences)
        spelled = " and ".join(getattr(self.tokenizer, "spelled_out", ())[:4])
        said = f"an episode keeps its turns, where the template {named}" if named else ""
        told = f"spelled out, as the model never learned the tokens: {spelled}" if spelled else ""
        return "; ".join(filter(None, (said, told)))

    # -------------------------------------------------------------------------------------------------- writing

    def opening(self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()) -> list[int]:
        """Ids of the first messages, up to where the model starts to write."""
        quoted: list[str] = []
        turns = [self.template.turn(message.role, self._slotted(message, quoted)) for message in messages]
        pieces = self._pieces(tuple(turns), msgspec.json.encode(tools))
        if sorted(pieces[1::2]) != sorted(SLOT.format(number) for number in range(len(quoted))):
            raise TemplateRefused("the chat template drops or repeats messages of the prompt, so it cannot be used")
        encoded = (
            self._encode_quoted(quoted[int(piece[4:-8])]) if number % 2 else self._encode_ours(piece)
            for number, piece in enumerate(pieces)
        )
        return list(chain(*encoded))

    def _render(self, turns: tuple[tuple[str, str], ...], tools: bytes) -> tuple[str, ...]:
        """The text of an opening, cut at its placeholders; tools are JSON, which can be the key of a cache."""
        schemas = msgspec.json.decode(tools, type=tuple[ToolSchema, ...])
        return tuple(SLOT_PATTERN.split(self.template.render(turns, schemas)))

    def begin_turn(self, prefix: str) -> str:
        """The text that the environment writes before a turn with this `prefix`; it first closes an open thought."""
        return self.turn_start + prefix if prefix else ""

    def write_turn(self, text: str, prefix: str = "") -> list[int]:
        """Ids of a scripted turn in the model's own markup, as they would follow the template's text and `prefix`."""
        if not prefix:
            text, thought = write_turn(self.template.markup, text), f"<{THOUGHT}>"
            if self.opened:
                text = text.removeprefix(thought) if text.startswith(thought) else self.thought_end + text
        return list(self._encode_ours(text))

    def reply(self, message: Message, last_token: int | None, max_tokens: int | None = None) -> list[int]:
        """Ids from the end of the model's turn to the start of its next turn.

        `last_token` is the last id the model sampled. `max_tokens` limits the message's parts; tags, note and joint are
        never cut.
        """
        joint = self.joints[message.role]
        before, after = (self._encode_ours(text) for text in message.frame)
        content = self.encode_parts(message.parts)[:max_tokens]
        return [*joint.after(last_token), *before, *content, *after, *joint.opening]

    def cut(self, message: Message, max_tokens: int) -> Message:
        """The message with its parts cut to the text that `reply` with this limit shows.

        renderer.cut(Message("tool", ("[1]\\n", Quoted("The Halm bridge is old."))), 7)
        -> Message("tool", ("[1]\\n", Quoted("The Halm")))
        """
        parts: list[Part] = []
        for part in message.parts:
            ids = self.encode_parts((part,))
            if len(ids) <= max_tokens:
                parts.append(part)
                max_tokens -= len(ids)
                continue
            whole = self._own_words(part) if isinstance(part, str) else part.text
            # An incomplete character decodes to U+FFFD. The prefix is taken from `whole`, not from the decoded text,
            # because some tokenizers drop a space when decoding.
            shown = whole[: len(self.decode(ids[:max_tokens]).rstrip("\ufffd"))]
            if shown:
                parts.append(shown if isinstance(part, str) else Quoted(shown))
            break
        return structs.replace(message, parts=tuple(parts))

    def encode_parts(self, parts: Sequence[Part]) -> list[int]:
        """Ids of the parts: control tokens are recognised in `str` parts, never in quoted ones."""
        encoded = (
            self._encode_ours(self._own_words(part)) if isinstance(part, str) else self._encode_quoted(part.text)
            for part in parts
        )
        return list(chain(*encoded))

    def _own_words(self, text: str) -> str:
        return write_prompt(self.template.markup, text)

    def _encode_ours(self, text: str) -> tuple[int, ...]:
        return self._encode(text) if text else ()

    # -------------------------------------------------------------------------------------------------- reading

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of the ids, control tokens included. It is for reading only and never encoded again."""
        # `tokenizer.decode` checks every id first, which takes longest for the few ids of a step.
        return str(self.tokenizer.backend_tokenizer.decode(list(token_ids), skip_special_tokens=False))

    def read_turn(self, token_ids: Sequence[int]) -> str:
        """The text of a turn as the model wrote it, without its end-of-turn token."""
        is_ended = len(token_ids) > 0 and token_ids[-1] in self.stop_token_ids
        return self.decode(token_ids[:-1] if is_ended else token_ids)

    def read_markup(self, text: str) -> Reading:
        """A turn's text in the form that dialects read: thoughts in `<think>` tags, calls as JSON in `<tool_call>`."""
        return read_turn(self.template.markup, text)

    @cached_property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Ids that end a turn: the template's end-of-turn tokens and the tokenizer's end-of-text token."""
        joints = [(joint.end_of_turn, *joint.other_ends) for joint in self.joints.values()]
        return tuple(sorted({self.tokenizer.eos_token_id, *chain(*joints)} - {None}))

    def _slotted(self, message: Message, quoted: list[str]) -> str:
        """The message's text with a numbered placeholder for each quoted part, whose text is appended to `quoted`."""
        before, after = message.frame
        pieces: list[str] = [before]
        for part in message.parts:
            if isinstance(part, Quoted):
                pieces.append(SLOT.format(len(quoted)))
                quoted.append(part.text)
            else:
                pieces.append(self._own_words(part))
        return "".join([*pieces, after])

    # --------------------------------------------------------------------------------------------------- joints

    def _encode_joint(self, text: JointText) -> Joint:
        closing, opening = (self._encode_ours(side) for side in (text.closing, text.opening))
        # Without a template, a tag such as <tool_response> may be a control token, but it does not end the turn.
        ends = self._first_control(closing) if self.has_template else None
        if ends is None:
            return Joint(closing, opening, None)
        # The model ends its turn as the template ends the last turn of a conversation, which need not be how it ends
        # earlier ones.
        ending = self._encode_ours(text.ending)
        written = self._first_control(ending)
        end_of_turn = closing[ends] if written is None else ending[written]
        calls = chain(*map(self._encode_ours, self.template.markup.ends))
        others = tuple(token for token in calls if token in self._plain.control_ids)
        return Joint(closing, opening, end_of_turn, ends + 1, others)

    def _first_control(self, ids: Sequence[int]) -> int | None:
        return next((at for at, token in enumerate(ids) if token in self._plain.control_ids), None)


# ------------------------------------------------------------------------------------------------------- untrusted text


class PlainEncoder:
    """Encodes untrusted text with a tokenizer's vocabulary but none of its added tokens."""

    def __init__(self, tokenizer: Any) -> None:
        from tokenizers import Tokenizer

        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise TemplateRefused(
                f"{type(tokenizer).__name__} is not a fast tokenizer, so documents could carry control tokens",
                hint="choose a model that ships a tokenizer.json",
            )
        # The vocabulary, nearly all of the file, is copied without parsing it, because parsing takes longest.
        layout = msgspec.json.decode(backend.to_str(), type=dict[str, msgspec.Raw])
        # Not control tokens: a token of one character, which cannot be split and controls nothing, and the unknown
        # token, which replaces text without an id.
        self.control_ids = frozenset(
            entry["id"]
            for entry in msgspec.json.decode(layout["added_tokens"])
            if len(entry["content"]) > 1 and entry["id"] != tokenizer.unk_token_id
        )
        nothing = msgspec.Raw(b"null")
        layout.update(added_tokens=msgspec.Raw(b"[]"), post_processor=nothing, truncation=nothing, padding=nothing)
        self._twin = Tokenizer.from_buffer(msgspec.json.encode(layout))

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, none of them an added token."""
        # Half a surrogate pair, which broken files can contain, has no encoding: it becomes a question mark.
        text = text.encode("utf-8", "replace").decode()
        encoding = self._twin.encode(text, add_special_tokens=False)
        if self.control_ids.isdisjoint(encoding.ids):
            return list(encoding.ids)
        cuts = [
            start + 1
            for token, (start, end) in zip(encoding.ids, encoding.offsets, strict=True)
            if token in self.control_ids and end - start > 1
        ]
        if not cuts:
            raise TemplateRefused(
                "the tokenizer cannot encode some text without control tokens, so documents could carry them",
                hint="choose another model",
            )
        pieces = (text[begin:end] for begin, end in pairwise([0, *cuts, len(text)]))
        return list(chain(*map(self.encode, pieces)))


# --------------------------------------------------------------------------------------------------------------- joints

_MAX_SHOWN = 60  # characters of a template's text in a message


class Joint(Struct, frozen=True):
    """Token ids that the template writes before and after an environment message.

    For a ChatML user message: `closing` is "<|im_end|>\\n<|im_start|>user\\n", beginning with the end of the model's
    turn, which are its first `num_ending` ids; `opening` is "<|im_end|>\\n<|im_start|>assistant\\n". `end_of_turn` is
    the id with which the model itself ends a turn. It may differ from what the template writes: GPT-OSS ends a turn
    with <|return|> and its template writes <|end|> in earlier ones.

        Joint(closing=(2, 198, 1, 4093, 198), opening=(2, 198, 1, 520, 9531, 198), end_of_turn=2, num_ending=1)
    """

    closing: tuple[int, ...]
    opening: tuple[int, ...]
    end_of_turn: int | None
    num_ending: int = 0
    other_ends: tuple[int, ...] = ()  # ids with which a turn can end as well: GPT-OSS's <|call|>

    def after(self, last_token: int | None) -> tuple[int, ...]:
        """The closing ids that are still missing after the model's last token.

        Only this function decides who writes the end-of-turn token: the model if it sampled it; otherwise it is added
        here and carries no loss.
        """
        is_ended = last_token is not None and last_token in (self.end_of_turn, *self.other_ends)
        return self.closing[self.num_ending if is_ended else 0 :]


class JointText(Struct, frozen=True):
    """A joint as text. `ending` is what the template writes after the last turn of a finished conversation.

    JointText(closing="<|im_end|>\\n<|im_start|>user\\n", opening="<|im_end|>\\n<|im_start|>assistant\\n",
              ending="<|im_end|>\\n", differences=())
    """

    closing: str
    opening: str
    ending: str
    differences: tuple[str, ...] = ()


def derive_joint(template: ChatTemplate, role: Role) -> JointText:
    """The joint for a role, derived from renderings of a conversation with no, one and two replies.

    Raises `TemplateRefused` if a message is not shown exactly once, or if the second reply's joint differs from the
    first's: then no joint is right, and episodes could not be token-exact.
    """
    *grown, ended = _render(template, role, with_prompt=True)
    moves_prompt = any(text in grown[1].rpartition(SLOT.format(2))[2] for text in (_PROMPT, SEARCH.description))
    if moves_prompt:  # Mistral's templates move it to the newest question; in an episode it stays at the beginning
        *grown, ended = _render(template, role, with_prompt=False)
    # Texts around the slots: before the question, before the turn, closing, opening, closing, opening.
    short, middle, long = map(_around, grown)
    if [len(short), len(middle), len(long)] != [2, 4, 6]:
        raise TemplateRefused("the chat template drops or repeats messages, so it cannot be used for episodes")
    if middle[2:] != long[4:]:
        raise TemplateRefused(
            "the chat template writes different text between the same kinds of turns, so replies cannot be added"
        )
    found = ("moves the prompt to the newest question",) if moves_prompt else ()
    return JointText(long[4], long[5], ended.partition(SLOT.format(2))[2], found + _differences(short, long))


_PROMPT = SLOT.format(0)


def _render(template: ChatTemplate, role: Role, *, with_prompt: bool) -> list[str]:
    """Renderings of a conversation with no, one and two replies, and of one that ends with a turn of the model."""
    start = [("system", _PROMPT), ("user", SLOT.format(1))][0 if with_prompt else 1 :]
    tools = (SEARCH,) if with_prompt else ()
    first, second = ([("assistant", SLOT.format(at)), template.turn(role, SLOT.format(at + 1))] for at in (2, 4))
    try:
        grown = [template.render(turns, tools) for turns in (start, start + first, start + first + second)]
        return [*grown, template.render([*start, first[0]], tools, opens_turn=False)]
    except TemplateRefused:
        raise
    except Exception as error:
        raise TemplateRefused(f"the chat template cannot render a {role} reply: {one_line(str(error))}") from error


def _around(text: str) -> list[str]:
    """The texts around the messages, which must be in order and shown once; [] if they are not."""
    pieces = SLOT_PATTERN.split(text)
    if pieces[1:2] == [_PROMPT]:
        pieces = ["".join(pieces[:3]), *pieces[3:]]
    is_sound = pieces[1::2] == [SLOT.format(number + 1) for number in range(len(pieces) // 2)]
    return pieces[::2] if is_sound else []


def _differences(short: Sequence[str], long: Sequence[str]) -> tuple[str, ...]:
    """What differs between a grown conversation and the template's own rendering of it, each in a few words.

    White space before the model's text does not count: some templates put a space there that is not there when the
    model starts to write.
    """
    found = ["rewrites the prompt as a conversation grows"] if long[0] != short[0] else []
    begins, closing, opening = short[1], long[4], long[5]
    # A later turn begins after a reply, the first after the question: a difference in either is reported once.
    for is_now, was in ((long[3], opening), (long[1], begins)):
        if is_now != was and (not is_now.startswith(was) or is_now[len(was) :].strip()):
            found.append(f"begins earlier turns with {_shown(is_now, was)} instead of {_shown(was, is_now)}")
            break
    if long[2] != closing:
        found.append(f"ends earlier turns with {_shown(long[2], closing)} instead of {_shown(closing, long[2])}")
    return tuple(found)


def _shown(text: str, other: str) -> str:
    """At most `_MAX_SHOWN` characters of the text, without the prefix it shares with `other`, for a message."""
    same = next((at for at, (one, two) in enumerate(zip(text, other, strict=False)) if one != two), None)
    text = text[min(len(text), len(other)) if same is None else same :]
    return repr(text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "...") if text else "nothing"


def cuts_thoughts(template: ChatTemplate) -> bool:
    """True if the template does not show the thought of an earlier turn."""
    thought = ("assistant", f"<think>{SLOT.format(1)}</think>{SLOT.format(2)}")
    turns = [("user", "q"), thought, template.turn("tool", "r"), ("assistant", "a"), ("user", "q")]
    text = template.try_render(turns, (SEARCH,))  # "": a template may refuse this and still render episodes
    return bool(text) and SLOT.format(1) not in text
