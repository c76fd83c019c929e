"""The reference's reading of docstrings: `Example:` is a section of examples, as `Examples:` is."""

from __future__ import annotations

import re
from typing import Any

import griffe


class Examples(griffe.Extension):
    """Renames the section before it is parsed."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Called for every object that has been loaded."""
        if obj.docstring:
            obj.docstring.value = re.sub(r"(?m)^Example:$", "Examples:", obj.docstring.value)
