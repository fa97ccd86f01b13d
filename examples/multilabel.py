"""Vertices with several labels each: binary cross-entropy is chosen from the labels, scores are F1."""

import dorylus

graph = dorylus.communities(num_vertices=3_000, num_classes=6, multilabel=True)
print(graph)
print(f"labels a vertex: {graph.labels.sum(axis=1).mean():.2f} of {graph.num_classes}")

result = dorylus.train(graph, dorylus.gat(hidden=8, heads=4, dropout=0.2), epochs=60, lr=0.02, keep="best")
for name in ("test_accuracy", "test_micro_f1", "test_macro_f1"):
    print(f"{name:14} {result.metrics[name]:.3f}")

guess = result.predict("classes")  # zeros and ones, one column a label
print(f"vertex 0: labels {graph.labels[0]}, predicted {guess[0]}")
