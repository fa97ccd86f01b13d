"""Graph servers: the sparse tasks of a shard, its matrices, and the exchange of ghost rows."""
