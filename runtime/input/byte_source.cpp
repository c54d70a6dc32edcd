#include "runtime/input/byte_source.h"

#include <algorithm>
#include <cstring>
#include <future>
#include <vector>

#ifdef MOONSHARD_HAS_ZLIB
#include <zlib.h>
#endif

#include "runtime/base/check.h"

namespace moonshard {

size_t MemorySource::read(char* to, size_t capacity) {
  const size_t count = std::min(capacity, bytes_.size());
  if (count > 0) std::memcpy(to, bytes_.data(), count);
  bytes_.remove_prefix(count);
  return count;
}

size_t FileSource::read(char* to, size_t capacity) {
  if (stop_ != nullptr && stop_->load(std::memory_order_relaxed)) throw Cancelled();
  const size_t count = file_.read(to, capacity);
  taken_.fetch_add(count, std::memory_order_relaxed);
  return count;
}

#ifdef MOONSHARD_HAS_ZLIB
namespace {

class InflatedSource final : public ByteSource {
 public:
  InflatedSource(std::unique_ptr<ByteSource> compressed, std::string where)
      : compressed_(std::move(compressed)), where_(std::move(where)) {
    const uint64_t hint = compressed_->size_hint();
    input_.resize(hint == 0 ? kInputBytes : std::min<uint64_t>(hint, kInputBytes));
    // 15 bits of window; 32 more: zlib or gzip, by the header.
    if (inflateInit2(&state_, 15 + 32) != Z_OK) refuse("zlib cannot start");
  }
  ~InflatedSource() override { inflateEnd(&state_); }
  InflatedSource(const InflatedSource&) = delete;
  InflatedSource& operator=(const InflatedSource&) = delete;

  // JSON shrinks to a tenth or so.
  uint64_t size_hint() const override { return compressed_->size_hint() * 10; }

  size_t read(char* to, size_t capacity) override {
    const auto room = static_cast<uInt>(std::min<size_t>(capacity, 1u << 30));
    state_.next_out = reinterpret_cast<Bytef*>(to);
    state_.avail_out = room;
    while (state_.avail_out == room && !at_end_) {
      if (state_.avail_in == 0 && !take_input()) {
        at_end_ = true;
        if (in_member_) damage_ = "it ends in the middle";
      } else {
        step();
      }
    }
    // What was inflated before the damage is handed out first.
    if (state_.avail_out == room && !damage_.empty()) refuse(damage_);
    return room - state_.avail_out;
  }

 private:
  static constexpr size_t kInputBytes = 128 * 1024;

  bool take_input() {
    const size_t count = compressed_->read(input_.data(), input_.size());
    state_.next_in = reinterpret_cast<Bytef*>(input_.data());
    state_.avail_in = static_cast<uInt>(count);
    return count > 0;
  }

  void step() {
    in_member_ = true;
    const int answer = inflate(&state_, Z_NO_FLUSH);
    if (answer == Z_STREAM_END) {  // another member may follow
      in_member_ = false;
      members_ += 1;
      inflateReset(&state_);
    } else if (answer != Z_OK && answer != Z_BUF_ERROR) {
      at_end_ = true;
      // Rests after a whole member (padding to a block size) are no damage.
      const bool padding = members_ > 0 && state_.total_out == 0;
      if (!padding) damage_ = state_.msg != nullptr ? state_.msg : "it is damaged";
    }
  }

  [[noreturn]] void refuse(const std::string& reason) const {
    throw IoError(fmt::format("{}: expected gzip data, got a damaged file ({})", where_, reason));
  }

  std::unique_ptr<ByteSource> compressed_;
  std::string where_;
  std::vector<char> input_;
  z_stream state_ = {};
  std::string damage_;
  bool in_member_ = false, at_end_ = false;
  uint64_t members_ = 0;
};

}  // namespace

std::unique_ptr<ByteSource> inflated(std::unique_ptr<ByteSource> compressed,
                                     const std::string& where) {
  return std::make_unique<InflatedSource>(std::move(compressed), where);
}
#else
std::unique_ptr<ByteSource> inflated(std::unique_ptr<ByteSource>, const std::string& where) {
  throw IoError(fmt::format(
      "{}: expected plain text, got a compressed file, and this program was built without zlib; "
      "unpack it with gunzip",
      where));
}
#endif

namespace {

class ReadAheadSource final : public ByteSource {
 public:
  explicit ReadAheadSource(std::unique_ptr<ByteSource> source)
      : source_(std::move(source)), hint_(source_->size_hint()) {
    begin_next();
  }

  uint64_t size_hint() const override { return hint_; }

  size_t read(char* to, size_t capacity) override {
    if (rest_.empty() && next_.valid()) {
      block_ = next_.get();
      rest_ = block_;
      if (!rest_.empty()) begin_next();
    }
    const size_t count = rest_.copy(to, capacity);
    rest_.remove_prefix(count);
    return count;
  }

 private:
  static constexpr size_t kBlockBytes = 1 << 20;

  void begin_next() {
    next_ = std::async(std::launch::async, [this] {
      std::string block(kBlockBytes, '\0');
      block.resize(source_->read(block.data(), block.size()));
      return block;
    });
  }

  std::unique_ptr<ByteSource> source_;
  uint64_t hint_;
  std::string block_;
  std::string_view rest_;          // of block_
  std::future<std::string> next_;  // last: it ends before what it uses
};

}  // namespace

std::unique_ptr<ByteSource> read_ahead(std::unique_ptr<ByteSource> source) {
  return std::make_unique<ReadAheadSource>(std::move(source));
}

OpenText open_text(OpenFile file, const ReadControl& control) {
  constexpr uint64_t kWorthAThread = 1 << 20, kCompressedWorthAThread = 1 << 16;  // bytes of a file
  OpenText text;
  const std::string where = file.name();
  text.size = file.size();
  char head[2] = {};
  const bool compressed =
      file.read(head, 2) == 2 && head[0] == '\x1f' && static_cast<uint8_t>(head[1]) == 0x8b;
  file.seek(0);
  auto source = std::make_unique<FileSource>(std::move(file), control);
  text.file = source.get();
  text.source = std::move(source);
  if (compressed) text.source = inflated(std::move(text.source), where);
  if (text.size > (compressed ? kCompressedWorthAThread : kWorthAThread))
    text.source = read_ahead(std::move(text.source));
  return text;
}

}  // namespace moonshard
