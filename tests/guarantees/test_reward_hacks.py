"""S3: 40 reward hacks earn less than honest work of as many hops.

The hacks are those of `tests/rewards/hacking.py`: triples of a proposer, under the guards that every preset but `paper`
switches on.
"""

import pytest
from msgspec import structs

from quaere.rewards.guards import OURS
from rewards.hacking import HONEST, TRICKS, pay

MARGIN = 0.1


def test_there_are_forty_hacks():
    assert len({item.name for item in TRICKS}) == len(TRICKS) == 40


@pytest.mark.parametrize("item", TRICKS, ids=lambda item: item.name)
@pytest.mark.parametrize("num_right", [None, 1])
def test_a_hack_earns_less_than_honest_work(item, num_right):
    """As often solved as it plausibly is, and solved once in five, which pays best."""
    hack = item if num_right is None else structs.replace(item, num_right=num_right)
    assert pay(hack, OURS).total < pay(HONEST[item.hops], OURS).total - MARGIN
