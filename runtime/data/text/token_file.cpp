// TokenFile: what a token cache's file looks like, and the checks before anything of it is used.
// token_cache.cpp says where the files are.
#include "runtime/data/text/token_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/base/checksum.h"
#include "runtime/base/reclaim.h"

namespace moonshard::data {
namespace {

// Returns the largest.
template <class Token>
int64_t widen(const std::byte* bytes, int64_t count, int64_t* to) {
  Token largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    Token token = 0;
    std::memcpy(&token, bytes + i * static_cast<int64_t>(sizeof(Token)), sizeof(Token));
    largest = std::max(largest, token);
    to[i] = static_cast<int64_t>(token);
  }
  return static_cast<int64_t>(largest);
}

constexpr uint64_t kReadBytes = 64 * kTokenBlockBytes;  // read at a time
constexpr size_t kWriteBytes = 4u << 20;

// Writes the parts in their order through `write`, in large pieces.
class FileWriter : public TokenWriter {
 public:
  FileWriter(const CacheRequest& request, WriteBytes write)
      : request_(request), write_(std::move(write)) {
    head_.token_bytes = token_bytes_for(request.vocab_size);
    put(&head_, sizeof(head_));
  }

  void begin_document() override {
    if (!index_.empty()) put_token(request_.separator);
    index_.push_back(num_tokens_);
  }
  void add(const std::vector<int32_t>& ids) override {
    for (const int32_t id : ids) put_token(id);
  }
  /// The parts after the tokens.
  void finish(const Json& counts) {
    pad();
    TokenTail tail;
    tail.num_documents = index_.size();
    index_.push_back(num_tokens_ + 1);
    put(index_.data(), index_.size() * sizeof(uint64_t));
    const std::string text = counts.dump();
    put(text.data(), text.size());
    pad();
    flush();
    if (block_bytes_ > 0) checksums_.push_back(checksum_);
    buffer_.assign(reinterpret_cast<const char*>(checksums_.data()),
                   checksums_.size() * sizeof(uint32_t));
    buffer_.resize(padded_to_8(buffer_.size()));
    tail.setting = request_.key.setting;
    tail.contents = request_.key.contents;
    tail.num_tokens = num_tokens_;
    tail.counts_bytes = text.size();
    buffer_.append(reinterpret_cast<const char*>(&tail), sizeof(tail) - sizeof(tail.checksum));
    tail.checksum = crc32c(std::as_bytes(std::span(buffer_)));
    buffer_.append(reinterpret_cast<const char*>(&tail.checksum), sizeof(tail.checksum));
    write_(buffer_.data(), static_cast<int64_t>(buffer_.size()));
  }
  uint64_t num_documents() const { return index_.size(); }

 private:
  void put_token(int32_t id) {
    MS_ASSERT(id >= 0 && id < request_.vocab_size, "id {} of {}", id, request_.vocab_size);
    ++num_tokens_;
    if (head_.token_bytes == 2) {
      const auto narrow = static_cast<uint16_t>(id);
      put(&narrow, sizeof(narrow));
    } else {
      put(&id, sizeof(id));
    }
  }
  void put(const void* data, size_t bytes) {
    buffer_.append(static_cast<const char*>(data), bytes);
    total_ += bytes;
    if (buffer_.size() >= kWriteBytes) flush();
  }
  void pad() {
    const uint64_t zero = 0;
    put(&zero, padded_to_8(total_) - total_);
  }
  void flush() {
    for (auto rest = std::as_bytes(std::span(buffer_)); !rest.empty();) {
      const auto part = rest.first(std::min<size_t>(rest.size(), kTokenBlockBytes - block_bytes_));
      checksum_ = crc32c(part, checksum_);
      block_bytes_ += part.size();
      rest = rest.subspan(part.size());
      if (block_bytes_ < kTokenBlockBytes) continue;
      checksums_.push_back(std::exchange(checksum_, 0));
      block_bytes_ = 0;
    }
    write_(buffer_.data(), static_cast<int64_t>(buffer_.size()));
    buffer_.clear();
  }

  const CacheRequest& request_;
  WriteBytes write_;
  TokenHead head_;
  std::string buffer_;
  std::vector<uint32_t> checksums_;  // of whole blocks
  uint32_t checksum_ = 0;            // of the block being filled
  uint64_t block_bytes_ = 0;
  uint64_t total_ = 0, num_tokens_ = 0;
  std::vector<uint64_t> index_;
};

}  // namespace

