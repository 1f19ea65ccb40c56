# The best Dockerfile that a person would write for the same packages: what `nox -s bench -- cold` measures torchbake against.
#
# By hand: docker build -f benchmarks/tuned.Dockerfile images/2.13.0-cpu-runtime-debian12
# The folder is the build context, for its requirements.lock. The benchmark passes base, packages and indexes of an image.

ARG BASE=debian:bookworm-slim

# uv installs several times as fast as pip, and keeps what it has unpacked. It is one static program: it needs no Python.
# The benchmark puts its own uv in this stage's place, so that this way never waits for a download of it.
FROM ghcr.io/astral-sh/uv:0.13.8 AS uv

# Wheels from folders of the host: empty by hand, filled by a build context of the same name.
FROM scratch AS wheels
WORKDIR /

FROM ${BASE}

# All of Debian's packages in one step, without recommended ones, and without lists that are out of date tomorrow: what a
# later step deletes stays in the layer below. Descriptions of packages are not fetched, as Docker's own bases have it.
# Docker's bases delete downloaded packages after each apt-get; a bootstrapped base keeps them, so they are deleted here.
# The user is made here too, as a layer of its own would gain nothing.
ARG APT="ca-certificates python3 tini"
# hadolint ignore=DL3008,SC2086
RUN --mount=type=secret,id=ca \
    --mount=type=secret,id=apt-conf,target=/etc/apt/apt.conf.d/99host \
    --mount=type=secret,id=apt-sources,target=/etc/apt/sources.list.d/debian.sources \
    apt-get update -o Acquire::Languages=none \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends ${APT} \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* \
    && useradd --uid 1001 --gid 0 --create-home --no-log-init torch

# Where PyPI lacks a wheel; several are parted by spaces. Empty where the host's own folders have it.
ARG INDEXES="https://download.pytorch.org/whl/cpu"

# All wheels in one step: an environment of its own, as Debian's Python belongs to Debian.
# - uv and the lock are mounted: no COPY, so neither is in a layer, and nothing has to be removed.
# - The cache is mounted too: it outlives the step, is in no layer, and another build finds its wheels unpacked.
# - UV_LINK_MODE=copy: a hard link cannot lead from the cache's file system to the image's; uv would try, and warn.
# - UV_COMPILE_BYTECODE=1: uv compiles on all cores. Without it each container would compile anew what it imports, since
#   its user cannot write beside the packages.
# - --require-hashes: exactly what the lock names; --no-deps: it names everything, so there is nothing to look up.
RUN --mount=from=uv,source=/uv,target=/bin/uv \
    --mount=type=bind,source=requirements.lock,target=/run/requirements.lock \
    --mount=type=bind,from=wheels,target=/run/wheels \
    --mount=type=cache,target=/root/.cache/uv \
    --mount=type=secret,id=ca --mount=type=secret,id=uv-toml,target=/etc/uv/uv.toml \
    export SSL_CERT_DIR=/etc/ssl/certs UV_LINK_MODE=copy UV_COMPILE_BYTECODE=1 UV_PYTHON_DOWNLOADS=never \
        UV_FIND_LINKS=/run/wheels UV_INDEX="${INDEXES}" UV_INDEX_STRATEGY=unsafe-best-match \
    && if [ -e /run/secrets/ca ]; then export SSL_CERT_FILE=/run/secrets/ca; fi \
    && uv venv /opt/venv \
    && uv pip install --python /opt/venv --require-hashes --no-deps --only-binary :all: -r /run/requirements.lock

# The environment comes first, so that `python` and the packages' own programs are found without activating it.
ENV PATH="/opt/venv/bin:$PATH" VIRTUAL_ENV="/opt/venv" PYTHONUNBUFFERED="1"
WORKDIR /app
# Not root: what gets out of the program gets no further. A number, so that Kubernetes can tell.
USER 1001
# tini passes signals on and reaps orphans, which a Python that is PID 1 does not do.
ENTRYPOINT ["/usr/bin/tini", "-g", "--"]
CMD ["python"]
