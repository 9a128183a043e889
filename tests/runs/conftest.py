"""Episodes to store."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from builders import build_episode

from quaere.records import Episode

MakeEpisode = Callable[..., Episode]


@pytest.fixture
def make_episode() -> MakeEpisode:
    return build_episode
