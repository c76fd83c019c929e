"""Files that nobody else may have written: how they are told, opened and made.

Owns owner, mode and kind of a file. Knows neither what is in it nor what follows from a refusal.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

# A FIFO must not block whoever opens it, and a link may lead anywhere. Not every system has every flag.
_FLAGS = ("O_CLOEXEC", "O_NONBLOCK", "O_NOFOLLOW", "O_BINARY")
_READ = os.O_RDONLY | sum(getattr(os, flag, 0) for flag in _FLAGS)


def strangers(status: os.stat_result) -> str:
    """Who else may write a file or a directory, as the end of a sentence; empty if it is this user's or root's alone.

    The sticky bit of a directory does not help: others may still add files. Systems without user numbers have other
    rules, which are not looked at.
    """
    if not hasattr(os, "geteuid"):
        return ""
    if status.st_uid not in (os.geteuid(), 0):
        return f"it belongs to another user ({status.st_uid})"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others may write there (mode {stat.S_IMODE(status.st_mode):04o})"
    return ""


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading, if it is a regular one.

    Raises:
        FileNotFoundError: There is no such file, or it is a link, a FIFO, a directory, a device or a socket.
        OSError: It cannot be read.
    """
    if not stat.S_ISREG(os.lstat(path).st_mode):
        raise FileNotFoundError(f"{path} is no regular file")
    descriptor = os.open(path, _READ)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # it was exchanged in between
        os.close(descriptor)
        raise FileNotFoundError(f"{path} is no regular file")
    return os.fdopen(descriptor, "rb")


def open_new(path: Path) -> BinaryIO:
    """Make a file that only this user may write, whatever the umask is, and open it for writing.

    Raises:
        OSError: It exists already, or cannot be made.
    """
    return open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o644))
