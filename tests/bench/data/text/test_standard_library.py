"""The embedded texts: the docstrings of the standard library."""

from collections import Counter

from harness.data_settings import TEXT

from as_lightning.bench.data.text import standard_library
from as_lightning.bench.data.text.standard_library import (
    Docstrings,
    docstring_paragraphs,
    library_folder,
    source_files,
)


def test_docstrings_are_split_80_10_10_into_public_modules_large_enough(tmp_path, monkeypatch):
    # One is too small, one is not public.
    for name in ("asyncio", "email", "logging", "this.py", "_pydecimal.py"):
        (tmp_path / name).symlink_to(library_folder() / name)
    files = [*tmp_path.glob("*.py"), *tmp_path.glob("*/*.py")]
    monkeypatch.setattr(standard_library, "source_files", lambda root: files)
    monkeypatch.setattr(standard_library, "library_folder", lambda: tmp_path)
    docstrings = Docstrings(**TEXT).read_splits()
    sizes = Counter(sentence.label for rows in docstrings.values() for sentence in rows)
    assert sizes.keys() == {"asyncio", "email", "logging"}
    assert min(sizes.values()) >= 30
    assert all({sentence.label for sentence in rows} == set(sizes) for rows in docstrings.values())
    total = len({sentence for rows in docstrings.values() for sentence in rows})
    assert total == sizes.total()
    shares = [round(len(docstrings[name]) / total, 2) for name in ("train", "validation", "test")]
    assert shares == [0.8, 0.1, 0.1]


def test_paragraphs_are_read_without_importing_and_leave_out_tests_and_other_grammars(tmp_path):
    (tmp_path / "pack" / "tests").mkdir(parents=True)
    for name, source in {
        "__init__.py": '"""One\nparagraph.\n\nAnother."""\nraise SystemExit\n',
        "old.py": "print 'python 2'\n",
        "tests/test_it.py": '"""Not this."""\n',
        "code.py": 'class A:\n    """Of a class."""\n    async def f(self):\n        """Of a method."""\n',
    }.items():
        (tmp_path / "pack" / name).write_text(source)
    paragraphs = [
        text for file in source_files(tmp_path) for text in docstring_paragraphs(file) if text
    ]
    assert sorted(paragraphs) == ["Another.", "Of a class.", "Of a method.", "One paragraph."]
