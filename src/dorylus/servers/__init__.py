"""Graph servers carry out tasks over a shard; parameter servers hold the weights."""

from dorylus.servers.graph.access_sets import FEATURES, Access, access_sets, begun_by, last_readers
from dorylus.servers.graph.gathers import Gatherer, MessageGatherer
from dorylus.servers.graph.ghosts import GhostMessage, Peers
from dorylus.servers.graph.graph_server import GraphServer, PassSettings
from dorylus.servers.graph.matrices import Arena, BoundedArena
from dorylus.servers.graph.paged import AHEAD, PagedStorage, SpillPolicy, is_lasting
from dorylus.servers.graph.pass_context import Extra, Grad, Published
from dorylus.servers.graph.storage import MemoryStorage, StaticRows, Storage
from dorylus.servers.parameter.parameter_server import WeightsByName
from dorylus.servers.parameter.parameter_servers import ParameterServers, slice_parameters
from dorylus.servers.parameter.state import PSState, join_states, state_part

__all__ = [
    "AHEAD",
    "FEATURES",
    "Access",
    "Arena",
    "BoundedArena",
    "Extra",
    "Gatherer",
    "GhostMessage",
    "Grad",
    "GraphServer",
    "MemoryStorage",
    "MessageGatherer",
    "PSState",
    "PagedStorage",
    "ParameterServers",
    "PassSettings",
    "Peers",
    "Published",
    "SpillPolicy",
    "StaticRows",
    "Storage",
    "WeightsByName",
    "access_sets",
    "begun_by",
    "is_lasting",
    "join_states",
    "last_readers",
    "slice_parameters",
    "state_part",
]
