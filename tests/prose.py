"""Sentences of Markdown pages, so that tests can count their words.

It knows nothing of gett. What is no prose is left out: front matter, comments, code blocks, tables, headings, pictures.
"""

from __future__ import annotations

import re

_NO_PROSE = (
    re.compile(r"\A---\n.*?^---\n", re.DOTALL | re.MULTILINE),  # front matter
    re.compile(r"<!--.*?-->", re.DOTALL),
    re.compile(r"^ *(```|~~~).*?^ *\1 *$", re.DOTALL | re.MULTILINE),
    re.compile(r"^ *\|.*$", re.MULTILINE),  # rows of tables
    re.compile(r"^ *#.*$", re.MULTILINE),
    re.compile(r"!\[[^\]]*\]\([^)]*\)"),
)
_ITEM = re.compile(r"^ *(?:[-*]|\d+\.) +", re.MULTILINE)
_NAMES = re.compile(r"NAME(?:(?:,| and| or|, and|, or) NAME)+")  # a list of names counts as one of them


def sentences(markdown: str) -> list[str]:
    """The sentences of a page in their order, with `NAME` for each code span and for each list of code spans."""
    for pattern in _NO_PROSE:
        markdown = pattern.sub("", markdown)
    markdown = re.sub(r"``.*?``|`[^`]*`", "NAME", markdown, flags=re.DOTALL)
    markdown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown)  # a link's text
    markdown = re.sub(r"\*+", "", _ITEM.sub("\n\n", markdown))
    found = []
    for paragraph in re.split(r"\n\s*\n", markdown):
        text = _NAMES.sub("NAME", " ".join(paragraph.split()))
        found += [part for part in re.split(r"(?<=[.!?])\)? +(?=\S)", text) if words(part)]
    return found


def words(sentence: str) -> int:
    """How many words a sentence has. Signs alone, such as + and =, are none."""
    return sum(any(c.isalnum() for c in word) for word in sentence.split())


def too_long(markdown: str, most: int) -> list[str]:
    """The sentences of more than `most` words, each behind its number of words."""
    return [f"{words(s)} words: {s}" for s in sentences(markdown) if words(s) > most]
