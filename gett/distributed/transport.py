"""`Transport`: what `Channel` asks of a library that sends messages between ranks.

Owns the kinds of messages. One implementation stands beside it for each library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

FAILURE, ALIVE, VALUE, ARRAY = range(4)  # kinds of messages; those of a kind arrive in the order they were sent


class Transport(Protocol):
    """The ranks of one call. No method waits for another rank, but messages may move only while one is called.

    Attributes:
        rank: This rank.
        size: How many ranks there are.
        pause: Seconds to wait before it is asked again whether bytes have come: 0 if they move only while one asks.
    """

    rank: int
    size: int
    pause: float

    def joined(self) -> bool:
        """Whether all ranks are in this call; before that nothing may be sent."""

    def send(self, kind: int, value: Any, rank: int) -> None:
        """Send anything small that can be pickled."""

    def probe(self, kind: int, rank: int | None = None) -> int | None:
        """The rank of which a message can be received now: that which is given, or any."""

    def receive(self, kind: int, rank: int) -> Any:
        """What `probe` has found."""

    def send_bytes(self, piece: Any, rank: int) -> None:
        """Send a flat array of bytes, which must stay as it is."""

    def take_bytes(self, piece: Any, rank: int) -> Callable[[], bool]:
        """Fill a flat array with the bytes that a rank sends next; says whether that is done."""

    def broadcast(self, piece: Any) -> Callable[[], bool]:
        """Give a flat array of rank 0 to all ranks; says whether this rank's part is done."""

    def taken(self) -> bool:
        """Whether nothing is lost of what this rank has sent if its process ends now."""

    def leaving(self) -> bool:
        """Whether this rank may leave a call that went well; asked until it may."""

    def lost(self) -> Mapping[int, str]:
        """Ranks whose processes have ended, as far as the library tells, and how it says so."""

    def free(self) -> None:
        """The call went well and is over on this rank."""
