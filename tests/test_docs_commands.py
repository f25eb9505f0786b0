"""What the pages of docs/ show is what happens: commands, Python, names of files, commands and options."""

import re
from pathlib import Path

import click
import pytest
from shown_commands import INCLUDED, ROOT, check, check_python, commands, folder_of_links
from waferloom.programs.cli import COMMANDS, cli

PAGES = sorted((ROOT / "docs").glob("*.md"))
EVERY_PAGE = [ROOT / "README.md", *PAGES]
RUN_PYTHON = ["writing-kernels.md"]  # pages whose Python is complete
SHOWN = [command for page in PAGES for command in commands(page)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return folder_of_links(tmp_path_factory.mktemp("docs"))


@pytest.mark.parametrize("command", SHOWN, ids=lambda command: command.place)
def test_command(command, folder: Path):
    check(command, folder)


@pytest.mark.parametrize("page", RUN_PYTHON)
def test_python(page: str, tmp_path: Path):
    assert check_python(ROOT / "docs" / page, folder_of_links(tmp_path))


def test_options_that_pages_name_exist():
    """Wherever a page says `waferloom COMMAND --option`, there is such a command with such an option."""
    bad = []
    for page in EVERY_PAGE:
        for line in page.read_text("utf-8").splitlines():
            for name, rest in re.findall(r"(?:^|[`$ /])waferloom ([a-z]+)\b([^`]*)", line):
                if name not in COMMANDS:
                    if re.search(rf"[`$] ?waferloom {name}", line):
                        bad.append(f"{page.name}: waferloom {name}")
                    continue
                command = cli.get_command(click.Context(cli), name)
                assert command is not None
                known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
                bad += [
                    f"{page.name}: {name} {option}"
                    for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", rest.split("|")[0])
                    if option not in known
                ]
    assert not bad


def test_links_and_named_files_exist():
    """Relative links lead somewhere, and so do paths in backquotes that begin with one of our folders."""
    bad = []
    for page in EVERY_PAGE:
        text = page.read_text("utf-8")
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
            if "://" not in target and not (page.parent / target).exists():
                bad.append(f"{page.name}: {target}")
        for target in re.findall(r"`((?:isa|fabric|programs|tests|benches|docs)/[\w./-]+)`", text):
            if not (ROOT / target).exists():
                bad.append(f"{page.name}: {target}")
    assert not bad


def test_included_programs_are_the_files():
    """What stands behind `<!-- include FILE -->` is the file."""
    found = [match for page in EVERY_PAGE for match in INCLUDED.findall(page.read_text("utf-8"))]
    assert len(found) >= 3
    for name, text in found:
        assert text == (ROOT / name).read_text("utf-8"), name


def test_the_index_names_every_page():
    index = (ROOT / "docs/README.md").read_text("utf-8")
    assert {page.name for page in PAGES} - {"README.md"} == set(re.findall(r"\]\((\w[\w-]*\.md)\)", index))
