"""The options that choose what runs the steps of a build."""

import argparse
from typing import get_args

from torchbake.build.executor import Executor


def add_executor(parser: argparse.ArgumentParser, images: str) -> None:
    """``images`` says what becomes of the images that are built without an engine."""
    parser.add_argument(
        "--executor", choices=("auto", *get_args(Executor)), default="auto",
        help="what runs the steps of a build. By default the engine's kind decides: BuildKit by docker buildx for "
        "Docker, podman for podman; buildah where there is no engine",
    )  # fmt: skip
    parser.add_argument(
        "--no-engine", action="store_true", help=f"ask no container engine: build by buildah, and {images}"
    )
