"""`init`: the files of a new repository."""

from pathlib import Path

import pytest

from tests.pipelines import fill, github_jobs, gitlab_tasks, read
from tests.unit.test_cli import err, out
from torchbake.cli import main
from torchbake.commands import init
from torchbake.core.paths import TOOLKIT
from torchbake.errors import LockError, UsageError
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.matrix.pipelines import PIPELINES
from torchbake.matrix.project import load_project
from torchbake.matrix.spec import ImageSpec, ProjectSpec
from torchbake.projects.packages import ProjectLock, ProjectPackage, WheelSource

Streams = pytest.CaptureFixture[str]
FILES = {"matrix.yaml", "matrix.schema.json", "noxfile.py", ".gitattributes", ".gitignore"}


def test_two_files_and_what_belongs_to_them(tmp_path: Path, capsys: Streams) -> None:
    folder = tmp_path / "My Images"
    out(capsys, "init", str(folder))
    assert {path.name for path in folder.iterdir()} == FILES
    project = load_project(folder / "matrix.yaml")
    assert project.matrix.repository == ("my-images/pytorch",)
    assert {str(spec.accelerator) for spec in project.expansion.specs if isinstance(spec, ImageSpec)} == {"cpu"}
    out(capsys, "schema", "--check", "--matrix", str(folder / "matrix.yaml"))


def test_the_noxfile_is_short_and_needs_nothing_but_torchbake(tmp_path: Path, capsys: Streams) -> None:
    out(capsys, "init", str(tmp_path))
    text = (tmp_path / "noxfile.py").read_text()
    assert len(text.splitlines()) <= 15
    assert text.startswith('# /// script\n# dependencies = ["nox"]\n# ///\n'), "a checkout is in no index"
    compile(text, "noxfile.py", "exec")


def test_a_release_is_had_again_by_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Streams) -> None:
    monkeypatch.setattr(init, "version", lambda: "1.2.3")
    assert main(["init", str(tmp_path), "--ci", "github"]) == 0
    assert "pin the called workflows by the commit of v1.2.3" in " ".join(capsys.readouterr().err.split())
    assert '# dependencies = ["nox", "torchbake>=1.2.3"]\n' in (tmp_path / "noxfile.py").read_text()
    text = (tmp_path / ".github/workflows/validate.yml").read_text()
    assert "uses: torchbake/torchbake/.github/workflows/validate-images.yml@v1.2.3\n" in text
    assert 'install: "torchbake[nox]==1.2.3"' in text
    caller = (tmp_path / ".github/workflows/images.yml").read_text()
    assert caller.count('install: "torchbake[nox]==1.2.3"') == caller.count("-images.yml@v1.2.3") == 2
    assert not (tmp_path / ".github/workflows/release-images.yml").exists()


def test_a_gitignore_without_torchbakes_state_is_reported(tmp_path: Path, capsys: Streams) -> None:
    (tmp_path / ".gitignore").write_text("/.nox/\n*.pyc\n")
    capsys.readouterr()
    assert main(["init", str(tmp_path)]) == 0
    output = capsys.readouterr().err
    assert f"add to {tmp_path}/.gitignore: /.venv/ /.torchbake/ /reports/" in " ".join(output.split())


def test_line_ends_are_those_of_this_repository(tmp_path: Path, capsys: Streams) -> None:
    out(capsys, "init", str(tmp_path))
    assert (tmp_path / ".gitattributes").read_text() == (TOOLKIT / ".gitattributes").read_text()


def test_attributes_without_a_rule_for_line_ends_are_named(tmp_path: Path, capsys: Streams) -> None:
    path = tmp_path / ".gitattributes"
    for text, is_named in (
        ("*.png binary\n", True),
        ("* text=auto\n", True),
        ("*  text=auto eol=lf\n*.png -text\n", False),
    ):
        path.write_text(text)
        assert main(["init", str(tmp_path)]) == 0
        output = " ".join(capsys.readouterr().err.split())
        assert (f"add as the first line of {path}: * text=auto eol=lf" in output) == is_named, text
        assert path.read_text() == text


def test_what_is_there_is_left_alone(tmp_path: Path, capsys: Streams) -> None:
    (tmp_path / "matrix.yaml").write_text("mine")
    (tmp_path / ".gitignore").symlink_to("nowhere")
    out(capsys, "init", str(tmp_path))
    assert (tmp_path / "matrix.yaml").read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()
    assert (tmp_path / "noxfile.py").exists()


def test_a_dry_run_shows_and_writes_nothing(tmp_path: Path, capsys: Streams) -> None:
    assert main(["init", str(tmp_path / "new"), "--dry-run"]) == 0
    output = capsys.readouterr()
    assert not output.out
    assert "rows:" in output.err
    assert '"properties"' not in output.err, "the schema is for editors alone"
    assert not (tmp_path / "new").exists()


