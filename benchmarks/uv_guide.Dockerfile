# A project's image as uv's guide for Docker writes it (https://docs.astral.sh/uv/guides/integration/docker/): two
# layers, one for all dependencies and one for the project. `nox -s bench -- project` measures torchbake against it.
#
# By hand: docker build -f benchmarks/uv_guide.Dockerfile FOLDER
# The folder is the project, with pyproject.toml and uv.lock. PYTHON is any Debian image with python3.

ARG PYTHON=python:3.12-slim

# The benchmark puts its own uv in this stage's place, so that this way never waits for a download of it.
FROM ghcr.io/astral-sh/uv:0.13.8 AS uv

FROM ${PYTHON}
COPY --from=uv /uv /bin/
ENV UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy UV_NO_DEV=1 UV_PYTHON_DOWNLOADS=never
WORKDIR /app
# The options of `uv sync` that select extras and groups.
ARG SELECTION=""
# hadolint ignore=SC2086
RUN --mount=type=cache,target=/root/.cache/uv \
    --mount=type=secret,id=ca \
    --mount=type=bind,source=uv.lock,target=uv.lock \
    --mount=type=bind,source=pyproject.toml,target=pyproject.toml \
    if [ -e /run/secrets/ca ]; then export SSL_CERT_FILE=/run/secrets/ca; fi \
    && uv sync --locked --no-install-project ${SELECTION}
COPY . /app
# hadolint ignore=SC2086
RUN --mount=type=cache,target=/root/.cache/uv \
    --mount=type=secret,id=ca \
    if [ -e /run/secrets/ca ]; then export SSL_CERT_FILE=/run/secrets/ca; fi \
    && uv sync --locked ${SELECTION}
ENV PATH="/app/.venv/bin:$PATH"
CMD ["python"]
