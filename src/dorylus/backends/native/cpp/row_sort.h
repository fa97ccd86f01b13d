// Sorts the columns of one row, each with its value; stable.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

namespace dorylus {

// Columns become bits of a set that is read in order: a few instructions an edge, without branches on comparisons.
class RowSort {
 public:
  RowSort(int64_t num_columns, bool weighted) : num_columns_(num_columns), weighted_(weighted) {}

  void operator()(int32_t* columns, float* values, int64_t count) {
    if (count < num_columns_ / kColumnsPerEdge || !by_set(columns, values, count)) by_comparing(columns, values, count);
  }

 private:
  static constexpr int64_t kColumnsPerEdge = 1 << 18;  // with fewer edges most words would be empty

  // False, with the row unchanged, if a column occurs twice: a set cannot hold it.
  bool by_set(int32_t* columns, float* values, int64_t count) {
    if (bits_.empty()) make_room();
    for (int64_t e = 0; e < count; ++e) {
      if (!insert(columns[e])) {
        while (e-- > 0) forget(columns[e]);
        return false;
      }
      if (weighted_) value_of_[columns[e]] = values[e];
    }
    empty_into(columns);
    for (int64_t e = 0; weighted_ && e < count; ++e) values[e] = value_of_[columns[e]];
    return true;
  }

  bool insert(int64_t c) {
    uint64_t bit = uint64_t(1) << (c & 63);
    if (bits_[c >> 6] & bit) return false;
    bits_[c >> 6] |= bit;
    middle_[c >> 12] |= uint64_t(1) << (c >> 6 & 63);
    top_[c >> 18] |= uint64_t(1) << (c >> 12 & 63);
    return true;
  }

  void forget(int64_t c) { bits_[c >> 6] = middle_[c >> 12] = top_[c >> 18] = 0; }

  void empty_into(int32_t* columns) {
    for (size_t t = 0; t < top_.size(); ++t)
      for (uint64_t high = std::exchange(top_[t], 0); high != 0; high &= high - 1) {
        int64_t m = int64_t(t) << 6 | std::countr_zero(high);
        for (uint64_t mid = std::exchange(middle_[m], 0); mid != 0; mid &= mid - 1) {
          int64_t b = m << 6 | std::countr_zero(mid);
          for (uint64_t low = std::exchange(bits_[b], 0); low != 0; low &= low - 1)
            *columns++ = int32_t(b << 6 | std::countr_zero(low));
        }
      }
  }

  void by_comparing(int32_t* columns, float* values, int64_t count) {
    if (!weighted_) return std::sort(columns, columns + count);
    keys_.resize(count);
    row_values_.assign(values, values + count);
    for (int64_t e = 0; e < count; ++e) keys_[e] = uint64_t(columns[e]) << 32 | uint64_t(e);
    std::sort(keys_.begin(), keys_.end());
    for (int64_t e = 0; e < count; ++e) {
      columns[e] = int32_t(keys_[e] >> 32);
      values[e] = row_values_[keys_[e] & 0xffffffff];
    }
  }

  void make_room() {
    auto words = [](int64_t count) { return count / 64 + 1; };
    bits_.resize(words(num_columns_));
    middle_.resize(words(bits_.size()));
    top_.resize(words(middle_.size()));
    if (weighted_) value_of_.resize(num_columns_);
  }

  int64_t num_columns_;
  bool weighted_;
  std::vector<uint64_t> bits_, middle_, top_;  // one bit a column; a bit for every word of the one before
  std::vector<float> value_of_;
  std::vector<uint64_t> keys_;
  std::vector<float> row_values_;
};

}  // namespace dorylus
