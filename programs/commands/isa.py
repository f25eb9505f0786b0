"""`waferloom isa`: the instruction table, for people and for tools."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path

import click


@click.command("isa")
@click.argument("name", required=False)
@click.option(
    "-f",
    "--format",
    "kind",
    type=click.Choice(["text", "markdown", "json"]),
    default="text",
    show_default=True,
)
@click.option("--machine", help="Preset or TOML file: shows timing in its cycles.")
def command(name: str | None, kind: str, machine: str | None) -> None:
    """Print the instruction table, or everything about the instruction NAME and an example."""
    import dataclasses
    import json

    from ...fabric.spec import machine as read_machine
    from ...isa import tables

    spec = dataclasses.asdict(read_machine(machine)) if machine else None
    if name:
        click.echo(tables.one_page(name, spec, _example(name)).rstrip("\n"))
    elif kind == "json":
        click.echo(json.dumps(tables.as_json(spec), indent=1, sort_keys=True))
    elif kind == "markdown":
        click.echo(tables.markdown_page().rstrip("\n"))
    else:
        click.echo(tables.text_table(spec).rstrip("\n"))


def _example(name: str) -> str | None:
    """Where one of the packaged example programs uses an instruction, and its line: `file.loom:12: text`."""
    from ...isa.tables import find_examples

    folder = Path(str(resources.files(__package__.rpartition(".")[0]) / "examples"))
    path = find_examples(folder).get(name)
    if path is None:
        return None
    for number, line in enumerate(Path(path).read_text("utf-8").splitlines(), 1):
        text = line.split(";", 1)[0].strip()
        if name in (word.split(".", 1)[0] for word in text.split()[:2]):
            return f"{_shortest(path)}:{number}: {' '.join(text.split())}"
    return _shortest(path)


def _shortest(path: str) -> str:
    """A path as a user would type it."""
    try:
        relative = os.path.relpath(path)
    except ValueError:  # another drive
        return path
    return relative if len(relative) < len(path) else path
