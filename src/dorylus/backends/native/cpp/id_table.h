// Numbers for ids in the order they first appear: an open-addressing table of 4-byte slots over the list of ids.
//
// A slot holds the number of an id, the list holds the id: when it grows, the table is freed and rebuilt from the list,
// so that the old and the new one never coexist.
#pragma once

#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

#include "types.h"

namespace dorylus {

// 128 bits that stand for a name.
struct NameKey {
  uint64_t low, high;
  bool operator==(const NameKey&) const = default;
};

// Memory on huge pages where it is large: look-ups are scattered, and would miss the TLB on small ones.
template <class T> using Memory = std::unique_ptr<T[], void (*)(void*)>;

// The next id would need more memory than the table may use, or a number beyond int32.
struct TableFull : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline uint64_t spread(int64_t id) {
  uint64_t x = uint64_t(id);
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdULL;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33);
}
inline uint64_t spread(const NameKey& key) { return key.low; }

template <class Key> class IdTable {
 public:
  explicit IdTable(int64_t limit_bytes);

  int64_t size() const { return count_; }
  int64_t bytes() const { return bytes_for(count_); }
  // The bytes of a table of this many ids.
  static int64_t bytes_for(int64_t num_ids);

  // The numbers of keys, new ones numbered as they come (-1 where `fixed`); raises TableFull before it would grow too far.
  void numbers(std::span<const Key> keys, int32_t* out, bool fixed);
  // Copies ids first .. first + out.size() - 1.
  void ids(int64_t first, std::span<Key> out) const;

 private:
  // Ids; the list grows by blocks so that it is never copied, and a block is whole huge pages.
  static constexpr int64_t kBlock = 1 << 18;
  static constexpr int64_t kFirst = 1 << 10;  // slots
  static constexpr int32_t kEmpty = -1;

  static int64_t slots_for(int64_t num_ids);
  static int64_t most_ids(int64_t num_slots) { return num_slots / 5 * 3; }
  const Key& id(int32_t number) const { return blocks_[size_t(number) / kBlock][size_t(number) % kBlock]; }
  int64_t home(const Key& key) const {
    return int64_t((static_cast<unsigned __int128>(spread(key)) * uint64_t(num_slots_)) >> 64);
  }
  int32_t find_or_add(const Key& key, int64_t slot, bool fixed);
  int32_t append(const Key& key);
  void need_room(int64_t num_more);
  void grow(int64_t num_slots);

  int64_t limit_bytes_, count_ = 0, num_slots_ = 0, most_ids_ = 0;
  Memory<int32_t> slots_;
  std::vector<Memory<Key>> blocks_;
};

}  // namespace dorylus
