"""Which model and which graph a checkpoint belongs to."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch

from dorylus.graph import Graph, arrays_of, checksum, stored_checksums


@dataclass(frozen=True)
class Fingerprint:
    """A model's description and, for each parameter, its name, shape and type."""

    spec: str
    parameters: tuple[tuple[str, tuple[int, ...], str], ...]

    @property
    def names(self) -> list[str]:
        """The parameters' names, in the model's order."""
        return [name for name, _, _ in self.parameters]

    def to_dict(self) -> dict[str, Any]:
        """JSON data."""
        return {"spec": self.spec, "parameters": [[name, list(shape), kind] for name, shape, kind in self.parameters]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """What :meth:`to_dict` wrote down."""
        return cls(data["spec"], tuple((name, tuple(shape), kind) for name, shape, kind in data["parameters"]))

    def difference(self, wanted: "Fingerprint") -> str:
        """In words, the first thing in which the model found here is not the model ``wanted``; empty when equal."""
        found_by_name = {name: f"{kind} {list(shape)}" for name, shape, kind in self.parameters}
        wanted_by_name = {name: f"{kind} {list(shape)}" for name, shape, kind in wanted.parameters}
        for name, found in found_by_name.items():
            if name not in wanted_by_name:
                return f"it has the parameter {name} ({found}), which this model has not"
            if wanted_by_name[name] != found:
                return f"its parameter {name} is {found}, and this model's is {wanted_by_name[name]}"
        for name, its in wanted_by_name.items():
            if name not in found_by_name:
                return f"it lacks the parameter {name} ({its}) of this model"
        if self.names != wanted.names:
            return "its parameters are the same in another order"
        return "" if self.spec == wanted.spec else f"it was described as {self.spec!r}, and this one is {wanted.spec!r}"


def fingerprint(weights: Mapping[str, torch.Tensor], spec: str) -> Fingerprint:
    """The fingerprint of the model that has this state and description."""
    parts = [(name, tuple(w.shape), str(w.dtype).removeprefix("torch.")) for name, w in weights.items()]
    return Fingerprint(spec, tuple(parts))


def graph_identity(graph: Graph) -> str:
    """A line that two graphs share when all a run reads of them is equal: sizes, and a checksum of the arrays'."""
    known = {} if graph.store is None else stored_checksums(graph.store)
    total = 0
    for name, array in sorted(arrays_of(graph).items()):
        crc = known[name] if name in known else checksum(array)
        total = zlib.crc32(f"{name} {crc}".encode(), total)
    return f"{graph.num_vertices} vertices, {graph.num_edges} edges, {graph.num_features} features, {total:08x}"
