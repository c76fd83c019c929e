"""Small contractions whose strides suit no tensor map, for all tests of the producers that gather."""

from __future__ import annotations

from tests.cases import Case

# The contracted unit modes of A and B differ: pieces of one of them are turned over in shared memory.
TURNED = (
    Case("turned", "lik,jkl->ji", {"i": 45, "j": 37, "k": 29, "l": 27}),
    Case("turned-batched", "bmkl,bnlk->bmn", {"b": 3, "m": 71, "n": 47, "k": 33, "l": 31}),
    Case("turned-wide", "lik,jkl->ji", {"i": 301, "j": 283, "k": 61, "l": 59}),
    Case("turned-third", "lrik,jkrl->ji", {"i": 45, "j": 37, "k": 19, "l": 17, "r": 5}),
)
# D has rows long enough to leave the chip row by row.
ROWS = (
    Case("rows-n", "ik,kj->ij", {"i": 301, "j": 411, "k": 99}),
    Case("rows-whole", "bq,srqa->srba", {"b": 83, "q": 95, "s": 9, "r": 11, "a": 95}),
    Case("rows-flat", "cmji,bakm->kjicba", {"c": 23, "m": 23, "j": 19, "i": 19, "b": 23, "a": 23, "k": 3}),
    Case("rows-m", "cr,srba->scba", {"c": 83, "r": 95, "s": 7, "b": 11, "a": 95}),
    Case("rows-short", "lki,kjl->ji", {"i": 25, "j": 16335, "k": 51, "l": 11}),
)
