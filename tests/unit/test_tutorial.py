"""The tutorial: its commands are accepted by the parsers, and its blocks are read as they stand."""

import re
import shlex

from tests.unit.tutorial import MINUTES, TEXT, TypedBlock, typed_blocks
from torchbake import cli

PAGE = """\
```sh
echo a  b
```

Text:

```text
a …
c
```

```sh
true
```
"""


def test_blocks_and_their_output_are_read_in_order() -> None:
    assert typed_blocks(PAGE) == [
        TypedBlock(commands="echo a  b\n", output=("a …", "c")),
        TypedBlock(commands="true\n"),
    ]


def test_a_line_that_the_output_lacks_is_named() -> None:
    assert typed_blocks(PAGE)[0].missing_lines("x\na   b \n") == ["c"]


def test_each_command_of_the_tutorial_is_accepted() -> None:
    lines = [line for block in typed_blocks(TEXT) for line in block.commands.splitlines()]
    typed = [shlex.split(line)[1:] for line in lines if line.startswith("torchbake ")]
    for name, *words in typed:
        cli.make_parser(name).parse_args(words)
    assert {"setup", "init", "build", "test", "publish", "validate", "rollback", "teardown"} <= {
        name for name, *_ in typed
    }


def test_the_page_names_its_time_and_its_disk() -> None:
    assert f"about {MINUTES} minutes" in " ".join(TEXT.split())
    assert re.search(r"\d+ GB of free disk", TEXT)
