"""Bench: one layer per wafer, SmolLM2's layers in chains of 4 to 30 wafers, emulated, for two latencies.

With tokens under way on all wafers the total tokens/s stay as layers and wafers grow, the time to the first
token grows linearly, and one token alone takes the sum of its stages. Here the tokens of one prompt keep the
wafers busy.
"""

import dataclasses

import numpy as np
import pytest
from report import figure
from waferloom.fabric.link import link
from waferloom.fabric.spec import machine
from waferloom.programs.models import ChainStages, HostHead, describe_model, generate
from waferloom.programs.models.wafers import chain_of_layers, layer_plan
from waferloom.programs.weights import open_gguf
from waferloom.programs.weights.fetch import fetch

TOKENS = (504, 3575, 282)
WAFERS = (4, 8, 16, 30)


def flow(file, config, head, wafers: int, latency_ns: int) -> tuple[float, float]:
    """Microseconds until the first token is through, and from one token to the next."""
    short = dataclasses.replace(config, layers=wafers)
    plan = layer_plan(short, machine("wse3"), None, 64)
    chain = chain_of_layers(file, short, plan, dataclasses.replace(link(), latency_ns=latency_ns), threads=2)
    stages = ChainStages(chain, plan)
    items = [stages.send(0, head.embed(token), 0) for token in TOKENS]
    times = [chain.microseconds(stages.receive(item)[1]) for item in items]
    return times[0], float(np.diff(times).mean())


@pytest.mark.large
@pytest.mark.parametrize("latency_ns", [2_000, 20_000])
def test_chain(benchmark, latency_ns):
    """Prints the table and holds its three claims within a few per cent."""
    with open_gguf(fetch("smollm2")) as file:
        config = describe_model(file)
        head = HostHead(file, config)
        rows = benchmark.pedantic(
            lambda: [flow(file, config, head, wafers, latency_ns) for wafers in WAFERS], rounds=1
        )
    name = f"chain, links of {latency_ns / 1000:g} us"
    for wafers, (first, gap) in zip(WAFERS, rows, strict=True):
        figure(name, f"{wafers} wafers: first token after", first, "us")
        figure(name, f"{wafers} wafers: tokens under way on all of them", 1e6 / gap, "tokens/s")
        figure(name, f"{wafers} wafers: one request alone", 1e6 / first, "tokens/s")
    gaps = [gap for _, gap in rows]
    assert max(gaps) < 1.02 * min(gaps)
    slope, start = np.polyfit(WAFERS, [first for first, _ in rows], 1)
    assert slope == pytest.approx(gaps[0] + latency_ns / 1000, rel=0.03)
    assert start == pytest.approx(latency_ns / 1000, abs=3)


@pytest.mark.large
def test_requests(benchmark):
    """Requests in flight fill eight wafers: the total grows until every wafer is busy."""
    with open_gguf(fetch("smollm2")) as file:
        config = dataclasses.replace(describe_model(file), layers=8)
        head = HostHead(file, config)

        def rates(requests: int) -> tuple[float, float]:
            plan = layer_plan(config, machine("wse3"), None, 64, requests)
            chain = chain_of_layers(file, config, plan, threads=2)
            made = generate(ChainStages(chain, plan), head, [[504]] * requests, 3)
            own = [2e6 / chain.microseconds(ticks[-1] - ticks[0]) for ticks in made.ticks]
            return own[0], sum(own)

        counts = (1, 4, 8, 12)
        rows = benchmark.pedantic(lambda: [rates(n) for n in counts], rounds=1)
    for count, (one, total) in zip(counts, rows, strict=True):
        figure("eight wafers", f"{count} requests: one of them", one, "tokens/s")
        figure("eight wafers", f"{count} requests: all", total, "tokens/s")
    assert rows[1][1] == pytest.approx(4 * rows[0][1], rel=0.03)
    assert rows[3][1] == pytest.approx(rows[2][1], rel=0.2)
