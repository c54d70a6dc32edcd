// Tokens of documents in one file that is memory-mapped. Written once, under a temporary name and
// renamed when complete, never changed in place: readers of an older one keep theirs, two writers
// make the same bytes. That is why it may be mapped, while untrusted files are read
// (base/read_file.h). It is trusted only after magic, sizes, key, checksum, index and the largest
// id are checked.
//
//   head      magic, version, bytes per token
//   tokens    of all documents, the separator between two (none after the last)
//   index     num_documents + 1 positions: where each document begins; the last is num_tokens + 1
//   counts    what was read and repaired, as JSON
//   tail      key, sizes, checksum
// Each part is padded to 8 bytes. Numbers have the machine's byte order; the magic differs for the
// other order.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "runtime/base/json.h"

namespace moonshard::data {

inline constexpr uint64_t kTokenMagic = 0x4E454B4F544D5301ull;
inline constexpr uint32_t kTokenVersion = 1;

struct TokenHead {
  uint64_t magic = kTokenMagic;
  uint32_t version = kTokenVersion;
  uint32_t token_bytes = 0;
};

struct TokenTail {
  uint64_t setting = 0, contents = 0;
  uint64_t num_tokens = 0, num_documents = 0, counts_bytes = 0;
  uint64_t magic = kTokenMagic;
  uint64_t checksum = 0;  ///< of all bytes before it
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
  /// The same of an open file, which stays open.
  static std::shared_ptr<const TokenFile> map(int file, const TokenKey& key, int64_t vocab_size,
                                              std::string& reason);
  ~TokenFile();
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;

  int64_t num_tokens() const { return num_tokens_; }
  int64_t num_documents() const { return num_documents_; }
  /// First token of a document, and how many it has.
  int64_t document_begin(int64_t document) const;
  int64_t document_length(int64_t document) const;
  void copy(int64_t first, int64_t count, int64_t* to) const;
  const Json& counts() const { return counts_; }

 private:
  TokenFile() = default;
  /// Empty when all is well, else what is wrong.
  std::string take(const TokenKey& key, int64_t vocab_size);

  void* map_ = nullptr;
  size_t map_bytes_ = 0;
  const void* tokens_ = nullptr;
  const uint64_t* index_ = nullptr;
  int token_bytes_ = 0;
  int64_t num_tokens_ = 0, num_documents_ = 0;
  Json counts_;
};

}  // namespace moonshard::data
