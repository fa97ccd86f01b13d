// Partitioning by streaming: each cluster of vertices in turn is placed by the parts of its in-neighbours. Memory
// beside the graph is O(vertices + parts). The choice of each function is defined in _reference_partition.py; sums are
// whole numbers, or doubles added in a fixed order, so results are bit-stable.
#pragma once

#include "buffer.h"

namespace dorylus {

// Vertices that are placed together: cluster c holds members[starts[c]] .. members[starts[c + 1] - 1]. Their in-edges
// are the rows of their numbers or, `in_order`, the rows of their positions. `first` is the number of the first cluster
// here.
struct Clusters {
  int64_t count, first;
  const int64_t* starts;
  const int32_t* members;
  bool in_order;
  int64_t row(int64_t m) const { return in_order ? m : members[m]; }
};

// The load of a cluster or of a part, or the limit of a part.
struct Work {
  int64_t vertices = 0, edges = 0;
};

// How clusters are placed: `steepness`: how often prices are squared; `strict`: no part exceeds its limit.
struct Placing {
  int32_t num_parts;
  Work total, limit;
  int steepness;
  bool strict;
};

// The load of each label; -1 is no label.
void partition_held(const int64_t* indptr, int64_t num_rows, const int32_t* labels, int64_t num_labels, Work* held);

// Both return how many clusters changed their label, and keep `held`. Labels lie below the number of vertices, parts
// below num_parts.
int64_t partition_merge(const Csr& csr, const Clusters& clusters, int64_t num_vertices, int32_t* labels, Work* held,
                        Work room, uint64_t seed);
int64_t partition_place(const Csr& csr, const Clusters& clusters, int32_t* parts, Work* held, const Placing& how);

void partition_deal(const int64_t* indptr, int64_t num_rows, const int32_t* order, int32_t num_parts,
                    int64_t vertex_limit, int32_t* parts);
// How many edges of some rows, numbered from first_row on, come from another part. In `readers`, a column gets the bit
// of every other part that has it in a row; in `targets`, which may be null, a row the bit of every other part it has a
// column of. Part first_part has bit 0; parts without a bit leave none.
int64_t partition_across(const Csr& csr, int64_t num_rows, int64_t first_row, const int32_t* parts, int64_t first_part,
                         int32_t* readers, int32_t* targets);

}  // namespace dorylus
