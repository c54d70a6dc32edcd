// Where token files are kept, and how they are made: once per folder, tokenizer and state of the
// files, by one process while others wait for it.
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/base/interrupt.h"
#include "runtime/data/text/token_file.h"

namespace moonshard::data {
namespace {

namespace fs = std::filesystem;

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
    write_tokens(request, [&](const void* data, int64_t bytes) { staged.write(data, bytes); });
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
  std::error_code error;
  const fs::path folder = fs::temp_directory_path(error);
  if (error) {
    const char* given = std::getenv("TMPDIR");
    throw IoError(
        fmt::format("TMPDIR: expected a folder that can be written, got '{}': {}; set another",
                    given != nullptr ? given : "", error.message()));
  }
  std::string name = (folder / "moonshard_tokens_XXXXXX").string();
  Descriptor file(::mkostemp(name.data(), O_CLOEXEC));
  if (file.number() < 0)
    throw IoError(fmt::format("{}: cannot write: {}; set TMPDIR to a folder that can be written",
                              name, std::strerror(errno)));
  ::unlink(name.c_str());
  write_tokens(request, [&](const void* data, int64_t bytes) {
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
  auto tokens = TokenFile::read(std::move(file), name, request.key, request.vocab_size, problem);
  if (tokens == nullptr)
    throw IoError(fmt::format("{}: expected the tokens just written, got {}", name, problem));
  return {std::move(tokens), {{"used", false}, {"file", nullptr}, {"reason", reason}}};
}

}  // namespace

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
