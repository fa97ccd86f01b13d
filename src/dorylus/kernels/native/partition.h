// Cutting a graph into parts by streaming over it: clusters of vertices go by, each looks at where its in-neighbours
// are and goes to the best place. Memory beside the graph is O(vertices + parts). What each function chooses is stated
// in _reference_partition.py; sums are whole numbers, or doubles added in a fixed order, so results are bit-stable.
#pragma once

#include "buffer.h"

namespace dorylus {

// Vertices that move together: cluster c holds members[starts[c]] .. members[starts[c + 1] - 1].
struct Clusters {
  int64_t count;
  const int64_t* starts;
  const int32_t* members;
};

// What a cluster brings to a part, what a part holds, or what it may hold.
struct Work {
  int64_t vertices = 0, edges = 0;
};

// How clusters are placed: `steepness` squares the prices so often; `strict` never leads a part past its limit.
struct Placing {
  int32_t num_parts;
  Work limit;
  int steepness;
  bool strict;
};

// Both return how many clusters changed their label; a label of -1 is none. Labels lie below the number of rows, parts
// below num_parts.
int64_t partition_merge(const Csr& csr, int64_t num_rows, const Clusters& clusters, int32_t* labels, Work room,
                        uint64_t seed);
int64_t partition_place(const Csr& csr, int64_t num_rows, const Clusters& clusters, int32_t* parts, const Placing& how);

void partition_deal(const int64_t* indptr, int64_t num_rows, const int32_t* order, int32_t num_parts,
                    int64_t vertex_limit, int32_t* parts);
void partition_cuts(const Csr& csr, int64_t num_rows, const int32_t* parts, int32_t num_parts, int64_t* cut,
                    int64_t* ghosts);

}  // namespace dorylus
