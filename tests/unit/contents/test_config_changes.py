"""The settings that differ between two images."""

from typing import Any

from torchbake.contents.config_changes import config_changes


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, str | None, str | None]]:
    return [(each.key, each.before, each.after) for each in config_changes({"config": before}, {"config": after})]


def test_each_setting_is_compared_by_its_parts() -> None:
    for key, before, after, expected in (
        ("Env", ["A=1", "B=2=3", "C="], ["B=2=4", "A=1"], [("Env.B", "2=3", "2=4"), ("Env.C", "", None)]),
        ("User", "", "1001", [("User", None, "1001")]),
        ("Entrypoint", ["/a", "b c"], ["/a"], [("Entrypoint", '["/a", "b c"]', '["/a"]')]),
        ("Cmd", None, ["x"], [("Cmd", None, '["x"]')]),
        ("WorkingDir", "/a", "/b", [("WorkingDir", "/a", "/b")]),
        ("Labels", {"a": "1", "b": "x"}, {"a": "2", "b": "x"}, [("Labels.a", "1", "2")]),
        ("ExposedPorts", {"80/tcp": {}}, {"80/tcp": {}, "81/tcp": {}}, [("ExposedPorts.81/tcp", None, "")]),
        ("Volumes", None, {"/data": {}}, [("Volumes./data", None, "")]),
        ("StopSignal", "SIGTERM", "SIGINT", [("StopSignal", "SIGTERM", "SIGINT")]),
        ("Healthcheck", None, {"Test": ["x"]}, [("Healthcheck.Test", None, '["x"]')]),
    ):  # fmt: skip
        assert changes({key: before}, {key: after}) == expected, key
        assert changes({key: before}, {key: before}) == [], key


def test_an_empty_setting_is_none() -> None:
    assert changes({"User": "", "Labels": {}, "Cmd": None, "ArgsEscaped": False}, {"Env": [], "Volumes": None}) == []
    assert config_changes({}, {"config": None}) == ()


def test_secrets_are_masked() -> None:
    before = {"Env": ["HF_TOKEN=1st", "URL=https://me:pw@h/x"], "Labels": {"db.password": "a"}, "Cmd": ["--token=1st"]}
    after = {"Env": ["HF_TOKEN=2nd", "URL=https://me:qw@h/x"], "Labels": {"db_password": "b"}, "Cmd": ["--token=2nd"]}
    value = changes(before, after)
    assert [key for key, *_ in value] == ["Cmd", "Env.HF_TOKEN", "Env.URL", "Labels.db.password", "Labels.db_password"]
    assert all(secret not in str(value) for secret in ("1st", "2nd", "pw", "qw", "'a'", "'b'"))
