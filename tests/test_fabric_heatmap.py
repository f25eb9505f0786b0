"""Text heat maps: cells, blocks of PEs, legends, ASCII and colour."""

import numpy as np
import pytest
from waferloom.fabric.heatmap import METRICS, HeatMap
from waferloom.isa.errors import Usage


def test_small_grid_is_one_cell_per_pe():
    text = HeatMap("busy", np.array([[0, 10], [5, 10]]), "cycles").text(ascii=True)
    assert text.splitlines() == [
        "busy: 2 x 2 PEs, cycles",
        "+----+",
        "|  ##|",
        "|::##|",
        "+----+",
        "   0-2  .. 2-4  :: 4-6  ** 6-8  ## 8-10  cycles",
    ]


def test_routers_without_a_pe_are_marked():
    text = HeatMap("busy", np.ones((1, 2)), "cycles", np.array([[True, False]])).text()
    assert "│██··│" in text
    assert text.endswith("·· no PE  cycles")


@pytest.mark.parametrize(("aggregate", "value"), [("max", 99.0), ("mean", 99 / 476), ("sum", 99.0)])
def test_a_whole_wafer_names_how_blocks_are_made(aggregate, value):
    values = np.zeros((1170, 755))
    values[0, 0] = 99
    drawn = HeatMap("links", values, "wavelets", aggregate=aggregate)
    lines = drawn.text().splitlines()
    assert lines[0] == f"links: 755 x 1170 PEs, wavelets, each cell the {aggregate} of 16 x 30 PEs"
    assert len(lines) <= 44
    assert max(map(len, lines[1:-1])) <= 102
    assert drawn.cells()[0, 0] == pytest.approx(value, rel=0.01)


def test_blocks_at_the_edge_count_only_what_is_there():
    drawn = HeatMap("m", np.ones((41, 51)), "cycles", aggregate="sum", rows=40, columns=100)
    assert drawn.block == (2, 2)
    assert drawn.cells()[-1, -1] == 1


def test_nothing_at_all():
    assert "0-0" in HeatMap("m", np.zeros((1, 1)), "cycles", np.zeros((1, 1), bool)).text(colour=True)
    with pytest.raises(Usage, match="legal: max, mean, sum"):
        HeatMap("m", np.zeros((1, 1)), "cycles", aggregate="median").text()


def test_every_counter_has_a_map():
    assert {
        "compute",
        "bank",
        "setup",
        "branch",
        "latency",
        "receive",
        "send",
        "idle",
        "busy",
        "links",
    } <= set(METRICS)