def test_rows_are_those_that_are_asked_for(tmp_path: Path, capsys: Streams) -> None:
    words = ("--cpu", "--cuda", "12.8", "--cuda", "12.8", "--torch", "2.9.1", "--repository", "ghcr.io/acme/pytorch")
    out(capsys, "init", str(tmp_path), *words)
    project = load_project(tmp_path / "matrix.yaml")
    images = [spec for spec in project.expansion.specs if isinstance(spec, ImageSpec)]
    assert {(str(spec.accelerator), spec.torch) for spec in images} == {("cpu", "2.9.1"), ("cuda12.8", "2.9.1")}
    assert project.matrix.repository == ("ghcr.io/acme/pytorch",)


@pytest.mark.parametrize("ci", PIPELINES)
@pytest.mark.parametrize("known_value", ["1.2.3", "0+g0123456789ab"])
def test_pipelines_come_where_they_are_asked_for(
    ci: str, known_value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Streams
) -> None:
    monkeypatch.setattr(init, "version", lambda: known_value)
    out(capsys, "init", str(tmp_path), "--ci", ci)
    outputs = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert outputs == FILES | set(PIPELINES["github-full" if ci == "github" and known_value != "1.2.3" else ci])


ECR = "123456789012.dkr.ecr.eu-central-1.amazonaws.com"


def test_a_login_and_a_runner_are_defaults_of_variables(tmp_path: Path, capsys: Streams) -> None:
    words = ("--ci", "github-full", "--login", "ecr", "--registry", f"{ECR}/acme", "--runner", "self-hosted, linux")
    assert main(["init", str(tmp_path), *words]) == 0
    assert f"set in the CI: REGISTRY={ECR}/acme, AWS_ROLE_ARN and AWS_REGION" in capsys.readouterr().err
    for name in ("images", "validate"):
        for job in github_jobs(tmp_path / f".github/workflows/{name}.yml").values():
            inputs = job.raw["with"]
            for variables, runner in (({}, '["self-hosted", "linux"]'), ({"RUNNER": "mine"}, "mine")):
                contexts = {"vars": variables, "github": {"event_name": "schedule"}, "inputs": {}}
                assert fill(inputs["runner"], contexts) == runner
                assert fill(inputs["python"], contexts) == "runner"
                if job.name != "check":
                    assert fill(inputs["login"], contexts) == "ecr"
                    assert fill(inputs["aws_region"], contexts) == "eu-central-1"


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        (["--ci", "github"], "REGISTRY"),
        (["--ci", "github", "--registry", "ghcr.io/acme"], "REGISTRY=ghcr.io/acme"),
        (["--ci", "github", "--registry", "quay.io/a", "--login", "basic"], "REGISTRY=quay.io/a, REGISTRY_USERNAME"),
        (["--ci", "gitlab"], ""),
        (["--ci", "gitlab", "--registry", "quay.io/acme"], "REGISTRY=quay.io/acme"),
        ([], ""),
    ],
)
def test_the_settings_of_the_ci_are_named(words: list[str], settings: str, tmp_path: Path, capsys: Streams) -> None:
    assert main(["init", str(tmp_path), *words]) == 0
    lines = capsys.readouterr().err.splitlines()
    texts = [line.partition("set in the CI: ")[2] for line in lines if "set in the CI" in line]
    assert [text.partition(" and ")[0] for text in texts] == ([settings] if settings else [])