void write_tokens(const CacheRequest& request, const WriteBytes& write) {
  FileWriter writer(request, write);
  const Json counts = request.fill(writer);
  MS_CHECK(writer.num_documents() > 0,
           "data folder: expected text in {}, got none: every file or text in it is empty",
           request.data_folder.string());
  writer.finish(counts);
}

std::shared_ptr<const TokenFile> TokenFile::open(const std::filesystem::path& path,
                                                 const TokenKey& key, int64_t vocab_size,
                                                 std::string& reason) {
  Descriptor file(open_or_reclaim(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  if (file.number() < 0) {
    reason = errno == ENOENT ? "there was none" : std::strerror(errno);
    return nullptr;
  }
  return read(std::move(file), path, key, vocab_size, reason);
}

std::shared_ptr<const TokenFile> TokenFile::read(Descriptor file, const std::filesystem::path& name,
                                                 const TokenKey& key, int64_t vocab_size,
                                                 std::string& reason) {
  struct stat status {};
  if (::fstat(file.number(), &status) != 0 || !S_ISREG(status.st_mode)) {
    reason = "it was no file";
    return nullptr;
  }
  const auto bytes = static_cast<uint64_t>(status.st_size);
  if (bytes < sizeof(TokenHead) + sizeof(TokenTail)) {
    reason = "it was cut off";
    return nullptr;
  }
  std::shared_ptr<TokenFile> result(new TokenFile(std::move(file), name, vocab_size));
  try {
    reason = result->take(bytes, key);
  } catch (const IoError& error) {
    reason = error.what();
  }
  return reason.empty() ? result : nullptr;
}

std::string TokenFile::take(uint64_t file_bytes, const TokenKey& key) {
  TokenHead head;
  TokenTail tail;
  read_at(0, std::as_writable_bytes(std::span(&head, 1)));
  read_at(file_bytes - sizeof(tail), std::as_writable_bytes(std::span(&tail, 1)));
  if (head.magic != kTokenMagic || head.version != kTokenVersion)
    return "it was of another kind or version";
  if (tail.magic != kTokenMagic) return "it was cut off";
  if (tail.setting != key.setting || tail.contents != key.contents)
    return "the files or the settings have changed";
  if (head.token_bytes != token_bytes_for(vocab_size_)) return "it was of another vocabulary";
  const uint64_t most = file_bytes - sizeof(head) - sizeof(tail);
  // Each alone below the file's size before they are multiplied: nothing can overflow.
  const bool sane = tail.num_tokens <= most && tail.num_documents < most &&
                    tail.num_documents > 0 && tail.counts_bytes <= most;
  if (!sane) return "its sizes did not agree";
  index_at_ = sizeof(head) + padded_to_8(tail.num_tokens * head.token_bytes);
  const uint64_t counts_at = index_at_ + (tail.num_documents + 1) * sizeof(uint64_t);
  blocks_end_ = counts_at + padded_to_8(tail.counts_bytes);
  const uint64_t num_blocks = (blocks_end_ + kTokenBlockBytes - 1) / kTokenBlockBytes;
  const uint64_t table_bytes = padded_to_8(num_blocks * sizeof(uint32_t));
  if (blocks_end_ + table_bytes + sizeof(tail) != file_bytes) return "its sizes did not agree";
  checksums_.resize(table_bytes / sizeof(uint32_t));
  const auto table = std::as_writable_bytes(std::span(checksums_));
  read_at(blocks_end_, table);
  const auto tail_bytes = std::as_bytes(std::span(&tail, 1));
  const uint32_t checksum =
      crc32c(tail_bytes.first(sizeof(tail) - sizeof(tail.checksum)), crc32c(table));
  if (checksum != tail.checksum) return "its checksum did not agree";
  token_bytes_ = static_cast<int>(head.token_bytes);
  num_tokens_ = static_cast<int64_t>(tail.num_tokens);
  num_documents_ = static_cast<int64_t>(tail.num_documents);
  // All of it once, so that a damaged file is made again now and not met hours later.
  std::vector<int64_t> ids(kReadBytes / head.token_bytes);
  for (int64_t at = 0; at < num_tokens_; at += static_cast<int64_t>(ids.size()))
    copy(at, std::min(static_cast<int64_t>(ids.size()), num_tokens_ - at), ids.data());
  each_document([](int64_t, int64_t) {});
  std::string text(tail.counts_bytes, '\0');
  read_checked(counts_at, std::as_writable_bytes(std::span(text)));
  counts_ = parse_json(text, "counts");
  return counts_.is_object() ? "" : "its counts were no object";
}

// A map would end the process where the file is cut by somebody (SIGBUS); a short read is an error.
void TokenFile::read_at(uint64_t position, std::span<std::byte> to) const {
  size_t done = 0;
  while (done < to.size()) {
    const ssize_t got = ::pread(file_.number(), to.data() + done, to.size() - done,
                                static_cast<off_t>(position + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_to_read(name_, "read tokens", errno);
    if (got == 0) {
      throw IoError(fmt::format(
          "{}: expected {} bytes of tokens at position {}, got {}: the file was cut while it was "
          "in use; run again, and it is made anew",
          name_.string(), to.size(), position, done));
    }
    done += static_cast<size_t>(got);
  }
}

void TokenFile::read_checked(uint64_t position, std::span<std::byte> to) const {
  std::vector<std::byte> piece;
  while (!to.empty()) {
    const uint64_t first = position / kTokenBlockBytes, begin = first * kTokenBlockBytes;
    const uint64_t end = std::min(
        {blocks_end_, begin + kReadBytes,
         (position + to.size() + kTokenBlockBytes - 1) / kTokenBlockBytes * kTokenBlockBytes});
    piece.resize(end - begin);
    read_at(begin, piece);
    for (uint64_t block = first, at = 0; at < piece.size(); ++block, at += kTokenBlockBytes) {
      const size_t bytes = std::min<size_t>(kTokenBlockBytes, piece.size() - at);
      const uint32_t found = crc32c(std::span(piece).subspan(at, bytes));
      if (found == checksums_[block]) continue;
      throw IoError(fmt::format(
          "{}: block {} (bytes {} to {}): expected the checksum {:08x}, got {:08x}: it was damaged "
          "or written over; run again, and it is made anew; check the disk",
          name_.string(), block, begin + at, begin + at + bytes - 1, checksums_[block], found));
    }
    const uint64_t skipped = position - begin;
    const size_t taken = std::min<size_t>(to.size(), piece.size() - skipped);
    std::memcpy(to.data(), piece.data() + skipped, taken);
    to = to.subspan(taken);
    position += taken;
  }
}

void TokenFile::each_document(const std::function<void(int64_t, int64_t)>& visit) const {
  constexpr int64_t kEntries = kReadBytes / sizeof(uint64_t);
  std::vector<uint64_t> begins;
  // A separator stands after each but the last, which the index counts as if there were one.
  for (int64_t at = 0; at < num_documents_; at += kEntries) {
    begins.resize(static_cast<size_t>(std::min(kEntries, num_documents_ - at) + 1));
    read_checked(index_at_ + static_cast<uint64_t>(at) * sizeof(uint64_t),
                 std::as_writable_bytes(std::span(begins)));
    bool grows = at != 0 || begins[0] == 0;
    for (size_t i = 1; i < begins.size(); ++i) grows = grows && begins[i - 1] < begins[i];
    const auto all = static_cast<uint64_t>(num_tokens_) + 1;
    if (!grows || begins.back() > all || (at + kEntries >= num_documents_ && begins.back() != all))
      throw IoError("its index did not grow");
    for (size_t i = 1; i < begins.size(); ++i)
      visit(static_cast<int64_t>(begins[i - 1]),
            static_cast<int64_t>(begins[i] - begins[i - 1]) - 1);
  }
}

void TokenFile::copy(int64_t first, int64_t count, int64_t* to) const {
  MS_ASSERT(first >= 0 && count >= 0 && first + count <= num_tokens_, "tokens {} + {} of {}", first,
            count, num_tokens_);
  std::vector<std::byte> bytes(static_cast<size_t>(count * token_bytes_));
  read_checked(sizeof(TokenHead) + static_cast<uint64_t>(first * token_bytes_), bytes);
  const int64_t largest = token_bytes_ == 2 ? widen<uint16_t>(bytes.data(), count, to)
                                            : widen<uint32_t>(bytes.data(), count, to);
  // The file may be crafted, with fitting checksums.
  if (largest >= vocab_size_) throw IoError("it had ids beyond the vocabulary");
}

}  // namespace moonshard::data
