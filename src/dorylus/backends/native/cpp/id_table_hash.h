// SipHash-2-4 with 128 bits: without the key, names that collide cannot be constructed.
#pragma once

#include <bit>
#include <string_view>

#include "id_table.h"

namespace dorylus {

class NameHash {
 public:
  NameHash(uint64_t key_low, uint64_t key_high) : low_(key_low), high_(key_high) {}

  NameKey operator()(std::string_view name) const {
    State s{low_ ^ 0x736f6d6570736575ULL, high_ ^ 0x646f72616e646f6dULL ^ 0xee, low_ ^ 0x6c7967656e657261ULL,
            high_ ^ 0x7465646279746573ULL};
    const char* at = name.data();
    size_t left = name.size();
    for (; left >= 8; at += 8, left -= 8) s.take(word(at, 8));
    s.take(word(at, left) | uint64_t(name.size()) << 56);
    s.v2 ^= 0xee;
    s.rounds(4);
    const uint64_t low = s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
    s.v1 ^= 0xdd;
    s.rounds(4);
    return {low, s.v0 ^ s.v1 ^ s.v2 ^ s.v3};
  }

 private:
  struct State {
    uint64_t v0, v1, v2, v3;

    void take(uint64_t word) {
      v3 ^= word;
      rounds(2);
      v0 ^= word;
    }
    void rounds(int count) {
      for (; count > 0; --count) {
        v0 += v1, v1 = std::rotl(v1, 13) ^ v0, v0 = std::rotl(v0, 32);
        v2 += v3, v3 = std::rotl(v3, 16) ^ v2;
        v0 += v3, v3 = std::rotl(v3, 21) ^ v0;
        v2 += v1, v1 = std::rotl(v1, 17) ^ v2, v2 = std::rotl(v2, 32);
      }
    }
  };

  static uint64_t word(const char* at, size_t count) {
    uint64_t value = 0;
    std::memcpy(&value, at, count);  // little-endian, as every machine we run on
    return value;
  }

  uint64_t low_, high_;
};

}  // namespace dorylus
