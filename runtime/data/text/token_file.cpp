// TokenFile: what a token cache's file looks like, and the checks before anything of it is used.
#include "runtime/data/text/token_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/base/interrupt.h"

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

namespace fs = std::filesystem;

constexpr size_t kWriteBytes = 4u << 20;

using WriteBytes = std::function<void(const void*, int64_t)>;

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
    tail.setting = request_.key.setting;
    tail.contents = request_.key.contents;
    tail.num_tokens = num_tokens_;
    tail.counts_bytes = text.size();
    put(&tail, sizeof(tail) - sizeof(tail.checksum));
    flush();
    tail.checksum = checksum_.value();
    put(&tail.checksum, sizeof(tail.checksum));
    flush();
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
    checksum_.add(buffer_);
    write_(buffer_.data(), static_cast<int64_t>(buffer_.size()));
    buffer_.clear();
  }

  const CacheRequest& request_;
  WriteBytes write_;
  TokenHead head_;
  std::string buffer_;
  Checksum checksum_;
  uint64_t total_ = 0, num_tokens_ = 0;
  std::vector<uint64_t> index_;
};

void write_all(const CacheRequest& request, const WriteBytes& write) {
  FileWriter writer(request, write);
  const Json counts = request.fill(writer);
  MS_CHECK(writer.num_documents() > 0,
           "data folder: expected text in {}, got none: every file or text in it is empty",
           request.data_folder.string());
  writer.finish(counts);
}

// ---- places -----------------------------------------------------------------------------------

std::optional<fs::path> user_cache() {
  const char* given = std::getenv("XDG_CACHE_HOME");
  if (given != nullptr && *given == '/') return fs::path(given) / "moonshard" / "tokens";
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home != '/') return std::nullopt;
  return fs::path(home) / ".cache" / "moonshard" / "tokens";
}

// Private: tokens are a copy of the texts, which others may not be allowed to read.
bool can_write(const fs::path& folder) {
  try {
    create_private_folders(folder);
  } catch (const IoError&) {
    return false;
  }
  return ::access(folder.c_str(), W_OK | X_OK) == 0;
}

std::vector<fs::path> places(const CacheRequest& request) {
  if (request.place == "none") return {};
  if (request.place != "auto") return {request.place};
  std::vector<fs::path> list{request.data_folder / ".moonshard"};
  if (const auto own = user_cache()) list.push_back(*own);
  return list;
}

std::string setting_prefix(const TokenKey& key) {
  return fmt::format("{:016x}-", key.setting);
}

fs::path file_in(const fs::path& folder, const TokenKey& key) {
  return folder / fmt::format("{}{:016x}.tokens", setting_prefix(key), key.contents);
}

// One process makes a cache, others wait here. A file system without locks lets all of them make
// it, which costs time only: each writes a file of its own and renames it.
class MakingLock {
 public:
  explicit MakingLock(const fs::path& path)
      : file_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    if (file_.number() < 0) return;
    while (::flock(file_.number(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) return;
      throw_if_interrupted();
      ::usleep(20'000);
    }
  }

 private:
  Descriptor file_;  // closing it releases the lock
};

void remove_stale(const fs::path& folder, const TokenKey& key) {
  sweep_stale_temporaries(folder);
  std::error_code ignored;
  const std::string prefix = setting_prefix(key);
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(prefix) && name.ends_with(".tokens") &&
        entry.path() != file_in(folder, key))
      fs::remove(entry.path(), ignored);
  }
}

// The folder is inside the user's data: keep it out of version control.
void hide_from_git(const fs::path& folder) {
  std::error_code ignored;
  if (folder.filename() == ".moonshard" && !fs::exists(folder / ".gitignore", ignored))
    write_file_atomically(folder / ".gitignore", "*\n");
}

CachedTokens make_in(const fs::path& folder, const CacheRequest& request) {
  const fs::path path = file_in(folder, request.key);
  const MakingLock lock(folder / fmt::format("{}making.lock", setting_prefix(request.key)));
  std::string reason;
  auto tokens = TokenFile::open(path, request.key, request.vocab_size, reason);
  const bool found = tokens != nullptr;
  if (!found) {
    hide_from_git(folder);
    StagedFile staged(path, StagedFile::OnInterrupt::Stop, Access::Private);
    write_all(request, [&](const void* data, int64_t bytes) { staged.write(data, bytes); });
    staged.finish();
    staged.commit();
    sync_folder(folder);
    remove_stale(folder, request.key);
    std::string problem;
    tokens = TokenFile::open(path, request.key, request.vocab_size, problem);
    if (tokens == nullptr)
      throw IoError(
          fmt::format("{}: expected the tokens just written, got a file that is not "
                      "usable: {}; check the disk",
                      path.string(), problem));
  }
  Json facts{{"used", found}, {"file", path.string()}};
  if (!found) facts["reason"] = reason;
  return {std::move(tokens), std::move(facts)};
}

// A file without a name, which disappears with the process.
CachedTokens make_nameless(const CacheRequest& request, const std::string& reason) {
  std::string name = (fs::temp_directory_path() / "moonshard_tokens_XXXXXX").string();
  const Descriptor file(::mkostemp(name.data(), O_CLOEXEC));
  if (file.number() < 0)
    throw IoError(fmt::format("{}: cannot write: {}; set TMPDIR to a folder that can be written",
                              name, std::strerror(errno)));
  ::unlink(name.c_str());
  write_all(request, [&](const void* data, int64_t bytes) {
    const auto* from = static_cast<const char*>(data);
    while (bytes > 0) {
      throw_if_interrupted();
      const ssize_t written = ::write(file.number(), from, static_cast<size_t>(bytes));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0)
        throw IoError(fmt::format("{}: cannot write: {}; free space there or set TMPDIR", name,
                                  std::strerror(errno)));
      from += written, bytes -= written;
    }
  });
  std::string problem;
  auto tokens = TokenFile::map(file.number(), request.key, request.vocab_size, problem);
  if (tokens == nullptr)
    throw IoError(fmt::format("{}: expected the tokens just written, got {}", name, problem));
  return {std::move(tokens), {{"used", false}, {"file", nullptr}, {"reason", reason}}};
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

CachedTokens open_or_make_tokens(const CacheRequest& request) {
  const std::vector<fs::path> folders = places(request);
  // A folder that this process cannot write to may hold a cache made by another user.
  for (const fs::path& folder : folders) {
    std::string reason;
    const fs::path path = file_in(folder, request.key);
    if (auto tokens = TokenFile::open(path, request.key, request.vocab_size, reason))
      return {std::move(tokens), {{"used", true}, {"file", path.string()}}};
  }
  for (const fs::path& folder : folders) {
    if (can_write(folder)) return make_in(folder, request);
    MS_CHECK(request.place == "auto",
             "data: option 'cache': expected a folder that can be written, got '{}'",
             folder.string());
  }
  return make_nameless(
      request, request.place == "none" ? "cache = none" : "no folder for caches can be written");
}

}  // namespace moonshard::data
