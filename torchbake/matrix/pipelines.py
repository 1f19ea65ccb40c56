"""The CI files of a new repository: copies of this toolkit's, adapted to it. Pure."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from torchbake.errors import UsageError
from torchbake.oci.reference import parse_registry

_WORKFLOWS = ".github/workflows"
_CALLERS = ("images.yml", "update.yml", "validate.yml")
_CALLED = ("check-images.yml", "release-images.yml", "update-images.yml", "validate-images.yml")
# The files of each choice: the path in the toolkit's folder by the path in the new repository.
PIPELINES = {
    "github": {f"{_WORKFLOWS}/{name}": f"{_WORKFLOWS}/{name}" for name in _CALLERS},
    "github-full": {f"{_WORKFLOWS}/{name}": f"{_WORKFLOWS}/{name}" for name in (*_CALLERS, *_CALLED)},
    "gitlab": {".gitlab-ci.yml": "ci/gitlab-ci.yml", "ci/gitlab-images.yml": "ci/gitlab-images.yml"},
}
_REPOSITORY = "torchbake/torchbake"
_PAGES = "https://github.com/torchbake/torchbake/blob/main/docs/"
_NOX = r"(?P<word>pip install|install:) nox==\S+"  # pinned, since it runs with tokens and logins
_COPY = "# GitLab: copy this file to .gitlab-ci.yml, or include it there (`include: {local: ci/gitlab-ci.yml}`)."


# https://docs.aws.amazon.com/AmazonECR/latest/public/public-registry-auth.html: its logins are of one region.
_PUBLIC_ECR, _PUBLIC_REGION = "public.ecr.aws", "us-east-1"

# How jobs log in: the hosts of each kind of registry, and what must be set in the CI besides the registry.
LOGINS = {
    "ghcr": (r"ghcr\.io", ""),
    "ecr": (
        r"\d{12}\.dkr[.-]ecr(-fips)?\.(?P<region>[a-z0-9-]+)\."
        r"(amazonaws\.com(\.cn)?|amazonaws\.eu|on\.aws|on\.amazonwebservices\.com\.cn)|" + re.escape(_PUBLIC_ECR),
        "AWS_ROLE_ARN and AWS_REGION",
    ),
    "gar": (r"[a-z0-9-]+-docker\.pkg\.dev|([a-z]+\.)?gcr\.io", "GOOGLE_PROVIDER and GOOGLE_ACCOUNT"),
    "dockerhub": (r"docker\.io", "REGISTRY_USERNAME and the secret REGISTRY_PASSWORD"),
    "basic": (r".*", "REGISTRY_USERNAME and the secret REGISTRY_PASSWORD"),
}
_LABEL = re.compile(r"[\w.-]+")
# GitLab's login to ECR, by the token of the job. The AWS command reads the file and the role from its own variables.
_ECR = """\
.login:
  id_tokens:
    AWS_TOKEN: {aud: $CI_SERVER_URL}
  script:
    - echo "$AWS_TOKEN" > "$AWS_WEB_IDENTITY_TOKEN_FILE"
    - %s get-login-password | docker login --username AWS --password-stdin "${REGISTRY%%%%/*}"
"""
_ECR_VARIABLES = """\
  AWS_ROLE_ARN: ""  # the role that jobs assume by OpenID Connect
  AWS_REGION: "%s"
  AWS_WEB_IDENTITY_TOKEN_FILE: /tmp/aws-token
