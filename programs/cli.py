"""The command `waferloom`: finds the command's file, turns every error into one message and its exit code.

Nothing heavy is imported here, nor at the top of a command's file: `--help` must stay quick.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from typing import Any

import click

from ..isa.errors import ENDS, WaferloomError
from .terminal import Terminal, say

__all__ = ["cli", "main"]

# Command -> one line of help; the file programs/commands/NAME.py has a click command `command`.
COMMANDS = {
    "asm": "Assemble a source file into an image, a listing and others.",
    "calibrate": "Compare the emulated machine with published measurements.",
    "check": "Check a program for errors without running it.",
    "demo": "Multiply real 4-bit weights on an emulated wafer.",
    "dis": "Disassemble an image or a program.",
    "doctor": "Show versions, cache and host, and run a self-test.",
    "fetch": "Fetch pinned weight files into the cache.",
    "generate": "Let a model write text on a chain of emulated wafers.",
    "isa": "Print the instruction table, or one instruction.",
    "plan": "Show how a model lies on wafers, without running it.",
    "run": "Run a program and show where its cycles went.",
}
EPILOG = """\b
Exit codes: 0 finished, 1 mismatch, 2 usage, 3 rejected, 4 hang, 5 limit, 6 fault,
            70 internal, 130 interrupted.
Completion: eval "$(_WAFERLOOM_COMPLETE=bash_source waferloom)"   (zsh_source, fish_source)
Colour: --color auto|always|never; NO_COLOR is honoured."""


class Commands(click.Group):
    """A group whose commands are imported on use, and which gives every error its exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        return importlib.import_module(f".commands.{name}", __package__).command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            import difflib

            close = difflib.get_close_matches(args[0], COMMANDS, n=1)
            if not close:
                raise
            raise click.UsageError(f"No such command {args[0]!r}. Did you mean {close[0]!r}?", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; every error leaves as `ctx.exit(code)` with its message on stderr."""
        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, click.ClickException):
            raise
        except WaferloomError as error:
            say(_message(error))
            code = error.exit_code
        except (KeyboardInterrupt, click.Abort):
            say("interrupted")
            code = ENDS["interrupted"].exit_code
        except BrokenPipeError:  # the reader of stdout has gone: nothing more to say, and no complaint
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = 0
        except Exception as error:
            from .report_file import write_report

            say(write_report(error))
            code = ENDS["internal"].exit_code
        ctx.exit(code)


def _message(error: WaferloomError) -> str:
    """The text of an error, with severity and category unless it already carries them."""
    text = str(error)
    first = text.partition("\n")[0]
    if (
        f"error[{error.category}]" in first
        or "error[" in first
        or error.end in ("hang", "limit", "interrupted")
    ):
        return text
    return f"error[{error.category}]: {text}"


@click.group(cls=Commands, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="waferloom", prog_name="waferloom")
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Colours in what is printed.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print results and errors only.")
@click.option("-v", "--verbose", count=True, help="Print more.")
@click.pass_context
def cli(ctx: click.Context, color: str, quiet: bool, verbose: int) -> None:
    """Waferloom, a cycle-exact emulator of a wafer-scale dataflow fabric."""
    ctx.obj = Terminal(color=color, quiet=quiet, verbose=verbose)
    ctx.color = ctx.obj.colour_for(sys.stdout)


def main() -> None:
    """Entry point of the installed command."""
    cli(prog_name="waferloom")


if __name__ == "__main__":
    main()
