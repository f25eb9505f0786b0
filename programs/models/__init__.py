"""Whole models: what a weight file describes, its tokenizer, both ends on the host, and generation."""

from .description import ModelConfig, describe_model
from .generation import Generation, check_requests, generate
from .host_head import HostHead, WaferHead
from .sampling import Sampler
from .stages import ChainStages, GoldenStages, Stages
from .tokenizer import TextStream, Tokenizer

__all__ = [
    "ChainStages",
    "Generation",
    "GoldenStages",
    "HostHead",
    "ModelConfig",
    "Sampler",
    "Stages",
    "TextStream",
    "Tokenizer",
    "WaferHead",
    "check_requests",
    "describe_model",
    "generate",
]
