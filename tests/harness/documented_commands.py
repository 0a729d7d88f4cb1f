"""The commands that README and docs print, as the shell would split them."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMAND = re.compile(r"(?:\.venv/bin/)?(make|as-lightning(?:-[a-z-]+)?)(?=\s|$)")
UNFINISHED = re.compile(r"\.\.\.|<TAB>| -sc ")
MISTAKES = ("as-lightning digits",)  # shown with the error that they give
FENCE = re.compile(r"^ *```(\w*)")


def commands_of(text: str) -> list[str]:
    """The commands in a page's code: lines of blocks (joined where they end in a backslash) and spans in a sentence.

    In a ``console`` block a command follows ``$``; the other lines are output.

    A span needs an argument: `as-lightning` alone is a name. Spans with an ellipsis or a key, and those that a shell is
    to read, are no commands.
    """
    commands: list[str] = []
    prose: list[str] = []
    in_fence, in_console = False, False
    lines = iter(text.splitlines())
    for line in lines:
        if fence := FENCE.match(line):
            in_fence = not in_fence
            in_console = in_fence and fence[1] == "console"
        elif in_console and not line.startswith("$ "):
            continue
        elif in_fence or line.startswith("    "):
            while line.endswith("\\"):
                line = line[:-1] + next(lines)
            line = line.removeprefix("$ ").strip()
            if COMMAND.match(line):
                commands.append(line)
        else:
            prose.append(line)
    spans = re.findall(r"`([^`]+)`", " ".join(prose))
    commands += [span for span in spans if COMMAND.match(span) and " " in span and not UNFINISHED.search(span)]
    return [command for command in commands if command not in MISTAKES]


def words_of(command: str) -> list[str]:
    """The command's words: a comment or a pipe ends it."""
    words = shlex.split(command.removeprefix(".venv/bin/"), comments=True)
    return words[: words.index("|")] if "|" in words else words


def documented_commands() -> dict[str, list[str]]:
    """Each command, with the pages that print it."""
    found: dict[str, list[str]] = {}
    for page in PAGES:
        for command in commands_of(page.read_text(encoding="utf-8")):
            pages = found.setdefault(shlex.join(words_of(command)), [])
            if page.relative_to(ROOT).as_posix() not in pages:
                pages.append(page.relative_to(ROOT).as_posix())
    return found
