"""Dockerfiles: a few as they are, the rules that all keep, and the committed ones against the matrix."""

import itertools
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.images.dockerfile import promise_of
from tests.unit.conftest import DEBIAN12, check_golden, image, init_image
from torchbake import cli
from torchbake.core.paths import TOOLKIT
from torchbake.errors import RenderError
from torchbake.lock.image_lock import read_lock
from torchbake.lock.lockfile import Lock, assign_layers, parse_lock
from torchbake.matrix.project import Project
from torchbake.matrix.settings import CA_VARIABLES, CONSTRAINT_VARIABLES, FIXED, HARMLESS
from torchbake.matrix.spec import Additions, BaseSpec, ImageSpec, OwnFile, ProjectSpec, Spec, User
from torchbake.oci.labels import COMPILER
from torchbake.render import templates as rendering
from torchbake.render.build_context import own_sources
from torchbake.render.dockerfile import dockerfile_path, promised_labels, render

GOLDEN = Path(__file__).parents[1] / "golden"


def lock(name: str) -> Lock:
    """Return a small lock for the tests, so that new versions in images/ change nothing here."""
    return parse_lock((GOLDEN / "locks" / f"{name}.lock").read_text(), name)


OWN = Additions(
    env=(("HF_HOME", "/data/hf"), ("GREETING", 'a "b" $PATH \\ ü'), ("LANG", "de_DE.UTF-8")),
    certificates=("certificates/acme.pem", "certificates/lab/root.v2.crt"),
    files=(
        OwnFile(source="files/job.py", target="/app/job.py"),
        OwnFile(source="files/conf/", target="/etc/acme", mode="0640"),
        OwnFile(source="files/model", target="/srv/model", owner="user"),
    ),
    user=User(uid=2000, name="jovyan"),
    labels=(("com.acme.team", "vision & 'sound'"), ("org.opencontainers.image.vendor", "Acme $1")),
)
PROJECT = ProjectSpec(folder="trainer", lock="uv.lock", files=("pyproject.toml", "src/", "packages/core/"))
DEVEL: dict[str, Any] = {"flavor": "devel", "headers": True}
CASES: dict[str, tuple[Spec, Lock | None]] = {
    "cpu-runtime": (image("2.13.0", "cpu"), lock("cpu")),
    "cpu-index": (image("2.13.0", "cpu", indexes=("https://wheels.example/cpu",)), lock("cpu")),
    "cpu-devel": (image("2.13.0", "cpu", apt=("g++", "git"), **DEVEL), lock("cpu")),
    "cuda-runtime": (image(), lock("cuda")),
    "cuda-devel": (image(apt=("make", "g++"), **DEVEL), lock("devel")),
    "cuda-untrimmed": (image(trim=False), lock("cuda")),
    "cuda-with-apt": (image(apt=("libgl1", "ffmpeg")), lock("cuda")),
    "cuda-arm64": (image(platform="linux/arm64", base=replace(DEBIAN12, platform="linux/arm64")), lock("cuda")),
    "cpu-unconstrained": (image("2.13.0", "cpu", constraints=False), lock("cpu")),
    "cuda-unconstrained": (image(constraints=False), lock("cuda")),
    "cpu-own": (image("2.13.0", "cpu", own=OWN), lock("cpu")),
    "cpu-project": (image("2.13.0", "cpu", pip=(), project=PROJECT), lock("project")),
    "cpu-scripts": (
        image("2.13.0", "cpu", own=OWN, project=ProjectSpec(folder=".", lock="uv.lock", files=("train.py", "lib/"))),
        lock("cpu"),
    ),
    "volume-permissions": (init_image(), None),
    "volume-permissions-own": (init_image(own=Additions(labels=OWN.labels, user=User(uid=2000))), None),
}
PYTORCH = [name for name in CASES if not name.startswith("volume-permissions")]


def text_of(name: str) -> str:
    return render(*CASES[name])


def pairs(instruction: str, text: str) -> dict[str, str]:
    """The keys and values of the last ENV or LABEL."""
    block = re.findall(rf"^{instruction} ((?:.*\\\n)*.*)$", text, flags=re.MULTILINE)[-1]
    return dict(re.findall(r'(\S+?)="([^"]*)"', block))


