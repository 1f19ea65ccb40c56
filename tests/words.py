"""Check the project's prose and names: python -m tests.words [--since REV] [PATH ...]

The texts are docstrings, comments and messages of Python, and comments of YAML, Jinja and shell. A finding is printed
as FILE:LINE: rule: sentence, and the exit code is 1. `tests/words.toml` allows a number of findings in a folder; it can
only go down. `--since REV` checks the lines that were added since a commit, without an allowance.
"""

import argparse
import ast
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from inspect import cleandoc
from pathlib import Path
from typing import NamedTuple

ALLOWANCE = Path("tests/words.toml")
PRODUCT = ("torchbake", "layers", "entrypoints")  # where a public class has a name of its own
SHARED = {"Arguments"}  # each command has such a class
# Names that are keys of a file, a message or the command line, by their module.
FORMATS = {"failure.py": {"told"}, "model.py": {"made"}, "setup.py": {"shown"}, "layer_scan.py": {"found"}}
WITH_COMMENTS = {".yaml", ".yml", ".j2", ".sh", ".tpl", ".toml"}
LONGEST = 30  # words of a sentence

# A clause that is used as a noun leaves its reader to find the noun.
_OPENING = re.compile(
    r"(What|Whether|Which|Those|Whoever|Whose|Who|Where [^.?]*,|That which|All that|(The o|O)nes? (that|which|who))\b"
)
_INSIDE = re.compile(
    r"\b(those (?:that|who|which)|that which|all that (?=is|are|was|were|has|have|it|a|the)|such ones?|the ones? that|"
    r"(?:of|by|for|from|to|with|in|on|than|is|are|as) what|(?:that|this) one(?=[,.;:)])|the former|the latter)\b",
    re.I,
)
PLAIN = {  # private or old words, and plain ones
    "anew": "again",
    "beside (it|them|this|that)": "next to, in parallel, attached",
    "unsaid|unasked|sayable": "not set, unresolved, expressible",
    "(is|are|was|were|be) told (of|by)": "reported, passed",
    "(stands?|lies?) (on|in|at|below|above|beside)": "is, is based on",
    "for good|in turns|as ever|least of all|lays? hands on": "permanently, alternately",
    "thereby|whereof|therefor|hereby": "a clause with a subject",
}
_PLAIN = [(re.compile(rf"\b({old})\b", re.I), new) for old, new in PLAIN.items()]

PARTICIPLES = re.compile(
    r"_*(asked|begun|brought|chosen|done|ended|found|given|gone|got|heard|held|kept|known|looked|made|meant|named|"
    r"needed|noted|played|promised|said|seen|sent|shown|swept|taken|told|tried|unasked|unsaid|wanted|written)",
    re.I,
)
_WORD = re.compile(r"[A-Za-z][\w'’-]*")


class Finding(NamedTuple):
    path: str
    first: int
    last: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.first}: {self.rule}: {self.text}"


Text = tuple[int, int, str]  # first and last line


def sentences(text: str) -> Iterator[str]:
    """Split a text into sentences and list items; code in backquotes counts as one word."""
    plain = re.sub(r"(`+)[^`]+\1", "CODE", cleandoc(text))
    for part in re.split(r"(?<=[.!?])\s+(?=[A-Z])|\n\s*\n|\n(?=[-*] )|\n {2,}", plain):
        sentence = " ".join(part.split())
        if len(_WORD.findall(sentence)) > 2:
            yield sentence


def problem(sentence: str) -> str | None:
    """Name the rule that a sentence breaks."""
    if _OPENING.match(sentence) and not sentence.endswith("?"):
        return "a clause in the place of the subject"
    if match := _INSIDE.search(sentence):
        return f"'{match[1]}' in the place of a noun"
    for old, new in _PLAIN:
        if match := old.search(sentence):
            return f"'{match[0]}': {new}"
    count = len(_WORD.findall(sentence))
    return f"{count} words, more than {LONGEST}" if count > LONGEST else None


