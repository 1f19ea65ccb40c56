"""Distributions whose own Python images are based on."""

from torchbake.matrix.spec import BaseSpec

# The most tested first: torchbake's own images are based on Debian. A build needs Python 3.11 or later (tomllib).
DISTRIBUTIONS = (
    BaseSpec(name="debian12", image="debian:bookworm-slim", suite="bookworm", python="3.11"),
    BaseSpec(name="debian13", image="debian:trixie-slim", suite="trixie", python="3.13"),
    BaseSpec(name="ubuntu24.04", image="ubuntu:24.04", distribution="ubuntu", suite="noble", python="3.12"),
    BaseSpec(name="ubuntu26.04", image="ubuntu:26.04", distribution="ubuntu", suite="resolute", python="3.14"),
)