def stage_of(text: str, name: str) -> str:
    return text.partition(f" AS {name}\n")[2].partition("\nFROM ")[0]


def test_a_dockerfile_is_as_it_was_reviewed() -> None:
    """TORCHBAKE_UPDATE_GOLDEN=1 writes it again. The images of the matrix have theirs below images/."""
    for name in ("cpu-index", "cpu-own", "cpu-project", "cuda-with-apt", "volume-permissions-own"):
        check_golden(GOLDEN / f"{name}.Dockerfile", text_of(name))


def test_rendering_again_gives_the_same_bytes() -> None:
    for name in CASES:
        assert text_of(name) == text_of(name), name


def test_no_frontend_is_pulled_from_a_registry() -> None:
    for name in CASES:
        assert "syntax=" not in text_of(name), name


def test_the_user_is_a_number() -> None:
    for name in CASES:
        users = re.findall(r"^USER (.*)$", text_of(name), flags=re.MULTILINE)
        assert users == [str(CASES[name][0].own.user.uid) if name in PYTORCH else "0:0"], name


def test_another_user_replaces_the_usual_user_everywhere() -> None:
    text = text_of("cpu-own")
    assert not re.findall(r"1001|/home/torch|torch:x", text)
    assert 'echo "jovyan:x:2000:0::/home/jovyan:/bin/sh" >> /etc/passwd' in text
    assert promise_of(text).environment["HOME"] == "/home/jovyan"
    assert "\n    2000:0 - /run/own-1 /app/job.py" in text


def test_the_init_image_is_compiled_for_another_uid() -> None:
    """Two macros are set, which the source names for a compilation by hand."""
    source = (TOOLKIT / "entrypoints/init/volume-permissions.c").read_text()
    for name, uid in (("volume-permissions", "1001"), ("volume-permissions-own", "2000")):
        macros = dict(re.findall(r"-D(\w+)=(\S+)", text_of(name)))
        assert macros == {"VERSION": "'\"1.0.0\"'", "OWNER": uid}
        assert set(macros) == set(re.findall(r"^#define ([A-Z]+) \S+$", source, flags=re.MULTILINE))


def test_it_says_what_made_it_and_how_to_build_it_by_hand() -> None:
    for name in CASES:
        spec = CASES[name][0]
        head = text_of(name).partition("FROM")[0]
        assert "Rendered by torchbake" in head, name
        assert f"docker build -f images/{spec.id}/Dockerfile" in head, name


def test_no_line_ends_in_a_space_and_none_is_a_lost_backslash() -> None:
    for name in CASES:
        lines = text_of(name).splitlines()
        assert [line for line in lines if line != line.rstrip()] == [], name
        assert [line for line, after in itertools.pairwise(lines) if line.endswith("\\") and not after] == [], name


def test_every_stage_that_is_copied_from_or_mounted_is_there() -> None:
    for name in CASES:
        text = text_of(name)
        stages = re.findall(r"^FROM (?:--platform=\S+ )?\S+ AS (\S+)$", text, flags=re.MULTILINE)
        used = set(re.findall(r"(?:--from=|,from=)([a-z-]+)", text))
        assert used <= set(stages), name
        assert len(stages) == len(set(stages)), name


def test_the_first_tool_is_installed_by_hash() -> None:
    for name in PYTORCH:
        text = "\n".join(line for line in text_of(name).splitlines() if not line.startswith("#"))
        assert "--mount=type=bind,source=images/builder.lock,target=/run/builder.lock" in text, name
        assert "/run/install_uv.py /run/builder.lock /run/wheels /opt/uv" in text, name
        assert "pip install" not in text, name


def test_secrets_and_caches_are_mounted_and_never_copied() -> None:
    for name in PYTORCH:
        text = text_of(name)
        copied = re.findall(r"^(?:COPY|ADD) (?!--chmod=0644 <<EOF)(.*)$", text, flags=re.MULTILINE)
        assert not re.search(r"/run/secrets|pip\.conf|uv\.toml", "\n".join(copied)), name
        assert not re.search(r"^(ARG|ENV) .*(PIP_|UV_|TOKEN|PASSWORD)", text, flags=re.MULTILINE), name


