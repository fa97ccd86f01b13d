#include "crc32.h"

#include <array>
#include <cstring>

#include "dispatch.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

namespace dorylus {

namespace {

constexpr uint32_t kPolynomial = 0xEDB88320;

using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables t{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ (value & 1 ? kPolynomial : 0);
    t[0][byte] = value;
  }
  for (size_t k = 1; k < 8; ++k)
    for (size_t byte = 0; byte < 256; ++byte) t[k][byte] = (t[k - 1][byte] >> 8) ^ t[0][t[k - 1][byte] & 255];
  return t;
}

constexpr Tables kTables = make_tables();

// On the inverted checksum, as all functions below: eight bytes a step by tables, on any processor.
uint32_t by_tables(const uint8_t* data, size_t size, uint32_t crc) {
  for (; size >= 8; data += 8, size -= 8) {
    uint32_t low, high;
    std::memcpy(&low, data, 4);
    std::memcpy(&high, data + 4, 4);
    if constexpr (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__) {
      low = __builtin_bswap32(low);
      high = __builtin_bswap32(high);
    }
    low ^= crc;
    crc = kTables[7][low & 255] ^ kTables[6][(low >> 8) & 255] ^ kTables[5][(low >> 16) & 255] ^ kTables[4][low >> 24] ^
          kTables[3][high & 255] ^ kTables[2][(high >> 8) & 255] ^ kTables[1][(high >> 16) & 255] ^
          kTables[0][high >> 24];
  }
  for (; size > 0; ++data, --size) crc = (crc >> 8) ^ kTables[0][(crc ^ *data) & 255];
  return crc;
}

#if defined(__x86_64__)

// Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009: four registers
// of 16 bytes are folded over 64 at a time, then into one, and that is reduced (Barrett). Takes at least 64 bytes.
__attribute__((target("pclmul,sse4.1"))) uint32_t by_products(const uint8_t* data, size_t size, uint32_t crc) {
  const __m128i over_64 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
  const __m128i over_16 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
  auto load = [](const uint8_t* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); };
#define DORYLUS_FOLD(x, k, next) \
  _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x00), _mm_clmulepi64_si128(x, k, 0x11)), next)
  __m128i a = _mm_xor_si128(load(data), _mm_cvtsi32_si128(int(crc)));
  __m128i b = load(data + 16), c = load(data + 32), d = load(data + 48);
  for (data += 64, size -= 64; size >= 64; data += 64, size -= 64) {
    a = DORYLUS_FOLD(a, over_64, load(data));
    b = DORYLUS_FOLD(b, over_64, load(data + 16));
    c = DORYLUS_FOLD(c, over_64, load(data + 32));
    d = DORYLUS_FOLD(d, over_64, load(data + 48));
  }
  a = DORYLUS_FOLD(a, over_16, b);
  a = DORYLUS_FOLD(a, over_16, c);
  a = DORYLUS_FOLD(a, over_16, d);
  for (; size >= 16; data += 16, size -= 16) a = DORYLUS_FOLD(a, over_16, load(data));
#undef DORYLUS_FOLD
  const __m128i low_half = _mm_setr_epi32(-1, 0, -1, 0);
  a = _mm_xor_si128(_mm_srli_si128(a, 8), _mm_clmulepi64_si128(a, over_16, 0x10));  // 128 bits to 96
  const __m128i to_64 = _mm_set_epi64x(0, 0x0163cd6124);
  a = _mm_xor_si128(_mm_srli_si128(a, 4), _mm_clmulepi64_si128(_mm_and_si128(a, low_half), to_64, 0x00));
  const __m128i barrett = _mm_set_epi64x(0x01f7011641, 0x01db710641);
  __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(a, low_half), barrett, 0x10);
  quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, low_half), barrett, 0x00);
  return by_tables(data, size, uint32_t(_mm_extract_epi32(_mm_xor_si128(a, quotient), 1)));
}

uint32_t best(const uint8_t* data, size_t size, uint32_t crc) {
  static const bool has_products = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
  bool wanted = &chosen() != &baseline::table;  // tests ask for the baseline, to see that both are the same
  return has_products && wanted && size >= 64 ? by_products(data, size, crc) : by_tables(data, size, crc);
}

#elif defined(__aarch64__) && defined(__linux__)

#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1 << 7)
#endif

__attribute__((target("+crc"))) uint32_t by_instruction(const uint8_t* data, size_t size, uint32_t crc) {
  for (; size >= 8; data += 8, size -= 8) {
    uint64_t word;
    std::memcpy(&word, data, 8);
    crc = __crc32d(crc, word);
  }
  for (; size > 0; ++data, --size) crc = __crc32b(crc, *data);
  return crc;
}

uint32_t best(const uint8_t* data, size_t size, uint32_t crc) {
  static const bool has_instruction = (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
  return has_instruction ? by_instruction(data, size, crc) : by_tables(data, size, crc);
}

#else

uint32_t best(const uint8_t* data, size_t size, uint32_t crc) { return by_tables(data, size, crc); }

#endif

}  // namespace

uint32_t crc32(const uint8_t* data, size_t size, uint32_t before) { return ~best(data, size, ~before); }

}  // namespace dorylus
