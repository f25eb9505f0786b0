"""The reference engine: docs/machine.md as plain Python, the definition of the machine; never fast."""

from .engine import run
from .router import Observer

__all__ = ["Observer", "run"]