@pytest.mark.parametrize(
    ("login", "registry", "region"),
    [
        ("ecr", "123456789012.dkr.ecr-fips.us-gov-west-1.amazonaws.com/acme", "us-gov-west-1"),
        ("ecr", "123456789012.dkr-ecr-fips.us-east-2.on.aws/acme", "us-east-2"),
        ("ecr", "123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ("ecr", "public.ecr.aws/a1b2c3d4", "us-east-1"),
        ("gar", "eu.gcr.io/my-project", ""),
        ("gar", "gcr.io/my-project", ""),
        ("gar", "europe-docker.pkg.dev/my-project/images", ""),
    ],
)
def test_hosts_of_clouds_fit_their_login(
    login: str, registry: str, region: str, tmp_path: Path, capsys: Streams
) -> None:
    out(capsys, "init", str(tmp_path), "--ci", "github", "--login", login, "--registry", registry)
    text = (tmp_path / ".github/workflows/images.yml").read_text()
    assert f"login: ${{{{ vars.LOGIN || '{login}' }}}}" in text
    assert (f"vars.AWS_REGION || '{region}'" in text) == bool(region)


def test_gitlabs_jobs_log_in_to_the_public_ecr(tmp_path: Path, capsys: Streams) -> None:
    out(capsys, "init", str(tmp_path), "--ci", "gitlab", "--login", "ecr", "--registry", "public.ecr.aws/a1b2c3d4")
    path = tmp_path / "ci/gitlab-images.yml"
    assert read(path)["variables"]["AWS_REGION"] == "us-east-1"
    scripts = [" ".join(task.script) for task in gitlab_tasks(path).values() if "id_tokens" in task.raw]
    assert scripts
    assert all("aws ecr-public get-login-password" in script for script in scripts)


def test_a_hosted_runner_keeps_setup_python(tmp_path: Path, capsys: Streams) -> None:
    out(capsys, "init", str(tmp_path), "--ci", "github", "--runner", "ubuntu-24.04-8-cores")
    text = (tmp_path / ".github/workflows/images.yml").read_text()
    assert "vars.RUNNER || 'ubuntu-24.04-8-cores' }}" in text
    assert "python: ${{ vars.PYTHON }}" in text
    assert "login: ${{ vars.LOGIN }}" in text


def test_gitlabs_jobs_log_in_to_ecr_by_their_token(tmp_path: Path, capsys: Streams) -> None:
    words = ("--ci", "gitlab", "--login", "ecr", "--registry", ECR, "--runner", "linux,x64")
    out(capsys, "init", str(tmp_path), *words)
    path = tmp_path / "ci/gitlab-images.yml"
    variables = read(path)["variables"]
    assert (variables["AWS_REGION"], variables["AWS_ROLE_ARN"]) == ("eu-central-1", "")
    assert not {"REGISTRY_PASSWORD", "RUNNER"} & set(variables)
    for task in gitlab_tasks(path).values():
        is_login = any("aws ecr get-login-password" in line for line in task.script)
        assert is_login == ("id_tokens" in task.raw) == ("check" not in task.name), task.name
        assert not is_login or any('"${REGISTRY%%/*}"' in line for line in task.script)  # the host alone
        assert any("awscli" in line for line in task.before)
        assert task.raw["tags"] == ["linux", "x64"]
        assert "PASSWORD" not in "".join(task.script)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["--cuda", "twelve"], "twelve"),
        (["--cuda", "11.1"], "cuda11.1"),
        (["--torch", "newest"], "newest"),
        (["--repository", "Acme/Pytorch"], "Acme/Pytorch"),
        (["--repository", "ghcr.io/acme/pytorch:latest"], "ghcr.io/acme/pytorch:latest"),
        (["--repository", "localhost:port/x"], "localhost:port/x"),
        (["--torch", "2.10.0+cpu"], "2.10.0+cpu"),
        (["--torch", "2.10"], "2.10"),
        (["--registry", "https://ghcr.io"], "https://ghcr.io"),
        (["--repository", "ghcr.io/a/b", "--registry", "quay.io/a"], "quay.io/a"),
        (
            ["--ci", "github", "--registry", "ghcr.io/a", "--login", "ecr"],
            "ghcr.io is no registry of this kind.\n  next: Give --login ghcr.",
        ),
        (["--ci", "github", "--runner", "self-hosted,,linux"], "'' is not a label"),
        (["--ci", "github", "--runner", "a'b"], "is not a label"),
        (["--ci", "gitlab", "--login", "gar"], "_json_key"),
        (["--login", "ecr"], "--ci github --login"),
        (["--runner", "mine"], "--ci github --runner"),
    ],
)
def test_a_wrong_word_is_exit_code_2_and_nothing_is_written(
    words: list[str], name: str, tmp_path: Path, capsys: Streams
) -> None:
    output = err(capsys, "init", str(tmp_path / "new"), *words, code=UsageError.exit_code)
    assert name in output
    assert words[-2] in output, "the option is blamed, and no file that is not there"
    assert "Correct matrix.yaml" not in output
    assert not (tmp_path / "new").exists()


