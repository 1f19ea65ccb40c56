"""The catalogue: what is put together, drawn and written, from values alone."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.conftest import check_golden, cpu_pins, cuda_pins, image, init_image, lock_for
from torchbake.checks.verdict import CheckResult, Outcome, Verdict
from torchbake.core.paths import TOOLKIT
from torchbake.core.sizes import human
from torchbake.matrix.spec import Spec
from torchbake.release.record import Judgement, Moved, Record
from torchbake.report.html import anchor, render_page
from torchbake.report.image_facts import InEngine, InRegistry, Known
from torchbake.report.layer_sharing import Layer, Step, break_down, chain, match_steps, name_layers, step_name, stock
from torchbake.report.model import Catalogue, change_of, make_catalogue
from torchbake.report.svg import WIDTH, Part, bar, parts_of

CPU = image("2.13.0", "cpu")
CUDA = image("2.10.0", "cuda12.8")
OLD = image("2.9.1", "cuda12.8")
INIT = init_image()
SPECS: tuple[Spec, ...] = (CPU, CUDA, OLD, INIT)
TAGS = {spec.id: (spec.id, f"tag-of-{number}", f"{number}") for number, spec in enumerate(SPECS)}
HOSTILE = "<script>alert(1)</script>\" onclick='x' {{ 7*7 }} </style>&amp; https://evil.example/"


def digest(letter: str) -> str:
    return f"sha256:{letter * 64}"


def layer(name: str, size: int, key: str = "") -> Layer:
    return Layer(key=key or name, name=name, size=size)


def present(letter: str, *layers: Layer, stale: str | None = "") -> InEngine:
    total = sum(one.size for one in layers)
    return InEngine(digest=digest(letter), labels={}, unpacked=total, packed=total // 3, layers=layers, stale=stale)


def record(tag: str, letter: str, size: int, **versions: str) -> Record:
    return Record(
        state="released", id=CUDA.id, tag=tag, digest=digest(letter), inputs=digest("9"), size=size, layers=2,
        released="2026-11-20T09:00:00+00:00",
        labels={f"org.torchbake.{name}": value for name, value in versions.items()},
        rolling=(Moved(tag="latest", before=None, after=digest(letter)),),
        verdict=Judgement(
            suite=digest("5"), started="2026-11-20T08:00:00+00:00", outcome=Outcome.PASSED,
            counts={"passed": 70, "failed": 1, "not-run": 2},
            not_run={"smoke.nccl": "no GPU", "smoke.tensor[cuda]": "no GPU"},
        ),
        waived={"process.size": "the new libraries are wanted"},
        attached={"sbom": digest("6"), "provenance": digest("7")}, signature="cosign, with a key",
    )  # fmt: skip


def verdict(letter: str, *checks: CheckResult) -> Verdict:
    return Verdict(
        image="acme/pytorch:x", id="x", digest=digest(letter), suite=digest("5"), gpu="auto",
        started="2026-11-21T07:50:00+00:00", seconds=61.4, checks=checks,
    )  # fmt: skip


def check(name: str, outcome: Outcome = Outcome.PASSED, reason: str = "") -> CheckResult:
    return CheckResult(id=name, outcome=outcome, reason=reason)


BASE, SYSTEM = layer("base: debian12", 138_000_000), layer("apt: python3 tini", 52_000_000)
NEWEST, BEFORE = f"{CUDA.id}-r1", f"{CUDA.id}-r0"
KNOWN = Known(
    registry="registry.example:5000/acme",
    present={
        CPU.id: present("a", BASE, SYSTEM, layer("torch", 579_000_000, "t1"), layer("site packages", 132_000_000)),
        CUDA.id: present(
            "b", BASE, SYSTEM, layer("nvidia-cudnn-cu12", 875_000_000), layer("torch", 1_490_000_000, "t2"),
            stale="its inputs changed",
        ),
        INIT.id: present("c", layer("volume-permissions", 82_000), stale=None),
    },
    released={
        CUDA.id: InRegistry(
            repository="registry.example:5000/acme/pytorch", tag=NEWEST, digest=digest("d"),
            layers=(layer("base: debian12", 48_000_000, "p1"), layer("torch", 700_000_000, "p2")),
            record=record(NEWEST, "d", 748_000_000, torch="2.10.0", cuda="12.8.90", nccl="2.27.5"),
            before=record(BEFORE, "e", 760_000_000, torch="2.10.0", cuda="12.8.57"), packages=93,
        ),
        INIT.id: InRegistry(
            repository="registry.example:5000/acme/volume-permissions", tag="1.0.0-r0", digest=digest("c"),
            layers=(layer("volume-permissions", 43_000, "p3"),), problem="its record is no release record",
        ),
    },
    locks={CPU.id: lock_for(CPU, cpu_pins()), CUDA.id: lock_for(CUDA, cuda_pins())},
    verdicts={
        CPU.id: verdict("a", check("files.owners"), check("smoke.compile[cpu]", Outcome.NOT_RUN, "no compiler")),
        CUDA.id: verdict(
            "b", check("files.owners"), check("process.size", Outcome.FAILED, "6.1 GB, more than 5.5 GB\nlong tail"),
            check("smoke.tensor[cuda]", Outcome.NOT_RUN, "no GPU"), check("smoke.nccl", Outcome.NOT_RUN, "no GPU"),
        ),
    },
)  # fmt: skip


def catalogue(known: Known = KNOWN, specs: tuple[Spec, ...] = SPECS) -> Catalogue:
    return make_catalogue(specs, TAGS, known, made="2026-11-21T10:00:00+00:00", matrix="matrix.yaml", selected="")


class _Parsed(HTMLParser):
    """Every element with its attributes, and all text."""

    VOID = frozenset({"meta", "link", "input", "br"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_each_image_is_told_with_its_place_its_verdict_and_its_release() -> None:
    entries = {entry.id: entry for entry in catalogue().images}
    assert [entry.presence for entry in entries.values()] == ["up-to-date", "out-of-date", "absent", "present"]
    assert entries[CUDA.id].versions.nccl == "2.27.5"
    assert entries[CUDA.id].versions.exact
    assert entries[OLD.id].versions.cuda == "12.8"
    assert not entries[OLD.id].versions.exact
    checked = entries[CUDA.id].checked
    assert checked
    assert checked.outcome is Outcome.FAILED
    assert checked.not_run[0].checks == ("smoke.tensor[cuda]", "smoke.nccl")
    assert entries[CUDA.id].packed == 2_555_000_000 // 3  # the engine's image is another than the released one
    assert entries[INIT.id].packed == 43_000  # it is the same
    assert entries[CPU.id].release is None


def test_the_summary_counts_and_tells_what_was_not_asked() -> None:
    summary = catalogue().summary
    assert (summary.images, summary.present, summary.up_to_date) == (4, 3, 1)
    assert (summary.tested, summary.passed, summary.released) == (2, 1, 2)
    nothing = catalogue(Known(engine="No container engine answers.")).summary
    assert (nothing.present, nothing.up_to_date, nothing.tested, nothing.released) == (None, None, None, None)
    assert nothing.on_disk is None


def test_a_release_tells_what_it_changed() -> None:
    changed = change_of(*(KNOWN.released[CUDA.id].record, KNOWN.released[CUDA.id].before))  # type: ignore[arg-type]
    assert (changed.since, changed.size, changed.same_digest) == (BEFORE, -12_000_000, False)
    assert changed.versions == {"cuda": ("12.8.57", "12.8.90"), "nccl": (None, "2.27.5")}


def test_a_release_tells_what_lies_beside_it_and_who_signed_it() -> None:
    release = next(entry.release for entry in catalogue().images if entry.id == CUDA.id)
    assert release
    assert release.beside == {"sbom": f"{NEWEST}.sbom", "provenance": f"{NEWEST}.provenance"}
    assert (release.packages, release.signature) == (93, "cosign, with a key")
    assert "Signed by cosign, with a key." in render_page(catalogue())
    one = KNOWN.released[CUDA.id]
    assert one.record
    unsigned = one.record.model_copy(update={"signature": "not-run: no key was given", "attached": {}})
    page = render_page(catalogue(replace(KNOWN, released={CUDA.id: replace(one, record=unsigned)})))
    assert '<span class="not-run">Not signed</span>: no key was given.' in page
    assert "Beside it" not in page


def test_the_commands_are_what_can_be_done_next() -> None:
    lines = {entry.id: [command.line for command in entry.commands] for entry in catalogue().images}
    assert lines[CPU.id] == ["docker run --rm -it acme/pytorch:0"]
    assert lines[OLD.id] == [f"nox -s build -- {OLD.id}"]
    assert lines[CUDA.id] == [
        "docker pull registry.example:5000/acme/pytorch:latest",
        f"docker pull registry.example:5000/acme/pytorch:{NEWEST}",
        f"docker pull registry.example:5000/acme/pytorch@{digest('d')}",
    ]


def test_the_page_is_what_it_was() -> None:
    check_golden(TOOLKIT / "tests/unit/golden/report.html", render_page(catalogue()))


def test_the_data_are_read_back_as_they_were() -> None:
    assert Catalogue.model_validate_json(catalogue().model_dump_json()) == catalogue()


@pytest.mark.parametrize("known", [KNOWN, Known(engine="No container engine answers.")], ids=["all", "nothing"])
def test_the_page_needs_nothing_else(known: Known) -> None:
    page = render_page(catalogue(known))
    assert not re.search(r"https?:|//[a-z]|@import|url\(", page)
    parsed = _Parsed(page)
    assert parsed.open == []
    loads = [value for _, given in parsed.elements for name, value in given.items() if name in ("src", "href", "data")]
    assert all(value and value.startswith(("#", "data:,")) for value in loads)


def test_the_page_is_one_that_a_screen_reader_can_walk() -> None:
    parsed = _Parsed(render_page(catalogue()))
    levels = [int(tag[1]) for tag, _ in parsed.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    ids = [given["id"] for _, given in parsed.elements if "id" in given]
    assert len(ids) == len(set(ids))
    links = {value for tag, given in parsed.elements if tag == "a" and (value := given.get("href"))}
    assert {link.removeprefix("#") for link in links} <= set(ids)
    named = {given["aria-labelledby"] for _, given in parsed.elements if "aria-labelledby" in given}
    assert named <= set(ids)
    assert all("scope" in given for tag, given in parsed.elements if tag == "th")
    assert all(given.get("aria-label") for tag, given in parsed.elements if tag == "svg")
    assert {"header", "main", "footer"} <= {tag for tag, _ in parsed.elements}


def test_whatever_somebody_writes_is_text() -> None:
    spec = replace(CUDA, repository=HOSTILE, flavor=HOSTILE)
    there = replace(KNOWN.released[CUDA.id], repository=HOSTILE, tag=HOSTILE, problem=HOSTILE)
    known = replace(
        KNOWN, engine=HOSTILE, registry=HOSTILE, released={spec.id: there},
        present={spec.id: present("b", layer(HOSTILE, 5), stale=HOSTILE)},
        verdicts={spec.id: verdict("b", check(HOSTILE, Outcome.FAILED, HOSTILE), check("x", Outcome.NOT_RUN, HOSTILE))},
    )  # fmt: skip
    page = render_page(
        make_catalogue((spec,), {spec.id: (HOSTILE,)}, known, made=HOSTILE, matrix=HOSTILE, selected=HOSTILE)
    )
    plain = render_page(catalogue())
    assert page.count("<script") == plain.count("<script") == 1
    assert "alert(1)" in page
    assert "<script>alert" not in page
    assert "49" not in "".join(_Parsed(page).text)
    assert not any(name.startswith("on") for _, given in _Parsed(page).elements for name in given)


def test_control_characters_and_colours_do_not_reach_the_page() -> None:
    failed = check("x", Outcome.FAILED, "\x1b[31mred\x1b[0m \x00\x07\u202edne \ud800")
    page = render_page(catalogue(replace(KNOWN, verdicts={CPU.id: verdict("a", failed)})))
    assert "<li>red dne  <span" in page
    page.encode()


def test_the_policy_names_the_page_s_own_style_and_script() -> None:
    page = render_page(catalogue())
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy
    assert policy[1].startswith("default-src &#39;none&#39;")
    assert "unsafe" not in policy[1]
    assert " style=" not in page


def test_an_anchor_is_one_word() -> None:
    assert anchor("2.10.0-cuda12.8") == "image-2.10.0-cuda12.8"
    assert re.fullmatch(r"[\w.-]+", anchor(HOSTILE))


LAYERS = st.lists(
    st.builds(lambda key, size: Layer(key=f"k{key}", name=f"n{key}", size=size), st.integers(0, 8), st.just(0)),
    max_size=9,
    unique_by=lambda one: one.key,
)


@given(st.dictionaries(st.sampled_from("abcdef"), LAYERS), st.lists(st.integers(0, 10**10), min_size=9, max_size=9))
def test_own_and_shared_bytes_add_up(images: dict[str, list[Layer]], sizes: list[int]) -> None:
    sized = {name: [replace(one, size=sizes[int(one.key[1:])]) for one in layers] for name, layers in images.items()}
    broken = break_down(sized)
    for name, found in broken.items():
        assert found.own + found.shared == found.total == sum(one.size for one in sized[name])
        for share in found.layers:
            others = [other for other in sized if other != name and share.key in {one.key for one in sized[other]}]
            assert share.others == len(others)
    once = {one.key: one.size for layers in sized.values() for one in layers}
    together = stock(broken.values())
    assert together.together == sum(once.values())
    own = sum(found.own for found in broken.values())
    shared = {share.key: share.size for found in broken.values() for share in found.layers if share.others}
    assert together.together == own + sum(shared.values()) <= together.apart


@given(st.lists(st.integers(0, 10**11), max_size=30))
def test_the_pieces_of_a_bar_fill_it_side_by_side(sizes: list[int]) -> None:
    drawn = bar([Part(size=size, kind="own") for size in sizes], whole=sum(sizes), title="t")
    boxes = [(float(x), float(width)) for x, width in re.findall(r'x="([\d.]+)" width="([\d.]+)"', drawn)]
    assert sum(width for _, width in boxes) == pytest.approx(WIDTH if sum(sizes) else 0, abs=0.1)
    for (x, width), (after, _) in pairwise(boxes):
        assert after == pytest.approx(x + width, abs=0.1)


def test_a_bar_has_what_is_shared_last_and_from_large_to_small() -> None:
    found = break_down({"a": [layer("x", 1), layer("y", 5), layer("z", 9)], "b": [layer("z", 9)]})
    assert [(part.kind, part.size) for part in parts_of(found["a"])] == [("own", 5), ("own", 1), ("shared", 9)]


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"), (999, "999 B"), (1000, "1 kB"), (81_900, "81.9 kB"), (937_107_456, "937 MB"),
        (999_600_000, "1.00 GB"), (5_040_000_000, "5.04 GB"), (-12_000_000, "−12 MB"),
    ],
)  # fmt: skip
def test_sizes_are_short(size: int, text: str) -> None:
    assert human(size) == text


@pytest.mark.parametrize(
    ("step", "name"),
    [
        ("COPY /layers/nvidia-cudnn-cu12 /nvidia # buildkit", "nvidia-cudnn-cu12"),
        ("COPY /opt/venv /opt/venv # buildkit", "site packages"),
        ("COPY --chmod=0755 /entrypoints/pytorch /opt/torchbake # buildkit", "torchbake's run and entrypoint"),
        ("COPY /volume-permissions /volume-permissions # buildkit", "volume-permissions"),
        ("RUN /bin/sh -c /run/apt-install git # buildkit", "apt: git"),
        ('RUN /bin/sh -c /run/apt-install python3 tini     && echo "x" >> /etc/passwd # buildkit', "apt: python3 tini"),
        ("WORKDIR /app", "WORKDIR /app"),
        ("RUN " + "x" * 100, "RUN " + "x" * 67 + "…"),
        ("RUN /bin/sh -c /run/apt-install " + "a " * 100_000, "apt: " + "a " * 33 + "…"),
    ],
)  # fmt: skip
def test_a_step_is_told_in_few_words(step: str, name: str) -> None:
    assert step_name(step) == name


def test_a_history_s_lines_find_their_layers() -> None:
    history = [
        Step(created_by="mmdebstrap", size=100), Step(created_by="ENV A=1"),
        Step(created_by="RUN true", size=0), Step(created_by="COPY /layers/torch /pytorch", size=7),
    ]  # fmt: skip
    two = match_steps(["k1", "k2"], history, base="base: x")
    assert two == (layer("base: x", 100, "k1"), layer("torch", 7, "k2"))
    three = match_steps(["k1", "k2", "k3"], history, base="")
    assert [(one.name, one.size) for one in three] == [("mmdebstrap", 100), ("RUN true", 0), ("torch", 7)]
    assert match_steps(["k1"], history, base="") == ()


def test_layers_without_a_history_are_numbered() -> None:
    assert [one.name for one in name_layers([("k1", 1), ("k2", 2)], [], base="b")] == ["layer 1", "layer 2"]


def test_a_chain_tells_the_same_layer_on_other_layers_apart() -> None:
    # The example of the image specification's own reference implementation: sha256("<chain> <diff id>").
    one, other = chain(["sha256:a", "sha256:c"]), chain(["sha256:b", "sha256:c"])
    assert one[0] == "sha256:a"
    assert one[1] != other[1]
    assert chain([]) == ()
