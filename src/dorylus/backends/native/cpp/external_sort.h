// Sorting more edges than memory holds: sorted runs are spooled to a scratch file and merged.
//
// A run is as many edges as a third of the memory takes: one third is filled while the second is sorted into the last and
// written by a separate thread. Runs and merging do not depend on how edges are distributed over rows.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "buffer.h"
#include "external_sort_records.h"

namespace dorylus {

struct SortOptions {
  int64_t memory_bytes;
  bool weighted, undirected, drop_self_loops, coalesce;
};

// Edges as they are added; weights may be null.
struct EdgeColumns {
  const int32_t *rows, *columns;
  const float* weights;
  int64_t count;
};

// Sorted edges, handed to Python.
struct SortedBlock {
  Fresh<int32_t> rows, columns;
  std::optional<Fresh<float>> weights;
};

// Returns blocks in ascending order of (row, column), which a separate thread prepares.
class SortedEdges {
 public:
  virtual ~SortedEdges() = default;
  virtual std::optional<SortedBlock> next() = 0;  // none at the end
};

class EdgeSort {
 public:
  static std::unique_ptr<EdgeSort> make(int descriptor, const SortOptions& options);
  virtual ~EdgeSort() = default;
  virtual void add(const EdgeColumns& edges) = 0;
  // Ends adding. Reading takes `memory_bytes`, blocks of `block_edges` edges beside.
  virtual std::unique_ptr<SortedEdges> sorted(int64_t memory_bytes, int64_t block_edges) = 0;
  virtual int64_t spooled_bytes() = 0;  // waits for the run that is being written
};

}  // namespace dorylus
