// See history_file.h. Every writer takes the file's lock, and checks afterwards that the path still
// names the file it locked: shortening replaces the file, and a line written to the old one is
// lost.
#include "bindings/host/history_file.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace moonshard::host {
namespace {

constexpr mode_t kPrivate = 0600;  // commands may contain paths and tokens

std::string read_all(int fd) {
  std::string text;
  char block[65536];
  for (;;) {
    const ssize_t count = ::read(fd, block, sizeof block);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(block, static_cast<size_t>(count));
  }
}

bool write_all(int fd, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::write(fd, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    done += static_cast<size_t>(count);
  }
  return true;
}

// True after an append that a full disk or a crash cut short.
bool ends_mid_line(int fd) {
  struct stat file = {};
  char last = '\n';
  return ::fstat(fd, &file) == 0 && file.st_size > 0 &&
         ::pread(fd, &last, 1, file.st_size - 1) == 1 && last != '\n';
}

std::vector<std::string> split_entries(const std::string& text) {
  std::vector<std::string> entries;
  size_t start = 0;
  while (start < text.size()) {
    size_t stop = text.find('\n', start);
    if (stop == std::string::npos) stop = text.size();
    std::string entry = HistoryFile::unescape(text.substr(start, stop - start));
    if (!entry.empty() && (entries.empty() || entries.back() != entry)) {
      entries.push_back(std::move(entry));
    }
    start = stop + 1;
  }
  return entries;
}

}  // namespace

HistoryFile::HistoryFile(std::string path, size_t max_entries)
    : path_(std::move(path)), max_entries_(max_entries) {}

std::string HistoryFile::escape(const std::string& entry) {
  std::string line;
  for (const char c : entry) {
    if (c == '\\') {
      line += "\\\\";
    } else if (c == '\n') {
      line += "\\n";
    } else {
      line += c;
    }
  }
  return line;
}

std::string HistoryFile::unescape(const std::string& line) {
  std::string entry;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\\' && i + 1 < line.size()) {
      ++i;
      entry += line[i] == 'n' ? '\n' : line[i];
    } else {
      entry += line[i];
    }
  }
  return entry;
}

int HistoryFile::open_locked() const {
  for (;;) {
    const int fd = ::open(path_.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, kPrivate);
    if (fd < 0) return -1;
    struct stat locked = {};
    struct stat named = {};
    if (::flock(fd, LOCK_EX) != 0 || ::fstat(fd, &locked) != 0) {
      // A file system without locks: appending alone is still right for one line at a time.
      return fd;
    }
    if (::stat(path_.c_str(), &named) == 0 && named.st_ino == locked.st_ino &&
        named.st_dev == locked.st_dev) {
      return fd;
    }
    ::close(fd);  // replaced while we waited for the lock
  }
}

// The caller holds the lock on the old file until after the rename.
void HistoryFile::shorten(const std::vector<std::string>& kept) const {
  const std::string temporary = path_ + ".new";
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kPrivate);
  if (fd < 0) return;
  std::string text;
  for (const std::string& entry : kept) text += escape(entry) + "\n";
  const bool written = write_all(fd, text);
  ::close(fd);
  if (!written || std::rename(temporary.c_str(), path_.c_str()) != 0) ::unlink(temporary.c_str());
}

std::vector<std::string> HistoryFile::load() {
  if (path_.empty() || ::access(path_.c_str(), R_OK) != 0) return {};
  const int fd = open_locked();
  if (fd < 0) return {};
  std::vector<std::string> entries = split_entries(read_all(fd));
  const size_t found = entries.size();
  if (found > max_entries_) {
    entries.erase(entries.begin(), entries.end() - static_cast<std::ptrdiff_t>(max_entries_));
  }
  // Some slack, so that the file is not rewritten at every start.
  if (found > max_entries_ + max_entries_ / 5) shorten(entries);
  ::close(fd);
  if (!entries.empty()) last_ = entries.back();
  return entries;
}

bool HistoryFile::append(const std::string& entry) {
  if (entry.empty() || entry == last_) return true;
  last_ = entry;
  if (path_.empty()) return true;
  int fd = open_locked();
  if (fd < 0 && errno == ENOENT) {
    std::error_code ignored;  // the second open reports it
    std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), ignored);
    fd = open_locked();
  }
  if (fd < 0) return false;
  const bool written = write_all(fd, (ends_mid_line(fd) ? "\n" : "") + escape(entry) + "\n");
  ::close(fd);
  return written;
}

}  // namespace moonshard::host
