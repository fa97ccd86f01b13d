"""Graph servers carry out tasks over a shard; parameter servers hold the weights."""

from dorylus.servers.graph_server import GraphServer
from dorylus.servers.parameter_server import ParameterServer

__all__ = ["GraphServer", "ParameterServer"]
