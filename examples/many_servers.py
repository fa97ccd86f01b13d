"""Four graph servers, two parameter servers, exactly and with bounded asynchrony: traffic, ages of values, busy shares.

All servers are in this process, so this shows how a cluster works, not how fast one is. Threads take the lowest epoch
first: on a few cores almost every value is read in the epoch it was written in.
"""

import dorylus

graph = dorylus.communities(num_vertices=10_000, num_classes=8)
model = dorylus.gcn(hidden=32)
cluster = {"servers": 4, "parameter_servers": 2, "intervals": 4, "threads": 2}

one = dorylus.train(graph, model, epochs=50)
exact = dorylus.train(graph, model, epochs=50, **cluster)
bounded = dorylus.train(graph, model, epochs=50, mode="async", staleness=1, **cluster)

apart = max(abs(a / b - 1) for a, b in zip(one.losses, exact.losses, strict=True))
print(f"exact on 1 and on 4 servers: losses apart by {apart:.0e}")

for name, result in {"exact": exact, "async, staleness 1": bounded}.items():
    print(f"\n{name}: loss {result.losses[-1]:.3f}, test accuracy {result.test_accuracy:.1%}")
    for kind, num_bytes in sorted(result.traffic.items(), key=lambda item: -item[1]):
        print(f"  {num_bytes / len(result.losses) / 1024:7.0f} KiB {kind.replace('_', ' ')} an epoch")
    print("  busy:", ", ".join(f"{name} {share:.0%} of the time" for name, share in result.busy.items()))

total = sum(bounded.ages.values())
print("\nage of the values read, in epochs (at most staleness + 1):")
for age, count in bounded.ages.items():
    print(f"  {age:2}  {count / total:6.1%}  {'#' * round(50 * count / total)}")