def test_nvidias_variables_are_on_cuda_images_alone() -> None:
    for name in PYTORCH:
        variables = {key: value for key, value in pairs("ENV", text_of(name)).items() if key.startswith("NVIDIA_")}
        cuda = {
            "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
            "NVIDIA_REQUIRE_CUDA": "cuda>=12.0",
            "NVIDIA_VISIBLE_DEVICES": "all",
        }
        assert variables == (cuda if "cuda" in name else {}), name


def test_a_cuda_home_is_in_images_that_build_for_cuda() -> None:
    for name in PYTORCH:
        variables = pairs("ENV", text_of(name))
        assert ("CUDA_HOME" in variables) == (name == "cuda-devel"), name
        assert ("/usr/local/cuda/bin" in variables["PATH"].split(":")) == (name == "cuda-devel"), name


def test_the_labels_say_everything_that_is_inside() -> None:
    oci, own = "org.opencontainers.image", "org.torchbake"
    assert pairs("LABEL", text_of("cuda-runtime")) == {
        f"{oci}.base.digest": "${BASE_DIGEST}",
        f"{oci}.base.name": "${BASE_NAME}",
        f"{oci}.created": "${CREATED}",
        f"{oci}.licenses": "BSD-3-Clause",
        f"{oci}.revision": "${REVISION}",
        f"{oci}.source": "https://example.com/acme",
        f"{oci}.title": "PyTorch 2.10.0 cuda12.8 runtime",
        f"{oci}.version": "2.10.0-cuda12.8-cudnn9-runtime-debian12",
        f"{own}.base": "${BASE_SOURCE}",
        f"{own}.compiler": "true",
        f"{own}.cuda": "12.8.90",
        f"{own}.cudnn": "9.10.2.21",
        f"{own}.flavor": "runtime",
        f"{own}.id": "2.10.0-cuda12.8-cudnn9-runtime-debian12",
        f"{own}.inputs": "${INPUTS}",
        f"{own}.nccl": "2.27.5",
        f"{own}.python": "3.11",
        f"{own}.torch": "2.10.0",
    }


texts = st.text(st.characters(exclude_categories=("C", "Z")) | st.sampled_from(" \"\\$'`#{}=<"), max_size=20)


@given(texts, texts)
def test_a_value_arrives_as_it_was_written_whatever_it_holds(one: str, other: str) -> None:
    spec = image(own=Additions(env=(("ONE", one), ("TWO", other)), labels=(("one", other), ("two", one))))
    text = render(spec, lock("cuda"))
    promise = promise_of(text)
    assert (promise.environment["ONE"], promise.environment["TWO"]) == (one, other)
    assert (promise.labels["one"], promise.labels["two"]) == (other, one)
    plain = image(own=Additions(env=(("ONE", ""), ("TWO", "")), labels=(("one", ""), ("two", ""))))
    assert len(text.splitlines()) == len(render(plain, lock("cuda")).splitlines())


def test_ones_own_labels_are_promised_of_what_a_registry_serves() -> None:
    spec, actual = CASES["cpu-own"]
    assert promised_labels(spec, actual).items() >= set(OWN.labels)
    init = init_image(own=Additions(labels=(("com.acme.team", "vision"),)))
    assert promised_labels(init, None)["com.acme.team"] == "vision"
    assert promise_of(render(init, None)).labels["com.acme.team"] == "vision"


def test_every_variable_of_the_toolkit_is_fixed_or_harmless() -> None:
    for name in CASES:
        own = {key for key, _ in CASES[name][0].own.env}
        assert promise_of(text_of(name)).environment.keys() - own <= {
            *FIXED,
            *HARMLESS,
            *CA_VARIABLES,
            *CONSTRAINT_VARIABLES,
        }, name
        assert not set(FIXED) & set(HARMLESS), name


def test_the_cpus_labels_have_no_cuda() -> None:
    labels = pairs("LABEL", text_of("cpu-runtime"))
    assert labels["org.torchbake.torch"] == "2.13.0+cpu"
    assert not {"org.torchbake.cuda", "org.torchbake.cudnn", "org.torchbake.nccl"} & labels.keys()


