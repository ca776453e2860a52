"""MCAP files of ROS 2 messages (``NAME.mcap``); see `ros_messages` for what becomes of them. Needs ``jaxeval[ros]``."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jaxeval.io.errors import InputError, refuse_lfs_pointer
from jaxeval.io.findings import FileFindings
from jaxeval.io.readers.ros_messages import KINDS, ROS_FINDINGS, RosMessage, episodes_of_messages, plain_kind
from jaxeval.types import Episode, Finding

MAGIC = b"\x89MCAP0\r\n"


def is_mcap(path: str | Path) -> bool:
    """A file called ``.mcap``, or that begins as one."""
    path = Path(path)
    if not path.is_file():
        return False
    try:
        with open(path, "rb") as file:
            return path.suffix.lower() == ".mcap" or file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def read_mcap(path: str | Path, *, bodies: tuple[str, ...] | None = None) -> tuple[list[Episode], list[Finding]]:
    """Episodes of one file (see `episodes_of_messages`); a cut or damaged file is read as far as it goes.

    Raises:
        InputError: no such file, a Git-LFS pointer, not MCAP, nothing of use in it, or the extra is not installed.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: there is no such file; check the path")
    refuse_lfs_pointer(path)
    with open(path, "rb") as file:
        head = file.read(len(MAGIC))
    if not head:
        raise InputError(f"{path}: the file is empty, expected MCAP; record or copy it again")
    if head != MAGIC:
        what = "a zip archive" if head.startswith(b"PK\x03\x04") else "not an MCAP file"
        raise InputError(f"{path}: this is {what} (it begins {head!r}), expected MCAP; check or copy it again")
    findings = FileFindings(path, ROS_FINDINGS)
    others: set[str] = set()
    return episodes_of_messages(path, _messages(path, findings, others), findings, bodies=bodies, others=others)


def _messages(path: Path, findings: FileFindings, others: set[str]) -> Iterator[RosMessage]:
    """Messages of `KINDS` in the order of the file; types that are passed over join `others`.

    The file is read from its start, not through its index, so that one without an end can be read. What its bytes
    may hold when damaged is anybody's guess, hence the wide `except`: whatever a decoder raises costs a message or
    the rest of the file, and is said.
    """
    try:
        from mcap.records import Channel, Message, Schema
        from mcap.stream_reader import StreamReader
        from mcap_ros2.decoder import DecoderFactory
    except ImportError as error:
        raise InputError(f"{path}: reading MCAP needs a library ({error}); pip install 'jaxeval[ros]'") from error
    factory = DecoderFactory()
    schemas: dict[int, Any] = {}
    channels: dict[int, tuple[Any, Any]] = {}
    read_n = 0
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        reader = StreamReader(view, record_size_limit=len(view), validate_crcs=True)  # type: ignore[arg-type]
        try:
            for record in reader.records:
                if isinstance(record, Schema):
                    schemas[record.id] = record
                elif isinstance(record, Channel):
                    channels[record.id] = (record, schemas.get(record.schema_id))
                elif isinstance(record, Message):
                    channel, schema = channels[record.channel_id]
                    kind = schema.name if schema is not None else f"{channel.message_encoding} without a schema"
                    read_n += 1
                    if schema is None or plain_kind(kind) not in KINDS:
                        others.add(kind)
                        continue
                    try:
                        decoder = factory.decoder_for(channel.message_encoding, schema)
                        if decoder is None:
                            raise ValueError(f"encoding {channel.message_encoding} with schema {schema.encoding}")
                        message = decoder(record.data)
                    except Exception as error:
                        others.add(f"{kind} that cannot be decoded")
                        found = f"a message is no {kind} ({type(error).__name__}: {error})"
                        findings.add(
                            "undecodable", found[:300], "ROS 2 CDR", "left out", where=f"{path} {channel.topic}"
                        )
                        continue
                    yield RosMessage(channel.topic, record.log_time, kind, message)
        except Exception as error:
            found = f"after {read_n} messages: {type(error).__name__} {error}".strip()
            findings.add("damaged", found[:300], "a whole file", "what comes before is read; copy the file again")
