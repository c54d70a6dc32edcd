#include "runtime/input/open_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/records/reader.h"

namespace moonshard {
namespace {

namespace fs = std::filesystem;

constexpr int kOpenFlags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;  // a pipe must not block

// Folders with very many files are listed no further than this.
constexpr size_t kMostEntriesSeen = 100'000, kMostNames = 10'000;

[[noreturn]] void throw_unreadable(const fs::path& path, const std::string& reason) {
  throw IoError(fmt::format("{}: cannot read: {}", path.string(), reason));
}

OpenFile checked(Descriptor descriptor, const fs::path& path) {
  struct stat status = {};
  const bool known = fstat(descriptor.number(), &status) == 0;
  if (known && S_ISREG(status.st_mode)) {
    return OpenFile(std::move(descriptor), path.string(), static_cast<uint64_t>(status.st_size));
  }
  throw_unreadable(path,
                   fmt::format("expected a file, got {}",
                               known && S_ISDIR(status.st_mode) ? "a folder" : "a pipe or device"));
}

// Opens along the path without following any link: what is reached this way is certainly inside.
// -1 with errno when it cannot be; a link on the way is ENOTDIR or ELOOP.
int open_without_links(const fs::path& folder, const fs::path& relative) {
  Descriptor at(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (at.number() < 0) return -1;
  for (auto part = relative.begin(); part != relative.end(); ++part) {
    if (*part == ".." || part->is_absolute()) {
      errno = ELOOP;  // let the slow way judge it
      return -1;
    }
    const bool last = std::next(part) == relative.end();
    const int next =
        openat(at.number(), part->c_str(),
               last ? kOpenFlags | O_NOFOLLOW : O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (next < 0 || last) return next;
    at = Descriptor(next);
  }
  errno = ENOENT;  // a path of no parts
  return -1;
}

// A link somewhere on the way: it may stay inside. Nothing when it leads nowhere.
std::optional<fs::path> resolved_inside(const fs::path& folder, const fs::path& relative) {
  const fs::path path = folder / relative;
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  if (error) return std::nullopt;
  if (!records::lies_inside(folder, path)) {
    throw IoError(path.string() + ": leads out of the run folder; it is not opened");
  }
  return real;
}

}  // namespace

size_t OpenFile::read(char* to, size_t capacity) {
  if (descriptor_.number() < 0) {
    const size_t count = bytes_.substr(at_).copy(to, capacity);
    at_ += count;
    return count;
  }
  for (;;) {
    const ssize_t count = ::read(descriptor_.number(), to, capacity);
    if (count >= 0) return static_cast<size_t>(count);
    if (errno != EINTR) throw_unreadable(name_, std::strerror(errno));
  }
}

void OpenFile::seek(uint64_t offset) {
  if (descriptor_.number() < 0) {
    at_ = static_cast<size_t>(std::min<uint64_t>(offset, bytes_.size()));
    return;
  }
  if (lseek(descriptor_.number(), static_cast<off_t>(offset), SEEK_SET) < 0) {
    throw_unreadable(name_, std::strerror(errno));
  }
}

std::string OpenFile::read_all(size_t max_bytes) {
  std::string text(static_cast<size_t>(std::min<uint64_t>(size_, max_bytes)), '\0');
  text.resize(read(text.data(), text.size()));
  // What came after it was opened; mostly nothing, which only a read can tell. Apart from the text:
  // to grow and clear that for every small file would cost more than all else.
  char more[16384];
  for (;;) {
    const size_t count = read(more, sizeof more);
    if (count == 0) return text;
    text.append(more, count);
    if (text.size() > max_bytes) {
      throw IoError(fmt::format("{}: expected at most {} bytes, got more; it is not a record",
                                name_, max_bytes));
    }
  }
}

std::string whole_path(const std::string& path) {
  std::error_code error;
  const fs::path whole = fs::absolute(path, error);
  return error || path.empty() ? path : whole.string();
}

uint64_t stamp_of(const fs::path& path) {
  std::error_code error;
  const auto time = fs::last_write_time(path, error);
  if (error) return 0;
  const auto size = fs::file_size(path, error);
  return static_cast<uint64_t>(time.time_since_epoch().count()) * 31 + (error ? 0 : size);
}

OpenFile open_plain_file(const fs::path& path) {
  Descriptor descriptor(::open(path.c_str(), kOpenFlags));
  if (descriptor.number() < 0) throw_unreadable(path, std::strerror(errno));
  return checked(std::move(descriptor), path);
}

std::optional<OpenFile> InsideFolder::open(const fs::path& relative) const {
  const int descriptor = open_without_links(folder_, relative);
  if (descriptor >= 0) return checked(Descriptor(descriptor), folder_ / relative);
  if (errno == ENOENT) return std::nullopt;
  if (errno != ELOOP && errno != ENOTDIR) {
    throw_unreadable(folder_ / relative, std::strerror(errno));
  }
  const std::optional<fs::path> real = resolved_inside(folder_, relative);
  if (!real) return std::nullopt;
  return open_plain_file(*real);
}

std::optional<records::RecordStamp> InsideFolder::stamp(const fs::path& relative) const {
  struct stat status = {};
  if (::lstat((folder_ / relative).c_str(), &status) != 0 || !S_ISREG(status.st_mode))
    return std::nullopt;
  return records::RecordStamp{status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

std::vector<std::string> InsideFolder::names(const fs::path& relative,
                                             const std::vector<std::string>& endings) const {
  std::vector<std::string> found;
  std::error_code error;
  const fs::path path = folder_ / relative;
  if (!records::lies_inside(folder_, path)) return found;
  size_t seen = 0;
  for (auto entry = fs::directory_iterator(path, error);
       !error && entry != fs::directory_iterator() && ++seen <= kMostEntriesSeen;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const bool wanted =
        std::ranges::any_of(endings, [&](const std::string& end) { return name.ends_with(end); });
    std::error_code ignored;
    if (!wanted || is_temporary_name(name) || !entry->is_regular_file(ignored)) continue;
    if (entry->is_symlink(ignored) && !records::lies_inside(folder_, entry->path())) continue;
    found.push_back(name);
  }
  std::ranges::sort(found);
  if (found.size() > kMostNames) found.resize(kMostNames);
  return found;
}

}  // namespace moonshard
