"""`waferloom fetch`: pinned weight files, by name, into the cache."""

from __future__ import annotations

import click

from ..terminal import Progress, Terminal


@click.command("fetch")
@click.argument("names", nargs=-1, metavar="NAME...")
@click.pass_obj
def command(terminal: Terminal, names: tuple[str, ...]) -> None:
    """Fetch weight files (default: all that are pinned) and print where they lie.

    A file that is in the cache is only checked; no network is needed then.
    """
    from ..weights.fetch import PINNED, fetch

    for name in names or tuple(PINNED):
        with Progress(terminal, name) as progress:

            def report(what: str, done: int, total: int, progress: Progress = progress) -> None:
                share = f" {100 * done // total} %" if total else ""
                progress.tick(f"{what}{share}")

            path = fetch(name, report)
        click.echo(str(path))
