from types import SimpleNamespace

from dorylus.pools.aws_lambda import Connections


class Socket:
    """A socket that remembers what was done to it; one that has ended by itself cannot be shut down."""

    def __init__(self):
        self.cut, self.ended = False, False

    def shutdown(self, how):
        if self.ended:
            raise OSError("not connected")
        self.cut = True


class Connection:
    """A connection with urllib3's interface."""

    sock = None

    def connect(self):
        self.sock = Socket()


class Pool:
    ConnectionCls = Connection


def client():
    """The part of a boto3 client that Connections reads."""
    maker = SimpleNamespace(pool_classes_by_scheme={"http": Pool})
    return SimpleNamespace(_endpoint=SimpleNamespace(http_session=SimpleNamespace(_manager=maker)))


def connected(watched):
    connection = watched._endpoint.http_session._manager.pool_classes_by_scheme["http"].ConnectionCls()
    connection.connect()
    return connection


def test_closing_cuts_open_connections_and_those_opened_later():
    connections, watched = Connections(), client()
    connections.watch(watched)
    before = connected(watched)
    connections.close()
    after = connected(watched)
    assert before.sock.cut
    assert after.sock.cut


def test_connections_are_left_alone_until_closing():
    connections, watched = Connections(), client()
    connections.watch(watched)
    assert not connected(watched).sock.cut


def test_closing_accepts_connections_that_were_never_opened_or_have_ended():
    connections, watched = Connections(), client()
    connections.watch(watched)
    ended, unopened = connected(watched), connected(watched)
    ended.sock.ended = True
    unopened.sock = None
    connections.close()
    assert not ended.sock.cut


def test_a_client_without_these_attributes_is_left_as_it_is():
    Connections().watch(SimpleNamespace())
