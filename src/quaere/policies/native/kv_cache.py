"""The KV cache in slots: which session holds which slot, the tokens of each slot, and the memory of all slots.

A session keeps its slot between turns, so that the next turn computes only new tokens. A session whose prompt begins
like another's copies that part of the KV cache instead of computing it. If all slots are taken, the least recently used
one is reassigned, and its session has to compute its context again.

    slots = SlotTable(8)
    taken = slots.take("e1", [5, 6, 7, 8])      # taken.slot.num_stored == 0: all four are to be computed
"""

import heapq
from array import array
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from msgspec import Struct
from torch import Tensor

from quaere.policies.native.device import has_kernels, release_memory

BLOCK = 16  # tokens; prefixes are looked up in multiples of this length


class Slot(Struct, eq=False):
    """KV cache of one conversation. The first `num_stored` of `tokens` have their keys and values stored.

    Slot(number=3)
    """

    number: int
    session: str = ""
    tokens: list[int] = []
    num_stored: int = 0
    num_promised: int = 0  # number of tokens that a row in flight will have stored
    in_flight: bool = False
    last_used: int = 0
    epoch: int = 0  # changes when the slot's content is replaced
    prefixes: list[int] = []


class Taken(Struct, frozen=True):
    """A slot for a request; its first `num_shared` tokens can be copied from `donor` once they are stored there.

    Taken(slot, donor=None, num_shared=0)
    """

    slot: Slot
    donor: Slot | None = None
    num_shared: int = 0


class SlotTable:
    """All slots, indexed by session and by the prefixes they hold.

    With `whole`, a slot's content is a state that cannot be cut back: it is used as it is or not at all.
    """

    def __init__(self, num_slots: int, *, reuse: bool = True, whole: bool = False) -> None:
        self.slots = [Slot(number) for number in range(num_slots)]
        self.reuse = reuse
        self.whole = whole
        self._of_session: dict[str, Slot] = {}
        self._holders: dict[int, dict[int, Slot]] = {}  # hash of a prefix -> slots that begin with it
        self._clock = 0
        self._idle = [(0, number) for number in range(num_slots)]  # heap by last use; stale entries are skipped

    def take(self, session: str, tokens: list[int]) -> Taken:
        """A slot for this context that already holds as much of it as possible. At least one slot must be idle."""
        self._clock += 1
        slot = self._of_session.get(session)
        if slot is not None and slot.in_flight:  # a second turn of the session at once: it gets a slot of its own
            session, slot = "", None
        prefixes = _prefixes(tokens) if self.reuse and not self.whole else []
        donor, num_shared = None, 0
        if slot is None:
            donor, num_shared = self._find_donor(tokens, prefixes)
            slot = self._free_slot()
            if slot is donor:  # the reassigned slot holds the shared prefix itself: keep its content
                self._of_session.pop(slot.session, None)
            else:
                self._empty(slot)
        # The last token is always computed, because its logits are needed.
        num_stored = min(slot.num_stored, _common(slot.tokens, tokens), len(tokens) - 1)
        if self.whole and num_stored < slot.num_stored:
            num_stored = 0
        if num_stored < slot.num_stored or not slot.prefixes:
            self._empty(slot)
            slot.prefixes = prefixes
            for prefix in prefixes:
                self._holders.setdefault(prefix, {})[slot.number] = slot
        slot.session, slot.tokens, slot.num_stored = session, tokens, num_stored
        slot.num_promised, slot.in_flight, slot.last_used = len(tokens), True, self._clock
        if session:
            self._of_session[session] = slot
        is_shared = donor is not None and donor is not slot and num_shared > num_stored
        return Taken(slot, donor, num_shared) if is_shared else Taken(slot)

    def rest(self, slot: Slot) -> None:
        """Mark the slot idle; its session keeps it until the session ends or the slot is needed."""
        slot.in_flight = False
        slot.num_promised = slot.num_stored
        (self._offer if slot.session and self.reuse else self._empty)(slot)

    def end(self, session: str) -> None:
        """End a session and free its slot."""
        slot = self._of_session.get(session)
        if slot is not None and not slot.in_flight:
            self._empty(slot)
        elif slot is not None:
            slot.session = ""
            del self._of_session[session]

    def forget(self) -> None:
        """Invalidate all stored tokens (the weights have changed): no later turn may reuse or copy them."""
        for slot in self.slots:
            (self._disown if slot.in_flight else self._empty)(slot)

    def stored(self) -> dict[int, int]:
        """Number of stored tokens per slot."""
        return {slot.number: slot.num_stored for slot in self.slots if slot.num_stored}

    def _free_slot(self) -> Slot:
        """The least recently used idle slot; an empty one if there is any."""
        while True:
            last_used, number = heapq.heappop(self._idle)
            slot = self.slots[number]
            if not slot.in_flight and slot.last_used == last_used:
                return slot

    def _offer(self, slot: Slot) -> None:
        if slot.in_flight:
            return
        heapq.heappush(self._idle, (slot.last_used, slot.number))
        if len(self._idle) > 4 * len(self.slots):
            self._idle = sorted((slot.last_used, slot.number) for slot in self.slots if not slot.in_flight)

    def _find_donor(self, tokens: list[int], prefixes: list[int]) -> tuple[Slot | None, int]:
        """The slot with the longest common prefix with these tokens, and the prefix's length."""
        for num_blocks in range(len(prefixes), 0, -1):
            for slot in self._holders.get(prefixes[num_blocks - 1], {}).values():
                limit = max(slot.num_stored, slot.num_promised)
                if limit >= num_blocks * BLOCK:  # else its row left before the prefix was computed
                    return slot, min(limit, _common(slot.tokens, tokens), len(tokens) - 1)
        return None, 0

    def _empty(self, slot: Slot) -> None:
        self._disown(slot)
        slot.tokens = []
        slot.num_stored = slot.num_promised = slot.last_used = 0
        self._offer(slot)

    def _disown(self, slot: Slot) -> None:
        """Detach the slot from its session and from prefix lookup: nothing reuses or copies its content."""
        for prefix in slot.prefixes:
            del self._holders[prefix][slot.number]
            if not self._holders[prefix]:
                del self._holders[prefix]
        if self._of_session.get(slot.session) is slot:
            del self._of_session[slot.session]
        slot.session, slot.prefixes = "", []
        slot.epoch += 1


