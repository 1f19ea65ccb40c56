"""The options of commands that build: what runs the steps, and layers of released images."""

from dataclasses import dataclass

from torchbake.build.executor import Choice
from torchbake.commands import _options as opt

_LAYERS = "layers of released images, verified by cosign"


@dataclass(frozen=True, kw_only=True)
class WithExecutor:
    executor: Choice = opt.option(
        "what runs the steps of a build. By default the engine's kind decides: BuildKit by docker buildx for Docker, "
        "podman for podman; buildah where there is no engine",
        default="auto",
    )


@dataclass(frozen=True, kw_only=True)
class WithLayers:
    """The options of a build that takes layers from released images."""

    layers_from: str = opt.option(
        "fetch the packed wheels of images that are released there, in place of packing them", group=_LAYERS,
        metavar="HOST[:PORT]/NAMESPACE",
    )  # fmt: skip
    layers_key: str = opt.option(
        "with --layers-from: trust images that this public key verifies; a file, or a KMS address", group=_LAYERS,
        metavar="KEY",
    )  # fmt: skip
    plain_http: bool = opt.plain_http(group=_LAYERS)
    no_transparency_log: bool = opt.no_transparency_log(_LAYERS)

    @property
    def unused(self) -> bool:
        """Return whether `--layers-from` is missing and options are given that need it."""
        return not self.layers_from and bool(self.layers_key or self.plain_http or self.no_transparency_log)
