"""The kinds of waste: why each is waste, and how to mend it."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class WasteKind:
    """A kind of waste by its ``name`` on the command line.

    ``mend`` is for a Dockerfile; ``torchbake`` says what torchbake's images do about it, if they do. The files of
    a kind that is ``information`` are of use to somebody, and are not counted as waste.
    """

    name: str
    title: str
    why: str
    mend: str
    torchbake: str = ""
    information: bool = False


def _cache(name: str, title: str, mend: str, *, torchbake: bool = True) -> WasteKind:
    return WasteKind(
        name=name,
        title=title,
        why="A build needs the cache, a container does not. It is in a layer, so that each pull transfers it.",
        mend=mend,
        torchbake="torchbake build mounts its caches, so that no layer has them." if torchbake else "",
    )


_KINDS = (
    WasteKind(
        name="removed",
        title="Files that a later layer removes",
        why="A layer keeps each file that it has, also if a later step removes the file.",
        mend="Remove files in the RUN that writes them: RUN make it && use it && rm -r it",
        torchbake="torchbake build writes each large wheel into its own layer, and no later step removes its files.",
    ),
    WasteKind(
        name="replaced",
        title="Files that a later layer replaces",
        why="Both versions of the file are in the image, and a container sees the later one.",
        mend="Install the final version at once: one `RUN pip install` with all packages, in place of a later upgrade",
        torchbake="torchbake lock resolves all wheels together, so that none is installed twice.",
    ),
    WasteKind(
        name="ownership",
        title="Copies with another owner or mode",
        why="chown and chmod write the whole file into the next layer, with the same content.",
        mend="COPY --chown=1001:0 --chmod=0755 app /app, or `chown` in the RUN that writes the files",
        torchbake="torchbake build writes wheels and your files once, with their final owner and mode.",
    ),
    _cache("pip", "Cache of pip", "RUN --mount=type=cache,target=/root/.cache/pip pip install …, or --no-cache-dir"),
    _cache(
        "uv", "Cache of uv", "RUN --mount=type=cache,target=/root/.cache/uv UV_LINK_MODE=copy uv sync, or --no-cache"
    ),
    _cache("conda", "Cache of conda", "RUN conda install … && conda clean --all --yes, in one RUN", torchbake=False),
    _cache(
        "poetry",
        "Cache of Poetry",
        "RUN --mount=type=cache,target=/root/.cache/pypoetry poetry install",
        torchbake=False,
    ),
    _cache("npm", "Caches of npm, pnpm and Yarn", "RUN --mount=type=cache,target=/root/.npm npm ci", torchbake=False),
    _cache(
        "apt",
        "Lists and archives of apt, dnf and apk",
        "RUN apt-get update && apt-get install -y … && rm -rf /var/lib/apt/lists/* /var/cache/apt/*, in one RUN",
    ),
    _cache("ccache", "Caches of compilers", "RUN --mount=type=cache,target=/root/.ccache make", torchbake=False),
    _cache(
        "hugging-face",
        "Caches of Hugging Face and torch.hub",
        "Mount the models: docker run -v models:/root/.cache/huggingface. If the image must have them: "
        "ENV HF_HUB_OFFLINE=1 says so",
        torchbake=False,
    ),
    WasteKind(
        name="orphan-bytecode",
        title="Bytecode without its source",
        why="Python imports a file of __pycache__ only if its source is there.",
        mend="RUN find / -name __pycache__ -prune -exec rm -r {} + in the RUN that removes the sources",
    ),
    WasteKind(
        name="double-bytecode",
        title="Bytecode that a source has twice",
        why="One source has bytecode for several Pythons or optimisation levels, and the image's Python reads one.",
        mend="ENV PYTHONDONTWRITEBYTECODE=1, and compile once, by the Python that runs: python -m compileall",
    ),
    WasteKind(
        name="static-libraries",
        title="Static libraries of CUDA and torch, without a compiler",
        why="A linker reads static libraries, and the image has none.",
        mend="Base the image on a runtime image, or: RUN pip install … && find / -name '*.a' -delete in one RUN",
        torchbake="torchbake build leaves them out of runtime images (trim).",
    ),
    WasteKind(
        name="headers",
        title="Headers of CUDA and torch, without a compiler",
        why="A compiler reads headers, and the image has none. NVRTC needs CUDA's if a program (CuPy) includes them.",
        mend="Base the image on a runtime image (nvidia/cuda:…-runtime-…, not …-devel-…)",
        torchbake="torchbake build leaves the headers that nothing reads out of runtime images (trim).",
    ),
    WasteKind(
        name="debug-symbols",
        title="Debug symbols, without a compiler",
        why="A debugger reads them. No program does.",
        mend="Leave out the packages with -dbg or -dbgsym in their names",
    ),
    WasteKind(
        name="cuda-twice",
        title="CUDA libraries of the system that wheels bring too",
        why="torch from a wheel loads the libraries of the wheels nvidia-*, and not those of the system.",
        mend="FROM debian:bookworm-slim in place of FROM nvidia/cuda:…; the wheels bring CUDA, the host the driver",
        torchbake="torchbake's images have CUDA once, from the wheels.",
    ),
    WasteKind(
        name="double",
        title="Files with equal content",
        why="The image stores the same content more than once.",
        mend="Install once and link: RUN ln -s /opt/venv /venv; for hard links, write both in one RUN",
    ),
    WasteKind(
        name="git",
        title=".git folders",
        why="A program does not read its own history.",
        mend="Add .git to .dockerignore, or clone in a stage: RUN git clone --depth 1 … && rm -r …/.git in one RUN",
    ),
    WasteKind(
        name="leftovers",
        title="Leftovers of builds",
        why="Object files, installers and temporary files are of use to the build alone.",
        mend="RUN --mount=type=tmpfs,target=/tmp …, or build in another stage and COPY --from the result",
    ),
    WasteKind(
        name="logs",
        title="Logs of the build",
        why="They tell about the build, and begin again in each container.",
        mend="RUN apt-get install … && rm -rf /var/log/*, in one RUN",
    ),
    WasteKind(
        name="gpu-code",
        title="GPU code for other GPUs",
        why="A GPU runs code for its own architecture, and the libraries have code for more.",
        mend='ENV TORCH_CUDA_ARCH_LIST="8.0;9.0" where you compile extensions or torch',
    ),
    WasteKind(
        name="nvidia-gpu-code",
        title="GPU code for other GPUs in NVIDIA's libraries",
        why="NVIDIA's licenses do not allow to change its libraries, so this code can only go with the whole library.",
        mend="Choose a CUDA whose libraries have fewer architectures: CUDA 13 begins at 7.5",
        information=True,
    ),
    WasteKind(
        name="bytecode",
        title="Bytecode beside its source",
        why="It makes the start faster: without it, a container compiles each module again at every start.",
        mend="Keep it. If size counts more than the start: ENV PYTHONDONTWRITEBYTECODE=1",
        information=True,
    ),
    WasteKind(
        name="tests",
        title="Tests of Python packages",
        why="Nothing imports them outside of a test run, but a package may import its own test helpers.",
        mend="RUN pip install … && rm -r …/site-packages/numpy/tests, after you have tried it",
        torchbake="torchbake build leaves out those that its checks have shown to be unused (trim).",
        information=True,
    ),
)
KINDS = {kind.name: kind for kind in _KINDS}
