"""Answers of a registry about a repository."""

import json
from typing import Any, cast

import pytest

from torchbake.oci.manifest import INDEX, MANIFEST, UnsoundError
from torchbake.oci.reference import Repository
from torchbake.registry.client import Registry
from torchbake.registry.http import HttpResponse
from torchbake.registry.transport import StatusError

HERE = Repository(host="h", path="a/b")
LIST = "https://h/v2/a/b/tags/list"


class Says:
    """A registry that gives these answers, one after the other."""

    def __init__(self, *answers: HttpResponse) -> None:
        self._answers = [*answers]

    def send(self, request: object, scope: str) -> HttpResponse:
        return self._answers.pop(0)


def page(*tags: str, status: int = 200, **headers: str) -> HttpResponse:
    data = json.dumps({"tags": tags}).encode()
    return HttpResponse(url=LIST, status=status, reason="", headers=headers, data=data)


def of(*answers: HttpResponse) -> Registry:
    return Registry(cast(Any, Says(*answers)), HERE)


def test_tags_come_page_by_page() -> None:
    first = page("b", Link=f'<{LIST}?last=b>; rel="next"')
    assert of(first, page("a")).tags() == ("a", "b")


def listed(*digests: str, status: int = 200, kind: str = INDEX, **headers: str) -> HttpResponse:
    entries = [{"mediaType": MANIFEST, "digest": digest, "size": 1} for digest in digests]
    data = json.dumps({"manifests": entries}).encode()
    return HttpResponse(url=LIST, status=status, reason="", headers={"Content-Type": kind, **headers}, data=data)


def test_artifacts_are_listed_page_by_page_or_not_at_all() -> None:
    one, two = (f"sha256:{letter * 64}" for letter in "ab")
    first = listed(one, Link=f'<{LIST}?last=b>; rel="next"')
    blobs = of(first, listed(two)).referrers(one)
    assert blobs
    assert [blob.digest for blob in blobs] == [one, two]
    assert of(listed()).referrers(one) == ()
    assert of(listed(kind="text/html; charset=utf-8")).referrers(one) is None
    with pytest.raises(UnsoundError, match="without end"):
        of(*[first] * 1000).referrers(one)


@pytest.mark.parametrize(
    ("status", "listed_nowhere"), [(404, True), (405, True), (401, False), (403, False), (503, False)]
)
def test_a_refusal_to_list_artifacts_is_no_missing_list(status: int, listed_nowhere: bool) -> None:
    class Refuses:
        def send(self, request: object, scope: str) -> HttpResponse:
            raise StatusError("no", status=status)

    registry = Registry(cast(Any, Refuses()), HERE)
    if listed_nowhere:
        assert registry.referrers("sha256:x") is None
    else:
        with pytest.raises(StatusError):
            registry.referrers("sha256:x")


def test_a_repository_that_is_not_there_has_no_tags() -> None:
    assert of(page(status=404)).tags() == ()


def test_a_missing_later_page_does_not_mean_an_empty_list() -> None:
    first = page("b", Link=f'<{LIST}?last=b>; rel="next"')
    with pytest.raises(UnsoundError, match="a page of its tags is not there"):
        of(first, page(status=404)).tags()
