// The few plain types every kernel takes. No function here may be left out of line: the same header is compiled for
// several instruction sets, and the linker would keep only one of the copies.
#pragma once

#include <cstdint>

#define DORYLUS_INLINE [[gnu::always_inline]] inline

namespace dorylus {

// The rows of a matrix: contiguous in a row, `stride` elements from one row to the next.
template <class T> struct Rows {
  T* data = nullptr;
  int64_t stride = 0;
  DORYLUS_INLINE T* operator[](int64_t row) const { return data + row * stride; }
  DORYLUS_INLINE Rows from(int64_t column) const { return {data + column, stride}; }
  DORYLUS_INLINE operator Rows<const T>() const { return {data, stride}; }
};

// Rows [begin, end).
struct Range {
  int64_t begin, end;
};

// Row r holds the edges indptr[r] .. indptr[r + 1] - 1.
struct Csr {
  const int64_t* indptr;
  const int32_t* indices;
};

// The random stream of one dropout: see philox.inc for how its counters are made.
struct DropStream {
  uint32_t threshold;  // a word below it drops
  float scale;         // 1 / (1 - p)
  uint64_t seed;
  uint32_t epoch;
  uint32_t layer;
};

}  // namespace dorylus
