# Rendered by torchbake from matrix.yaml and templates/: edit those, then run `nox -s render`.
#
# 2.13.0-cpu-runtime-debian12: torch 2.13.0+cpu, Python 3.11
# By hand: docker build -f images/2.13.0-cpu-runtime-debian12/Dockerfile -t my-pytorch .

# The stage below the image. `torchbake build` sets `rest`, because it makes the layers of the wheels itself.
ARG BELOW="whole"

FROM debian:bookworm-slim AS base

# The toolkit's files. A build context of the same name replaces this stage.
FROM scratch AS toolkit
COPY entrypoints /entrypoints
COPY layers /layers

# Wheels from folders of the host: empty in a build by hand, else replaced by a build context of the same name.
FROM scratch AS wheels
WORKDIR /builder
WORKDIR /torch
WORKDIR /needs
WORKDIR /site

# The locked Debian packages: empty in a build by hand, else replaced by a build context of the same name.
FROM scratch AS debs
WORKDIR /system
WORKDIR /compiler

# --- interpreter: the base's Python, certificates, an init for PID 1. The image and the stages that install wheels are
# based on it, so that the matrix's other Debian packages do not change the wheels' layers.
FROM base AS interpreter
RUN --mount=type=secret,id=ca \
    --mount=type=secret,id=apt-conf,target=/etc/apt/apt.conf.d/99host \
    --mount=type=secret,id=apt-sources,target=/etc/apt/sources.list.d/debian.sources \
    --mount=type=bind,from=toolkit,source=/layers/apt-install,target=/run/apt-install \
    --mount=type=bind,from=debs,source=/system,target=/run/debs \
    /run/apt-install ca-certificates python3 python3-pip-whl tini

# --- python: with the compiler that torch.compile needs, and the matrix's packages for all images
FROM interpreter AS python
RUN --mount=type=secret,id=ca \
    --mount=type=secret,id=apt-conf,target=/etc/apt/apt.conf.d/99host \
    --mount=type=secret,id=apt-sources,target=/etc/apt/sources.list.d/debian.sources \
    --mount=type=bind,from=toolkit,source=/layers/apt-install,target=/run/apt-install \
    --mount=type=bind,from=debs,source=/compiler,target=/run/debs \
    /run/apt-install --trim g++ libpython3-dev

# --- builder: uv and pip, which get the wheels. No file of it reaches the image. It is built in parallel to `python`.
FROM interpreter AS builder
RUN --mount=type=secret,id=ca \
    --mount=type=secret,id=pip-conf,target=/etc/pip.conf \
    --mount=type=bind,from=wheels,source=/builder,target=/run/wheels \
    --mount=type=bind,source=images/builder.lock,target=/run/builder.lock \
    --mount=type=bind,from=toolkit,source=/layers/install_uv.py,target=/run/install_uv.py \
    python3 /run/install_uv.py /run/builder.lock /run/wheels /opt/uv \
    && python3 -m venv --without-pip /opt/venv

# One list for each layer, so that a change of one does not build the others again. Lists are mounted and not copied, so
# that all stages that install wheels start from one file system, which an engine has to hash only once.
FROM builder AS locks
RUN --mount=type=bind,from=toolkit,source=/layers/wheels,target=/run/layers/wheels \
    --mount=type=bind,source=images/2.13.0-cpu-runtime-debian12/requirements.lock,target=/run/requirements.lock \
    PYTHONPATH=/run/layers python3 -m wheels split /run/requirements.lock /locks --needs filelock

# --- torch: torch itself, and triton with it
FROM builder AS torch
RUN --mount=type=secret,id=ca --mount=type=secret,id=pip-conf,target=/etc/pip.conf \
    --mount=type=cache,id=torchbake-wheels-torch,target=/root/.cache/wheels,sharing=locked \
    --mount=type=bind,from=locks,source=/locks/torch.lock,target=/locks/torch.lock \
    --mount=type=bind,from=wheels,source=/torch,target=/run/wheels \
    --mount=type=bind,from=toolkit,source=/layers/wheels,target=/run/layers/wheels \
    --mount=type=bind,from=toolkit,source=/layers/trim.toml,target=/run/trim.toml \
    PYTHONPATH=/run/layers python3 -m wheels layers /locks/torch.lock /pytorch --trim /run/trim.toml

