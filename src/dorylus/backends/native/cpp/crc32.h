// CRC-32 as zlib has it (polynomial 0xEDB88320, reflected), by carry-less products or the CRC instruction.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dorylus {

// The checksum of some bytes, continued from that of the bytes before them (0 at the beginning).
uint32_t crc32(const uint8_t* data, size_t size, uint32_t before);

}  // namespace dorylus
