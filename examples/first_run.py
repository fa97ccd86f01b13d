"""Ten lines from nothing to a trained model: generate a graph, train on all of it, look at the result."""

import dorylus

graph = dorylus.communities(num_vertices=10_000, num_classes=8)
print(graph)

result = dorylus.train(graph, dorylus.gcn(hidden=32), epochs=50, seed=0)
print(f"loss           {result.losses[0]:.3f} -> {result.losses[-1]:.3f} in {len(result.losses)} epochs")
print(f"test accuracy  {result.test_accuracy:.1%}")
print(f"edge-work      {result.work.share:.0%} of what a straightforward epoch does")

classes = result.predict("classes")  # every vertex, in the graph's own order
print(f"classes        {classes[:10]} ... right for {(classes == graph.labels).mean():.1%} of all vertices")
