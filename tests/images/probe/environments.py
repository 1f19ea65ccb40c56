"""The environment that the image's ENTRYPOINT gives a command, and that of Python and shells that `docker exec` starts.

One JSON document on stdout: an object of variables for each.

The argument is a JSON list, the ENTRYPOINT. To be run by `python3 -I -S`, which sets nothing itself.
"""

import json
import subprocess
import sys

LIMIT = 30  # seconds that each gets
_SHOW = "import json, os; print(json.dumps(dict(os.environ)))"
_OF_THE_SHELL = {"_", "OLDPWD", "PWD", "SHLVL"}


def environment(words: list[str]) -> dict[str, str]:
    process = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT, check=True)
    return {name: value for name, value in json.loads(process.stdout).items() if name not in _OF_THE_SHELL}


if __name__ == "__main__":
    plain = ["python3", "-I", "-S", "-c", _SHOW]
    ways = {
        "entrypoint": [*json.loads(sys.argv[1]), *plain],
        "python": ["python3", "-c", _SHOW],
        "bash -c": ["bash", "-c", '"$@"; :', "bash", *plain],
        "bash -i": ["bash", "-i", "-c", '"$@"; :', "bash", *plain],
        "sh -l": ["sh", "-l", "-c", '"$@"; :', "sh", *plain],
    }
    json.dump({way: environment(words) for way, words in ways.items()}, sys.stdout)
