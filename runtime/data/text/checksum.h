// A 64-bit checksum of bytes, several gigabytes per second: it detects damaged files and changed
// folders. It does not protect against files crafted to have equal checksums.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace moonshard::data {

class Checksum {
 public:
  /// How bytes are divided between calls does not matter.
  void add(const void* data, size_t bytes) {
    const auto* from = static_cast<const unsigned char*>(data);
    total_ += bytes;
    while (bytes > 0) {
      if (held_ == 0 && bytes >= sizeof(block_)) {
        // Locals, as stores through `from`'s type might alias the fields.
        uint64_t lanes[4] = {lanes_[0], lanes_[1], lanes_[2], lanes_[3]};
        for (; bytes >= sizeof(block_); bytes -= sizeof(block_), from += sizeof(block_))
          mix_block(lanes, from);
        std::memcpy(lanes_, lanes, sizeof(lanes_));
        continue;
      }
      const size_t room = sizeof(block_) - held_;
      const size_t part = bytes < room ? bytes : room;
      std::memcpy(block_ + held_, from, part);
      held_ += part, from += part, bytes -= part;
      if (held_ == sizeof(block_)) {
        mix_block(lanes_, block_);
        held_ = 0;
      }
    }
  }
  void add(std::string_view text) { add(text.data(), text.size()); }
  /// A text with its length, so that "ab" + "c" and "a" + "bc" differ.
  void add_field(std::string_view text) {
    add_number(text.size());
    add(text);
  }
  void add_number(uint64_t number) { add(&number, sizeof(number)); }

  uint64_t value() const {
    uint64_t lanes[4] = {lanes_[0], lanes_[1], lanes_[2], lanes_[3]};
    unsigned char last[sizeof(block_)] = {};
    std::memcpy(last, block_, held_);
    mix_block(lanes, last);
    uint64_t result = total_;
    for (const uint64_t lane : lanes) result = finish(result ^ lane);
    return result;
  }

 private:
  static uint64_t finish(uint64_t x) {
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ x >> 27) * 0x94D049BB133111EBull;
    return x ^ x >> 31;
  }
  static void mix_block(uint64_t* lanes, const unsigned char* from) {
    for (int i = 0; i < 4; ++i) {
      uint64_t word = 0;
      std::memcpy(&word, from + 8 * i, 8);
      const uint64_t mixed = (lanes[i] ^ word) * 0x9E3779B97F4A7C15ull;
      lanes[i] = mixed ^ mixed >> 29;
    }
  }

  uint64_t lanes_[4] = {1, 2, 3, 4};
  unsigned char block_[32] = {};
  size_t held_ = 0;
  uint64_t total_ = 0;
};

}  // namespace moonshard::data
