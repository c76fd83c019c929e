"""Schedules of the Hopper family put into clusters, whether or not the model would; for all tests."""

from __future__ import annotations

from dataclasses import replace

from gett.schedule.cluster import share
from gett.schedule.records import Schedule, WarpRoles
from tests.cases import Case

SHAPES = ((2, 1), (1, 2), (2, 2))
# Odd numbers of tiles, batches, a long K that is split, rows that come in no eights (copies of their own).
CASES = (
    Case("odd-tiles", "mk,kn->mn", {"m": 328, "k": 200, "n": 408}),
    Case("k-major", "mk,nk->nm", {"m": 136, "k": 328, "n": 200}),
    Case("batched", "bmk,bkn->bmn", {"b": 3, "m": 200, "k": 72, "n": 136}),
    Case("long-k", "km,kn->mn", {"m": 72, "k": 4096, "n": 88}),
    Case("uneven-rows", "njmi,kmln->lkji", {"i": 32, "j": 6, "k": 21, "l": 12, "m": 6, "n": 96}),
    Case("one-tile", "mk,kn->mn", {"m": 64, "k": 512, "n": 64}),
)


def can_share(roles: WarpRoles) -> bool:
    """Whether any cluster may run these roles: tensor maps move both operands, along one order of K; none trades."""
    return roles.a is not None and roles.b is not None and roles.crossed is None and roles.trade is None


def clustered(schedule: Schedule, cluster: tuple[int, int]) -> Schedule:
    """The schedule with `cluster` neighbouring tiles along M and N sharing operands."""
    roles = schedule.roles
    assert roles is not None
    a, b = (replace(x, shared=1, divided=None) for x in (roles.a, roles.b))
    # What stays in a block is fetched once, by each for itself.
    a = a if roles.resident == "a" else share(a, cluster[1])
    b = b if roles.resident == "b" else share(b, cluster[0])
    shared = replace(roles, cluster=cluster, a=a, b=b)
    return replace(schedule, roles=shared)


def kind(schedule: Schedule) -> tuple[object, ...]:
    """What tells apart the ways through the kernel."""
    roles = schedule.roles
    assert roles is not None
    ways = [(x.major, x.map.span, x.divided is None, x.copies > 1, bool(x.repeats)) for x in (roles.a, roles.b)]
    return (roles.ping_pong, schedule.split_k > 1, roles.d is None, roles.m_blocks > 1, roles.resident, *ways)
