import pytest


@pytest.fixture(scope="session")
def paths(village_paths):
    """The village's index and its model."""
    return village_paths
