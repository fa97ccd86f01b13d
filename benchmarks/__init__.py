"""Measurements anyone can rerun: speed and memory against PyG (and DGL), accuracy, kill and resume, a big graph."""
