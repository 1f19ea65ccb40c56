"""The page of all images: from the real engine and a real registry, looked at in a real browser."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.e2e.browser import NoBrowserError, Scheme, chromium, faults_of_page
from tests.e2e.conftest import CPU, INIT, ROOT, on_cuda, torchbake
from tests.e2e.registries import Running, registry
from torchbake.matrix.project import load_project

IMAGES = len(load_project(ROOT / "matrix.yaml").expansion.specs)
pytestmark = pytest.mark.report

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: no browser to look with")

TOOLS = ROOT / ".torchbake/tools"
SIZES = [(360, 780), pytest.param((768, 1024), marks=pytest.mark.long, id="(768, 1024)"), (1280, 900)]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with registry(TOOLS, tmp_path_factory.mktemp("registry")) as value:
        yield value


@pytest.fixture(scope="module")
def released(built: dict[str, dict[str, Any]], running: Running) -> str:
    """A registry with a release of the smallest image."""
    name = f"{running.host}/team"
    for arguments in (("test", INIT), ("publish", INIT, "--registry", name)):
        process = torchbake(*arguments)
        assert process.returncode == 0, process.stdout + process.stderr
    return name


@pytest.fixture(scope="module")
def page(released: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "index.html"
    process = torchbake("report", "--registry", released, "--output", str(path))
    assert process.returncode == 0, process.stderr
    assert process.stdout == ""
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    try:
        with chromium(TOOLS / "chromium") as value:
            yield value
    except NoBrowserError as error:
        pytest.skip(f"no browser: {error}")


def data(*arguments: str, env: dict[str, str] | None = None) -> dict[str, Any]:
    process = torchbake("report", "--format", "json", *arguments, env=env)
    assert process.returncode == 0, process.stderr
    matches: dict[str, Any] = json.loads(process.stdout)
    return matches


def test_the_data_are_what_the_engine_says(
    built: dict[str, dict[str, Any]], released: str, engine: docker.DockerClient
) -> None:
    matches = data("--registry", released)
    images = {image["id"]: image for image in matches["images"]}
    for name in built:
        image = images[name]
        assert image["digest"] == built[name]["digest"]
        assert image["presence"] == "up-to-date"
        history = engine.images.get(image["digest"]).history()
        assert image["uncompressed"] == sum(line["Size"] for line in history) == image["on_disk"]["total"]
        assert len(image["on_disk"]["layers"]) == len(engine.images.get(image["digest"]).attrs["RootFS"]["Layers"])
        assert image["on_disk"]["own"] + image["on_disk"]["shared"] == image["on_disk"]["total"]
    assert matches["summary"]["released"] == 1


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize(("name", "layers"), [(CPU, {"torch"}), on_cuda({"torch", "nvidia-cudnn-cu12"})])
def test_wheels_are_layers_above_the_base(name: str, layers: set[str]) -> None:
    (image,) = data(name)["images"]
    names = [layer["name"] for layer in image["on_disk"]["layers"]]
    assert names.count("base: debian12") == 1
    assert layers <= {*names[: names.index("base: debian12")]}


def test_the_data_are_what_the_registry_says(released: str, built: dict[str, dict[str, Any]]) -> None:
    (image,) = data(INIT, "--registry", released)["images"]
    release = image["release"]
    assert (release["tag"], release["state"]) == ("1.0.0-r0", "released")
    assert release["digest"] == built[INIT]["digest"]
    assert release["is_engines"]
    assert release["checked"]["outcome"] == image["checked"]["outcome"] == "passed"
    assert [layer["name"] for layer in image["in_registry"]["layers"]] == ["volume-permissions"]
    assert image["compressed"] == image["in_registry"]["total"]
    assert release["attached"] == {"sbom": "1.0.0-r0.sbom", "provenance": "1.0.0-r0.provenance"}
    assert (release["packages"], release["signature"]) == (0, "not-run: no --key and no --keyless was given")
    assert image["commands"][1]["line"] == f"docker pull {released}/volume-permissions:1.0.0-r0"


def test_without_an_engine_there_is_a_page_that_says_so(tmp_path: Path) -> None:
    path = tmp_path / "some/where/page.html"
    process = torchbake("report", CPU, "--output", str(path), env={"DOCKER_HOST": "unix:///nowhere.sock"})
    assert process.returncode == 0, process.stderr
    text = path.read_text()
    assert "Written without a container engine." in text
    assert "2.13.0+cpu" in text
    matches = data(CPU, env={"DOCKER_HOST": "unix:///nowhere.sock"})
    assert matches["images"][0]["presence"] == "unknown"
    assert matches["summary"]["present"] is None


def test_a_silent_registry_is_reported_and_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    process = torchbake("report", INIT, "--registry", "127.0.0.1:1/team", "--output", str(path))
    assert process.returncode == 14, process.stderr
    assert not path.exists()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_it_fits_it_can_be_read_and_it_asks_nobody(
    browser: Any, page: Path, tmp_path: Path, size: tuple[int, int], scheme: Scheme
) -> None:
    assert faults_of_page(browser, page, size, scheme, tmp_path / f"{size[0]}-{scheme}.png") == []


def test_the_filter_shows_what_its_words_name(browser: Any, page: Path) -> None:
    view = browser.new_page()
    view.goto(page.as_uri())
    assert view.locator("article:visible").count() == IMAGES
    view.get_by_label("Filter").fill("cuda12.8 devel")
    visible = view.locator("article:visible h3").all_inner_texts()
    assert visible
    assert all("cuda12.8" in name and "devel" in name for name in visible)
    assert view.get_by_role("status").inner_text() == f"{len(visible)} of {IMAGES}"
    assert view.locator("h2:visible", has_text="CPU").count() == 0
    view.close()


def test_a_command_is_copied(browser: Any, page: Path) -> None:
    context = browser.new_context()
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    view = context.new_page()
    view.goto(page.as_uri())
    command = view.locator(".command").first
    command.get_by_role("button").click()
    command.get_by_text(re.compile("Copied|Selected")).wait_for()
    if command.get_by_role("button").inner_text() == "Copied":
        assert view.evaluate("navigator.clipboard.readText()") == command.locator("code").inner_text()
    else:
        assert view.evaluate("getSelection().toString()") == command.locator("code").inner_text()
    context.close()


def test_the_keyboard_reaches_everything(browser: Any, page: Path) -> None:
    view = browser.new_page()
    view.goto(page.as_uri())
    view.keyboard.press("Tab")
    assert view.evaluate("document.activeElement.textContent") == "Skip to the images"
    view.keyboard.press("Enter")
    view.keyboard.press("Tab")
    assert view.evaluate("document.activeElement.tagName") == "BUTTON"
    unreachable = "[...document.querySelectorAll('a,button,input,summary')].filter(one => one.tabIndex < 0).length"
    assert view.evaluate(unreachable) == 0
    view.close()


def test_without_a_script_everything_can_be_read(browser: Any, page: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    view = context.new_page()
    view.goto(page.as_uri())
    assert view.locator("article:visible").count() == IMAGES
    assert view.locator("button:visible, input:visible").count() == 0
    view.locator("summary").first.click()
    assert view.locator("table.layers:visible").count() == 1
    context.close()


def test_on_paper_the_layers_are_shown_and_the_buttons_are_not(browser: Any, page: Path) -> None:
    view = browser.new_page()
    view.goto(page.as_uri())
    view.emulate_media(media="print")
    assert view.locator("button:visible, input:visible, summary:visible").count() == 0
    assert len(view.pdf(format="A4")) > 10_000
    view.close()
