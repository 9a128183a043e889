"""Taught villages, once for all tests of the recipes."""

import pytest

from building import build_once


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """Session fixtures come before those of modules, and sums in another order would teach another model."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def paths(village_paths):
    """The village's index and its model."""
    return village_paths


@pytest.fixture(scope="session")
def quoting_paths(tmp_path_factory):
    """The index and the model of the village that quotes."""
    import quoting

    return build_once(tmp_path_factory, "quoting", quoting.build)


@pytest.fixture(scope="session")
def newsroom_paths(tmp_path_factory):
    """The index, the model that was taught to write and to judge reports, and questions."""
    import newsroom

    return build_once(tmp_path_factory, "newsroom", newsroom.build)