@pytest.fixture
def trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with torch for the CPU, whose lock is read without uv."""
    folder = tmp_path / "My Images/trainer"
    (folder / "src/trainer").mkdir(parents=True)
    (folder / "src/trainer/__init__.py").touch()
    (folder / "pyproject.toml").write_text('[project]\nname = "trainer"\n[build-system]\nrequires = ["hatchling"]\n')
    (folder / "uv.lock").touch()

    def read(root: Path, project: ProjectSpec, python: str, config: object) -> ProjectLock:
        assert root == folder.parent
        version = {"uv.lock": "2.13.0+cpu", "pylock.toml": "1.13.1+cu117"}[project.lock]
        names = {"torch": version, "nvidia-cuda-runtime-cu11": "11.7"}
        source = WheelSource(filename="x.whl")
        packages = (ProjectPackage(name=name, version=names[name], hashes=(), source=source) for name in names)
        return ProjectLock(path=project.lock_path, packages=tuple(packages), lines={"torch": 12})

    monkeypatch.setattr("torchbake.commands._project_choice.read_project", read)
    return folder


def test_a_project_becomes_a_matrix_with_reasons(trainer: Path, capsys: Streams) -> None:
    root = trainer.parent
    assert main(["init", str(root), "--from", str(trainer)]) == 0
    output = capsys.readouterr().err
    for line in (
        "torch 2.13.0 (trainer/uv.lock:12)",
        "cpu: the wheel's local version +cpu",
        "base debian12: its Python is 3.11",
        "lock build -- all",
    ):
        assert line in output
    assert {path.name for path in root.iterdir()} == {*FILES, "trainer"}
    project = load_project(root / "matrix.yaml")
    (image,) = project.expansion.specs
    assert isinstance(image, ImageSpec)
    assert image.project == ProjectSpec(folder="trainer", lock="uv.lock", files=("pyproject.toml", "src/"))
    assert image.repository == "my-images/trainer"
    # The same again is no error, and another matrix is not overwritten.
    assert main(["init", str(root), "--from", str(trainer)]) == 0
    (root / "matrix.yaml").write_text("mine")
    output = err(capsys, "init", str(root), "--from", str(trainer), code=UsageError.exit_code)
    assert "matrix.yaml is there already" in output
    assert (root / "matrix.yaml").read_text() == "mine"
    # But a dry run shows the row for it.
    capsys.readouterr()
    assert main(["init", str(root), "--from", str(trainer), "--dry-run"]) == 0
    assert "      folder: trainer\n" in capsys.readouterr().err
    assert (root / "matrix.yaml").read_text() == "mine"


def test_a_private_index_is_read_with_its_login(trainer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configs = list[PipConfig]()

    def read(root: Path, project: ProjectSpec, python: str, config: PipConfig) -> ProjectLock:
        configs.append(config)
        raise LockError("no")

    monkeypatch.setattr("torchbake.commands._project_choice.read_project", read)
    monkeypatch.setenv("UV_INDEX_ACME_USERNAME", "me")
    monkeypatch.setenv("UV_INDEX_ACME_PASSWORD", "secret")
    (trainer / "uv.lock").unlink()
    with (trainer / "pyproject.toml").open("a") as file:
        file.write('[[tool.uv.index]]\nname = "acme"\nurl = "https://pypi.acme.example/simple"\n')
    assert main(["init", str(trainer.parent), "--from", str(trainer)]) == LockError.exit_code
    assert "https://me:secret@pypi.acme.example/simple" in configs[0].extra_index_urls


PROJECT_MISTAKES = [
    (["--torch", "2.10.0"], UsageError, "--torch and --from"),
    (["--cpu"], UsageError, "--cpu and --from"),
    (["--cuda", "12.8"], UsageError, "--cuda and --from"),
    (["--extra", "gpu"], UsageError, "'gpu'"),
    (["--repository", "Acme/X"], UsageError, "Acme/X"),
    (["--from", "{root}/trainer/pylock.toml"], UsageError, "1.13.1"),  # its wheel for CUDA has CUDA inside
    (["--from", "{root}/nowhere"], UsageError, "nowhere"),
    (["--from", "{root}/environment.yml"], LockError, "environment.yml:2"),
    (["--from", "{root}/.."], UsageError, "outside of"),
]


@pytest.mark.parametrize(("words", "kind", "part"), PROJECT_MISTAKES, ids=lambda value: str(value)[:30])
def test_a_project_without_a_matrix_writes_nothing(
    words: list[str], kind: type[LockError | UsageError], part: str, trainer: Path, capsys: Streams
) -> None:
    root = trainer.parent
    (trainer / "pylock.toml").touch()
    (root / "environment.yml").write_text("dependencies:\n- pip: [torch]\n")
    words = [word.replace("{root}", str(root)) for word in words]
    before = {path.name for path in root.iterdir()}
    output = err(capsys, "init", str(root), "--from", str(trainer), *words, code=kind.exit_code)
    assert part in output
    assert {path.name for path in root.iterdir()} == before


@pytest.mark.parametrize("word", ["extra", "group", "base"])
def test_an_option_of_projects_needs_a_project(word: str, tmp_path: Path, capsys: Streams) -> None:
    output = err(capsys, "init", str(tmp_path / "new"), f"--{word}", "debian12", code=UsageError.exit_code)
    assert f"--{word}" in output
    assert "--from PATH" in output
