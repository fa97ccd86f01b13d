"""What the exact savings save: the same training with each switched off in turn. Losses agree to rounding."""

import numpy as np

import dorylus

# A wide input, narrowing layers, few labels: the shape in which there is most to save. (ELU, because it is smooth:
# with ReLU a value that is zero up to rounding may fall on either side of the kink.)
graph = dorylus.communities(num_vertices=5_000, num_features=128, average_degree=10, split=(0.02, 0.2))
model = dorylus.sage(hidden=[64, 16], num_layers=3, input_dropout=0, activation="elu")
print(graph)

ALL = ("cache_first_gather", "narrow_gather", "prune_rows")
cases = {"all on": {}, **{f"{name} off": {name: False} for name in ALL}, "all off": dict.fromkeys(ALL, False)}

reference = None
for name, switches in cases.items():
    result = dorylus.train(graph, model, epochs=10, eval_every=0, **switches)
    losses = np.array(result.losses)
    reference = losses if reference is None else reference
    apart = np.abs(losses / reference - 1).max()
    print(f"\n{name}: {result.work.share:.0%} of naive edge-work; losses apart by {apart:.0e}")
    for saved in result.work.saved:
        print(f"  {saved}")
