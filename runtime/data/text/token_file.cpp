// TokenFile: what a token cache's file looks like, and the checks before anything of it is used.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "runtime/base/check.h"
#include "runtime/data/text/checksum.h"
#include "runtime/data/text/token_file.h"

namespace moonshard::data {
namespace {

template <class Token>
int64_t largest_of(const void* tokens, uint64_t count) {
  const auto* first = static_cast<const Token*>(tokens);
  const Token* largest = std::max_element(first, first + count);
  return count == 0 ? 0 : static_cast<int64_t>(*largest);
}

template <class Token>
void widen(const void* tokens, int64_t first, int64_t count, int64_t* to) {
  const Token* from = static_cast<const Token*>(tokens) + first;
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<int64_t>(from[i]);
}

}  // namespace

std::shared_ptr<const TokenFile> TokenFile::open(const std::filesystem::path& path,
                                                 const TokenKey& key, int64_t vocab_size,
                                                 std::string& reason) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  if (file < 0) {
    reason = errno == ENOENT ? "there was none" : std::strerror(errno);
    return nullptr;
  }
  auto result = map(file, key, vocab_size, reason);
  ::close(file);
  return result;
}

std::shared_ptr<const TokenFile> TokenFile::map(int file, const TokenKey& key, int64_t vocab_size,
                                                std::string& reason) {
  struct stat status {};
  if (::fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
    reason = "it was no file";
    return nullptr;
  }
  const auto bytes = static_cast<uint64_t>(status.st_size);
  if (bytes < sizeof(TokenHead) + sizeof(TokenTail)) {
    reason = "it was cut off";
    return nullptr;
  }
  std::shared_ptr<TokenFile> result(new TokenFile);
  void* address = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0);
  if (address == MAP_FAILED) {
    reason = std::strerror(errno);
    return nullptr;
  }
  result->map_ = address;
  result->map_bytes_ = bytes;
  reason = result->take(key, vocab_size);
  return reason.empty() ? result : nullptr;
}

std::string TokenFile::take(const TokenKey& key, int64_t vocab_size) {
  const auto* first = static_cast<const unsigned char*>(map_);
  TokenHead head;
  TokenTail tail;
  std::memcpy(&head, first, sizeof(head));
  std::memcpy(&tail, first + map_bytes_ - sizeof(tail), sizeof(tail));
  if (head.magic != kTokenMagic || head.version != kTokenVersion)
    return "it was of another kind or version";
  if (tail.magic != kTokenMagic) return "it was cut off";
  if (tail.setting != key.setting || tail.contents != key.contents)
    return "the files or the settings have changed";
  if (head.token_bytes != token_bytes_for(vocab_size)) return "it was of another vocabulary";
  const uint64_t body = map_bytes_ - sizeof(head) - sizeof(tail);
  // Each alone below the body before they are multiplied: nothing can overflow.
  const bool sane = tail.num_tokens <= body && tail.num_documents < body &&
                    tail.num_documents > 0 && tail.counts_bytes <= body;
  const uint64_t token_bytes = sane ? padded_to_8(tail.num_tokens * head.token_bytes) : 0;
  const uint64_t index_bytes = sane ? (tail.num_documents + 1) * sizeof(uint64_t) : 0;
  if (!sane || token_bytes + index_bytes + padded_to_8(tail.counts_bytes) != body)
    return "its sizes did not agree";
  Checksum checksum;
  checksum.add(first, map_bytes_ - sizeof(uint64_t));  // the tail's last field is the checksum
  if (checksum.value() != tail.checksum) return "its checksum did not agree";
  tokens_ = first + sizeof(head);
  index_ = reinterpret_cast<const uint64_t*>(first + sizeof(head) + token_bytes);
  token_bytes_ = static_cast<int>(head.token_bytes);
  num_tokens_ = static_cast<int64_t>(tail.num_tokens);
  num_documents_ = static_cast<int64_t>(tail.num_documents);
  // The file may be crafted, with a valid checksum.
  bool grows = index_[0] == 0 && index_[num_documents_] == tail.num_tokens + 1;
  for (int64_t i = 0; i < num_documents_; ++i) grows = grows && index_[i] < index_[i + 1];
  if (!grows) return "its index did not grow";
  const int64_t largest = token_bytes_ == 2 ? largest_of<uint16_t>(tokens_, tail.num_tokens)
                                            : largest_of<uint32_t>(tokens_, tail.num_tokens);
  if (largest >= vocab_size) return "it had ids beyond the vocabulary";
  const auto* counts = reinterpret_cast<const char*>(index_ + num_documents_ + 1);
  try {
    counts_ = parse_json({counts, tail.counts_bytes}, "counts");
  } catch (const IoError& error) {
    return error.what();
  }
  return counts_.is_object() ? "" : "its counts were no object";
}

TokenFile::~TokenFile() {
  if (map_ != nullptr) ::munmap(map_, map_bytes_);
}

int64_t TokenFile::document_begin(int64_t document) const {
  return static_cast<int64_t>(index_[document]);
}

int64_t TokenFile::document_length(int64_t document) const {
  // A separator stands after each but the last, which the index counts as if there were one.
  return static_cast<int64_t>(index_[document + 1] - index_[document]) - 1;
}

void TokenFile::copy(int64_t first, int64_t count, int64_t* to) const {
  MS_ASSERT(first >= 0 && count >= 0 && first + count <= num_tokens_, "tokens {} + {} of {}", first,
            count, num_tokens_);
  if (token_bytes_ == 2) {
    widen<uint16_t>(tokens_, first, count, to);
  } else {
    widen<uint32_t>(tokens_, first, count, to);
  }
}

}  // namespace moonshard::data
