"""The page's data, as programs read them."""

from tests.unit.report.test_catalogue import catalogue
from torchbake.report.model import Catalogue


def test_the_data_are_read_back_as_they_were() -> None:
    assert Catalogue.model_validate_json(catalogue().model_dump_json()) == catalogue()
