"""Generated contractions that nobody tuned for: every kind of shape, from a seed. Knows no library and no device.

A case depends on the seed and its own number alone, so a longer list begins with the shorter one. The generator is
written out here: a library's may change its stream from one version to the next.
"""

from __future__ import annotations

import math
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TypeVar

from benchmarks.cases import Case

SEED = 2026
COUNT = 60

ITEM = 2  # bytes of the element type for which the limits are meant; wider types move more
LEAST_BYTES, MOST_BYTES = 1_000_000, 600_000_000  # of A, B and D together
MOST_FLOPS = 1.5e12  # real operations, two a product
FEWEST_MODES, MOST_MODES = 3, 8  # all but the cases of many twos
RIDGE = 250.0  # flops per byte from which a case counts as bound by arithmetic
TWOS = (12, 20)  # how many modes of extent 2 the cases of that kind have

ODD = (3, 5, 7, 13, 24, 31, 61, 84, 127, 130, 1000)
POWERS = tuple(1 << i for i in range(1, 13))
EXTENTS = tuple(sorted({*ODD, *POWERS}))

T = TypeVar("T")
Sizes = tuple[int, int, int, int]  # batch, M, N, K


@dataclass(frozen=True, slots=True)
class Kind:
    """A class of shapes.

    Attributes:
        name: In the cases' names.
        bits: Range of the targets of batch, M, N and K, as powers of two; (0, 0) leaves the group out.
        fits: Whether the sizes that came of the targets are still of this kind.
    """

    name: str
    bits: tuple[tuple[float, float], ...]
    fits: Callable[[Sizes], bool]


def intensity(sizes: Sizes) -> float:
    """Operations per byte of least traffic."""
    return 2 * math.prod(sizes) / (ITEM * sum(tensors(sizes)))


def tensors(sizes: Sizes) -> tuple[int, int, int]:
    """Elements of A, B and D."""
    b, m, n, k = sizes
    return b * m * k, b * k * n, b * m * n


KINDS = {
    k.name: k
    for k in (
        Kind("any", ((0, 0), (0, 20), (0, 20), (0, 20)), lambda s: True),
        Kind("any-batch", ((1, 8), (0, 20), (0, 20), (0, 20)), lambda s: True),
        Kind("compute", ((0, 0), (9, 14), (9, 14), (8, 13)), lambda s: intensity(s) >= RIDGE),
        Kind("long-k", ((0, 0), (4, 9), (4, 9), (13, 20)), lambda s: s[3] >= 16 * max(s[1], s[2])),
        Kind("short-k", ((0, 0), (9, 15), (9, 15), (1, 6)), lambda s: tensors(s)[2] >= 4 * sum(tensors(s)[:2])),
        Kind("small-n", ((0, 0), (12, 20), (1, 5), (5, 11)), lambda s: s[2] <= 32 and s[1] >= 64 * s[2]),
        Kind("gemv", ((0, 0), (6, 20), (0, 0), (6, 20)), lambda s: True),
        Kind("outer", ((0, 0), (6, 15), (6, 15), (0, 0)), lambda s: True),
        Kind("batched", ((5, 14), (2, 7), (2, 7), (2, 7)), lambda s: s[0] >= 32 and max(s[1:]) <= 128),
        Kind("twos", (), lambda s: True),
    )
}

# A round of twenty; three of them make the sixty.
ROUND = (
    *("any", "compute", "long-k", "any-batch", "short-k", "small-n", "any", "batched", "gemv", "any"),
    *("twos", "any", "compute", "short-k", "any-batch", "long-k", "any", "small-n", "outer", "batched"),
)


