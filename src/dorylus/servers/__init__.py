"""Graph servers carry out tasks over a shard; parameter servers hold the weights."""

from dorylus.servers.exchange import Parcel
from dorylus.servers.ghosts import Peers
from dorylus.servers.graph_server import GraphServer, PassSettings
from dorylus.servers.holding import Holding
from dorylus.servers.matrices import Arena, BoundedArena
from dorylus.servers.paging import Paging
from dorylus.servers.parameter_servers import ParameterServers, PSState

__all__ = [
    "Arena",
    "BoundedArena",
    "GraphServer",
    "Holding",
    "PSState",
    "Paging",
    "ParameterServers",
    "Parcel",
    "PassSettings",
    "Peers",
]
