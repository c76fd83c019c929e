"""`Saved`: finished sums in a folder, from which a run that was killed goes on.

Owns the files. A file appears whole or not at all.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gett.errors import DistributedError
from gett.slices.distributed_plan import Job
from gett.slices.sums import Node

_HEAD = "contraction.json"
_NAME = re.compile(r"sum-(\d+)-(\d+)-(\d+)\.npy")


def digest_of(operands: Iterable[Any]) -> str:
    """A digest of what operands hold: shapes, dtypes and elements."""
    found = hashlib.blake2b(digest_size=16)
    for x in operands:
        found.update(repr((x.shape, x.dtype.str)).encode())
        found.update(np.asarray(x, order="C").reshape(-1).view(np.uint8).data)
    return found.hexdigest()


class Saved:
    """A folder of finished sums of one contraction."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """The folder need not exist yet."""
        self._folder = Path(folder)

    def begin(self, job: Job, operands: Sequence[Any]) -> dict[Node, Callable[[], Any]]:
        """Make the folder, or find what it holds: nodes, each with what reads its sum.

        Raises:
            DistributedError: It holds sums of another contraction or of other operands, or cannot be written.
        """
        head = {"contraction": repr(job.recipe), "terms": job.terms, "operands": digest_of(operands)}
        path = self._folder / _HEAD
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                self._write(path, lambda file: file.write(json.dumps(head).encode()))
                return {}
            known = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise DistributedError(f"resume={str(self._folder)!r}: {error}") from error
        different = [name for name in head if not isinstance(known, dict) or known.get(name) != head[name]]
        if different:
            raise DistributedError(
                f"resume={str(self._folder)!r} holds sums of another run, with different {' and '.join(different)}: "
                "give another folder, or remove it"
            )
        return self._nodes(job)

    def _nodes(self, job: Job) -> dict[Node, Callable[[], Any]]:
        """What is saved; of sums that overlap the largest."""
        found = []
        for path in self._folder.iterdir():
            if match := _NAME.fullmatch(path.name):
                node = Node(*map(int, match.groups()))
                if node.part < job.grid.parts and node.terms(job.terms):
                    found.append((-node.level, node, path))
        taken: set[tuple[int, int]] = set()
        kept: dict[Node, Callable[[], Any]] = {}
        for _, node, path in sorted(found):
            terms = {(node.part, i) for i in node.terms(job.terms)}
            if not terms & taken:
                taken |= terms
                kept[node] = partial(self._read, path, job.grid.shape(node.part), job.recipe.sums)
        return kept

    def _read(self, path: Path, shape: tuple[int, ...], dtype: str) -> Any:
        try:
            found = np.load(path)
        except (OSError, ValueError, EOFError) as error:
            raise DistributedError(f"{path} cannot be read: {error}; remove it to sum its slices again") from error
        if found.shape != shape or found.dtype != dtype:
            raise DistributedError(f"{path} holds another array than a sum of this run: remove it")
        return found

    def put(self, node: Node, value: Any) -> None:
        """Keep the sum of a node.

        Raises:
            DistributedError: It cannot be written.
        """
        try:
            path = self._folder / f"sum-{node.part}-{node.level}-{node.index}.npy"
            self._write(path, lambda file: np.save(file, value))
        except OSError as error:
            raise DistributedError(f"resume={str(self._folder)!r}: {error}") from error

    def _write(self, path: Path, write: Callable[[Any], object]) -> None:
        beside = path.with_name(f".{path.name}-{os.getpid()}")
        try:
            with open(beside, "wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, path)
        finally:
            beside.unlink(missing_ok=True)

    def end(self) -> None:
        """Remove the sums, which nothing needs any more, and the folder where nothing else is in it."""
        with contextlib.suppress(OSError):
            for path in self._folder.iterdir():
                if path.name == _HEAD or _NAME.fullmatch(path.name):
                    path.unlink()
            self._folder.rmdir()
