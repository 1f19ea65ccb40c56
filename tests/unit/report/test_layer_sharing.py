"""Layers: which of them images share, and what made them."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.report.test_catalogue import layer
from torchbake.report.layer_sharing import (
    LayerStep,
    SharedLayer,
    break_down,
    match_steps,
    name_layers,
    step_name,
    stock,
)

LAYERS = st.lists(
    st.builds(lambda key, size: SharedLayer(key=f"k{key}", name=f"n{key}", size=size), st.integers(0, 8), st.just(0)),
    max_size=9,
    unique_by=lambda one: one.key,
)


@given(st.dictionaries(st.sampled_from("abcdef"), LAYERS), st.lists(st.integers(0, 10**10), min_size=9, max_size=9))
def test_own_and_shared_bytes_add_up(images: dict[str, list[SharedLayer]], sizes: list[int]) -> None:
    sized = {name: [replace(one, size=sizes[int(one.key[1:])]) for one in layers] for name, layers in images.items()}
    broken = break_down(sized)
    for name, breakdown in broken.items():
        assert breakdown.own + breakdown.shared == breakdown.total == sum(one.size for one in sized[name])
        for share in breakdown.layers:
            others = [other for other in sized if other != name and share.key in {one.key for one in sized[other]}]
            assert share.others == len(others)
    once = {one.key: one.size for layers in sized.values() for one in layers}
    together = stock(broken.values())
    assert together.together == sum(once.values())
    own = sum(breakdown.own for breakdown in broken.values())
    shared = {share.key: share.size for breakdown in broken.values() for share in breakdown.layers if share.others}
    assert together.together == own + sum(shared.values()) <= together.apart


def test_a_step_is_told_in_few_words() -> None:
    for step, name in (
        ("COPY /layers/nvidia-cudnn-cu12 /nvidia # buildkit", "nvidia-cudnn-cu12"),
        ("COPY /bytecode/torch /pytorch # buildkit", "bytecode of torch"),
        ("COPY /opt/venv /opt/venv # buildkit", "site packages"),
        ("COPY /entries /opt/venv # buildkit", "entries of torch and NVIDIA's packages"),
        ("COPY --chmod=0755 /entrypoints/pytorch /opt/torchbake # buildkit", "torchbake's run and entrypoint"),
        ("COPY /volume-permissions /volume-permissions # buildkit", "volume-permissions"),
        ("RUN /bin/sh -c /run/apt-install git # buildkit", "apt: git"),
        ("RUN /bin/sh -c /run/apt-install --trim g++ libpython3-dev # buildkit", "apt: g++ libpython3-dev"),
        ('RUN /bin/sh -c /run/apt-install python3 tini     && echo "x" >> /etc/passwd # buildkit', "apt: python3 tini"),
        ("WORKDIR /app", "WORKDIR /app"),
        ("RUN " + "x" * 100, "RUN " + "x" * 67 + "…"),
        ("RUN /bin/sh -c /run/apt-install " + "a " * 100_000, "apt: " + "a " * 33 + "…"),
    ):
        assert step_name(step) == name, (step, name)


def test_a_history_s_lines_find_their_layers() -> None:
    history = [
        LayerStep(created_by="mmdebstrap", size=100), LayerStep(created_by="ENV A=1"),
        LayerStep(created_by="RUN true", size=0), LayerStep(created_by="COPY /layers/torch /pytorch", size=7),
    ]  # fmt: skip
    two = match_steps(["k1", "k2"], history, base="base: x")
    assert two == (layer("base: x", 100, "k1"), layer("torch", 7, "k2"))
    three = match_steps(["k1", "k2", "k3"], history, base="")
    assert [(one.name, one.size) for one in three] == [("mmdebstrap", 100), ("RUN true", 0), ("torch", 7)]
    assert match_steps(["k1"], history, base="") == ()
    assert match_steps([], [], base="base: x") == ()  # an image may have labels alone


def test_layers_without_a_history_are_numbered() -> None:
    assert [one.name for one in name_layers([("k1", 1), ("k2", 2)], [], base="b")] == ["layer 1", "layer 2"]


def test_the_base_is_the_lowest_layer_that_no_wheel_made() -> None:
    steps = ["COPY /layers/torch /pytorch # buildkit", "COPY /links /pytorch # buildkit", "mmdebstrap", "RUN apt"]
    layers = name_layers([(f"k{number}", 1) for number in range(4)], steps, base="base: debian12")
    assert [layer.name for layer in layers] == ["torch", "links to NVIDIA's libraries", "base: debian12", "RUN apt"]
