"""Graphs made from a seed, for examples, tests and benchmarks: the same arguments always make the same graph."""