def test_each_wheel_of_the_shared_layers_is_a_layer_of_its_own() -> None:
    for name in PYTORCH:
        _, actual = CASES[name]
        assert actual, name
        copied = re.findall(
            r"^COPY --link --from=\w+ /layers/(\S+) ", stage_of(text_of(name), "whole"), flags=re.MULTILINE
        )
        assert copied == [
            pin.name for layer in ("nvidia", "torch", "devel", "heavy") for pin in actual.layers[layer]
        ], name


def test_the_venv_is_two_stages_each_with_its_part_of_the_lock() -> None:
    text = text_of("cuda-runtime")
    copied = re.findall(r"^COPY --link --from=(\w+) /opt/venv /opt/venv$", stage_of(text, "rest"), flags=re.MULTILINE)
    assert copied == ["needs", "site"]
    for stage in ("needs", "site"):
        steps = text.partition(f"FROM builder AS {stage}\n")[2].partition("\n\n")[0]
        assert f"from=wheels,source=/{stage}," in steps
        assert f"-m wheels site /locks/{stage}.lock /opt/venv" in steps
        assert f"WORKDIR /{stage}\n" in text
        assert ("--start" in steps) == (stage == "site")


def test_only_projects_take_wheels_from_the_matrix_folder() -> None:
    copied = "COPY wheel[s]/*.whl ./\n"
    spec = image("2.13.0", "cpu", project=ProjectSpec(folder=".", lock="uv.lock"))
    text = stage_of(render(spec, lock("cpu")), "wheels")
    assert f"WORKDIR /site\n{copied}" in text
    assert f"WORKDIR /builder\n{copied}" not in text
    assert copied not in text_of("cpu-runtime")


def test_packages_are_installed_in_the_same_order() -> None:
    one, other = image(apt=("libgl1", "ffmpeg")), image(apt=("ffmpeg", "libgl1"))
    assert render(one, lock("cuda")) == render(other, lock("cuda"))
    assert "apt-install ffmpeg libgl1" in render(one, lock("cuda"))


def test_without_trim_nothing_is_dropped() -> None:
    assert "trim.toml" in text_of("cuda-runtime")
    assert "trim" not in text_of("cuda-untrimmed")


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_pip_and_uv_keep_torch_and_cuda_if_the_row_says_so(kind: str) -> None:
    text, actual = text_of(f"{kind}-runtime"), lock(kind)
    documents = dict(re.findall(r"^COPY --chmod=0644 <<EOF (\S+)\n(.*?)^EOF$", text, flags=re.MULTILINE | re.DOTALL))
    files = {path: [line for line in lines.splitlines() if line[0] != "#"] for path, lines in documents.items()}
    variables = promise_of(text).environment
    assert variables["PIP_CONSTRAINT"] == variables["UV_CONSTRAINT"]
    assert files[variables["PIP_CONSTRAINT"]] == list(actual.constraints)
    assert files[variables["UV_EXCLUDE"]] == list(actual.pins_to_keep)
    assert "PIP_CONSTRAINT= pip install" in documents[variables["PIP_CONSTRAINT"]]
    assert "CONSTRAINT" not in text_of(f"{kind}-unconstrained")


def test_the_index_files_are_in_no_stage_that_installs() -> None:
    text = text_of("cpu-index")
    stages = dict(re.findall(r"^FROM \S+ AS (\w+)\n(.*?)(?=^FROM )", text, flags=re.MULTILINE | re.DOTALL))
    for path in ("/etc/pip.conf", "/etc/uv/uv.toml"):
        assert [name for name, stage in stages.items() if f"<<EOF {path}\n" in stage] == ["installers"]
        assert f"<<EOF {path}" not in text_of("cpu-runtime")
    assert re.findall(r"^.*\binstallers\b.*$", text.partition("AS installers")[2], flags=re.MULTILINE) == [
        "COPY --from=installers /etc /etc"
    ]
    assert "COPY --from=installers /etc /etc" in stage_of(text, "rest")


