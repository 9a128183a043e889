"""Seeds derived from the run's seed and the place where they are used."""

from __future__ import annotations

from hashlib import blake2b


def derive_seed(seed: int, *place: int | str) -> int:
    """A 63-bit seed for a place such as (step, episode, turn): equal for equal places, otherwise independent.

    derive_seed(7, 3, "solver", 0) == derive_seed(7, 3, "solver", 0) != derive_seed(7, 3, "solver", 1)
    """
    digest = blake2b(repr((seed, *place)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
