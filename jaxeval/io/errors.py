"""The one exception of the boundary, and the stub that Git LFS leaves, which every reader meets."""

from __future__ import annotations

from pathlib import Path

from jaxeval.types import InputError as InputError

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
