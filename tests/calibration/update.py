"""Rewrites the calibration table of docs/machine.md from a run of the reference engine, and no other line."""

from test_calibration import BEGIN, END, PAGE
from waferloom.fabric.calibration import calibrate, table

if __name__ == "__main__":
    page = PAGE.read_text("utf-8")
    before, rest = page.split(BEGIN)
    PAGE.write_text(before + BEGIN + table(calibrate()) + END + rest.split(END)[1], "utf-8")
