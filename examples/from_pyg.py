"""From PyG and back: a ``Data`` in, trained weights out into PyG's own convolutions, the same logits from both."""

import numpy as np
import torch
from torch_geometric.data import Data

import dorylus

source = dorylus.communities(num_vertices=3_000)  # stands in for a data set you have
data: Data = source.to_pyg()

graph = dorylus.Graph.from_pyg(data)
result = dorylus.train(graph, dorylus.gcn(hidden=16), epochs=40)
ours = result.predict("logits")

first, second = result.model.to_pyg()
print(first, second)
with torch.no_grad():
    hidden = torch.relu(first(data.x, data.edge_index))
    theirs = second(hidden, data.edge_index).numpy()

print(f"test accuracy                {result.test_accuracy:.1%}")
print(f"largest difference of logits {np.abs(ours - theirs).max():.1e}, where logits reach {np.abs(theirs).max():.1f}")
print(f"same class for all vertices  {(ours.argmax(1) == theirs.argmax(1)).all()}")
