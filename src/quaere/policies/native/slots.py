"""Assignment of slots to sessions, and the tokens whose KV cache each slot holds.

A session keeps its slot between turns, so that the next turn computes only new tokens. A session whose prompt begins
like another's copies that part of the KV cache instead of computing it. If all slots are taken, the least recently used
one is reassigned, and its session has to compute its context again.

    slots = SlotTable(8)
    taken = slots.take("e1", [5, 6, 7, 8])      # taken.slot.num_stored == 0: all four are to be computed
"""

from __future__ import annotations

import heapq
from array import array

from msgspec import Struct

BLOCK = 16  # tokens; prefixes are looked up in multiples of this length


class Slot:
    """KV cache of one conversation. The first `num_stored` of `tokens` have their keys and values stored."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.session = ""
        self.tokens: list[int] = []
        self.num_stored = 0
        self.num_promised = 0  # number of tokens that a row in flight will have stored
        self.in_flight = False
        self.last_used = 0
        self.epoch = 0  # changes when the slot's content is replaced
        self.prefixes: list[int] = []


class Taken(Struct, frozen=True):
    """A slot for a request; its first `num_shared` tokens can be copied from `donor` once they are stored there.

    Taken(slot, donor=None, num_shared=0)
    """

    slot: Slot
    donor: Slot | None = None
    num_shared: int = 0


class SlotTable:
    """All slots, indexed by session and by the prefixes they hold."""

    def __init__(self, num_slots: int, *, reuse: bool = True) -> None:
        self.slots = [Slot(number) for number in range(num_slots)]
        self.reuse = reuse
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
        prefixes = _prefixes(tokens) if self.reuse else []
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
        if num_stored < slot.num_stored or not slot.prefixes:
            self._empty(slot)
            self._remember(slot, prefixes)
        slot.session, slot.tokens, slot.num_stored = session, tokens, num_stored
        slot.num_promised, slot.in_flight, slot.last_used = len(tokens), True, self._clock
        if session:
            self._of_session[session] = slot
        if donor is None or donor is slot or num_shared <= num_stored:
            return Taken(slot)
        return Taken(slot, donor, num_shared)

    def rest(self, slot: Slot) -> None:
        """Mark the slot idle; its session keeps it until the session ends or the slot is needed."""
        slot.in_flight = False
        slot.num_promised = slot.num_stored
        if not slot.session or not self.reuse:
            self._empty(slot)
        else:
            self._offer(slot)

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
            if slot.in_flight:
                self._disown(slot)
            else:
                self._empty(slot)

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
        """Put an idle slot on the heap of slots that can be assigned."""
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

    def _remember(self, slot: Slot, prefixes: list[int]) -> None:
        slot.prefixes = prefixes
        for prefix in prefixes:
            self._holders.setdefault(prefix, {})[slot.number] = slot

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
    """Length of the common prefix of two lists.

    _common([1, 2, 3], [1, 2, 4]) == 2
    """
    limit = min(len(first), len(second))
    if first[:limit] == second[:limit]:
        return limit
    return next(index for index in range(limit) if first[index] != second[index])
