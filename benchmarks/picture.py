"""Charts of matplotlib, written to files; knows no records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def picture(path: str | Path, rows: int, columns: int, **options: Any) -> Iterator[Any]:
    """An array of `rows` x `columns` axes to draw on; the file (e.g. PNG) is written at the end of the block.

    Args:
        path: Folders that are missing are made.
        rows: Axes below each other.
        columns: Axes beside each other.
        **options: As for `matplotlib.pyplot.subplots`.

    Raises:
        ImportError: matplotlib is not installed; it comes with the `bench` extra.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(rows, columns, squeeze=False, **options)
    try:
        yield axes
        figure.tight_layout()
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=130)
    finally:
        pyplot.close(figure)
