"""One module a command, thin: its options, a call into a room, and what is shown."""

# Every command with what it is for, in the order of the flow; `nox -l` and `--help` show them so.
COMMANDS = {
    "init": "begin a repository of your own: matrix.yaml, noxfile.py and what belongs to them",
    "setup": "make this machine ready to build: install and start what is missing of container engine and buildx",
    "teardown": "stop the engine that setup started, and no other; its images stay",
    "list": "show the selected images; with --explain also why the others are left out",
    "tags": "show the tags of the selected images, most specific first",
    "schema": "write matrix.schema.json, by which editors check matrix.yaml while it is typed",
    "lock": "lock exact wheels with hashes: images/<id>/requirements.lock",
    "base": "get the bases ready: from a registry where one answers, else from packages",
    "render": "render Dockerfiles from the matrix, the locks and templates/: images/<id>/Dockerfile",
    "build": "build and tag the selected images; those that are up to date are skipped",
    "reproduce": "build images twice from nothing and compare them layer by layer",
    "test": "check the selected images in the engine; unchanged images that passed are skipped",
    "smoke": "run tensors, gradients and distributed training in the selected images, or on a host's Python",
    "benchmark": "measure models on images and hosts by a plan, or compare two images; what was measured is kept",
    "sbom": "write what built images hold: a CycloneDX SBOM each, and their licenses",
    "publish": "release tested images: an immutable tag each, then their rolling tags",
    "promote": "move rolling tags to a release, by default to the newest",
    "rollback": "move rolling tags back, by default to the release before the current one",
    "validate": "prove that a registry serves what the matrix promises, or that any image is what you expect",
    "chart": "pack the Helm chart with released images, push it to their registry, and validate what is there",
    "job": "check a training job, job.yaml, write it as what a launcher takes, or run it to its end",
    "host": "install what an image has on bare machines, over ssh by Ansible: apply, check, smoke, rollback, remove",
    "report": "write one page with all images: versions, tags, sizes, verdicts, releases",
    "images": "build, test and release one image after another, and write docs/images.md; skip those that passed",
}
