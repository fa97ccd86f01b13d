"""Measurements anyone can rerun: speed and memory beside PyG (and DGL), accuracy, kill and resume, a big graph."""
