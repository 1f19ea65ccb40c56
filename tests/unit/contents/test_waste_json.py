"""The waste of an image for programs: numbers of layers from 1, and null for values that are not known."""

from tests.unit.contents.inventories import entry, image
from torchbake.contents.waste import find_waste
from torchbake.contents.waste_json import waste_json


def test_the_result_has_the_totals_of_the_report_and_its_kinds() -> None:
    report = find_waste(image(entry("root/.cache/pip/http/a", size=900), entry("srv/a", size=100), name="mine"))
    value = waste_json(report)
    assert (value["image"], value["bytes"], value["wasted"]) == ("mine", report.size, report.wasted)
    assert [kind["bytes"] for kind in value["kinds"]] == [900]
    (kind,) = value["kinds"]
    assert [file["path"] for file in kind["files"]] == ["/root/.cache/pip/http/a"]
    assert [each["layer"] for each in kind["layers"]] == [1]
    assert kind["layers"][0]["hidden_by"] is None
