"""Broken matrices: each message has the file, the line, the key and the mistake, and is never a traceback."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.unit.conftest import edited
from torchbake import cli
from torchbake.errors import MatrixError
from torchbake.matrix.project import load_project

LEAK = "gh" + "p_" + "0123456789abcdefghijklmnopqrstuvwxyz"  # in two parts, for scanners
HERE = "# <- here"  # marks the line that the message must name


@dataclass(frozen=True, kw_only=True)
class Broken:
    """The small matrix with ``old`` replaced by ``new``; the message must contain ``key`` and ``words``."""

    name: str
    old: str
    new: str
    key: str
    words: tuple[str, ...]

    @property
    def text(self) -> str:
        return edited(self.old, self.new)

    @property
    def line(self) -> int:
        return 1 + next(number for number, line in enumerate(self.text.splitlines()) if HERE in line)


def broken(name: str, old: str, new: str, key: str, *words: str) -> Broken:
    return Broken(name=name, old=old, new=new, key=key, words=words)


REPOSITORY = "repository: acme/pytorch\n"
SOURCE = "source: https://example.com/acme"
CPU = "    accelerator: cpu\n"
TORCHES = "  - torch: [2.10.0, 2.9.1]\n"
CUDA = "    accelerator: cuda12.8\n"
FLAVORS = "    flavor: [runtime, devel]\nexclude:\n"
BASES = "    base: [debian12, debian13]\n"
REASON = "    reason: extensions are built once\n"
FORM = '    - "{torch}-{cuda}"\n'
INIT = "  volume-permissions: {version: 1.0.0, base: debian12}\n"
DEFAULTS = "  defaults: {accelerator: cuda, base: debian12, flavor: runtime}\n"
DEVEL = "    packages: {apt: [g++], pip: [ninja]}\n"


def images(line: str) -> str:
    return f"images:\n  {line} {HERE}\ninit:\n"


SYNTAX = [
    broken("tab", "  cudnn: 9\n", f"\tcudnn: 9 {HERE}\n", "", "syntax", "token"),
    broken("unclosed bracket", "    pip: [numpy]\nbases:", f"    pip: [numpy\nbases: {HERE}", "", "syntax"),
    broken("indentation", "  cudnn: 9\n", f"  cudnn: 9\n    trim: true {HERE}\n", "", "syntax", "mapping"),
    broken("undefined alias", "source: https://example.com/acme", f"source: *acme {HERE}", "", "alias"),
    broken("alias loop", "source: https://example.com/acme", f"source: &a [*a] {HERE}", "", "contains itself"),
    broken("second document", "tags:\n", f"--- {HERE}\ntags:\n", "", "another document"),
    broken("key that is a list", REPOSITORY, f"[a]: b {HERE}\n{REPOSITORY}", "", "plain word"),
    broken("duplicate key", "  cudnn: 9\n", f"  cudnn: 9\n  cudnn: 8 {HERE}\n", "defaults.cudnn", "first on line 4"),
    broken("duplicate top key", "tags:\n", f"rows: [] {HERE}\ntags:\n", "rows", "duplicate key", "first on line 17"),
]

GPUS_GONE = ("licenses allow redistribution of unmodified object code only", "remove the line")

UNKNOWN_KEYS = [
    broken("top", "source: https", f"sorce: x {HERE}\nsource: https", "sorce", "'source'?"),
    broken("defaults", "  cudnn: 9\n", f"  cuddn: 9 {HERE}\n", "defaults.cuddn", "'cudnn'?"),
    broken("base", ', python: "3.13"}', f', python: "3.13", sute: x}} {HERE}', "bases.debian13.sute", "'suite'?"),
    broken("flavor", "    headers: true\n", f"    header: true {HERE}\n", "flavors.devel.header", "'headers'?"),
    broken("packages", DEVEL, f"    packages: {{atp: [g++]}} {HERE}\n", "flavors.devel.packages.atp", "'apt'?"),
    broken("row", CPU, f"{CPU}    flavour: devel {HERE}\n", "rows.0.flavour", "'flavor'?"),
    broken("exclude", REASON, f"{REASON}    acelerator: cpu {HERE}\n", "exclude.0.acelerator", "'accelerator'?"),
    broken("exclude, nothing near", REASON, f"{REASON}    x: y {HERE}\n", "exclude.0.x", "known keys: torch"),
    broken("init", "base: debian12}\ntags", f"base: debian12, verzion: 1}} {HERE}\ntags", ".verzion", "'version'?"),
    broken("images", "init:\n", images('"2.10*": {trimm: true}'), "images.2.10*.trimm", "'trim'?"),
    broken("tags", "  rolling:\n", f"  roling: [] {HERE}\n  rolling:\n", "tags.roling", "'rolling'?"),
    broken("tag defaults", DEFAULTS, DEFAULTS.replace("}\n", f", falvor: x}} {HERE}\n"), "tags.defaults.", "'flavor'?"),
    broken("gone, of defaults", "  cudnn: 9\n", f"  gpus: [8.0] {HERE}\n", "defaults.gpus", *GPUS_GONE),
    broken("gone, of a row", CUDA, f'{CUDA}    gpus: "7.0+" {HERE}\n', "rows.1.gpus", *GPUS_GONE),
    broken("gone, of images", "init:\n", images('"2.10*": {gpus: 9.0}'), "images.2.10*.gpus", *GPUS_GONE),
]

WRONG_TYPES = [
    broken("repository", REPOSITORY, f"repository: [a, a] {HERE}\n", "repository", "a is there twice", "remove one"),
    broken("defaults", "init:\n", f"images: [] {HERE}\ninit:\n", "images", "should be a mapping", "a list"),
    broken("flavor", "  runtime: {}\n", f"  runtime: [a] {HERE}\n", "flavors.runtime", "should be a mapping"),
    broken("base of a row", BASES, f"    base: {{a: b}} {HERE}\n", "rows.1.base", "should be a list", "a mapping"),
    broken("no value", TORCHES, f"  - torch: {HERE}\n", "rows.1.torch", "should be a list"),
    broken("empty list", TORCHES, f"  - torch: [] {HERE}\n", "rows.1.torch", "at least one"),
    broken("yes or no", "    headers: true\n", f"    headers: maybe {HERE}\n", ".headers", "'maybe'", "true or false"),
    broken("cudnn", "  cudnn: 9\n", f"  cudnn: nine {HERE}\n", "defaults.cudnn", "'nine'"),
    broken("row", TORCHES, f"  - plain {HERE}\n{TORCHES}", "rows.1", "should be a mapping", "'plain'"),
    broken("packages", DEVEL, f"    packages: {{apt: {{a: b}}}} {HERE}\n", ".packages.apt", "should be a list"),
    broken("torch", TORCHES, f"  - torch: [[2.10.0]] {HERE}\n", "rows.1.torch.0", "should be one value"),
]

MISSING = [
    broken("repository", f"{REPOSITORY}{SOURCE}", f"{SOURCE} {HERE}", "repository", "is missing"),
    broken("base of a row", TORCHES + CUDA + BASES, f"{TORCHES.rstrip()} {HERE}\n{CUDA}", "rows.1.base", "is missing"),
    broken("torch", TORCHES + CUDA, f"  - accelerator: cuda12.8 {HERE}\n", "rows.1.torch", "is missing"),
    broken("suite", 'suite: trixie, python: "3.13"}', f'python: "3.13"}} {HERE}', "bases.debian13.suite", "is missing"),
    broken("reason", REASON + "init", f"  - base: debian13 {HERE}\ninit", "exclude.1.reason", "is missing"),
    broken("too short a reason", REASON, f"    reason: no {HERE}\n", "exclude.0.reason", "8 characters"),
    broken(
        "version of an init image", INIT, f"  volume-permissions: {{base: debian12}} {HERE}\n", ".version", "missing"
    ),
]

THIRTEEN = 'suite: trixie, python: "3.13"}'
VERSIONS = [
    broken("torch 2.x", TORCHES, f"  - torch: 2.x {HERE}\n", "rows.1.torch", "'2.x'", "not a version"),
    broken("minor of torch", TORCHES, f"  - torch: 2.10 {HERE}\n", "rows.1.torch", "write it in full", "'2.10.0'"),
    broken("local version", TORCHES, f"  - torch: 2.10.0+cu128 {HERE}\n", "rows.1.torch", "local version"),
    broken("epoch", TORCHES, f"  - torch: 1!2.10.0 {HERE}\n", "rows.1.torch", "epoch"),
    broken("torch before 2.0", TORCHES, f"  - torch: 1.13.1 {HERE}\n", "rows.1.torch", "1.13.1", "2.0"),
    broken("cuda12", CUDA, f"    accelerator: cuda12 {HERE}\n", "rows.1.accelerator", "'cuda12'", "cuda12.8"),
    broken("gpu", CUDA, f"    accelerator: gpu {HERE}\n", "rows.1.accelerator", "'gpu'", "cpu"),
    broken("cuda12.x", CUDA, f"    accelerator: cuda12.x {HERE}\n", "rows.1.accelerator", "'cuda12.x'"),
    broken("second of a list", CUDA, f"    accelerator: [cuda12.8, rocm] {HERE}\n", "rows.1.accelerator.1", "'rocm'"),
    broken("python", 'python: "3.13"}', f'python: "3.x"}} {HERE}', "bases.debian13.python", "'3.x'"),
    broken("interpreter", THIRTEEN, f"{THIRTEEN[:-1]}, interpreter: python3.12}} {HERE}", ".interpreter", "version"),
    broken("init", INIT, f"  volume-permissions: {{version: one, base: debian12}} {HERE}\n", ".version", "'one'"),
    broken("CUDA major", "  runtime: {}\n", f"  runtime: {{cuda_packages: {{cuda12.8: {{}}}}}} {HERE}\n", ".cuda12.8"),
]

NAMES = [
    broken("upper case", REPOSITORY, f"repository: Acme/PyTorch {HERE}\n", "repository", "upper case", "acme/pytorch"),
    broken("base", BASES, f"    base: debain13 {HERE}\n", "rows.1.base", "unknown base 'debain13'", "'debian13'?"),
    broken("nothing near", BASES, f"    base: zz {HERE}\n", "rows.1.base", "there are: debian12, debian13"),
    broken("flavor", FLAVORS, f"    flavor: runtme {HERE}\nexclude:\n", "rows.1.flavor", "'runtme'", "'runtime'?"),
    broken("exclude", "  - base: debian13\n", f"  - base: debian14 {HERE}\n", "exclude.0.base", "'debian14'"),
    broken(
        "init", INIT, f"  volume-permissions: {{version: 1.0.0, base: sid}} {HERE}\n", ".base", "unknown base 'sid'"
    ),
    broken(
        "init's name", INIT, f"{INIT}  My Init: {{version: 1.0.0, base: debian12}} {HERE}\n", "init.My Init", "form"
    ),
    broken("tags", DEFAULTS, f"  defaults: {{base: debian12, flavor: run}} {HERE}\n", "tags.defaults.flavor", "'run'"),
    broken(
        "accelerator", DEFAULTS, f"  defaults: {{base: debian12, accelerator: gpu}} {HERE}\n", ".accelerator", "'gpu'"
    ),
    broken("registry's host", REPOSITORY, f"repository: example.com:port/x {HERE}\n", "repository", "form"),
    broken("pip", DEVEL, f"    packages: {{pip: [ein ops]}} {HERE}\n", ".packages.pip.0", "'ein ops'", "pip"),
    broken("apt", DEVEL, f"    packages: {{apt: [Lib_GL]}} {HERE}\n", ".packages.apt.0", "'Lib_GL'", "Debian"),
]

# Texts that a Dockerfile or apt would read as an instruction, an option or another package.
BASE12 = 'debian12: {image: "debian:bookworm-slim", '
INJECTIONS = [
    broken(
        "image", BASE12, f'debian12: {{image: "debian\\nRUN id", {HERE}\n    ', "debian12.image", "not an image ref"
    ),
    broken("an option", BASE12, f"debian12: {{image: --platform=x debian, {HERE}\n    ", ".image", "not an image ref"),
    broken("image's variable", BASE12, f'debian12: {{image: "debian:$TAG", {HERE}\n    ', ".image", "not an image ref"),
    broken("interpreter", BASE12, f'{BASE12}interpreter: "/bin/py;id", {HERE}\n    ', ".interpreter", "form"),
    broken("its options", BASE12, f'{BASE12}interpreter: "/bin/py -c", {HERE}\n    ', ".interpreter", "form"),
    broken("its folder", BASE12, f"{BASE12}interpreter: /../py, {HERE}\n    ", ".interpreter", "form"),
    broken("distribution", BASE12, f"{BASE12}distribution: alpine, {HERE}\n    ", ".distribution", "form"),
    broken(
        "image's digest", BASE12, f"debian12: {{image: 'debian@sha256:{'a' * 63}', {HERE}\n    ", ".image", "not an"
    ),
    broken("package away", DEVEL, f"    packages: {{apt: [tini-]}} {HERE}\n", ".packages.apt.0", "would remove"),
    broken("version's end", DEVEL, f"    packages: {{apt: [tini=1-]}} {HERE}\n", ".packages.apt.0", "would remove"),
    broken("apt's pattern", DEVEL, f"    packages: {{apt: ['lib.+']}} {HERE}\n", ".packages.apt.0", "pattern"),
    broken("apt's option", DEVEL, f"    packages: {{apt: ['-oX=y']}} {HERE}\n", ".packages.apt.0", "not a Debian"),
    broken("apt's words", DEVEL, f"    packages: {{apt: ['g++; id']}} {HERE}\n", ".packages.apt.0", "not a Debian"),
    broken("pip's option", DEVEL, f'    packages: {{pip: ["x\\n--index-url x"]}} {HERE}\n', ".pip.0", "line"),
    broken("pip's file", DEVEL, f"    packages: {{pip: ['-r /etc/passwd']}} {HERE}\n", ".pip.0", "not a pip"),
    broken("label", SOURCE, f'source: "a\\rb" {HERE}', "source", "control characters"),
    broken("label's variable", SOURCE, f"source: a$INPUTS {HERE}", "source", "$"),
    broken("reason", REASON, f'    reason: "extensions \\e[2J" {HERE}\n', "exclude.0.reason", "control characters"),
    broken("digits", 'python: "3.13"}', f'python: "3.\u0661\u0663"}} {HERE}', "bases.debian13.python", "form"),
    broken(
        "CUDA's digits", CUDA, f"    accelerator: cuda12.\u0668 {HERE}\n", "rows.1.accelerator", "not an accelerator"
    ),
]

INDEXES = [
    broken("accelerator", SOURCE, f"{SOURCE}\nindexes: {{gpu: 'https://x'}} {HERE}", "indexes.gpu", "form"),
    broken("in a row", CPU, f"{CPU}    indexes: {{cuda12.: 'https://x'}} {HERE}\n", "rows.0.indexes", "form"),
    broken("a folder", SOURCE, f"{SOURCE}\nindexes: {{cpu: /srv/wheels}} {HERE}", "indexes.cpu", "not the address"),
    broken(
        "a login", SOURCE, f"{SOURCE}\nindexes: {{cpu: 'https://me:pw@x/cpu'}} {HERE}", "indexes.cpu", "TORCHBAKE_IN"
    ),
    broken(
        "a shell's words", SOURCE, f"{SOURCE}\nindexes: {{cpu: 'https://x/$(id)'}} {HERE}", "indexes.cpu", "address"
    ),
]


def own(name: str, key: str, *words: str) -> Broken:
    """An invalid addition of the CPU row, as one line of YAML."""
    return broken(name, CPU, f"{CPU}    {name} {HERE}\n", key, *words)


def file(source: str, target: str, key: str, *words: str) -> Broken:
    return own(f"files: [{{source: {source}, target: {target}}}]", f"rows.0.files.0{key}", *words)


OWN = [
    own("env: {A-B: x}", "rows.0.env.A-B", "form"),
    own("env: {1A: x}", "rows.0.env.1A", "form"),
    own('env: {A: "x\\ny"}', "rows.0.env.A", "control characters"),
    own("env: {A: }", "rows.0.env.A", "one value"),
    own("env: [A=x]", "rows.0.env", "mapping"),
    own("env: {PATH: /x}", "rows.0.env.PATH", "PATH is the toolkit's own", "/usr/local/bin"),
    own("env: {HF_TOKEN: x}", "rows.0.env.HF_TOKEN", "looks like a secret", "metadata.env-secrets"),
    *(
        own(f"env: {{{name}: '1'}}", f"rows.0.env.{name}", f"{name} describes a job to `run`", "containers are started")
        for name in ("WORLD_SIZE", "RANK", "MASTER_ADDR", "NNODES", "MODE", "SLURM_NODEID", "PET_NNODES", "JOB_TOKEN")
    ),
    own("env: {URL: 'https://u:geheim@h/'}", "rows.0.env.URL", "the value of URL looks like a secret", "waive"),
    own(f"env: {{A: {LEAK}}}", "rows.0.env.A", "the value of A looks like a secret"),
    own(f"labels: {{com.acme: {LEAK}}}", "rows.0.labels.com.acme", "the value of com.acme looks like a secret"),
    broken(
        "secret of an init image", INIT, INIT.replace("}", f", labels: {{a: {LEAK}}}}} {HERE}"),
        "init.volume-permissions.labels.a", "the value of a looks like a secret",
    ),
    own("labels: {Team: x}", "rows.0.labels.Team", "upper case"),
    own("labels: {a..b: x}", "rows.0.labels.a..b", "form"),
    own("labels: {org.torchbake.id: x}", "rows.0.labels.org.torchbake.id", "the toolkit's own"),
    own("labels: {com.docker.x: x}", "rows.0.labels.com.docker.x", "Docker's own"),
    own("labels: {org.opencontainers.image.source: x}", ".source", "`source:` on top"),
    own("labels: {org.opencontainers.image.created: x}", ".created", "each build fills it in"),
    own("labels: {org.opencontainers.image.vendro: x}", ".vendro", "did you mean 'org.opencontainers.image.vendor'?"),
    own('labels: {a: "x\\ty"}', "rows.0.labels.a", "control characters"),
    broken("secret of all", "  cudnn: 9\n", f"  cudnn: 9\n  env: {{API_KEY: x}} {HERE}\n", "defaults.env", "secret"),
    broken("secret of an image", "init:\n", images('"2.13.0-*": {env: {API_KEY: x}}'), "images.2.13.0-*.env", "secret"),
    own("certificates: [/etc/acme.pem]", "rows.0.certificates.0", "outside of the matrix's folder"),
    own("certificates: [a/../../acme.pem]", "rows.0.certificates.0", "outside of the matrix's folder"),
    own("certificates: ['a b.pem']", "rows.0.certificates.0", "not a path such as"),
    own("certificates: ['a,target=/x']", "rows.0.certificates.0", "not a path such as"),
    own("certificates: [a//b.pem]", "rows.0.certificates.0", "single slashes"),
    own("certificates: [folder/]", "rows.0.certificates.0", "name each certificate"),
    own("certificates: [images/a.pem]", "rows.0.certificates.0", "the toolkit's"),
    own("certificates: a.pem", "rows.0.certificates", "should be a list"),
    own("certificates: [a/x.pem, b/x.crt]", "rows.0.certificates", "a/x.pem and b/x.crt would both be x.crt"),
    file("../job.py", "/x", ".source", "outside of the matrix's folder"),
    file("layers/job.py", "/x", ".source", "layers/, which is the toolkit's"),
    file("job.py", "x", ".target", "from the root on"),
    file("job.py", "/", ".target", "from the root on"),
    file("job.py", "/a/../b", ".target", "single slashes"),
    file("job.py", "'/a b'", ".target", "not a path such as"),
    *(
        file("job.py", taken, ".target", f"{taken} is not allowed")
        for taken in ("/proc/x", "/sys/x", "/dev/x", "/opt/venv/x", "/opt/torchbake", "/pytorch/x", "/bin/tini")
    ),
    file("job.py", "/etc/ssl/certs/x.pem", ".target", "name yours in `certificates`"),
    *(
        own(
            f"files: [{{source: a/job.py, target: {folder}}}]",
            "rows.0.files",
            f"{folder} is a folder; write the name of a/job.py in it too: {folder}/job.py",
        )
        for folder in ("/etc", "/usr/bin", "/app", "/home/torch", "/opt", "/var/lib", "/usr/local/lib", "/etc/ssl")
    ),
    own(
        "files: [{source: a, target: /x}, {source: b/, target: /x/y/z}]",
        "rows.0.files",
        "/x/y/z is impossible, as /x is",
    ),
    own("files: [{source: a, target: /x/y}, {source: b, target: /x}]", "rows.0.files", "/x/y is impossible, as /x is"),
    file("job.py", "/x, mode: 4755", ".mode", "form"),
    file("job.py", "/x, mode: 0648", ".mode", "form"),
    file("job.py", "/x, mode: 0646", ".mode", "lets everybody write"),
    file("job.py", "/x, owner: www-data", ".owner", "form"),
    file("job.py", "/x, ownr: user", ".ownr", "did you mean 'owner'?"),
    own("platforms: [linux/arm64, linux/386]", "rows.0.platforms.1", "linux/amd64, linux/arm64"),
    own("platforms: [linux/arm64, linux/arm64]", "rows.0.platforms", "there twice"),
    own("platforms: []", "rows.0.platforms", "at least"),
    own("user: {uid: 0}", "rows.0.user.uid", "should be at least 1000"),
    own("user: {uid: 4294967295}", "rows.0.user.uid", "should be at most"),
    own("user: {uid: 65534}", "rows.0.user.uid", "nobody's"),
    own("user: {uid: me}", "rows.0.user.uid", "should be a whole number", "'me'"),
    own("user: {name: root}", "rows.0.user.name", "Debian's own"),
    own("user: {name: 'a:b'}", "rows.0.user.name", "form"),
    own("user: {nam: b}", "rows.0.user.nam", "did you mean 'name'?"),
    own("user: 2000", "rows.0.user", "should be a mapping"),
    broken("init's name of a user", INIT, INIT.replace("}", f", user: {{name: x}}}} {HERE}"), ".user", "uid alone"),
    broken(
        "certificates and their variable", CPU,
        f"{CPU}    certificates: [x.pem]\n    env: {{SSL_CERT_FILE: /x}} {HERE}\n", "rows.0.env", "SSL_CERT_FILE",
    ),
    broken(
        "constraints and their variable", CPU,
        f"{CPU}    constraints: true\n    env: {{UV_CONSTRAINT: /x}} {HERE}\n", "rows.0.env", "UV_CONSTRAINT",
    ),
    broken(
        "env of an init image", INIT, INIT.replace("}", f", env: {{A: x}}}} {HERE}"), "init.volume-permissions.env",
        "unknown key",
    ),
]  # fmt: skip

COMBINATIONS = [
    broken(
        "a project for arm64",
        CPU,
        f"{CPU}    project: {{}}\n    platforms: linux/arm64 {HERE}\n",
        "rows.0.platforms",
        "linux/amd64 alone",
    ),
    broken("cudnn on a cpu row", CPU, f"{CPU}    cudnn: 9 {HERE}\n", "rows.0.cudnn", "cpu row"),
    broken("one image twice", TORCHES, f"  - torch: [2.10.0, 2.9.1, 2.10.0] {HERE}\n", "rows.1", "duplicate image"),
    broken(
        "through two rows",
        "exclude:\n",
        f"  - torch: 2.10.0 {HERE}\n    accelerator: cuda12.8\n    base: debian12\nexclude:\n",
        "rows.2",
        "duplicate image",
        "2.10.0-cuda12.8-cudnn9-runtime-debian12",
        "line 22",
    ),
    broken(
        "excludes nothing",
        "init:\n",
        f"  - torch: 2.1.0 {HERE}\n    reason: never built here\ninit:\n",
        "exclude.1",
        "excludes nothing",
    ),
    broken(
        "excludes a whole row",
        "exclude:\n",
        f"  - torch: 2.8.0 {HERE}\n{CUDA}    base: debian13\n    flavor: devel\nexclude:\n",
        "rows.2",
        "every combination",
    ),
    broken("no such image", "init:\n", images('"2.99*": {trim: false}'), "images.2.99*", "matches no image"),
    broken(
        "nearly an image",
        "init:\n",
        images('"2.10.0-cuda12.8-cudnn9-runtime-debian14": {trim: false}'),
        "images.2.10.0-cuda12.8-cudnn9-runtime-debian14",
        "did you mean '2.10.0-cuda12.8-cudnn9-runtime-debian1",
    ),
]

TAG_FORMS = [
    broken("unknown part", FORM, f'    - "{{torhc}}" {HERE}\n', "tags.rolling.0", "unknown part 'torhc'", "torch,"),
    broken("no name", FORM, f'    - "x{{}}" {HERE}\n', "tags.rolling.0", "unknown part ''"),
    broken("open brace", FORM, f'    - "{{torch" {HERE}\n', "tags.rolling.0", "write parts as {torch}"),
    broken("slash", FORM, f'    - "{{torch}}/{{cuda}}" {HERE}\n', "tags.rolling.0", "a tag holds"),
    broken("conversion", FORM, f'    - "{{torch!r}}" {HERE}\n', "tags.rolling.0", "a tag holds"),
    broken("starts with a dot", FORM, f'    - ".{{torch}}" {HERE}\n', "tags.rolling.0", "a tag holds"),
]

BROKEN = {
    "syntax": SYNTAX,
    "unknown key": UNKNOWN_KEYS,
    "wrong type": WRONG_TYPES,
    "missing": MISSING,
    "version": VERSIONS,
    "name": NAMES,
    "index": INDEXES,
    "own": OWN,
    "injection": INJECTIONS,
    "combination": COMBINATIONS,
    "tag form": TAG_FORMS,
}


@pytest.fixture
def matrix_file(tmp_path: Path) -> Path:
    return tmp_path / "matrix.yaml"


def message_of(path: Path) -> str:
    with pytest.raises(MatrixError) as caught:
        load_project(path)
    return caught.value.message


def test_a_mistake_is_reported_with_file_line_key_and_reason(matrix_file: Path) -> None:
    missed = []
    for group, cases in BROKEN.items():
        for case in cases:
            matrix_file.write_text(case.text)
            message = message_of(matrix_file)
            place = next((line for line in message.splitlines() if f"{matrix_file}:{case.line}:" in line), "")
            if not all(word in place for word in (f":{case.line}:", case.key, *case.words)):
                missed.append(f"{group}, {case.name}, line {case.line}: {message}")
    assert missed == []


def test_a_command_ends_with_the_exit_code_of_a_broken_matrix(
    matrix_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for case, *_ in BROKEN.values():
        matrix_file.write_text(case.text)
        assert cli.main(["list", "all", "--matrix", str(matrix_file)]) == MatrixError.exit_code
        seen_names = capsys.readouterr()
        assert "error:" in seen_names.err
        assert "next:" in seen_names.err
        assert "Traceback" not in seen_names.err
        assert not seen_names.out


def test_a_file_that_is_no_matrix(matrix_file: Path) -> None:
    for content, words in {
        None: "no such file",
        b"": "1: is empty",
        b"# only a comment\n": "1: is empty",
        b"- a\n- b\n": "1: is not a mapping",
        b"just words\n": "1: is not a mapping",
        "repository: caf\xe9\n".encode("latin-1"): "is not UTF-8 text (byte 15)",
        b"a: \x00\n": "control characters",
    }.items():
        if content is not None:
            matrix_file.write_bytes(content)
        message = message_of(matrix_file)
        assert str(matrix_file) in message
        assert words in message
        assert cli.main(["list", "all", "--matrix", str(matrix_file)]) == MatrixError.exit_code


def test_a_folder_in_place_of_the_file(tmp_path: Path) -> None:
    assert f"{tmp_path}: is a folder" in message_of(tmp_path)
    assert cli.main(["list", "all", "--matrix", str(tmp_path)]) == MatrixError.exit_code


def test_all_problems_are_reported_at_once_in_the_files_order(matrix_file: Path) -> None:
    text = edited("  cudnn: 9\n", "  cudnn: nine\n")
    text = edited("    accelerator: cpu\n", "    acelerator: cpu\n", text)
    text = edited("[2.10.0, 2.9.1]", "[2.x, 2.9.1]", text)
    matrix_file.write_text(text)
    head, *problems = message_of(matrix_file).splitlines()
    assert head == f"{len(problems)} problems:"
    lines = [int(problem.split(":")[1]) for problem in problems]
    assert lines == [4, 18, 19, 22]  # the misspelt key is missing as well as unknown


def test_a_mistake_in_a_row_is_reported_once_for_all_its_images(matrix_file: Path) -> None:
    matrix_file.write_text(edited("[2.10.0, 2.9.1]", "[1.13.1]"))
    assert message_of(matrix_file).count("1.13.1") == 1


@pytest.mark.parametrize("form", ["{minor}", "latest"])
def test_two_images_that_claim_one_tag(form: str, matrix_file: Path) -> None:
    text = edited("[2.10.0, 2.9.1]", "[2.10.0, 2.10.0.0]")
    matrix_file.write_text(text)
    line = 1 + next(number for number, line in enumerate(text.splitlines()) if f'- "{form}"' in line)
    place = next(problem for problem in message_of(matrix_file).splitlines() if f"{matrix_file}:{line}:" in problem)
    assert "two images claim the tag" in place
    assert "2.10.0-cuda12.8-cudnn9-runtime-debian12" in place
    assert "2.10.0.0-cuda12.8-cudnn9-runtime-debian12" in place