"""


@dataclass(frozen=True, kw_only=True)
class PipelineChoice:
    """How the jobs of a new repository log in, and the labels of their runner; empty for the defaults.

    ``ecr`` is the command of AWS for the login to ECR.
    """

    login: str = ""
    region: str = ""
    ecr: str = "aws ecr"
    labels: tuple[str, ...] = ()

    @property
    def own_runner(self) -> bool:
        """Return whether the runner is not hosted by GitHub, so that it has its own Python."""
        return "self-hosted" in self.labels


def pipeline_choice(ci: str, login: str, runner: str, registry: str) -> PipelineChoice:
    """Check the options ``--login`` and ``--runner`` of `init`. Raises UsageError, which names the option."""
    for option in (name for name, value in (("--login", login), ("--runner", runner)) if value and not ci):
        raise UsageError(f"{option} is for the files of a CI.", hint=f"Name the CI: --ci github {option} …")
    labels = tuple(label.strip() for label in runner.split(",")) if runner else ()
    wrong = next((label for label in labels if not _LABEL.fullmatch(label)), None)
    if wrong is not None:
        raise UsageError(f"--runner: {wrong!r} is not a label.", hint="Write labels as --runner self-hosted,linux,x64")
    if login == "gar" and ci == "gitlab":
        raise UsageError(
            "--login gar: GitLab's jobs have no such login here.",
            hint="Give --login basic; its user is _json_key, and its password the key of a service account.",
        )
    host = parse_registry(registry).host if registry else ""
    match = re.fullmatch(LOGINS[login][0], host) if login and host else None
    if login and host and not match:
        kind = next(kind for kind, (hosts, _) in LOGINS.items() if re.fullmatch(hosts, host))
        raise UsageError(f"--login {login}: {host} is no registry of this kind.", hint=f"Give --login {kind}.")
    if login == "ecr" and host == _PUBLIC_ECR:
        return PipelineChoice(login=login, region=_PUBLIC_REGION, ecr="aws ecr-public", labels=labels)
    region = match["region"] if match and login == "ecr" else ""
    return PipelineChoice(login=login, region=region, labels=labels)


def pipeline(text: str, requirement: str, tag: str = "", choice: PipelineChoice | None = None) -> str:
    """Adapt a CI file of the toolkit to a repository that installs torchbake by ``requirement``, as pip takes it.

    With a ``tag``, the file calls the workflows of the toolkit's repository at this tag, else its repository's copies.
    """
    text = re.sub(_NOX, lambda match: f'{match["word"]} "{requirement}"', text)
    text = text.replace(_COPY, "# Starts the pipelines of the images.")
    if tag:
        text = re.sub(rf"uses: \./({_WORKFLOWS}/[\w-]+\.yml)", rf"uses: {_REPOSITORY}/\1@{tag}", text)
    text = re.sub(r"\bdocs/(?=[a-z/-]+\.md)", _PAGES, text)
    return _with_defaults(text, choice) if choice else text


def _with_defaults(text: str, choice: PipelineChoice) -> str:
    """Write the choice as the default of a variable, which the CI's settings still replace."""
    runner = choice.labels[0] if len(choice.labels) == 1 else json.dumps(choice.labels) if choice.labels else ""
    python = "runner" if choice.own_runner else ""
    for name, value in {"LOGIN": choice.login, "AWS_REGION": choice.region, "RUNNER": runner, "PYTHON": python}.items():
        if value:
            text = text.replace(f"${{{{ vars.{name} }}}}", f"${{{{ vars.{name} || '{value}' }}}}")
    text = _with_tags(text, choice.labels) if choice.labels else text
    return _with_ecr(text, choice) if choice.login == "ecr" else text


def _with_tags(text: str, labels: Sequence[str]) -> str:
    """Replace the runners of GitLab's jobs."""
    if len(labels) == 1:
        return re.sub(r"(?m)^(  RUNNER(?:_LARGE)?:) .*", rf"\1 {labels[0]}", text)
    text = re.sub(r"tags: \[\$RUNNER(_LARGE)?\]", f"tags: [{', '.join(labels)}]", text)
    return re.sub(r"(?m)^  RUNNER(_LARGE)?: .*\n", "", text)


def _with_ecr(text: str, choice: PipelineChoice) -> str:
    """Replace the login of GitLab's jobs by one to ECR."""
    text = re.sub(r"(?m)^\.login:\n(?:  .*\n)+", lambda _: _ECR % choice.ecr, text)
    text = re.sub(r"(?m)^  REGISTRY_(USERNAME|PASSWORD): .*\n", "", text)
    text = re.sub(
        r"(?m)^  # The engine of the job's service",
        lambda match: _ECR_VARIABLES % choice.region + match[0],
        text,
    )
    return re.sub(r"(apt-get install .* docker-cli)", r"\1 awscli", text)


def choice(ci: str, tag: str) -> str:
    """Return the choice of PIPELINES: without a tag of the toolkit, GitHub's called workflows are copied too."""
    return "github-full" if ci == "github" and not tag else ci
