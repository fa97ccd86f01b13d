"""Graph servers carry out tasks over a shard; parameter servers hold the weights."""

from dorylus.servers.graph_server import GraphServer
from dorylus.servers.matrices import Arena
from dorylus.servers.parameter_server import ParameterServer

__all__ = ["Arena", "GraphServer", "ParameterServer"]
