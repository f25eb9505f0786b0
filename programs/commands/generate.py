"""`waferloom generate`: a model writes text, one layer or several on each of a chain of emulated wafers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from ...isa.errors import Interrupted
from ..layout_options import layout_options
from ..terminal import Terminal

if TYPE_CHECKING:
    from ...fabric.chain import Chain
    from ..models import Generation, Tokenizer


@click.command("generate")
@click.argument("text")
@click.option("--tokens", "count", type=click.IntRange(min=1), default=32, show_default=True, metavar="N")
@click.option(
    "--model", default="smollm2", show_default=True, metavar="FILE.gguf", help="File or pinned name."
)
@layout_options
@click.option(
    "--requests",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Copies of the request under way at once, each with a KV cache and a seed of its own.",
)
@click.option("--threads", type=click.IntRange(min=1), default=2, show_default=True, help="Host threads.")
@click.option("--chat", is_flag=True, help="TEXT is a question; the answer ends where the model ends it.")
@click.option("--temperature", type=float, default=0.0, show_default=True, help="0: the most probable token.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the draws.")
@click.option(
    "--head",
    type=click.Choice(["wafer", "host"]),
    help="Where logits are made [default: wafer, or host with --temperature].",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of the text.")
@click.pass_obj
def command(terminal: Terminal, text: str, **options: Any) -> None:
    """Go on with TEXT and count every cycle on the way.

    Each layer of the model is one wafer (or several share one, with --wafers), and so is the head; the
    embedding is looked up on the host. The text goes to stdout as it is made, the figures to stderr.
    """
    from ...fabric.link import link
    from ...fabric.spec import machine
    from ..interrupt import Stop
    from ..model_file import grid_of, open_model
    from ..models import (
        ChainStages,
        HostHead,
        Sampler,
        Tokenizer,
        WaferHead,
        check_requests,
        describe_model,
        generate,
    )
    from ..models.figures import document
    from ..models.wafers import chain_of_layers, head_plan, layer_plan, layers_per_wafer
    from ..terminal import Progress

    spec, links, grid = machine(options["machine"]), link(options["link_file"]), grid_of(options["grid"])
    seeds = range(options["seed"], options["seed"] + options["requests"])
    samplers = [Sampler(options["temperature"], seed) for seed in seeds]
    began = time.perf_counter()
    with open_model(options["model"], terminal) as file:
        config = describe_model(file)
        tokenizer = Tokenizer(file)
        prompt = tokenizer.chat(text) if options["chat"] else tokenizer.prompt(text)
        prompts, capacity = [prompt] * options["requests"], min(options["kv"], config.context)
        check_requests(prompts, options["count"], capacity, options["requests"])  # before wafers are loaded
        plan = layer_plan(config, spec, grid, options["kv"], options["requests"])
        shares = layers_per_wafer(config, plan, options["wafers"])
        on_wafer = (options["head"] or ("host" if options["temperature"] else "wafer")) == "wafer"
        head = head_plan(config, plan) if on_wafer else None
        with Progress(terminal, "generate", "loading wafers"):
            chain = chain_of_layers(
                file, config, plan, links, wafers=len(shares), head=head, threads=options["threads"]
            )
            ends = WaferHead(file, config) if head else HostHead(file, config)
    end = tokenizer.end if options["chat"] else None
    printer = _Printer(tokenizer, "" if options["chat"] else text, end, silent=options["as_json"])
    with (
        Stop() as stop,
        Progress(terminal, "generate", "starting (the first run compiles the engine)") as progress,
    ):

        def interrupted() -> bool:
            progress.tick(_where(chain, printer.made, options["count"] * options["requests"]))
            return stop.asked

        def on_token(request: int, token: int, tick: int) -> None:
            printer.add(request, token)

        made = generate(
            ChainStages(chain, plan, interrupted),
            ends,
            prompts,
            options["count"],
            samplers,
            stop=end,
            capacity=capacity,
            on_token=on_token,
        )
    printer.finish()
    written = tokenizer.decode(token for token in made.tokens[0] if token != end)
    seconds = time.perf_counter() - began
    told = document(config, plan, shares, head, chain, made, written, seconds, options["threads"])
    _report(terminal, told, made, options["as_json"])


class _Printer:
    """Text to stdout as its tokens come."""

    def __init__(self, tokenizer: Tokenizer, before: str, end: int | None, silent: bool) -> None:
        from ..models import TextStream

        self.made = 0
        self._end = end
        self._stream = TextStream(tokenizer)
        self._silent = silent
        self._write(before)

    def add(self, request: int, token: int) -> None:
        """A token of a request; only the first request's are shown, without the one that ends an answer."""
        self.made += 1
        if request == 0 and token != self._end:
            self._write(self._stream.add(token))

    def finish(self) -> None:
        self._write(self._stream.rest() + "\n")

    def _write(self, text: str) -> None:
        if not self._silent:
            click.echo(text, nl=False)


def _where(chain: Chain, made: int, count: int) -> str:
    """The progress line: the token under way, the wafer it is on, cycles so far."""
    cycles = sum(stay.cycles for stays in chain.stays for stay in stays)
    return f"token {made + 1} of {count}, wafer {chain.place[1]}, {cycles:,} wafer cycles"


def _report(terminal: Terminal, told: dict[str, Any], made: Generation, as_json: bool) -> None:
    import json

    from ..models.figures import lines

    if as_json:
        click.echo(json.dumps(told, sort_keys=True, indent=1, ensure_ascii=False))
    else:
        terminal.note(lines(told))
    if made.end == "interrupted":
        raise Interrupted(f"interrupted after {made.made} tokens")
