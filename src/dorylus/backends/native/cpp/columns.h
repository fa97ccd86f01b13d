// Divides a row of any width into blocks of vectors that fit the registers, without masks or padding.
#pragma once

#include "vec.h"

namespace dorylus::DORYLUS_ISA {

// N vectors of W columns from `start` on; vector i lies `at(i)` columns after the start. The last one may overlap the
// one before it, so that it ends where the row ends: its columns are then computed twice, from the same inputs, and
// stored twice with the same value.
template <int W, int N> struct Block {
  int64_t start, tail;
  DORYLUS_INLINE int64_t at(int i) const { return i == N - 1 ? tail : int64_t(i) * W; }
};

template <int W, int N, class Body>
DORYLUS_INLINE void with_count(int64_t count, int64_t start, int64_t tail, Body& body) {
  if constexpr (N > 1) {
    if (count < N) return with_count<W, N - 1>(count, start, tail, body);
  }
  body(Block<W, N>{start, tail});
}

// Vectors are shared out evenly among the passes: the last pass then has at least two where there are several passes,
// and an overlap never reaches into columns that an earlier pass has already stored.
template <int W, int Max, class Body> DORYLUS_INLINE void in_passes(int64_t width, Body& body) {
  int64_t vectors = (width + W - 1) / W, passes = (vectors + Max - 1) / Max;
  for (int64_t pass = 0; pass < passes; ++pass) {
    int64_t first = vectors * pass / passes, next = vectors * (pass + 1) / passes;
    with_count<W, Max>(next - first, first * W, least((next - 1) * W, width - W) - first * W, body);
  }
}

// Calls body(Block<W, N>) for blocks that together cover the columns 0 .. width - 1, N at most Max (and Max at least
// 3).
template <int Max, class Body> DORYLUS_INLINE void over_columns(int64_t width, Body body) {
  if (width >= kLanes) return in_passes<kLanes, Max>(width, body);
  if constexpr (kLanes > 8) {
    if (width >= 8) return in_passes<8, 2>(width, body);
  }
  if constexpr (kLanes > 4) {
    if (width >= 4) return in_passes<4, 2>(width, body);
  }
  in_passes<1, 3>(width, body);
}

constexpr int64_t kAllRows = INT64_MAX;
constexpr int64_t kFewRows = 16;

// Calls body(rows, block) for blocks of columns and at most `step` rows at a time, which all take one pass over the
// columns before the next ones.
template <int Max, class Body>
DORYLUS_INLINE void over_rows_and_columns(Range range, int64_t width, Body body, int64_t step = kFewRows) {
  if (width <= int64_t(Max) * kLanes || step > range.end - range.begin) step = range.end - range.begin;
  for (int64_t begin = range.begin; begin < range.end; begin += step) {
    Range rows{begin, least(begin + step, range.end)};
    over_columns<Max>(width, [&](auto block) { body(rows, block); });
  }
}

// Prefetches the cache lines of one block, which starts at `from`.
template <class In, int W, int N> DORYLUS_INLINE void prefetch(const In* from, Block<W, N> block) {
  constexpr int kStep = 64 / (W * int(sizeof(In))) > 1 ? 64 / (W * int(sizeof(In))) : 1;
  for (int i = 0; i < N; i += kStep) __builtin_prefetch(from + i * W);
  __builtin_prefetch(from + block.tail + W - 1);  // a row that is not aligned to lines ends in one more
}

}  // namespace dorylus::DORYLUS_ISA