def python_texts(source: str, tree: ast.Module) -> Iterator[Text]:
    """Yield docstrings, messages and comments."""
    inside, parts = set[int](), set[int]()  # lines of long texts, whose `#` begins no comment; parts of f-strings
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts.update(id(each) for each in node.values)
            text = "".join(str(each.value) if isinstance(each, ast.Constant) else "CODE" for each in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            text = node.value
        else:
            continue
        last = node.end_lineno or node.lineno
        inside.update(range(node.lineno, last + 1) if last > node.lineno else ())
        if re.match(r"[A-Z`][^\n]* [^\n]* ", text):
            yield node.lineno, last, text
    yield from comments(source, inside)


def comments(source: str, skip: Collection[int] = ()) -> Iterator[Text]:
    """Yield comments; adjacent lines are one text."""
    texts, whole = list[Text](), 0  # the last line that is a comment alone
    for number, line in enumerate(source.splitlines(), 1):
        match = re.search(r"^\s*(?:#|\{#-?|\{\{/\*) ?(.*)", line) or re.search(r"\S  ()# (.*)", line)
        if match is None or number in skip:
            continue
        first, text = number, match[match.lastindex or 1]
        if match.lastindex == 1:
            if whole and whole == number - 1:
                first, text = texts[-1][0], f"{texts.pop()[2]}\n{text}"
            whole = number
        texts.append((first, number, text))
    yield from texts


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the names that a module defines: classes, functions, parameters, variables, attributes."""
    fields = {ast.ClassDef: "name", ast.FunctionDef: "name", ast.arg: "arg", ast.Name: "id", ast.Attribute: "attr"}
    for node in ast.walk(tree):
        if (field := fields.get(type(node))) and isinstance(getattr(node, "ctx", ast.Store()), ast.Store):
            yield getattr(node, "lineno", 0), getattr(node, field)


def findings(path: str, source: str) -> Iterator[Finding]:
    """Check one file."""
    texts = comments(source)
    if path.endswith(".py"):
        tree = ast.parse(source)
        texts = python_texts(source, tree)
        for line, name in names(tree):
            if PARTICIPLES.fullmatch(name) and name not in FORMATS.get(Path(path).name, ()):
                yield Finding(path, line, line, "a participle as a name", name)
    for first, last, text in texts:
        for sentence in sentences(text):
            if rule := problem(sentence):
                yield Finding(path, first, last, rule, sentence[:160])


def twins(sources: dict[str, str]) -> Iterator[Finding]:
    """Find public classes of the product that have the name of another one."""
    places = defaultdict(list)
    for path, source in sources.items():
        if path.endswith(".py") and path.startswith(PRODUCT):
            for match in re.finditer(r"(?m)^class ([A-Z]\w*)", source):
                if match[1] not in SHARED:
                    places[match[1]].append((path, source.count("\n", 0, match.start()) + 1))
    for name, (first, *others) in places.items():
        for path, line in others:
            yield Finding(path, line, line, "a class of this name is in", f"{first[0]} ({name})")


def added(rev: str) -> dict[str, set[int]]:
    """Lines that were added since a commit, by file."""
    lines, name = defaultdict[str, set[int]](set), ""
    diff = ["git", "diff", "--unified=0", "--no-color", "--src-prefix=a/", "--dst-prefix=b/", rev, "--"]
    for line in subprocess.run(diff, capture_output=True, text=True, check=True).stdout.splitlines():
        if line.startswith("+++ "):
            name = line[6:]
        elif match := re.match(r"@@ \S+ \+(\d+)(?:,(\d+))?", line):
            lines[name].update(range(int(match[1]), int(match[1]) + int(match[2] or 1)))
    return lines


def read(paths: Iterable[str]) -> dict[str, str]:
    """The project's files that have prose, by name."""
    listed = subprocess.run(["git", "ls-files", "--", *paths], capture_output=True, text=True, check=True).stdout
    files = [Path(name) for name in listed.splitlines() if not re.search(r"/golden/|^images/|/test_words\.py$", name)]
    files = [path for path in files if path.is_file() and path.suffix in {".py", *WITH_COMMENTS}]
    return {str(path): path.read_text(encoding="utf-8") for path in files}


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*")
    parser.add_argument("--since", metavar="REV")
    args = parser.parse_args(words)
    sources = read(args.paths)
    everything = [each for path, source in sources.items() for each in findings(path, source)] + [*twins(sources)]
    allowed = {} if args.since else tomllib.loads(ALLOWANCE.read_text(encoding="utf-8"))
    if args.since:
        lines = added(args.since)
        everything = [each for each in everything if lines[each.path] & {*range(each.first, each.last + 1)}]
    folders = defaultdict[str, list[Finding]](list)
    for each in everything:
        folders[each.path.partition("/")[0]].append(each)
    over = [each for folder, some in folders.items() if len(some) > allowed.get(folder, 0) for each in some]
    print("".join(f"{each}\n" for each in over), end="")
    spare = [folder for folder, most in allowed.items() if len(folders[folder]) < most and not args.paths]
    for folder in spare:
        print(f"{ALLOWANCE} allows more than there is in {folder}/: set it to {len(folders[folder])}.")
    return 1 if over or spare else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
