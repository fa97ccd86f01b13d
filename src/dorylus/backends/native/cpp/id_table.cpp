#include "id_table.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <string>

namespace dorylus {

namespace {

constexpr int64_t kGroup = 64;  // look-ups in flight: enough to hide the memory's latency
constexpr int64_t kHugePage = 2 << 20;

template <class T> Memory<T> allocate(int64_t count) {
  const int64_t bytes = count * int64_t(sizeof(T)), unit = bytes >= kHugePage ? kHugePage : 64;
  void* data = std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit);
  if (data == nullptr) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
  if (unit == kHugePage) madvise(data, bytes, MADV_HUGEPAGE);
#endif
  return {static_cast<T*>(data), std::free};
}

}  // namespace

template <class Key>
IdTable<Key>::IdTable(int64_t limit_bytes) : limit_bytes_(limit_bytes), slots_(nullptr, std::free) {
  grow(kFirst);
}

// Slots grow by half and are at most three fifths full.
template <class Key> int64_t IdTable<Key>::slots_for(int64_t num_ids) {
  int64_t slots = kFirst;
  while (most_ids(slots) < num_ids) slots += slots / 2;
  return slots;
}

template <class Key> int64_t IdTable<Key>::bytes_for(int64_t num_ids) {
  return slots_for(num_ids) * int64_t(sizeof(int32_t)) + (num_ids + kBlock - 1) / kBlock * kBlock * int64_t(sizeof(Key));
}

template <class Key> void IdTable<Key>::numbers(std::span<const Key> keys, int32_t* out, bool fixed) {
  int64_t slots[kGroup];
  if (slots_ == nullptr) grow(slots_for(count_));  // growing ran out of memory the last time
  for (size_t begin = 0; begin < keys.size(); begin += kGroup) {
    std::span<const Key> group = keys.subspan(begin, std::min<size_t>(kGroup, keys.size() - begin));
    if (!fixed) need_room(std::ssize(group));
    for (size_t i = 0; i < group.size(); ++i) {
      slots[i] = home(group[i]);
      __builtin_prefetch(&slots_[slots[i]]);
    }
    for (size_t i = 0; i < group.size(); ++i) {
      int32_t number = slots_[slots[i]];
      if (number != kEmpty) __builtin_prefetch(&id(number));
    }
    for (size_t i = 0; i < group.size(); ++i) out[begin + i] = find_or_add(group[i], slots[i], fixed);
  }
}

template <class Key> int32_t IdTable<Key>::find_or_add(const Key& key, int64_t slot, bool fixed) {
  for (;; slot = slot + 1 < num_slots_ ? slot + 1 : 0) {
    const int32_t number = slots_[slot];
    if (number == kEmpty) break;
    if (id(number) == key) return number;
  }
  if (fixed) return kEmpty;
  return slots_[slot] = append(key);
}

template <class Key> int32_t IdTable<Key>::append(const Key& key) {
  if (count_ == std::min<int64_t>(most_ids_, INT32_MAX)) throw TableFull(std::to_string(count_) + " ids");
  if (count_ == std::ssize(blocks_) * kBlock) {
    if (bytes_for(count_ + 1) > limit_bytes_) throw TableFull(std::to_string(count_) + " ids");
    blocks_.push_back(allocate<Key>(kBlock));
  }
  blocks_[size_t(count_) / kBlock][size_t(count_) % kBlock] = key;
  return int32_t(count_++);
}

// Grows before a group is looked up, whose slots must not move after. Without enough memory no error is raised here:
// the group may hold no new id, and `append` raises for one that is new.
template <class Key> void IdTable<Key>::need_room(int64_t num_more) {
  if (count_ + num_more <= most_ids_) return;
  const int64_t lists = std::ssize(blocks_) * kBlock * int64_t(sizeof(Key));
  const int64_t wanted = slots_for(count_ + num_more);
  if (wanted * int64_t(sizeof(int32_t)) + lists <= limit_bytes_) grow(wanted);
}

template <class Key> void IdTable<Key>::grow(int64_t num_slots) {
  slots_.reset();  // first: the old slots are not needed to make the new ones
  num_slots_ = most_ids_ = 0;
  slots_ = allocate<int32_t>(num_slots);
  std::fill_n(slots_.get(), num_slots, kEmpty);
  num_slots_ = num_slots, most_ids_ = most_ids(num_slots);
  int64_t homes[kGroup];
  for (int64_t begin = 0; begin < count_; begin += kGroup) {
    const int64_t size = std::min(kGroup, count_ - begin);
    for (int64_t i = 0; i < size; ++i) {
      homes[i] = home(id(int32_t(begin + i)));
      __builtin_prefetch(&slots_[homes[i]], 1);
    }
    for (int64_t i = 0; i < size; ++i) {
      int64_t slot = homes[i];
      while (slots_[slot] != kEmpty) slot = slot + 1 < num_slots_ ? slot + 1 : 0;
      slots_[slot] = int32_t(begin + i);
    }
  }
}

template <class Key> void IdTable<Key>::ids(int64_t first, std::span<Key> out) const {
  for (size_t i = 0; i < out.size(); ++i) out[i] = id(int32_t(first + int64_t(i)));
}

template class IdTable<int64_t>;
template class IdTable<NameKey>;

}  // namespace dorylus