# --- needs: what torch and its libraries ask for: the same for many versions of torch, and in all flavors of a base
FROM builder AS needs
RUN --mount=type=secret,id=ca --mount=type=secret,id=uv-toml,target=/etc/uv/uv.toml \
    --mount=type=cache,id=torchbake-uv,target=/root/.cache/uv \
    --mount=type=bind,from=locks,source=/locks/needs.lock,target=/locks/needs.lock \
    --mount=type=bind,from=wheels,source=/needs,target=/run/wheels \
    --mount=type=bind,from=toolkit,source=/layers/wheels,target=/run/layers/wheels \
    --mount=type=bind,from=toolkit,source=/layers/trim.toml,target=/run/trim.toml \
    PYTHONPATH=/run/layers python3 -m wheels site /locks/needs.lock /opt/venv --trim /run/trim.toml

# --- site: everything else, in a virtual environment that finds the layers above
FROM builder AS site
RUN --mount=type=secret,id=ca --mount=type=secret,id=uv-toml,target=/etc/uv/uv.toml \
    --mount=type=cache,id=torchbake-uv,target=/root/.cache/uv \
    --mount=type=bind,from=locks,source=/locks/site.lock,target=/locks/site.lock \
    --mount=type=bind,from=wheels,source=/site,target=/run/wheels \
    --mount=type=bind,from=toolkit,source=/layers/wheels,target=/run/layers/wheels \
    --mount=type=bind,from=toolkit,source=/layers/trim.toml,target=/run/trim.toml \
    PYTHONPATH=/run/layers python3 -m wheels site /locks/site.lock /opt/venv --path /pytorch --start /opt/torchbake/python_profile.py --trim /run/trim.toml

# --- entries: the wheels outside of the virtual environment are listed in it, where uv looks for installed packages
FROM builder AS entries
RUN --mount=type=bind,from=locks,source=/locks,target=/locks \
    --mount=type=bind,from=toolkit,source=/layers/wheels,target=/run/layers/wheels \
    PYTHONPATH=/run/layers python3 -m wheels entries /opt/venv /entries /pytorch=/locks/torch.lock

# --- tools: the entrypoint, run, bench and others, with bytecode that Python does not compare with its source
FROM builder AS tools
COPY --from=toolkit --chmod=0755 /entrypoints/pytorch /opt/torchbake
RUN PYTHONHASHSEED=0 python3 -m compileall -q --invalidation-mode unchecked-hash /opt/torchbake

# --- installers: the configuration of pip and uv in the image, in one layer
FROM scratch AS installers
COPY --chmod=0644 <<EOF /etc/torchbake/constraints.txt
# What this image was built and tested with, and the versions of torchvision and torchaudio that are built for its torch.
# pip and uv keep to it, because PIP_CONSTRAINT and UV_CONSTRAINT name this file. To replace a package all the same:
# PIP_CONSTRAINT= pip install ..., or UV_CONSTRAINT= UV_EXCLUDE= uv pip install ...
torch==2.13.0+cpu
torchaudio==2.11.0+cpu
torchvision==0.28.0+cpu
nvidia-cublas<0
nvidia-cublas-cu11<0
nvidia-cublas-cu12<0
nvidia-cuda-runtime<0
nvidia-cuda-runtime-cu11<0
nvidia-cuda-runtime-cu12<0
EOF

COPY --chmod=0644 <<EOF /etc/torchbake/uv-exclude.txt
# Packages that are installed outside of the virtual environment, where uv does not look: by UV_EXCLUDE it leaves them
# alone, and does not install them again.
torch==2.13.0+cpu
EOF

# --- rest: all files except the wheels of NVIDIA and torch. A copy with --link does not depend on the layers below it,
# so it stays the same with another base.
FROM python AS rest
COPY --link --from=needs /opt/venv /opt/venv
COPY --link --from=site /opt/venv /opt/venv
COPY --link --from=entries /entries /opt/venv
COPY --from=installers /etc /etc
RUN --mount=type=bind,source=certificates/acme.pem,target=/run/own-1 \
    --mount=type=bind,source=certificates/lab/root.v2.crt,target=/run/own-2 \
    install -m 0644 /run/own-1 /usr/local/share/ca-certificates/acme.crt \
    && install -m 0644 /run/own-2 /usr/local/share/ca-certificates/root.v2.crt \
    && update-ca-certificates
