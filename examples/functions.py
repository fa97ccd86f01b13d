"""Dense work on serverless functions: AWS Lambda's stand-in on this machine, invoked through boto3, and the bill.

In the cloud it is `dorylus functions deploy` once, then pool="lambda". Needs: pip install "dorylus[local-functions]".
"""

import dorylus

graph = dorylus.communities(num_vertices=4_000, num_classes=8)
model = dorylus.gcn(hidden=32)
settings = {"epochs": 20, "servers": 2, "intervals": 4}
print("trains on threads, then on functions, which takes up to a minute the first time: they are packed and started")

here = dorylus.train(graph, model, **settings)
there = dorylus.train(graph, model, pool="lambda-local", instance="c5.large", **settings)

furthest = max(abs(a - b) for a, b in zip(here.losses, there.losses, strict=True))
print(f"losses differ by at most {furthest:.0e}; test accuracy {there.test_accuracy:.1%}")
used = there.pool
print(f"{used['invocations']} invocations by the {used['data_path']} path, {used['relaunches']} relaunched")
for what, amount, price, usd in there.bill.rows():
    print(f"{what:40} {amount:>16} {price:>22} {usd:>12}")
