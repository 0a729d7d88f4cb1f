"""Put the figures of a run into docs/trust.md, which names the tests of each promise.

make trust                                # runs those tests, then this script
python docs/trust_page.py --tests         # prints the tests that the page names
python docs/trust_page.py RUN.xml         # takes the figures from a run's JUnit file
"""

from __future__ import annotations

import platform
import re
import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

PAGE = Path(__file__).resolve().parent / "trust.md"
ROW = re.compile(r"^\| `(tests/[\w/]+\.py::\w+)` \| .* \|$", re.MULTILINE)
FIGURES = re.compile(r"(?<=<!-- written by make trust -->\n).*?(?=<!-- end -->)", re.DOTALL)


def page(text: str, run: Path) -> str:
    """The page with the number of cases of each test, and of what they have counted, in a run's JUnit file.

    Raises:
        ValueError: if a test has failed or was not run.
    """
    passed, counted = Counter[str](), Counter[str]()
    for case in ElementTree.parse(run).iter("testcase"):
        test = f"{case.attrib['classname'].replace('.', '/')}.py::{case.attrib['name'].partition('[')[0]}"
        if case.find("failure") is not None or case.find("error") is not None:
            raise ValueError(f"{test} has failed: the page has no figures of a failed run")
        passed[test] += case.find("skipped") is None
        for counter in case.iter("property"):
            counted[counter.attrib["name"]] += int(counter.attrib["value"])
    tests = ROW.findall(text)
    if missing := [test for test in tests if not passed[test]]:
        raise ValueError(f"the run has no passed case of {', '.join(missing)}")
    versions = [f"python {platform.python_version()}", *(f"{name} {version(name)}" for name in ("torch", "lightning"))]
    lines = [f"* **{count:,}** {name}." for name, count in sorted(counted.items())]
    cases = sum(passed[test] for test in tests)
    lines += [f"* **{cases:,}** cases of the {len(tests)} tests below passed, none failed ({', '.join(versions)}).", ""]
    text = FIGURES.sub(lambda _: "\n".join(lines), text)
    return ROW.sub(lambda row: f"| `{row[1]}` | {passed[row[1]]:,} |", text)


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    if sys.argv[1:] == ["--tests"]:
        print(*ROW.findall(text))
    else:
        PAGE.write_text(page(text, Path(sys.argv[1])), encoding="utf-8")