def test_a_users_own_file_replaces_what_pip_reads() -> None:
    own = Additions(files=(OwnFile(source="files/pip.conf", target="/etc/pip.conf"),))
    text = render(image("2.13.0", "cpu", indexes=("https://wheels.example/cpu",), own=own), lock("cpu"))
    assert text.index("COPY --from=installers") < text.index("/run/own-1 /etc/pip.conf")


def test_headers_are_in_devel_images_alone() -> None:
    assert "/headers /" in stage_of(text_of("cuda-devel"), "whole")
    assert "/headers" not in stage_of(text_of("cuda-runtime"), "whole")


def test_the_compiler_is_a_layer_that_all_images_of_a_base_share() -> None:
    def steps(**changes: Any) -> list[str]:
        spec = image("2.13.0", "cpu", **{"apt": ("git",), "apt_of_all": ("git",), **changes})
        stage = stage_of(render(spec, lock("cpu")), "python")
        return re.findall(r"^    /run/apt-install (.*?)(?: \\)?$", stage, flags=re.MULTILINE)

    assert steps() == ["--trim g++ libpython3-dev", "git"]
    assert steps(compiler=False) == ["git"]
    assert steps(apt=("libgl1", "g++"), own=OWN) == ["--trim g++ libpython3-dev", "git"]
    assert steps(**DEVEL) == steps(trim=False) == ["g++ libpython3-dev", "git"]
    assert steps(apt=("g++=4:12.2.0-3",))[0] == "--trim g++=4:12.2.0-3 libpython3-dev"


def test_the_headers_of_python_are_those_of_its_own_package() -> None:
    def packages(interpreter: str) -> str:
        base = BaseSpec(name="b", image="b:1", suite="noble", python="3.13", interpreter=interpreter)
        text = render(image("2.13.0", "cpu", base=base), lock("cpu"))
        return str(re.findall(r"/run/apt-install --trim (.*)$", text, flags=re.MULTILINE)[0])

    assert packages("python3.13") == "g++ libpython3.13-dev"
    assert packages("/usr/local/bin/python3.13") == "g++"


def test_no_package_is_installed_twice() -> None:
    for name in PYTORCH:
        stages = "\n".join(stage_of(text_of(name), stage) for stage in ("interpreter", "python", "rest"))
        steps = re.findall(r"/run/apt-install (?:--trim )?([a-z].*?)(?: \\)?$", stages, flags=re.MULTILINE)
        names = " ".join(steps).split()
        assert len(names) == len(set(names)), (name, names)


def test_a_label_promises_that_torch_compile_works() -> None:
    for compiler in (True, False):
        labels = promised_labels(image("2.13.0", "cpu", compiler=compiler), lock("cpu"))
        assert labels.get(COMPILER) == ("true" if compiler else None)


def test_an_image_without_its_lock_cannot_be_rendered() -> None:
    with pytest.raises(RenderError, match="without its lock") as caught:
        render(image(), None)
    assert image().id in (caught.value.hint or "")


def test_an_init_image_without_a_template_is_an_error() -> None:
    with pytest.raises(RenderError, match=r"templates/other\.Dockerfile\.j2"):
        render(init_image("other"), None)


@pytest.fixture
def templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the toolkit's templates, to be broken."""
    shutil.copytree(TOOLKIT / "templates", tmp_path / "templates")
    monkeypatch.setattr(rendering, "TOOLKIT", tmp_path)
    rendering._environment.cache_clear()
    yield tmp_path / "templates"
    rendering._environment.cache_clear()


