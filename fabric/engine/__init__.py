"""The fast engine: streams, not hops (docs/engine.md). Nothing outside this folder is compiled."""

from .execute import run

__all__ = ["run"]
