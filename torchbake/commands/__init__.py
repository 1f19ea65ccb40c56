"""The commands, one module each: its options, a call into another package, and its output."""

# The summary of each command, in the order in which `nox -l` and `--help` show them: that of a project's work.
COMMANDS = {
    "init": "create a repository of images, or of a project's image (--from): matrix.yaml, noxfile.py and other files",
    "setup": "make this machine ready to build: install and start the container engine and buildx if they are missing",
    "teardown": "stop the engine that setup started, and no other; its images stay",
    "clean": "remove caches: packed layers, wheels, logs; images in the engine stay",
    "store": "show the layers and images in the store of this machine, or verify every byte of it",
    "list": "show the selected images; --explain also shows why others are left out",
    "tags": "show the tags of the selected images, most specific first",
    "schema": "write matrix.schema.json, with which editors check matrix.yaml",
    "lock": "lock exact wheels with hashes (images/<id>/requirements.lock), or with --debian a base's Debian packages",
    "propose": "find newer releases of torch and CUDA in the package indexes, and write rows for them into matrix.yaml",
    "update": "renew the locks that have newer Debian packages or wheels, and build the images that these change",
    "base": "fetch bases from a registry, bootstrap them from packages, or push them for all machines",
    "render": "render Dockerfiles from the matrix, the locks and templates/: images/<id>/Dockerfile",
    "build": "build and tag the selected images; images that are up to date are skipped",
    "reproduce": "build images twice without a cache, and compare them layer by layer",
    "test": "run all checks of the selected images, training included, and keep verdicts; `smoke` only trains",
    "smoke": "run short training jobs only, in N containers or on a host's Python; `test` runs all checks of an image",
    "benchmark": "measure models on images and hosts by a plan, or compare two images; results are kept",
    "sbom": "write a CycloneDX SBOM of each built image, or show licenses",
    "advisories": "show the known vulnerabilities of images, and how soon releases had the fixes",
    "waste": "show what an image holds for nothing, for any image: hidden files, caches, copies, GPU code",
    "diff": "compare any two images: layers, packages, files and configuration, to the byte",
    "publish": "release tested images: an immutable tag each, then their rolling tags",
    "promote": "move rolling tags to a release, by default to the newest",
    "rollback": "move rolling tags back, by default to the release before the current one",
    "validate": "check that a registry serves the images of the matrix, or that an image has the versions you expect",
    "chart": "package the Helm chart with released images, push it to their registry, or validate it there",
    "job": "check a training job (job.yaml), write it for a launcher, or run it",
    "code": "put a folder of code on a released image as one more layer, in its registry; list and delete such images",
    "host": "install the software of an image on bare hosts by Ansible: apply, check, smoke, rollback, remove",
    "report": "write one page about all images: versions, tags, sizes, verdicts, releases",
    "prove": "build, test and release each image that has not passed as it is, and write the page docs/images.md",
    "help": "show a page of the documentation; without a topic, list all of them",
}

# Names of earlier versions, with today's: whoever types one is shown the other.
FORMER_COMMANDS = {"images": "prove"}
FORMER_OPTIONS = {"--finish": "--pending", "--keep-rolling": "--immutable-only"}
