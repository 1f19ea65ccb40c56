"""Layers that a build fetches from released images. Only `--layers-from` imports this module, and with it HTTP."""

from collections.abc import Sequence
from pathlib import Path

from torchbake.commands._build_options import WithLayers
from torchbake.commands._registries import registry_of
from torchbake.commands._registry_choice import RegistrySource, choose
from torchbake.commands._selection import repository_of
from torchbake.commands._signing import needed_cosign
from torchbake.errors import UsageError
from torchbake.matrix.platforms import one_of_each_tag
from torchbake.matrix.project import Project
from torchbake.matrix.spec import ImageSpec, Spec
from torchbake.registry.cosign import CosignVerifier, Trust
from torchbake.release.fetched_layers import FetchedLayers, ReleaseLocation
from torchbake.ui import console


def layers_from(args: WithLayers, project: Project, specs: Sequence[Spec]) -> FetchedLayers:
    """Return the layers that the options name. Raises UsageError, and SignatureError if cosign is not installed."""
    if not args.layers_key:
        raise UsageError(
            "--layers-from takes layers only from images whose signature verifies.",
            hint="Name the key that signed them: --layers-key cosign.pub",
        )
    if "://" not in args.layers_key and not Path(args.layers_key).is_file():
        raise UsageError(f"--layers-key {args.layers_key}: there is no such file.", hint="Name a public key of cosign.")
    places = _places(args, project, specs)
    cosign = needed_cosign(
        "--layers-from: no signature can be verified", plain=args.plain_http, log=not args.no_transparency_log
    )  # fmt: skip
    verifier = CosignVerifier(cosign=cosign, trust=Trust(key=args.layers_key))
    return FetchedLayers(
        places=places,
        verifier=verifier,
        warn=lambda text: console.say(f"warning: --layers-from: {text}", style="yellow"),
    )


def _places(args: WithLayers, project: Project, specs: Sequence[Spec]) -> list[ReleaseLocation]:
    """List the own tags of the images to build, then of other images with the same torch."""
    image_specs = [spec for spec in specs if isinstance(spec, ImageSpec)]
    torches = {spec.torch for spec in image_specs}
    rows = (spec for spec in project.expansion.specs if isinstance(spec, ImageSpec) and spec.torch in torches)
    source = RegistrySource(origin="--layers-from", registries=(args.layers_from,))
    choice = choose([source], project.matrix.repository[:1])
    if choice.message:
        console.say(choice.message, style="dim")
    every = one_of_each_tag((*image_specs, *rows))  # the tag of several platforms has the layers of all
    ordered = {spec.id: repository_of(choice.registry, spec) for spec in every}
    registries = {one: registry_of(one, plain_http=args.plain_http) for one in ordered.values()}
    return [ReleaseLocation(registry=registries[where], tag=project.tags[name][0]) for name, where in ordered.items()]
