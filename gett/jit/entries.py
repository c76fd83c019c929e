"""The form of a cached file: magic, schema, key, length and digest of the payload, payload.

Knows neither where files are nor what is in them.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping

SCHEMA = 1
_MAGIC = b"gettkrnl"
_HEADER = struct.Struct("<8sI32sQ32s")


def cache_key(fields: Mapping[str, str | bytes]) -> bytes:
    """Return the key of a kernel that is determined by `fields`, in their order, and by the schema.

    Labels and values are hashed with their lengths, so no two different lists of fields feed the hash alike.
    """
    digest = hashlib.blake2b(digest_size=32)
    for part in ("schema", str(SCHEMA), *(part for field in fields.items() for part in field)):
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.digest()


def pack_entry(key: bytes, payload: bytes) -> bytes:
    """Return the contents of the file that holds `payload` under `key`."""
    return _HEADER.pack(_MAGIC, SCHEMA, key, len(payload), _digest(payload)) + payload


def unpack_entry(key: bytes, data: bytes) -> bytes | None:
    """Return the payload of a file's contents, or None if they are not whole, not ours, or of another key."""
    if len(data) < _HEADER.size:
        return None
    magic, schema, stored_key, length, digest = _HEADER.unpack_from(data)
    payload = data[_HEADER.size :]
    if (magic, schema, stored_key, length) != (_MAGIC, SCHEMA, key, len(payload)) or digest != _digest(payload):
        return None
    return payload


def _digest(payload: bytes) -> bytes:
    return hashlib.blake2b(payload, digest_size=32).digest()
