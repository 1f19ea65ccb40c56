"""The catalogue: what is put together, from values alone."""

from dataclasses import replace

from tests.unit.conftest import cpu_pins, cuda_pins, image, init_image, lock_for
from torchbake.checks.verdict import CheckResult, Outcome, Verdict
from torchbake.matrix.spec import Spec
from torchbake.release.record import Record, RecordedVerdict, TagMove
from torchbake.report.catalogue import EngineFacts, KnownImages, RegistryFacts, change_of, make_catalogue
from torchbake.report.layer_sharing import SharedLayer
from torchbake.report.model import Catalogue

CPU = image("2.13.0", "cpu")
CUDA = image("2.10.0", "cuda12.8")
OLD = image("2.9.1", "cuda12.8")
INIT = init_image()
SPECS: tuple[Spec, ...] = (CPU, CUDA, OLD, INIT)
TAGS = {spec.id: (spec.id, f"tag-of-{number}", f"{number}") for number, spec in enumerate(SPECS)}
HOSTILE = "<script>alert(1)</script>\" onclick='x' {{ 7*7 }} </style>&amp; https://evil.example/"


def digest(letter: str) -> str:
    return f"sha256:{letter * 64}"


def layer(name: str, size: int, key: str = "") -> SharedLayer:
    return SharedLayer(key=key or name, name=name, size=size)


def present(letter: str, *layers: SharedLayer, stale: str | None = "") -> EngineFacts:
    total = sum(one.size for one in layers)
    return EngineFacts(digest=digest(letter), uncompressed=total, compressed=total // 3, layers=layers, stale=stale)


def record(tag: str, letter: str, size: int, **versions: str) -> Record:
    return Record(
        state="released", id=CUDA.id, tag=tag, digest=digest(letter), inputs=digest("9"), size=size, layers=2,
        released="2026-11-20T09:00:00+00:00",
        labels={f"org.torchbake.{name}": value for name, value in versions.items()},
        rolling=(TagMove(tag="latest", before=None, after=digest(letter)),),
        verdict=RecordedVerdict(
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
PRESENT = KnownImages(
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
        CUDA.id: RegistryFacts(
            repository="registry.example:5000/acme/pytorch", tag=NEWEST, digest=digest("d"),
            layers=(layer("base: debian12", 48_000_000, "p1"), layer("torch", 700_000_000, "p2")),
            record=record(NEWEST, "d", 748_000_000, torch="2.10.0", cuda="12.8.90", nccl="2.27.5"),
            before=record(BEFORE, "e", 760_000_000, torch="2.10.0", cuda="12.8.57"), packages=93,
        ),
        INIT.id: RegistryFacts(
            repository="registry.example:5000/acme/volume-permissions", tag="1.0.0-r0", digest=digest("c"),
            layers=(layer("volume-permissions", 43_000, "p3"),), problem="its record is not a release record",
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


def catalogue(present: KnownImages = PRESENT, specs: tuple[Spec, ...] = SPECS) -> Catalogue:
    return make_catalogue(specs, TAGS, present, date="2026-11-21T10:00:00+00:00", matrix="matrix.yaml", selection="")


def test_each_image_has_its_place_its_verdict_and_its_release() -> None:
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
    assert entries[CUDA.id].compressed == 2_555_000_000 // 3  # the engine's image is another than the released one
    assert entries[INIT.id].compressed == 43_000  # it is the same
    assert entries[CPU.id].release is None


def test_a_classic_store_has_a_release_by_its_config_digest() -> None:
    released = replace(PRESENT.released[INIT.id], digest=digest("d"), config=digest("c"))
    for one, same in ((released, True), (replace(released, config=digest("e")), False)):
        entries = {entry.id: entry for entry in catalogue(replace(PRESENT, released={INIT.id: one})).images}
        release = entries[INIT.id].release
        assert release
        assert (release.is_engines, entries[INIT.id].compressed == 43_000) == (same, same)


def test_the_summary_counts_and_tells_what_was_not_asked() -> None:
    summary = catalogue().summary
    assert (summary.images, summary.present, summary.up_to_date) == (4, 3, 1)
    assert (summary.tested, summary.passed, summary.released) == (2, 1, 2)
    nothing = catalogue(KnownImages(engine="No container engine answers.")).summary
    assert (nothing.present, nothing.up_to_date, nothing.tested, nothing.released) == (None, None, None, None)
    assert nothing.on_disk is None


def test_a_release_tells_what_it_changed() -> None:
    changed = change_of(*(PRESENT.released[CUDA.id].record, PRESENT.released[CUDA.id].before))  # type: ignore[arg-type]
    assert (changed.since, changed.size, changed.same_digest) == (BEFORE, -12_000_000, False)
    assert changed.versions == {"cuda": ("12.8.57", "12.8.90"), "nccl": (None, "2.27.5")}


def test_a_release_tells_what_lies_beside_it_and_who_signed_it() -> None:
    release = next(entry.release for entry in catalogue().images if entry.id == CUDA.id)
    assert release
    assert release.attached == {"sbom": f"{NEWEST}.sbom", "provenance": f"{NEWEST}.provenance"}
    assert (release.packages, release.signature) == (93, "cosign, with a key")


def test_the_commands_are_what_can_be_done_next() -> None:
    lines = {entry.id: [command.line for command in entry.commands] for entry in catalogue().images}
    assert lines[CPU.id] == ["docker run --rm -it acme/pytorch:0"]
    assert lines[OLD.id] == [f"nox -s build -- {OLD.id}"]
    assert lines[CUDA.id] == [
        "docker pull registry.example:5000/acme/pytorch:latest",
        f"docker pull registry.example:5000/acme/pytorch:{NEWEST}",
        f"docker pull registry.example:5000/acme/pytorch@{digest('d')}",
    ]
