"""Which parameter server steps which parameters."""

from collections.abc import Mapping


def cut_slices(sizes: Mapping[str, int], num_servers: int) -> list[list[str]]:
    """Each server's parameters, in the program's order: whole ones, the servers' sums of sizes as even as greed gets.

    The largest goes first, to the server with least so far, the lowest number where several have. Servers beyond the
    number of parameters get none.
    """
    load = [0] * num_servers
    owner = {}
    for name in sorted(sizes, key=lambda name: -sizes[name]):  # a stable sort: equal sizes stay in order
        server = load.index(min(load))
        load[server] += sizes[name]
        owner[name] = server
    return [[name for name in sizes if owner[name] == server] for server in range(num_servers)]
