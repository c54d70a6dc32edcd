// SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104) of bytes that come in pieces. Processors with
// instructions for it are asked when the program runs: the same program goes without them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace moonshard {

/// Whether this processor has the instructions; without them hashing is several times slower.
bool has_sha256_instructions();

class Sha256 {
 public:
  using Digest = std::array<uint8_t, 32>;
  static constexpr size_t kBlockBytes = 64;
  /// Both give the same digests; the portable way can be asked for, to test it anywhere.
  enum class Way { Fastest, Portable };

  explicit Sha256(Way way = Way::Fastest);

  void add(const void* data, size_t bytes);
  void add(std::string_view text) { add(text.data(), text.size()); }
  /// How many were added.
  int64_t bytes() const { return static_cast<int64_t>(bytes_); }
  /// Of everything added so far; more may follow.
  Digest digest() const;
  /// The same as 64 lower-case hexadecimal digits.
  std::string hex() const;

 private:
  using Compress = void (*)(uint32_t* state, const uint8_t* data, size_t blocks);

  Compress compress_;
  std::array<uint32_t, 8> state_;
  std::array<uint8_t, kBlockBytes> tail_;  ///< the first bytes_ % 64 wait for the rest of a block
  uint64_t bytes_ = 0;
};

/// 64 hexadecimal digits. A key may have any length; one of less than 16 bytes protects little.
std::string hmac_sha256(std::string_view key, std::string_view text);

}  // namespace moonshard
