"""`waferloom isa`: the instruction table, for people and for tools."""

from __future__ import annotations

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
    """Print the instruction table, or everything about the instruction NAME."""
    import dataclasses
    import json

    from ...fabric.spec import machine as read_machine
    from ...isa import tables

    spec = dataclasses.asdict(read_machine(machine)) if machine else None
    if name:
        click.echo(tables.one_page(name, spec).rstrip("\n"))
    elif kind == "json":
        click.echo(json.dumps(tables.as_json(spec), indent=1, sort_keys=True))
    elif kind == "markdown":
        click.echo(tables.markdown_page().rstrip("\n"))
    else:
        click.echo(tables.text_table(spec).rstrip("\n"))
