"""Finds the packages: the folders isa, fabric and programs are installed as waferloom.isa and so on."""

from setuptools import find_namespace_packages, setup

LAYERS = ["isa", "fabric", "programs"]

setup(
    packages=[
        f"waferloom.{name}"
        for name in find_namespace_packages(
            include=[*LAYERS, *(f"{layer}.*" for layer in LAYERS)], exclude=["*.__pycache__"]
        )
    ]
)
