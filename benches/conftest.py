"""Options of the benchmarks: `--large` runs the ones that need minutes or gigabytes; figures at the end."""

import pytest
from report import FIGURES


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--large`: also benchmarks of a whole wafer."""
    parser.addoption("--large", action="store_true", help="run the benchmarks marked `large` too")


def pytest_configure(config: pytest.Config) -> None:
    """The marker of benchmarks that are not for every day."""
    config.addinivalue_line("markers", "large: needs minutes or gigabytes; runs with --large only")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what is large unless it is asked for."""
    if not config.getoption("--large"):
        for item in items:
            if item.get_closest_marker("large"):
                item.add_marker(pytest.mark.skip(reason="large: run with --large"))


def pytest_terminal_summary(terminalreporter) -> None:
    """Every figure beside its aim."""
    if FIGURES:
        terminalreporter.section("figures")
        for row in FIGURES:
            terminalreporter.line(row.line)
