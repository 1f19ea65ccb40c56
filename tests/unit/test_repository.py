"""The repositories that git may fetch, the masking of its output, and the causes of its errors."""

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from entrypoints.pytorch.launch.launch_error import Code, LaunchError
from entrypoints.pytorch.launch.masking import mask, masked_url
from entrypoints.pytorch.launch.repository import cause_of, source_of


def launch_error(repository: str, revision: str = "main", **more: str) -> LaunchError:
    with pytest.raises(LaunchError) as caught:
        source_of({"GIT_REPOSITORY": repository, "GIT_REVISION": revision, **more})
    return caught.value


# --- what git may be given


def test_addresses_that_are_understood() -> None:
    for repository in (
        "https://example.com/a.git",
        "https://me:s%40cret@example.com:8443/a.git",
        "https://example.com/@team/a.git",
        "https://[::1]:8443/a",
        "ssh://git@example.com/a.git",
        "git@example.com:team/a.git",
        "file:///srv/a b.git",
        "/srv/a.git",
        "../a",
    ):
        assert source_of({"GIT_REPOSITORY": f" {repository}\n"}).repository == repository, repository


@pytest.mark.parametrize("repository", ["--upload-pack=touch x", "-oProxyCommand=x:y", "https://a/\x1b[2J", "/a\nb"])
def test_what_is_no_address_is_refused(repository: str) -> None:
    error = launch_error(repository)
    assert error.code is Code.BAD_VALUE
    assert error.sentence.startswith("GIT_REPOSITORY=")
    assert error.sentence.isprintable()


@pytest.mark.parametrize("repository", ["ext::sh -c touch% x", "fd::7", "https::https://a/b", "ftp://a/b", "::x"])
def test_transports_that_could_run_a_command_are_refused(repository: str) -> None:
    error = launch_error(repository)
    assert (error.code, "transport" in error.sentence) == (Code.BAD_VALUE, True)


def test_who_allows_other_protocols_gets_these_alone() -> None:
    assert source_of({"GIT_REPOSITORY": "ftp://a/b", "GIT_ALLOW_PROTOCOL": "ftp"}).protocols == "ftp"
    assert "supported are ftp" in launch_error("https://a/b", GIT_ALLOW_PROTOCOL="ftp").sentence


def test_what_names_no_revision_is_refused() -> None:
    for revision in (
        "--upload-pack=touch x",
        "-f",
        "a b",
        "a:refs/heads/b",
        "^main",
        "a\nb",
        "HEAD~1",
        "a*",
        "\x1b[2J",
    ):
        error = launch_error("/srv/a", revision)
        assert error.code is Code.BAD_VALUE, revision
        assert error.sentence.startswith("GIT_REVISION="), revision
        assert error.sentence.isprintable(), revision


@pytest.mark.parametrize("revision", ["main", "v1.0", "feature/x", "refs/pull/3/head", "bücher", "a" * 40])
def test_revisions_that_are_understood(revision: str) -> None:
    assert source_of({"GIT_REPOSITORY": "/a", "GIT_REVISION": revision}).revision == revision
    assert source_of({"GIT_REPOSITORY": "/a"}).revision == "HEAD"


@pytest.mark.parametrize(
    "login", ["me:hush@hush", "me:hush/hush", "me:hush?hush", "me:hush#hush", "me:hush:hush", "me:hush hush"]
)
def test_a_password_that_no_url_can_hold_is_refused_unshown(login: str) -> None:
    error = launch_error(f"https://{login}@example.com/a.git")
    assert (error.code, "%40" in error.sentence) == (Code.BAD_VALUE, True)
    assert "hush" not in error.sentence


# --- what may be printed


