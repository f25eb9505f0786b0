"""Weight files: opened safely, their blocks turned into the machine's groups; `fetch` gets pinned ones."""

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
    "group_bytes",
    "groups_of",
    "open_gguf",
    "open_safetensors",
]
