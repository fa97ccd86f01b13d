"""Functions on a network of their own: an address each, a bandwidth each, and a delay. Shared by three benchmarks."""
