"""Training under a memory limit: what fits, what was predicted, and what a big graph takes."""
