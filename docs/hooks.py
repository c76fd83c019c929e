"""What mkdocs does to a page before it becomes HTML: run its code, put in what the code printed, lead links right.

A page's fences of `python` share one namespace and run in their order, from the repository's root. `<!-- output -->`
behind one becomes what it printed. A comment that begins with `<!-- python` is run as well, and what it prints is
Markdown in its place: tables come from the records, never from a hand, and the reference lists `gett.__all__`. Fences
of `py` are shown and do not run.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
REFERENCE: dict[str, tuple[str, ...]] = {
    "contractions": ("einsum", "contract", "tensordot", "transpose", "einsum_path", "contract_path",
                     "contract_expression"),
    "plans": ("plan", "ContractionPlan", "PlanGraph", "precompile", "PrecompileResult", "plan_cache"),
    "grouped": ("grouped", "plan_grouped", "GroupedPlan", "ragged"),
    "precision": ("precision", "set_default_precision"),
    "epilogues": ("ops",),
    "distributed": ("Sharded",),
    "tuning": ("autotune", "TuneResult", "TuneWarning"),
    "errors": ("GettError", "SubscriptsError", "LabelError", "ShapeError", "OperandError", "DTypeError", "OptionError",
               "OutputError", "PathError", "PrecisionError", "EpilogueError", "GradientError", "MixedArraysError",
               "MissingPackageError", "DeviceError", "DistributedError", "OutOfMemoryError", "ScheduleError",
               "CompileError", "KernelCacheWarning"),
}  # fmt: skip
"""The public names by page, in their order; names that are not there yet are left out."""

_OPTIONS = {
    "ContractionPlan": """    options:
      members: null
      filters: ["!^_[^_]", "!^__(?!call__)", "!^(run|run_into|settle|is_near|request|unsliced|played_by_hand)$"]
""",
    "GroupedPlan": """    options:
      members: null
      filters: ["!^_[^_]", "!^__(?!call__)"]
""",
}
_PIECE = re.compile(
    r"^```python[^\n]*\n(?P<fence>.*?)^```$|^<!-- python\n(?P<hidden>.*?)^-->$|^<!-- output -->$", re.M | re.S
)


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """The page with its outputs."""
    return links(filled(markdown, page.file.src_uri), page.file.src_uri)


def filled(markdown: str, name: str) -> str:
    """The page's text, its code run, with what the code printed.

    Raises:
        RuntimeError: A block raised; the text names page and block.
    """
    scope: dict[str, Any] = {"__name__": "__page__", "reference": reference, "public_names": public_names,
                             "example": example}  # fmt: skip
    printed = ""

    def replace(found: re.Match[str]) -> str:
        nonlocal printed
        if found["fence"] is not None:
            printed = run(found["fence"], scope, name)
            return found[0]
        if found["hidden"] is not None:
            return run(found["hidden"], scope, name).rstrip("\n")
        return f"```text\n{printed.rstrip()}\n```"

    with at_root():
        return _PIECE.sub(replace, markdown)


def run(code: str, scope: dict[str, Any], name: str) -> str:
    """What code prints."""
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            exec(compile(code, name, "exec"), scope)
    except Exception as error:
        raise RuntimeError(f"{name}: {type(error).__name__}: {error}, in\n{code}") from error
    return out.getvalue()


def links(markdown: str, name: str) -> str:
    """Links that lead from the root's documents into docs/, and to folders, which are no pages."""
    if name in ("contributing.md", "changelog.md"):
        markdown = markdown.replace("](docs/", "](").replace("](CHANGELOG.md", "](changelog.md")
    return markdown.replace("](notes)", "](notes.md)")


def public_names(page: str) -> list[str]:
    """The names of a page: those of the table, and new ones, errors to errors and all others to contractions."""
    import gett

    public = [name for name in gett.__all__ if not name.startswith("__")]
    listed = {name for names in REFERENCE.values() for name in names}
    found = [name for name in REFERENCE[page] if name in public]
    for name in sorted(set(public) - listed):
        value = getattr(gett, name)
        kind = "errors" if isinstance(value, type) and issubclass(value, Exception) else "contractions"
        found += [name] if kind == page else []
    return found


def reference(page: str) -> str:
    """The directives of a page of the reference."""
    return "\n".join(f"::: gett.{name}\n{_OPTIONS.get(name, '')}" for name in public_names(page))


def example(name: str) -> str:
    """The code of an example, and what it prints."""
    folder = ROOT / "docs" / "examples"
    code, shown = (folder / f"{name}.py").read_text("utf-8"), (folder / "output" / f"{name}.txt").read_text("utf-8")
    return f'```py title="docs/examples/{name}.py"\n{code}```\n\nIt prints:\n\n```text\n{shown}```\n'


@contextlib.contextmanager
def at_root() -> Iterator[None]:
    """Code finds the repository's modules and files."""
    before = os.getcwd()
    sys.path.insert(0, str(ROOT))
    os.chdir(ROOT)
    try:
        yield
    finally:
        os.chdir(before)
        sys.path.remove(str(ROOT))