def _prefixes(tokens: list[int]) -> list[int]:
    """Rolling hashes of every prefix of whole blocks."""
    data = array("q", tokens)
    width = BLOCK * data.itemsize
    content, state, found = data.tobytes(), 0, []
    for start in range(0, len(content) - width + 1, width):
        state = hash((state, content[start : start + width]))
        found.append(state)
    return found


def _common(first: list[int], second: list[int]) -> int:
    limit = min(len(first), len(second))
    is_same = first[:limit] == second[:limit]
    return limit if is_same else next(index for index in range(limit) if first[index] != second[index])


# --------------------------------------------------------------------------------------------------------------- memory

STRIDE = 512  # tokens


class Span(Struct, frozen=True):
    """Tokens of one slot in a packed pass: `packed[offset:offset+length]` are its positions `start..start+length`.

    Span(slot=2, start=117, length=40, offset=16)      # tokens 117 to 156 of slot 2, after 16 tokens of others
    """

    slot: int
    start: int
    length: int
    offset: int


class KVStorage:
    """Keys and values per layer as `(slots, heads, capacity, head_dim)`; grows without losing its content.

    Layers are allocated at their first write. `version` changes when memory was reallocated: addresses held elsewhere
    are then invalid. Unwritten memory is zero: attention over padded slots masks it, but a NaN there would survive the
    mask.
    """

    def __init__(self) -> None:
        self.layers: dict[int, tuple[Tensor, Tensor]] = {}
        self.num_slots = 0
        self.capacity = 0
        self.version = 0

    def reserve(self, num_slots: int, capacity: int, stored: Mapping[int, int]) -> None:
        """Allocate space for this many slots of `capacity` tokens; `stored` is the number of tokens per slot to keep.

        On a CPU, memory that is never written to is not allocated by the system, so unused slots cost nothing.
        """
        if num_slots <= self.num_slots and capacity <= self.capacity:
            return
        self.num_slots = max(self.num_slots, num_slots)
        # The capacity grows in strides, so that a few more tokens do not reallocate everything.
        self.capacity = max(self.capacity, -(-capacity // STRIDE) * STRIDE)
        self.version += 1
        for layer, (keys, values) in self.layers.items():
            self.layers[layer] = self._grown(keys, stored), self._grown(values, stored)
            del keys, values
        if self.layers:  # the old memory is too small for any later growth; other processes may use it
            release_memory(next(iter(self.layers.values()))[0].device)

    def _grown(self, old: Tensor, stored: Mapping[int, int]) -> Tensor:
        new = _zeros((self.num_slots, old.shape[1], self.capacity, old.shape[3]), old)
        for slot, length in stored.items():
            new[slot, :, :length] = old[slot, :, :length]
        return new

    def write(self, layer: int, key: Tensor, value: Tensor, slots: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Store the packed `(1, heads, tokens, head_dim)` keys and values of a pass; returns the layer's memory."""
        keys, values = self.memory(layer, key, value)
        if has_kernels(key.device):
            from quaere.policies.native import fused

            fused.write_slots(keys, values, key, value, slots, positions)
        else:
            keys[slots, :, positions] = key[0].transpose(0, 1)
            values[slots, :, positions] = value[0].transpose(0, 1)
        return keys, values

    def memory(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """The layer's memory; it is allocated for `(1, heads, tokens, head_dim)` like these if there is none."""
        if layer not in self.layers:
            shape = (self.num_slots, key.shape[1], self.capacity)
            self.layers[layer] = _zeros((*shape, key.shape[3]), key), _zeros((*shape, value.shape[3]), value)
        return self.layers[layer]

    def copy(self, source: int, targets: Sequence[int], length: int) -> None:
        """Copy the first `length` tokens of a slot to other slots."""
        for memory in self.layers.values():
            for tensor in memory:
                tensor[list(targets), :, :length] = tensor[source, :, :length]


def _zeros(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """A zero tensor. On a CPU numpy gets pages that are zero already, which cost nothing until they are used."""
    if like.device.type != "cpu":
        return like.new_zeros(shape)
    return torch.from_numpy(np.zeros(shape, dtype=f"i{like.element_size()}")).view(like.dtype)
