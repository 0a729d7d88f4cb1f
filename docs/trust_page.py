"""Put the figures of a run into docs/trust.md, which names the tests of each promise.

python docs/trust_page.py RUN.xml         # the JUnit file of a run of those tests; make trust does
both
"""

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
    """The page with the number of cases of each test, and of what they have counted, in a run's
    JUnit file.

    Raises:
        ValueError: if a test has failed or was not run.
    """
    passed, counted = Counter[str](), Counter[str]()
    for case in ElementTree.parse(run).iter("testcase"):
        test = f"{case.attrib['classname'].replace('.', '/')}.py::{case.attrib['name'].partition('[')[0]}"
        if case.find("failure") is not None or case.find("error") is not None:
            raise ValueError(f"{test} has failed: the page has no figures of a failed run")
        passed[test] += case.find("skipped") is None
        counted.update(
            {
                counter.attrib["name"]: int(counter.attrib["value"])
                for counter in case.iter("property")
            }
        )
    tests = ROW.findall(text)
    if missing := [test for test in tests if not passed[test]]:
        raise ValueError(f"the run has no passed case of {', '.join(missing)}")
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "lightning"))
    cases, made_by = (
        sum(passed[test] for test in tests),
        f"python {platform.python_version()}, {versions}",
    )
    figures = "".join(f"* **{count:,}** {name}.\n" for name, count in sorted(counted.items()))
    figures += (
        f"* **{cases:,}** cases of the {len(tests)} tests below passed, none failed ({made_by}).\n"
    )
    return ROW.sub(
        lambda row: f"| `{row[1]}` | {passed[row[1]]:,} |", FIGURES.sub(lambda _: figures, text)
    )


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), Path(sys.argv[1])), encoding="utf-8")
