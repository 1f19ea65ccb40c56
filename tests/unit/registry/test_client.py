"""What a registry says of a repository."""

import json
from typing import Any, cast

import pytest

from torchbake.oci.manifest import UnsoundError
from torchbake.oci.reference import Repository
from torchbake.registry.client import Registry
from torchbake.registry.http import Answer

HERE = Repository(host="h", path="a/b")
LIST = "https://h/v2/a/b/tags/list"


class Says:
    """A registry that gives these answers, one after the other."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = [*answers]

    def send(self, request: object, scope: str) -> Answer:
        return self._answers.pop(0)


def page(*tags: str, status: int = 200, **headers: str) -> Answer:
    data = json.dumps({"tags": tags}).encode()
    return Answer(url=LIST, status=status, reason="", headers=headers, data=data)


def of(*answers: Answer) -> Registry:
    return Registry(cast(Any, Says(*answers)), HERE)


def test_tags_come_page_by_page() -> None:
    first = page("b", Link=f'<{LIST}?last=b>; rel="next"')
    assert of(first, page("a")).tags() == ("a", "b")


def test_a_repository_that_is_not_there_has_no_tags() -> None:
    assert of(page(status=404)).tags() == ()


def test_a_later_page_that_is_not_there_does_not_mean_that_there_are_no_tags() -> None:
    first = page("b", Link=f'<{LIST}?last=b>; rel="next"')
    with pytest.raises(UnsoundError, match="a page of its tags is not there"):
        of(first, page(status=404)).tags()
