"""A Dockerfile's instructions, as BuildKit reads them."""

from torchbake.render.instructions import instructions

TEXT = """\
# a comment

RUN a\\
  # another

  b
\tenv X=1
RUN cat <<-END \\
    > /x
  no end
\tEND
USER
"""


def test_continued_lines_are_one_instruction() -> None:
    assert list(instructions(TEXT)) == [
        ("RUN", "a  b", 3),
        ("ENV", "X=1", 7),
        ("RUN", "cat <<-END     > /x", 8),
        ("USER", "", 12),
    ]
