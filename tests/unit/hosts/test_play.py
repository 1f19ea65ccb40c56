"""A playbook's command is data; its folder is this user's alone, and holds what must be on no command line."""

import json
import stat
from pathlib import Path

from torchbake.core.paths import TOOLKIT
from torchbake.hosts.callback_plugins import FILE
from torchbake.hosts.play import Play, PlayRequest, command_of, inventory_words, write_play


def test_the_command_of_a_check_on_a_group() -> None:
    extra, words = ("a=1", "@more.yml"), ("--ask-become-pass",)
    request = PlayRequest(playbook="apply", inventory="inv", limit="gpus", check=True, extra=extra, words=words)
    assert Play(folder=Path("/f")).words(request) == (
        *("--inventory", "/f/variables.json", "--inventory", "inv", "--limit", "gpus", "--check", "--diff"),
        *("--extra-vars", "a=1", "--extra-vars", "@more.yml", "--ask-become-pass", "/f/site.yml"),
    )
    plain = Play(folder=Path("/f")).words(PlayRequest(playbook="remove", inventory="inv"))
    assert plain == ("--inventory", "/f/variables.json", "--inventory", "inv", "/f/site.yml")


def test_what_a_run_writes_is_private_and_goes() -> None:
    secret = "https://me:secret@mirror"
    with write_play(PlayRequest(playbook="rollback", inventory="inv"), {"x": secret}) as play:
        assert stat.S_IMODE(play.variables.stat().st_mode) == 0o600
        assert stat.S_IMODE(play.folder.stat().st_mode) == 0o700
        report = json.loads(play.variables.read_text())
        assert report == {"all": {"vars": {"x": secret, "pytorch_entrypoints": str(play.entrypoints)}}}
        assert play.playbook.read_text() == "- import_playbook: torchbake.pytorch.rollback\n"
        path = play.folder / "collections/ansible_collections/torchbake/pytorch/playbooks/rollback.yml"
        assert path.samefile(TOOLKIT / "ansible/playbooks/rollback.yml")
        assert (play.folder / "callback_plugins/torchbake_results.py").is_file()
        assert secret not in " ".join(play.words(PlayRequest(playbook="rollback", inventory="inv")))
        assert play.environment({"A": "b"})[FILE] == str(play.results)
    assert not play.folder.exists()


def test_an_inventory_is_listed_with_the_limit() -> None:
    assert inventory_words("inv", "") == ("--inventory", "inv", "--list")
    assert inventory_words("inv", "a b")[3:] == ("--limit", "a b")
    vault = ("--vault-password-file", "pw")
    assert inventory_words("inv", "", ("a=1", "@f"), vault)[3:] == (
        *("--extra-vars", "a=1", "--extra-vars", "@f", "--vault-password-file", "pw"),
    )
    assert "'a b'" in command_of(("ansible-playbook",), PlayRequest(playbook="apply", inventory="inv", limit="a b"))
