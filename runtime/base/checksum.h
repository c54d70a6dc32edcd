// CRC32C (RFC 3720, Castagnoli's polynomial): finds damage, not intent; whoever may write a file
// can write a fitting checksum too (sha256.h is for that). Processors with instructions for it are
// asked when the program runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace moonshard {

/// Of bytes that come in pieces: the result for the earlier ones is the seed for the next.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t seed = 0);

/// The same by tables, to test them anywhere.
uint32_t crc32c_portable(std::span<const std::byte> bytes, uint32_t seed = 0);

/// Whether this processor has the instructions; without them a checksum is some ten times slower.
bool has_crc32c_instructions();

}  // namespace moonshard
