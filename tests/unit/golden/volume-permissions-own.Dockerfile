# Rendered by torchbake from matrix.yaml and templates/: edit those, then run `nox -s render`.
#
# volume-permissions 1.0.0: makes a mounted volume writable for the uid that images run as
# By hand: docker build -f images/volume-permissions/Dockerfile -t volume-permissions .

FROM debian:bookworm-slim AS base

# The toolkit's files. A build context of the same name replaces this stage.
FROM scratch AS toolkit
COPY entrypoints /entrypoints
COPY layers /layers

# The locked Debian packages: empty in a build by hand, else replaced by a build context of the same name.
FROM scratch AS debs
WORKDIR /compile

# --- compile: one static program, so that the image needs nothing else
FROM base AS compile
RUN --mount=type=secret,id=ca \
    --mount=type=secret,id=apt-conf,target=/etc/apt/apt.conf.d/99host \
    --mount=type=secret,id=apt-sources,target=/etc/apt/sources.list.d/debian.sources \
    --mount=type=bind,from=toolkit,source=/layers/apt-install,target=/run/apt-install \
    --mount=type=bind,from=debs,source=/compile,target=/run/debs \
    /run/apt-install --scratch musl-tools
RUN --mount=type=bind,from=toolkit,source=/entrypoints/init,target=/run/entrypoints \
    musl-gcc -std=c11 -O2 -s -static -fstack-protector-strong -Wl,-z,relro,-z,now,-z,noexecstack -Wall -Wextra -Werror \
    -DVERSION='"1.0.0"' -DOWNER=2000 -o /volume-permissions /run/entrypoints/volume-permissions.c

# --- the image. It needs root with CHOWN, FOWNER and DAC_OVERRIDE, and no other capability.
FROM scratch
COPY --from=compile /volume-permissions /volume-permissions
ARG BASE_DIGEST=""
ARG CREATED=""
ARG INPUTS=""
ARG REVISION=""
LABEL com.acme.team="vision & 'sound'" \
      org.opencontainers.image.base.name="scratch" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="https://example.com/acme" \
      org.opencontainers.image.title="volume-permissions" \
      org.opencontainers.image.vendor="Acme \$1" \
      org.opencontainers.image.version="1.0.0" \
      org.torchbake.id="volume-permissions" \
      org.torchbake.inputs="${INPUTS}"
# hadolint ignore=DL3002
USER 0:0
ENTRYPOINT ["/volume-permissions"]