def test_a_url_is_shown_without_what_is_secret() -> None:
    for url, text in (
        ("https://me:secret@example.com/a.git", "https://example.com/a.git"),
        ("https://me:se@cr/et@example.com/a.git", "https://example.com/a.git"),
        ("https://example.com/a.git?private_token=secret", "https://example.com/a.git?***"),
        ("https://example.com/a.git#secret", "https://example.com/a.git?***"),
        ("https://me:se?cret@example.com/a.git", "https://***"),
        ("me:secret@example.com:a.git", "***@example.com:a.git"),
        ("git@example.com:a.git", "git@example.com:a.git"),
        ("ssh://git@example.com/a.git", "ssh://example.com/a.git"),
        ("/srv/a:b@c", "/srv/a:b@c"),
    ):
        assert masked_url(url) == text, (url, text)
        if "://" in url:
            assert mask(f"fatal: '{url}' not found") == f"fatal: '{text}' not found", (url, text)


def test_a_token_is_hidden_where_git_repeats_it_alone() -> None:
    url = "https://ghp_0123456789:x-oauth-basic@example.com/a?private_token=ab%2Fcd"
    output = mask("remote: ghp_0123456789 and ab/cd and ab%2Fcd and x-oauth-basic are wrong", url)
    assert output == "remote: *** and *** and *** and *** are wrong"


letters = st.characters(min_codepoint=33, max_codepoint=0x17F, exclude_categories=["Cc", "Zs"])
secrets = st.text(letters, min_size=4, max_size=16)


@given(
    secret=secrets,
    template=st.sampled_from(
        [
            "https://me:{}@h.example/r.git",
            "https://{}@h.example/r.git",
            "http://h.example/r?private_token={}",
            "http://h.example/r?a=1&private_token={}#x",
            "http://h.example/r#{}",
            "ssh://me:{}@h.example/r",
            "me:{}@h.example:r",
        ]
    ),
    output=st.sampled_from(["{url}", "fatal: unable to access '{url}/': no", "error: {url}: {url}", 'to "{url}".']),
)
@example(secret="p@ss", template="https://me:{}@h.example/r.git", output="{url}")
@example(secret="p/s@s", template="https://me:{}@h.example/r.git", output="fatal: unable to access '{url}/': no")
@example(secret="a@b?c", template="http://h.example/r?private_token={}", output="{url}")
def test_no_secret_is_ever_shown(secret: str, template: str, output: str) -> None:
    url = template.format(secret)
    words = output.format(url=url)
    assume(secret not in template and secret not in output and secret not in "***")
    assert secret not in mask(words, url)
    assert secret not in masked_url(url)


# --- what is made of git's words


def test_gits_own_cause_comes_with_the_next_step() -> None:
    for output, words, step in (
        (
            "fatal: detected dubious ownership in repository at '/srv/a'\nTo add an exception for this directory, "
            "call:\n\n\tgit config --global --add safe.directory /srv/a\nfatal: Could not read from remote repository."
            "\n\nPlease make sure you have the correct access rights\nand the repository exists.",
            "dubious ownership in repository at '/srv/a'",
            "--user",
        ),
        (
            "error: cannot run ssh: No such file or directory\nfatal: unable to fork",
            "cannot run ssh: No such file or directory; fatal: unable to fork",
            "openssh-client",
        ),
        (
            "Host key verification failed.\nfatal: Could not read from remote repository.\n\nPlease make sure",
            "Host key verification failed.",
            "known_hosts",
        ),
        ("git@h: Permission denied (publickey).\nfatal: Could not read", "Permission denied (publickey)", "~/.ssh"),
        (
            "fatal: could not read Username for 'https://h': terminal prompts disabled",
            "could not read Username",
            "netrc",
        ),
        ("remote: Not allowed.\nfatal: Authentication failed for 'https://h/'", "remote: Not allowed", "TOKEN"),
        ("fatal: couldn't find remote ref v9", "couldn't find remote ref v9", "correct GIT_REVISION"),
        ("", "git said nothing", ""),
    ):
        text = cause_of(output)
        assert words in text, output
        assert step in text, output
        assert "Please make sure" not in text, output
        assert text.endswith("."), output


@given(st.text())
def test_any_words_become_one_printable_sentence(output: str) -> None:
    assert cause_of(output).isprintable()
    assert cause_of(output).endswith(".")
