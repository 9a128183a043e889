"""A taught village, once for all tests of the recipes."""

import pytest
import village


@pytest.fixture(scope="session")
def paths(tmp_path_factory):
    """The village's index and its model."""
    return village.build(tmp_path_factory.mktemp("village"))
