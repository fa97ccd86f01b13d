// The records: edges as 64-bit keys, row above column, with or without a weight; and their sort in memory.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

namespace dorylus {

struct Edge {
  static constexpr bool kWeighted = false;
  uint64_t key;
};

#pragma pack(push, 4)
struct WeightedEdge {
  static constexpr bool kWeighted = true;
  uint64_t key;
  float weight;
};
#pragma pack(pop)
static_assert(sizeof(Edge) == 8 && sizeof(WeightedEdge) == 12);

inline uint64_t key_of(int32_t row, int32_t column) { return uint64_t(uint32_t(row)) << 32 | uint32_t(column); }

// One edge with two weights.
struct WeightClash : std::exception {
  WeightClash(uint64_t key, float first, float second)
      : row(int32_t(key >> 32)), column(int32_t(key & 0xffffffff)), first(first), second(second) {}
  const char* what() const noexcept override { return "an edge has two weights"; }
  int32_t row, column;
  float first, second;
};

// Whether `next` repeats `last`; refuses another weight.
template <class Record> bool repeats(const Record& last, const Record& next) {
  if (last.key != next.key) return false;
  if constexpr (Record::kWeighted)
    if (last.weight != next.weight) throw WeightClash(last.key, last.weight, next.weight);
  return true;
}

// Keeps the first of equal records that follow each other; how many are left.
template <class Record> int64_t drop_repeats(Record* records, int64_t count) {
  if (count == 0) return 0;
  int64_t kept = 1;
  for (int64_t i = 1; i < count; ++i)
    if (!repeats(records[kept - 1], records[i])) records[kept++] = records[i];
  return kept;
}

struct Digit {
  int shift, bits;
};

// The digits of the radix sort for keys whose rows and columns use the bits set in `used`: as few and narrow as
// possible.
inline std::vector<Digit> digits_of(uint64_t used) {
  constexpr int kWidest = 11;  // 2,048 write positions: about as many as caches and TLB hold
  std::vector<Digit> digits;
  for (int base : {0, 32}) {
    int bits = std::bit_width(used >> base & 0xffffffff), passes = (bits + kWidest - 1) / kWidest;
    for (int pass = 0; pass < passes; ++pass) {
      int begin = bits * pass / passes, end = bits * (pass + 1) / passes;
      digits.push_back({base + begin, end - begin});
    }
  }
  return digits;
}

// Moves records from one array to another in order of one digit, keeping the order of equal ones.
template <class Record> void move_by_digit(const Record* from, Record* to, int64_t count, Digit digit) {
  std::vector<int64_t> starts((size_t(1) << digit.bits) + 1);
  const uint64_t mask = (uint64_t(1) << digit.bits) - 1;
  for (int64_t i = 0; i < count; ++i) ++starts[(from[i].key >> digit.shift & mask) + 1];
  for (size_t d = 1; d < starts.size(); ++d) starts[d] += starts[d - 1];
  for (int64_t i = 0; i < count; ++i) to[starts[from[i].key >> digit.shift & mask]++] = from[i];
}

// Sorts by key, stably; which of the two arrays holds the result.
template <class Record> Record* radix_sort(Record* records, Record* spare, int64_t count, uint64_t used) {
  for (Digit digit : digits_of(used)) {
    move_by_digit(records, spare, count, digit);
    std::swap(records, spare);
  }
  return records;
}

}  // namespace dorylus
