"""Weight files: open them safely, turn their blocks into the machine's groups, fetch the pinned ones."""

from .gguf_file import open_gguf
from .weight_file import Tensor, WeightFile, WeightFileError

__all__ = ["Tensor", "WeightFile", "WeightFileError", "open_gguf"]
