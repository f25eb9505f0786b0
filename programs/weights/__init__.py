"""Weight files: open them safely, turn their blocks into the machine's groups, fetch the pinned ones."""

from .fetch import cached, fetch
from .gguf_file import open_gguf
from .groups import Groups, Tiling, group_bytes, groups_of
from .safetensors_file import open_safetensors
from .weight_file import Tensor, WeightFile, WeightFileError

__all__ = [
    "Groups",
    "Tensor",
    "Tiling",
    "WeightFile",
    "WeightFileError",
    "cached",
    "fetch",
    "group_bytes",
    "groups_of",
    "open_gguf",
    "open_safetensors",
]