# The user is above all packages, so that another uid, name or folder installs none of them again.
RUN echo "jovyan:x:2000:0::/home/jovyan:/bin/sh" >> /etc/passwd \
    && install -d -o 2000 -g 0 -m 0775 /home/jovyan /app \
    && echo ". /opt/torchbake/profile" >> /etc/bash.bashrc \
    && echo ". /opt/torchbake/login_profile" > /etc/profile.d/torchbake.sh
RUN --mount=type=bind,from=toolkit,source=/layers/own-files,target=/run/own-files \
    --mount=type=bind,source=files/job.py,target=/run/own-1 \
    --mount=type=bind,source=files/conf/,target=/run/own-2 \
    --mount=type=bind,source=files/model,target=/run/own-3 \
    /run/own-files \
    2000:0 - /run/own-1 /app/job.py \
    0:0 0640 /run/own-2 /etc/acme \
    2000:0 - /run/own-3 /srv/model
COPY --link --from=tools /opt/torchbake /opt/torchbake

# --- whole: rest and the wheels, a layer for each wheel
FROM rest AS whole
COPY --link --from=torch /layers/torch /pytorch

# --- the image
FROM ${BELOW}
ENV BASH_ENV="/opt/torchbake/profile" \
    GREETING="a \"b\" \$PATH \\ ü" \
    HF_HOME="/data/hf" \
    HOME="/home/jovyan" \
    LANG="de_DE.UTF-8" \
    PATH="/opt/venv/bin:/pytorch/bin:/opt/torchbake:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
    PIP_CERT="/etc/ssl/certs/ca-certificates.crt" \
    PIP_CONSTRAINT="/etc/torchbake/constraints.txt" \
    PYTHONDONTWRITEBYTECODE="1" \
    PYTHONUNBUFFERED="1" \
    PYTHON_VERSION="3.11" \
    REQUESTS_CA_BUNDLE="/etc/ssl/certs/ca-certificates.crt" \
    SSL_CERT_FILE="/etc/ssl/certs/ca-certificates.crt" \
    TORCHBAKE_ID="2.13.0-cpu-runtime-debian12" \
    TORCH_DISABLE_ADDR2LINE="1" \
    UV_CONSTRAINT="/etc/torchbake/constraints.txt" \
    UV_EXCLUDE="/etc/torchbake/uv-exclude.txt" \
    UV_PROJECT_ENVIRONMENT="/opt/venv" \
    UV_PYTHON_DOWNLOADS="never" \
    VIRTUAL_ENV="/opt/venv"
WORKDIR /app
# Labels are below no step, since a step runs again after a change of an argument above it.
ARG BASE_DIGEST=""
ARG BASE_NAME="debian:bookworm-slim"
ARG BASE_SOURCE="registry"
ARG CREATED=""
ARG INPUTS=""
ARG REVISION=""
LABEL com.acme.team="vision & 'sound'" \
      org.opencontainers.image.base.digest="${BASE_DIGEST}" \
      org.opencontainers.image.base.name="${BASE_NAME}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.licenses="BSD-3-Clause" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="https://example.com/acme" \
      org.opencontainers.image.title="PyTorch 2.13.0 cpu runtime" \
      org.opencontainers.image.vendor="Acme \$1" \
      org.opencontainers.image.version="2.13.0-cpu-runtime-debian12" \
      org.torchbake.base="${BASE_SOURCE}" \
      org.torchbake.compiler="true" \
      org.torchbake.flavor="runtime" \
      org.torchbake.id="2.13.0-cpu-runtime-debian12" \
      org.torchbake.inputs="${INPUTS}" \
      org.torchbake.python="3.11" \
      org.torchbake.torch="2.13.0+cpu"
USER 2000
ENTRYPOINT ["/usr/bin/tini", "-s", "-g", "--", "/opt/torchbake/entrypoint"]
CMD ["python"]
