import dataclasses
from pathlib import Path

import pytest

from dorylus.wire import client, connection, peer_transport, pieces, port
from dorylus.wire.frames import BETWEEN_SERVERS, DEFAULT, DTYPES, FrameLimits
from dorylus.wire.port import PortCounts

PAGE = (Path(__file__).parents[3] / "docs" / "wire.md").read_text()


@pytest.mark.parametrize("field", dataclasses.fields(PortCounts), ids=lambda field: field.name)
def test_every_count_is_documented(field):
    assert f"| `{field.name}` |" in PAGE


@pytest.mark.parametrize("field", dataclasses.fields(FrameLimits), ids=lambda field: field.name)
def test_every_limit_is_documented(field):
    assert f"{field.name}`" in PAGE


def test_every_dtype_is_documented():
    assert f"one of {', '.join(DTYPES)}." in " ".join(PAGE.split())


KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@pytest.mark.parametrize(
    "row",
    [
        f"| a frame (`FrameLimits.max_frame_bytes`) | {DEFAULT.max_frame_bytes // MIB} MiB; between servers ",
        f"; between servers {BETWEEN_SERVERS.max_frame_bytes // GIB} GiB |",
        f"`max_header_bytes`) | {DEFAULT.max_header_bytes // KIB} KiB |",
        f"| {DEFAULT.max_arrays}, {DEFAULT.max_dims}, {DEFAULT.max_name_chars} |",
        f"then at most {pieces.PIECE_BYTES // KIB} KiB of the frame",
        f"| a message's second part | {pieces.MAX_PIECE_BYTES // MIB} MiB |",
        f"| requests in flight at a client | {client.MAX_IN_FLIGHT} |",
        f"| time for a request to arrive completely | {port.PATIENCE_S:g} s |",
        f"At most {peer_transport.WAITING_BYTES // MIB} MiB wait for a peer",
        f"has {connection.HELLO_S:g} s to send its name and {connection.HANDSHAKE_S:g} s in all",
    ],
)
def test_a_documented_limit_is_that_of_the_code(row):
    assert row in PAGE