class Numbers:
    """Uniform integers from a seed: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)."""

    _MASK = (1 << 64) - 1

    def __init__(self, *seed: int) -> None:
        self._state = 0
        for part in seed:
            self._state = (self.next() ^ part) & self._MASK

    def next(self) -> int:
        """64 random bits."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & self._MASK
        z = self._state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & self._MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & self._MASK
        return z ^ (z >> 31)

    def below(self, count: int) -> int:
        """One of 0 ... count - 1; the bias of the remainder is far below anything seen here."""
        return self.next() % count

    def between(self, low: int, high: int) -> int:
        """One of low ... high."""
        return low + self.below(high - low + 1)

    def choice(self, values: Sequence[T]) -> T:
        """One of the values."""
        return values[self.below(len(values))]

    def shuffled(self, values: Sequence[T]) -> list[T]:
        """The values in random order."""
        out = list(values)
        for i in range(len(out) - 1, 0, -1):
            j = self.below(i + 1)
            out[i], out[j] = out[j], out[i]
        return out


def random_cases(count: int = COUNT, seed: int = SEED) -> tuple[Case, ...]:
    """The generated benchmark.

    Sizes of the groups are log-uniform between a kind's bounds; extents multiply to about that and mix primes, small
    and large, round and odd numbers. The modes of each tensor are permuted at random, its unit-stride mode being
    contracted, free or batch with equal chance in A.

    Args:
        count: How many; twenty or more meet every kind.
        seed: Another seed, other cases.

    Raises:
        ValueError: `count` is not positive or `seed` is negative.
    """
    if count < 1 or seed < 0:
        raise ValueError(f"count is {count} and seed is {seed}; they must be at least 1 and 0")
    return tuple(_case(i, seed) for i in range(count))


def _case(number: int, seed: int) -> Case:
    kind = KINDS[ROUND[number % len(ROUND)]]
    numbers = Numbers(seed, number)
    for _ in range(100_000):  # a draw in some tens is within the limits
        groups = _many_twos(numbers) if kind.name == "twos" else _groups(numbers, kind)
        if groups is None:
            continue
        b, m, n, k = (math.prod(g) for g in groups)
        if kind.fits((b, m, n, k)) and _within_limits((b, m, n, k)):
            if numbers.below(2):  # which operand comes first has no say in what kind of shape it is
                groups = (groups[0], groups[2], groups[1], groups[3])
            return _spell(f"{number:02d}-{kind.name}", kind.name, groups, numbers)
    raise AssertionError(f"no case of kind {kind.name} lies within the limits")


def _within_limits(sizes: Sizes) -> bool:
    b, m, n, k = sizes
    moved = ITEM * sum(tensors(sizes))
    # A result of one element, or an operand of one, is no contraction worth the name.
    real = b * m * n > 1 and b * m * k > 1 and b * n * k > 1
    return real and LEAST_BYTES <= moved <= MOST_BYTES and 2 * math.prod(sizes) <= MOST_FLOPS


def _groups(numbers: Numbers, kind: Kind) -> tuple[tuple[int, ...], ...] | None:
    """Extents of batch, M, N and K, or None where the draw has none or too many modes."""
    found = []
    for low, high in kind.bits:
        target = 2.0 ** (low + numbers.below(round(8 * (high - low)) + 1) / 8)  # in steps of an eighth of a bit
        group = _extents(numbers, target, numbers.between(1, 3)) if target >= 1.5 else ()
        if group is None:
            return None
        found.append(group)
    if not FEWEST_MODES <= sum(map(len, found)) <= MOST_MODES:
        return None
    return tuple(found)


def _extents(numbers: Numbers, target: float, count: int) -> tuple[int, ...] | None:
    """`count` extents whose product is near the target, None where the draw ends too far from it."""
    out: list[int] = []
    left = target
    for rest in range(count - 1, -1, -1):
        if rest:
            options = [e for e in EXTENTS if e * 2**rest <= left * 1.5 and left <= e * 1.5 * EXTENTS[-1] ** rest]
        else:
            options = [e for e in EXTENTS if left / 1.5 <= e <= left * 1.5]
        powers = [e for e in options if e in POWERS]
        others = [e for e in options if e not in POWERS]
        options = numbers.choice([o for o in (powers, others, others) if o] or [[]])
        if not options:
            return None
        out.append(numbers.choice(options))
        left /= out[-1]
    return tuple(out)


def _many_twos(numbers: Numbers) -> tuple[tuple[int, ...], ...]:
    """Modes of extent 2 in all groups, as circuits have them, beside one or two others that make it large enough."""
    groups: list[list[int]] = [[], [2], [2], [2]]
    for _ in range(numbers.between(*TWOS) - 3):
        groups[numbers.choice((1, 1, 1, 2, 2, 3, 3, 0))].append(2)
    for _ in range(numbers.between(1, 2)):
        groups[numbers.between(1, 3)].append(numbers.choice((*ODD, 64, 256)))
    return tuple(map(tuple, groups))


def _spell(name: str, kind: str, groups: Sequence[Sequence[int]], numbers: Numbers) -> Case:
    """Permute the modes of each tensor and name them in the order of A, then B."""
    starts = [0, *accumulate(map(len, groups))]
    batch, m, n, k = (list(range(s, e)) for s, e in pairwise(starts))
    extents = [e for g in groups for e in g]
    a = numbers.shuffled([*batch, *m, *k])
    unit = numbers.choice(numbers.choice([g for g in (batch, m, k) if g]))
    a.remove(unit)
    a.append(unit)
    b, d = numbers.shuffled([*batch, *n, *k]), numbers.shuffled([*batch, *m, *n])
    letter = dict(zip(dict.fromkeys([*a, *b]), string.ascii_letters, strict=False))
    spelled = ["".join(letter[x] for x in modes) for modes in (a, b, d)]
    return Case(
        name,
        f"{spelled[0]},{spelled[1]}->{spelled[2]}",
        tuple(sorted((letter[i], e) for i, e in enumerate(extents))),
        kind,
    )
