"""The one exception of the boundary: what was read or asked for cannot be used, said in one sentence."""

from __future__ import annotations

from pathlib import Path


class InputError(ValueError):
    """An input that cannot be used. The message is one sentence: file, key, what was found, expected, what to do."""


LFS_MARK = b"version https://git-lfs"


def refuse_lfs_pointer(path: Path) -> None:
    """Raise InputError if `path` is the text stub that Git LFS leaves in place of the data; silent otherwise."""
    try:
        with open(path, "rb") as file:
            head = file.read(len(LFS_MARK))
    except OSError:
        return
    if head == LFS_MARK:
        raise InputError(
            f"{path}: this is a Git-LFS pointer, not the data; run `git lfs pull` in the repository that holds it"
        )
