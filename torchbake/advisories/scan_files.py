"""Reading of scanners' reports: files and folders. The content tells the format of each file."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from torchbake.advisories.cyclonedx_report import is_cyclonedx, read_cyclonedx
from torchbake.advisories.dated import day_of_file
from torchbake.advisories.grype import is_grype, read_grype
from torchbake.advisories.sarif import is_sarif, read_sarif
from torchbake.advisories.scan_report import ScanReport
from torchbake.advisories.trivy import is_trivy, read_trivy
from torchbake.core.json_text import read_object
from torchbake.core.sizes import human
from torchbake.errors import AdvisoryError

_LARGEST = 2**28  # bytes; a report on an image with thousands of packages has some 10 MB
_SUFFIXES = (".json", ".sarif")
_FORMATS = ((is_trivy, read_trivy), (is_grype, read_grype), (is_sarif, read_sarif), (is_cyclonedx, read_cyclonedx))
_HINT = "Give reports of Trivy or Grype: their own JSON, SARIF or CycloneDX with vulnerabilities. Or remove the file."


def read_reports(paths: Iterable[Path]) -> tuple[ScanReport, ...]:
    """Read the reports of files, and of all files .json and .sarif in folders.

    Raises AdvisoryError, which names the file, for a file that is no report.
    """
    return tuple(_read(path) for place in paths for path in _files(place))


def _files(place: Path) -> Iterator[Path]:
    if place.is_dir():
        yield from sorted(one for one in place.rglob("*") if one.suffix in _SUFFIXES and one.is_file())
    else:
        yield place


def _read(path: Path) -> ScanReport:
    try:
        if path.exists() and not path.is_file():
            raise ValueError("it is neither a file nor a folder")
        facts = path.stat()
        if facts.st_size > _LARGEST:
            raise ValueError(f"it has more than {human(_LARGEST)}")
        data = read_object(path.read_bytes())
        reader = next((read for fits, read in _FORMATS if fits(data)), None)
        if reader is None:
            raise ValueError("it is not a report of Trivy or Grype, SARIF or CycloneDX")
        return replace(reader(path, data), file_day=day_of_file(facts.st_mtime))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        reason = f"{'.'.join(map(str, first['loc']))}: {first['msg'][0].lower()}{first['msg'][1:]}"
    except ValueError as error:
        reason = str(error)
    except OSError as error:
        raise AdvisoryError(f"{path}: {error.strerror}.", hint=_HINT) from None
    raise AdvisoryError(f"{path}: {reason}.", hint=_HINT)
