// The bytes of a pickle, one after the other, from a source that gives them in blocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/input/byte_source.h"

namespace moonshard::viewer {

class PickleInput {
 public:
  PickleInput(ByteSource& source, std::string where, uint64_t max_bytes)
      : source_(source), where_(std::move(where)), max_bytes_(max_bytes) {
    const uint64_t hint = source.size_hint();
    buffer_.resize(hint == 0 ? kBufferBytes
                             : std::clamp<uint64_t>(hint, kSmallestBuffer, kBufferBytes));
  }

  /// Names the file and the byte.
  [[noreturn]] void refuse(std::string_view problem) const { throw error(problem); }

  /// The next bytes of the file, in one piece; valid until the next call.
  const char* bytes(size_t count) {
    if (end_ - at_ < count) fill(count);
    const char* start = buffer_.data() + at_;
    at_ += count;
    return start;
  }

  /// A little-endian number of up to eight bytes.
  uint64_t small(size_t count) {
    const char* from = bytes(count);
    uint64_t value = 0;
    for (size_t i = count; i-- > 0;) value = value << 8 | static_cast<uint8_t>(from[i]);
    return value;
  }

  /// Letters up to the end of the line.
  std::string_view line() {
    line_.clear();
    for (char letter = bytes(1)[0]; letter != '\n'; letter = bytes(1)[0]) {
      if (line_.size() >= 4096) refuse("a name that is too long");
      line_ += letter;
    }
    return line_;
  }

 private:
  static constexpr size_t kBufferBytes = 256 * 1024, kSmallestBuffer = 1024;

  IoError error(std::string_view problem) const {
    return IoError(
        fmt::format("{}: expected a pickle, got {} at byte {}; the file is damaged or foreign",
                    where_, problem, base_ + at_));
  }

  void fill(size_t count) {
    std::memmove(buffer_.data(), buffer_.data() + at_, end_ - at_);
    base_ += at_;
    end_ -= at_;
    at_ = 0;
    while (end_ < count) {
      // Grows as bytes come: a length that the file does not have costs nothing.
      if (end_ == buffer_.size())
        buffer_.resize(std::min(buffer_.size() * 2, count + kBufferBytes));
      const size_t got = source_.read(buffer_.data() + end_, buffer_.size() - end_);
      if (got == 0) refuse("the end of the file");
      end_ += got;
      if (base_ + end_ > max_bytes_) refuse(fmt::format("more than {} bytes", max_bytes_));
    }
  }

  ByteSource& source_;
  std::string where_;
  uint64_t max_bytes_;
  std::vector<char> buffer_;
  size_t at_ = 0, end_ = 0;
  uint64_t base_ = 0;
  std::string line_;
};

}  // namespace moonshard::viewer
