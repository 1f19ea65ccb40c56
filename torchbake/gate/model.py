"""The model of a gate's file: its inputs, the rules that refuse an image, and the accepted vulnerabilities."""

from datetime import date
from typing import Annotated, Literal, Self, TypeAlias, get_args

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from torchbake.advisories.finding import Severity
from torchbake.matrix import field_types
from torchbake.matrix.validators import one_line

SeverityWord: TypeAlias = Literal["negligible", "low", "medium", "high", "critical"]
Justification: TypeAlias = Literal[
    "code_not_present", "code_not_reachable", "requires_configuration", "requires_dependency", "requires_environment",
    "protected_by_compiler", "protected_at_runtime", "protected_at_perimeter", "protected_by_mitigating_control",
]  # fmt: skip
JUSTIFICATIONS: tuple[str, ...] = get_args(Justification)  # the words of CycloneDX
LONGEST_AGE = 36_500  # days


def _day(value: object) -> object:
    try:
        return date.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError(f"{value!r} is not a day: write it as 2027-01-31") from None


def _words(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty")
    return one_line(text)


def _one_or_more(rules: tuple[object, ...]) -> tuple[object, ...]:
    """Refuse an empty list. A limit of the type would also count rules that are not valid as missing."""
    if not rules:
        raise ValueError("needs at least one entry")
    return rules


Words = Annotated[str, AfterValidator(_words)]
Day = Annotated[date, BeforeValidator(_day), WithJsonSchema({"type": "string", "format": "date"})]
Days = Annotated[int, Field(ge=0, le=LONGEST_AGE)]


class GateMapping(field_types.Model):
    """A mapping of the file; unknown keys are errors."""


class GateRule(GateMapping):
    """A rule refuses an image with a vulnerability that meets all its conditions."""

    severity: SeverityWord | None = Field(
        None, description="this severity and all above; if not set: any", examples=["high"]
    )
    older_than_days: Days | None = Field(
        None, description="known for more days than this; an unknown day counts as long ago", examples=[14]
    )
    since: Literal["advisory", "fix"] = Field(
        "advisory",
        description="the start of the days: the publication of the vulnerability, or that of its fix. Without a known "
        "day of the fix, days count from the vulnerability's publication",
        examples=["fix"],
    )
    fixed_only: bool = Field(False, description="only if there is a version with a fix", examples=[True])

    @model_validator(mode="after")
    def _has_a_condition(self) -> Self:
        if self.severity is None and self.older_than_days is None and not self.fixed_only:
            raise ValueError("has no condition: write severity, older_than_days or fixed_only")
        if self.since == "fix" and self.older_than_days is None:
            raise ValueError("`since` belongs to older_than_days, which is not set")
        return self

    @property
    def text(self) -> str:
        """The conditions in words."""
        start = "fixed" if self.since == "fix" else "known"
        days = "" if self.older_than_days is None else f"{start} for more than {self.older_than_days} days"
        level = "" if self.severity is None else self.severity + ("" if self.severity == "critical" else " or above")
        return ", ".join(filter(None, [level, days, "with a fix" if self.fixed_only else ""]))


class AllowedVulnerability(GateMapping):
    """A vulnerability, or all of one package, that refuses no image until a day."""

    id: Words | None = Field(
        None,
        description="its number, or another of its numbers; if not set: all vulnerabilities of the package",
        examples=["CVE-2026-12345"],
    )
    package: Words | None = Field(
        None, description="only in this package, by its name in the image; if not set: in all", examples=["libssl3"]
    )
    reason: Words = Field(
        description="the reason, which the results and the VEX document show",
        examples=["no code of the image parses DTLS"],
    )
    expires: Day = Field(description="the last day; after it the vulnerability refuses again", examples=["2027-01-31"])
    status: Literal["accepted", "not_affected"] = Field(
        "accepted",
        description="not_affected: the image is not vulnerable; accepted: it may be, and the risk is taken",
        examples=["not_affected"],
    )
    justification: Justification | None = Field(
        None,
        description="the kind of reason for `not_affected`, in the words of CycloneDX",
        examples=["code_not_reachable"],
    )

    @model_validator(mode="after")
    def _is_justified(self) -> Self:
        for key in sorted({"id", "package"} & self.model_fields_set):
            if getattr(self, key) is None:  # an entry without an id allows far more, so a forgotten one is a mistake
                raise ValueError(f"`{key}` is empty: give it a value, or remove the key")
        if self.id is None and self.package is None:
            raise ValueError("names neither a vulnerability nor a package: write id, package or both")
        if self.status == "not_affected" and self.justification is None:
            raise ValueError("`not_affected` needs a justification")
        if self.status == "accepted" and self.justification is not None:
            raise ValueError("a justification belongs to `status: not_affected`")
        return self

    @property
    def text(self) -> str:
        """The vulnerability and the package in words."""
        if self.id is None:
            return f"each vulnerability of {self.package}"
        return f"{self.id} in {self.package}" if self.package else self.id


class GateFile(GateMapping):
    """The whole of a gate's file. Paths are relative to its folder."""

    format: field_types.Format
    advisories: tuple[Words, ...] = Field(
        (),
        description="files, folders or addresses of Debian's tracker and of OSV, by which the packages of each image "
        "are judged",
        examples=[["advisories/debian-tracker.json", "advisories/osv-pypi.zip"]],
    )
    reports: tuple[Words, ...] = Field(
        (),
        description="files or folders of scanners' reports: each image needs one with its digest",
        examples=[["reports/scans"]],
    )
    max_age_days: Days = Field(
        7,
        description="the greatest age of a report and of advisories. An older report counts as missing, and older "
        "advisories end the run. Without a date in the file its last change counts",
        examples=[3],
    )
    refuse: Annotated[tuple[GateRule, ...], AfterValidator(_one_or_more)] = Field(
        description="the rules; one is enough to refuse an image",
        json_schema_extra={"minItems": 1},
        examples=[[{"severity": "high", "fixed_only": True}, {"severity": "critical"}]],
    )
    unknown_severity: SeverityWord = Field(
        "critical", description="the severity of vulnerabilities to which no source gives one", examples=["medium"]
    )
    allow: tuple[AllowedVulnerability, ...] = Field(
        (),
        description="accepted vulnerabilities",
        examples=[
            [
                {
                    "id": "CVE-2026-12345",
                    "package": "libssl3",
                    "status": "not_affected",
                    "justification": "code_not_reachable",
                    "reason": "no code of the image parses DTLS",
                    "expires": "2027-01-31",
                }
            ]
        ],
    )

    @model_validator(mode="after")
    def _has_inputs(self) -> Self:
        if not self.advisories and not self.reports:
            raise ValueError("names no input: write advisories or reports")
        return self

    @property
    def unknown(self) -> Severity:
        """The severity of vulnerabilities without one."""
        return Severity[self.unknown_severity.upper()]