@pytest.mark.parametrize(
    ("addition", "words"),
    [
        ("{{ nobody }}", "'nobody' is undefined"),
        ("{{ spec.nothing }}", "nothing"),
        ("{% if %}", "pytorch.Dockerfile.j2:"),
    ],
    ids=["unknown name", "unknown attribute", "syntax"],
)
def test_a_broken_template_is_exit_code_6_and_names_the_place(
    addition: str, words: str, templates: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (templates / "pytorch.Dockerfile.j2").open("a") as file:
        file.write(addition)
    with pytest.raises(RenderError, match=re.escape(words)):
        text_of("cpu-runtime")
    assert cli.main(["render", "cpu", "--check", "--matrix", str(TOOLKIT / "matrix.yaml")]) == RenderError.exit_code
    assert "Traceback" not in capsys.readouterr().err


def test_drift_is_exit_code_6_with_a_diff_and_changes_nothing(
    templates: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (templates / "pytorch.Dockerfile.j2").open("a") as file:
        file.write("# one line more\n")
    committed = TOOLKIT / "images/2.13.0-cpu-runtime-debian12/Dockerfile"
    before = committed.read_text()
    assert cli.main(["render", "cpu", "--check", "--matrix", str(TOOLKIT / "matrix.yaml")]) == RenderError.exit_code
    assert committed.read_text() == before
    seen_names = capsys.readouterr()
    assert "+# one line more" in seen_names.out
    assert "2 of 2" in seen_names.err


def test_every_committed_dockerfile_is_what_the_matrix_renders(project: Project) -> None:
    stale = [
        spec.id
        for spec in project.expansion.specs
        if dockerfile_path(project.root, spec).read_text()
        != render(spec, read_lock(project.root, spec) if isinstance(spec, ImageSpec) else None)
    ]
    assert stale == []


def test_no_folder_of_an_image_is_left_over(project: Project) -> None:
    folders = {path.name for path in (project.root / "images").iterdir() if path.is_dir()}
    assert folders == {spec.id for spec in project.expansion.specs}


def test_the_layer_of_a_project_is_the_highest() -> None:
    for name, expected in (("cpu-project", "COPY --link --from=project "), ("cpu-scripts", "RUN ")):
        steps = re.findall(r"^[A-Z]+ .*", stage_of(text_of(name), "rest").partition("# --- whole")[0], re.MULTILINE)
        assert steps[-1].startswith(expected), name
    assert "/run/own-files \\\n    2000:0 - /run/own-1 /app/train.py \\\n    2000:0 - /run/own-2 /app/lib\n" in text_of(
        "cpu-scripts"
    )
    assert " AS project" not in text_of("cpu-scripts")


def test_a_project_is_built_of_its_files_and_without_a_network() -> None:
    spec, value = CASES["cpu-project"]
    assert tuple(own_sources(text_of("cpu-project"))) == (
        "trainer/packages/core", "trainer/pyproject.toml", "trainer/src", "trainer/uv.lock"
    )  # fmt: skip
    assert not any(own_sources(text_of("cpu-project")).values()), "modes of files that depend on a checkout"
    for file, mounted in (("pylock.toml", True), ("requirements.txt", False), ("pyproject.toml", False)):
        assert isinstance(spec, ImageSpec)
        text = render(replace(spec, project=replace(PROJECT, lock=file)), value)
        (step,) = re.findall(r"^RUN --network=none (?:.*\\\n)*.*", stage_of(text, "project"), re.MULTILINE)
        assert (" --lock " in step) == mounted, file
        assert (f"source=trainer/{file},target=/run/own-4 " in step) == mounted, file
        assert "id=" not in step, "a secret of the host"


def test_packages_without_files_are_an_error() -> None:
    spec, value = CASES["cpu-project"]
    assert isinstance(spec, ImageSpec)
    with pytest.raises(RenderError, match=r"matrix\.yaml:1: .* no files to build them of"):
        render(replace(spec, project=replace(PROJECT, files=())), value)


def test_large_wheels_are_found_and_kept() -> None:
    text = text_of("cpu-project")
    assert "/pytorch/bin:/packages/bin:" in pairs("ENV", text)["PATH"]
    assert "--path /packages" in stage_of(text, "site")
    assert stage_of(text, "installers").count("\nscipy==1.17.1\n") == 2  # what pip and uv do not replace
    assert "/packages" not in text_of("cpu-runtime")
    cuda = lock("cuda")
    text = render(image(), replace(cuda, layers=assign_layers(cuda.pins.values(), heavy={"numpy"})))
    links = re.findall(r"^COPY --link --from=beside /links (\S+)$", stage_of(text, "whole"), re.MULTILINE)
    assert links == ["/pytorch", "/packages"], "where libraries look for NVIDIA's"
