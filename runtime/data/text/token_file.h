// Tokens of documents in one file. Written once, under a temporary name and renamed when complete,
// never changed in place: readers of an older one keep theirs, two writers make the same bytes.
// Others may change it all the same: every block is checked against its checksum each time it is
// read, so that damage and overwriting are errors and never samples.
//
//   head      magic, version, bytes per token
//   tokens    of all documents, the separator between two (none after the last)
//   index     num_documents + 1 positions: where each document begins; the last is num_tokens + 1
//   counts    what was read and repaired, as JSON
//   checksums CRC32C of each kTokenBlockBytes of the above (the last block may be shorter)
//   tail      key, sizes, CRC32C of the checksums and of itself
// Each part is padded to 8 bytes. Numbers have the machine's byte order; the magic differs for the
// other order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/files.h"
#include "runtime/base/json.h"

namespace moonshard::data {

/// A 64-bit checksum of bytes, several gigabytes per second: it detects changed folders. It does
/// not protect against texts crafted to have equal checksums.
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

inline constexpr uint64_t kTokenMagic = 0x4E454B4F544D5301ull;
inline constexpr uint32_t kTokenVersion = 2;  ///< 1 had one checksum for all
/// A sample of any length reads and checks whole blocks.
inline constexpr uint64_t kTokenBlockBytes = 16 << 10;

struct TokenHead {
  uint64_t magic = kTokenMagic;
  uint32_t version = kTokenVersion;
  uint32_t token_bytes = 0;
};

struct TokenTail {
  uint64_t setting = 0, contents = 0;
  uint64_t num_tokens = 0, num_documents = 0, counts_bytes = 0;
  uint64_t magic = kTokenMagic;
  uint64_t checksum = 0;  ///< of the checksums and the fields before it
};

inline uint64_t padded_to_8(uint64_t bytes) {
  return (bytes + 7) / 8 * 8;
}
inline uint32_t token_bytes_for(int64_t vocab_size) {
  return vocab_size <= 65536 ? 2 : 4;
}

/// What a file was made of. `setting` is all but the files' state: a file with the same setting and
/// other `contents` is stale.
struct TokenKey {
  uint64_t setting = 0, contents = 0;
};

class TokenFile {
 public:
  /// The file when it is whole and of this key, else null and the reason.
  static std::shared_ptr<const TokenFile> open(const std::filesystem::path& path,
                                               const TokenKey& key, int64_t vocab_size,
                                               std::string& reason);
  /// The same of an open file; `name` is for errors.
  static std::shared_ptr<const TokenFile> read(Descriptor file, const std::filesystem::path& name,
                                               const TokenKey& key, int64_t vocab_size,
                                               std::string& reason);

  int64_t num_tokens() const { return num_tokens_; }
  int64_t num_documents() const { return num_documents_; }
  /// First token of each document, and how many it has. Throws IoError for a damaged file.
  void each_document(const std::function<void(int64_t begin, int64_t length)>& visit) const;
  /// Throws IoError, with file and block, for one that was cut or damaged since it was opened. From
  /// any thread.
  void copy(int64_t first, int64_t count, int64_t* to) const;
  const Json& counts() const { return counts_; }

 private:
  TokenFile(Descriptor file, std::filesystem::path name, int64_t vocab_size)
      : file_(std::move(file)), name_(std::move(name)), vocab_size_(vocab_size) {}
  /// Empty when all is well, else what is wrong.
  std::string take(uint64_t file_bytes, const TokenKey& key);
  void read_at(uint64_t position, std::span<std::byte> to) const;
  /// Of the part that the checksums cover.
  void read_checked(uint64_t position, std::span<std::byte> to) const;

  Descriptor file_;
  std::filesystem::path name_;
  int64_t vocab_size_;
  std::vector<uint32_t> checksums_;
  uint64_t index_at_ = 0, blocks_end_ = 0;  ///< positions in the file
  int token_bytes_ = 0;
  int64_t num_tokens_ = 0, num_documents_ = 0;
  Json counts_;
};

/// Takes the documents' tokens one after another while the file is written.
class TokenWriter {
 public:
  virtual ~TokenWriter() = default;
  virtual void begin_document() = 0;
  /// More tokens of the document.
  virtual void add(const std::vector<int32_t>& ids) = 0;
};

struct CacheRequest {
  std::filesystem::path data_folder;
  std::string place = "auto";  ///< auto | none | a folder
  TokenKey key;
  int64_t vocab_size = 0;
  int32_t separator = 0;
  /// Reads everything into the writer and returns the counts.
  std::function<Json(TokenWriter&)> fill;
};

/// All parts of the file, in large pieces.
using WriteBytes = std::function<void(const void*, int64_t)>;
void write_tokens(const CacheRequest& request, const WriteBytes& write);

struct CachedTokens {
  std::shared_ptr<const TokenFile> tokens;
  Json facts;  ///< used (found, not made now), file, reason (why it was made)
};

/// Opens the cache or makes it. "auto" is <data folder>/.moonshard; the user's cache folder where
/// that cannot be written; an unnamed temporary file where neither can.
CachedTokens open_or_make_tokens(const CacheRequest& request);

}  // namespace moonshard::data
