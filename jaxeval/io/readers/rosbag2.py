"""rosbag2 recordings: a folder with ``metadata.yaml`` and its ``.db3`` or ``.mcap``, or a ``.db3`` alone.

See `ros_messages` for what becomes of the messages. Needs ``jaxeval[ros]``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from jaxeval.io.errors import InputError, refuse_lfs_pointer
from jaxeval.io.findings import FileFindings
from jaxeval.io.readers.ros_messages import KINDS, ROS_FINDINGS, RosMessage, episodes_of_messages, plain_kind
from jaxeval.types import Episode, Finding

METADATA = "metadata.yaml"


def is_rosbag2(path: str | Path) -> bool:
    """A folder whose ``metadata.yaml`` speaks of rosbag2 or stands beside a ``.db3`` or ``.mcap``, or a ``.db3``."""
    path = Path(path)
    if path.is_file():
        return path.suffix.lower() == ".db3"
    about = path / METADATA
    if not about.is_file():
        return False
    if any(path.glob("*.db3")) or any(path.glob("*.mcap")):
        return True
    try:
        return b"rosbag2_bagfile_information" in about.read_bytes()
    except OSError:
        return False


def read_rosbag2(path: str | Path, *, bodies: tuple[str, ...] | None = None) -> tuple[list[Episode], list[Finding]]:
    """Episodes of one recording (see `episodes_of_messages`); a damaged one is read as far as it goes.

    Raises:
        InputError: no such recording, a Git-LFS pointer, damaged metadata or storage, nothing of use in it, or the
            extra is not installed.
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"{path}: there is no such folder or file; check the path")
    if path.is_dir() and not (path / METADATA).is_file():
        raise InputError(f"{path}: no {METADATA}, expected a rosbag2 folder; open its .db3 or .mcap, or copy it again")
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        refuse_lfs_pointer(file)
        if file.suffix in (".db3", ".mcap") and file.stat().st_size == 0:
            raise InputError(f"{file}: the file is empty, expected recorded messages; record or copy it again")
    findings = FileFindings(path, ROS_FINDINGS)
    others: set[str] = set()
    return episodes_of_messages(path, _messages(path, findings, others), findings, bodies=bodies, others=others)


def _messages(path: Path, findings: FileFindings, others: set[str]) -> Iterator[RosMessage]:
    """Messages of `KINDS` in the order they were recorded; types that are passed over join `others`.

    The wide `except` is for damaged bytes, for which the library raises whatever its parsers run into.
    """
    try:
        from rosbags.rosbag2 import Reader
        from rosbags.typesys import Stores, get_typestore
    except ImportError as error:
        raise InputError(f"{path}: reading rosbag2 needs a library ({error}); pip install 'jaxeval[ros]'") from error
    types = get_typestore(Stores.LATEST)
    bag = Reader(path)
    try:
        bag.open()
    except Exception as error:
        inside = " or open its .mcap, which is read as far as it goes" if any(path.glob("*.mcap")) else ""
        said = f"{type(error).__name__}: {error}".replace("\n", " ")[:300]
        raise InputError(f"{path}: this rosbag2 cannot be opened ({said}); copy it again{inside}") from error
    read_n = 0
    try:
        wanted = [c for c in bag.connections if plain_kind(c.msgtype) in KINDS]
        others.update(c.msgtype for c in bag.connections if plain_kind(c.msgtype) not in KINDS)
        for connection, log_ns, data in bag.messages(wanted) if wanted else ():
            read_n += 1
            try:
                message = types.deserialize_cdr(data, connection.msgtype)
            except Exception as error:
                others.add(f"{connection.msgtype} that cannot be decoded")
                found = f"a message is no {connection.msgtype} ({type(error).__name__}: {error})"[:300]
                findings.add("undecodable", found, "ROS 2 CDR", "left out", where=f"{path} {connection.topic}")
                continue
            yield RosMessage(connection.topic, log_ns, connection.msgtype, message)
        if read_n != (counted := sum(c.msgcount for c in wanted)):
            found = f"{read_n} messages of use, where the recorder counted {counted}"
            findings.add("damaged", found, "all of them", "those there are read; copy the recording again")
    except Exception as error:
        found = f"after {read_n} messages: {type(error).__name__} {error}".strip().replace("\n", " ")
        findings.add("damaged", found[:300], "a whole file", "what comes before is read; copy the file again")
    finally:
        bag.close()
