"""Graph servers carry out tasks over a shard; parameter servers hold the weights."""

from dorylus.servers.exchange import Parcel
from dorylus.servers.ghosts import Peers
from dorylus.servers.graph_server import GraphServer, PassSettings
from dorylus.servers.matrices import Arena
from dorylus.servers.parameter_servers import ParameterServers, PSState

__all__ = ["Arena", "GraphServer", "PSState", "ParameterServers", "Parcel", "PassSettings", "Peers"]
