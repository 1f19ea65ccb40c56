"""The output of payloads without torch: verdicts, their line, promised versions, the command line."""

import errno
import json
import math
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrypoints.pytorch.payloads import exchange
from entrypoints.pytorch.payloads.apart import run_apart
from entrypoints.pytorch.payloads.cli import PAYLOADS, Arguments, parse
from entrypoints.pytorch.payloads.expected import KEYS, disagreements, parse_expected
from entrypoints.pytorch.payloads.verdict import (
    Checks,
    NotRun,
    PayloadOutcome,
    PayloadVerdict,
    expect,
    outcome_of_all,
    reason_of,
)
from torchbake.checks import smoke_jobs, smoke_judge
from torchbake.core.paths import TOOLKIT
from torchbake.oci.labels import versions_in

OUTCOMES = st.lists(st.sampled_from(PayloadOutcome), max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_a_process_refused_by_a_limit_fails_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def fork() -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", fork)
    before = sum(1 for _ in Path("/proc/self/fd").iterdir())
    end = run_apart(lambda _: PayloadVerdict("tensor", "cpu", PayloadOutcome.PASSED), timeout=9)
    assert end.verdict is None
    assert "temporarily unavailable" in end.reason
    assert "--pids-limit" in end.reason
    assert sum(1 for _ in Path("/proc/self/fd").iterdir()) == before


@given(OUTCOMES)
def test_one_failure_is_a_failure_and_nothing_run_is_no_pass(outcomes: list[PayloadOutcome]) -> None:
    whole = outcome_of_all(outcomes)
    assert (whole is PayloadOutcome.FAILED) == (PayloadOutcome.FAILED in outcomes)
    assert (whole is PayloadOutcome.PASSED) == (
        PayloadOutcome.PASSED in outcomes and PayloadOutcome.FAILED not in outcomes
    )
    assert (whole.exit_code == 0) == (whole is PayloadOutcome.PASSED)


@given(st.dictionaries(st.text(), VALUES, max_size=4), st.text())
def test_a_line_is_one_line_of_json_whatever_is_in_it(figures: dict[str, object], reason: str) -> None:
    line = PayloadVerdict("tensor", "cpu", PayloadOutcome.PASSED, reason, figures=figures).line()
    assert len(line.splitlines()) == 1
    values = json.loads(line)
    assert (values["payload"], values["verdict"], values["reason"]) == ("tensor", "passed", reason)
    assert smoke_judge.PayloadLine.model_validate_json(line).verdict == "passed"


def test_infinities_are_words() -> None:
    line = PayloadVerdict(
        "tensor", "cpu", PayloadOutcome.PASSED, figures={"a": math.inf, "b": math.nan, "c": 1.23456789}
    ).line()
    assert json.loads(line)["figures"] == {"a": "inf", "b": "nan", "c": 1.235}


def test_a_check_that_fails_does_not_end_the_others() -> None:
    events: list[object] = []
    checks = Checks(events.append)
    with checks("one"):
        expect(False, "it is wrong")
    with checks("two"):
        raise NotRun("nobody there")
    with checks("three"):
        raise RuntimeError("out of\nluck")
    with checks("four"):
        pass
    verdict = checks.verdict("tensor", "cpu", 1.0)
    assert verdict.outcome is PayloadOutcome.FAILED
    assert verdict.reason == "one: it is wrong; three: RuntimeError: out of luck"
    assert set(verdict.checks) == {"one", "three", "four"}
    assert verdict.figures == {"not-run": {"two": "nobody there"}}
    assert events[:2] == [{"begin": "one"}, {"end": "one", "seconds": checks.seconds["one"]}]


def test_dependent_ranks_stay_in_step_until_an_error() -> None:
    checks = Checks(together=True)
    with checks("value"):
        expect(False, "it is wrong")
    with pytest.raises(RuntimeError), checks("error"):
        raise RuntimeError("connection lost")
    assert [failure.partition(":")[0] for failure in checks.failures] == ["value", "error"]


def test_nothing_checked_is_no_pass() -> None:
    assert Checks().verdict("tensor", "cpu", 0.0).outcome is PayloadOutcome.FAILED
    checks = Checks()
    with checks("one"):
        raise NotRun("nobody there")
    assert checks.verdict("tensor", "cpu", 0.0).outcome is PayloadOutcome.FAILED


def test_many_failures_are_counted() -> None:
    assert reason_of(list("abcde")) == "a; b; c; and 2 more"


def test_what_was_promised() -> None:
    for expected, matches, sentences in (
        ({"torch": "2.7.1"}, {"torch": "2.7.1+cu126"}, []),
        ({"torch": "2.7.1+cpu"}, {"torch": "2.7.1+cu126"}, ["torch is 2.7.1+cu126, expected 2.7.1+cpu"]),
        ({"torch": "1.13.1"}, {"torch": "2.0.0"}, ["torch is 2.0.0, expected 1.13.1"]),
        ({"torch": "2.7"}, {"torch": "2.7.1"}, ["torch is 2.7.1, expected 2.7"]),
        ({"cuda": "12.6"}, {"cuda": None}, ["cuda is not there, expected 12.6"]),
        ({"cuda": None}, {"cuda": "12.6"}, ["cuda is 12.6, expected none"]),
        ({"cuda": None}, {"cuda": None}, []),
        ({"cudnn": "9"}, {"cudnn": "9.5.1"}, []),
        ({"cudnn": "9.5.1.17"}, {"cudnn": "9.5.1"}, []),
        ({"cudnn": "9.10"}, {"cudnn": "9.1.0"}, ["cudnn is 9.1.0, expected 9.10"]),
        ({"python": "3.11"}, {"python": "3.11.2"}, []),
        ({"python": "3.1"}, {"python": "3.11.2"}, ["python is 3.11.2, expected 3.1"]),
        ({"nccl": "2.26.2"}, {}, ["nccl is not there, expected 2.26.2"]),
    ):
        assert disagreements(expected, matches) == sentences, expected


@pytest.mark.parametrize("text", ["", "{", "[]", '{"tensorflow": "1"}', '{"torch": 2.7}', '{"torch": ""}'])
def test_promises_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_expected(text)


def test_promises_are_of_the_versions_that_the_toolkit_promises() -> None:
    labels = {f"org.torchbake.{key}": "1" for key in KEYS}
    assert parse_expected(json.dumps(versions_in(labels))) == dict.fromkeys(KEYS, "1")


def test_a_command_line() -> None:
    assert isinstance(parse(["tensor"]), Arguments)
    argument = parse(["tensor", "versions", "--device", "cuda", "--expect", '{"cuda": null}', "--timeout", "5"])
    assert argument.names == ("tensor", "versions")
    assert (argument.options.device, argument.options.expected, argument.timeout) == ("cuda", {"cuda": None}, 5.0)
    assert parse(["--list"]).list


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "no payload was given"),
        (["tenser"], "unknown payload 'tenser'"),
        (["tensor", "--timeout", "0"], "--timeout is 0"),
        (["tensor", "--expect", "{"], "--expect: '{' is not JSON"),
        (["tensor", "--device", "tpu"], "tpu"),
    ],
)
def test_a_wrong_command_line_is_told_and_ends_with_64(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        parse(words)
    lines = capsys.readouterr()
    assert end.value.code == 64
    assert lines.out == ""
    assert lines.err.startswith("smoke: ")
    assert sentence in lines.err


def test_every_payload_is_a_module_that_the_toolkit_selects() -> None:
    folder = TOOLKIT / "entrypoints/pytorch/payloads"
    assert all((folder / f"{payload.module}.py").is_file() for payload in PAYLOADS.values())
    assert set(PAYLOADS) == set(smoke_jobs.PAYLOADS)
    assert {name for name, payload in PAYLOADS.items() if payload.together} == set(smoke_jobs.TOGETHER)


# --- what ranks say to each other


@given(VALUES | st.binary())
def test_a_message_of_another_rank_is_its_type_or_refused(value: object) -> None:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    for kind, right in ((str, str), (list[float], list), (tuple[str, bool], tuple), (dict[str, int], dict)):
        try:
            actual: Any = exchange.decode(data, kind)
        except ValueError:
            continue
        assert type(actual) is right
        assert exchange.decode(exchange.encode(actual), kind) == actual or "NaN" in json.dumps(actual)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (pickle.dumps(("a", ["b"])), tuple[str, list[str]]),
        (b"", str),
        (b"\xff\xfe", str),
        (b"[" * 100_000, list[str]),
        (b"[1]", tuple[int, int]),
        (b'["a", "b"]', tuple[str, list[str]]),
        (b"true", int),
        (b"1", bool),
        (b"9" * 30, int),
        (b"9" * 400, float),
        (b'{"a": 1}', dict[str, str]),
        (b"null", str),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_what_is_not_of_the_type_is_refused(data: bytes, kind: Any) -> None:
    with pytest.raises(ValueError, match=r"^(not JSON|no |a number)"):
        exchange.decode(data, kind)
