#include "tests/simulation/fake_disk.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

namespace moonshard::simulation {
namespace {

constexpr int64_t kPage = 4096, kSector = 512;

// Names of temporaries have random parts: two logs of one seed must not differ.
std::string shown(const std::string& path) {
  std::string text = path;
  for (const char* mark : {".partial-", ".moonshard-tmp."}) {
    for (size_t begin = text.find(mark); begin != std::string::npos;
         begin = text.find(mark, begin + 1)) {
      const size_t from = begin + std::strlen(mark);
      const size_t end = std::min(text.find_first_of("/ ", from), text.size());
      text.replace(from, end - from, "*");
    }
  }
  return text;
}

}  // namespace

// ---- contents ---------------------------------------------------------------------------------

void FakeDisk::Content::write(int64_t position, const char* data, int64_t bytes) {
  size = std::max(size, position + bytes);
  while (bytes > 0) {
    const int64_t page = position / kPage, offset = position % kPage;
    const int64_t part = std::min(bytes, kPage - offset);
    std::string& text = pages[page];
    if (static_cast<int64_t>(text.size()) < offset + part)
      text.resize(static_cast<size_t>(offset + part), '\0');
    text.replace(static_cast<size_t>(offset), static_cast<size_t>(part), data,
                 static_cast<size_t>(part));
    position += part;
    data += part;
    bytes -= part;
  }
}

void FakeDisk::Content::read(int64_t position, char* target, int64_t bytes) const {
  std::memset(target, 0, static_cast<size_t>(bytes));
  while (bytes > 0) {
    const int64_t page = position / kPage, offset = position % kPage;
    const int64_t part = std::min(bytes, kPage - offset);
    const auto found = pages.find(page);
    if (found != pages.end() && static_cast<int64_t>(found->second.size()) > offset) {
      const int64_t there = static_cast<int64_t>(found->second.size()) - offset;
      std::memcpy(target, found->second.data() + offset,
                  static_cast<size_t>(std::min(part, there)));
    }
    position += part;
    target += part;
    bytes -= part;
  }
}

// ---- what a crash leaves ----------------------------------------------------------------------

void FakeDisk::tear(Content& content, const Write& write) {
  Random& random = scheduler_.random;
  const auto bytes = static_cast<int64_t>(write.data.size());
  if (write.truncates) {
    if (random.chance(0.5)) content = {};
    return;
  }
  switch (random.below(5)) {
    case 0:  // dropped
      return;
    case 1:  // only the file's length
      content.size = std::max(content.size, write.position + bytes);
      return;
    case 2: {  // a part from the front
      const int64_t kept = random.below(bytes + 1);
      content.write(write.position, write.data.data(), kept);
      return;
    }
    case 3: {  // some sectors
      for (int64_t at = 0; at < bytes;) {
        const int64_t part = std::min(bytes - at, kSector - (write.position + at) % kSector);
        if (random.chance(0.5)) content.write(write.position + at, write.data.data() + at, part);
        at += part;
      }
      content.size = std::max(content.size, write.position + bytes);
      return;
    }
    default:
      content.write(write.position, write.data.data(), bytes);
  }
}

void FakeDisk::cut_power() {
  scheduler_.log("POWER CUT");
  for (const auto& weak : nodes_) {
    const NodePointer node = weak.lock();
    if (node == nullptr) continue;
    for (const Write& write : node->pending) tear(node->kept, write);
    node->pending.clear();
    node->content = node->kept;
    for (const Change& change : node->changes)
      if (scheduler_.random.chance(0.5)) apply(node->kept_entries, change);
    node->changes.clear();
    node->entries = node->kept_entries;
    node->lock = -1;
  }
  files_.clear();
  std::erase_if(nodes_, [](const auto& weak) { return weak.expired(); });
}

void FakeDisk::forget_process(int64_t process) {
  std::erase_if(files_, [&](auto& item) {
    if (item.second.process != process) return false;
    if (item.second.node->lock == item.first) item.second.node->lock = -1;
    return true;
  });
}

// ---- calls ------------------------------------------------------------------------------------

FakeDisk::FakeDisk(Scheduler& scheduler) : scheduler_(scheduler) {
  root_ = make_node(true);
}

bool FakeDisk::begin(const char* call, const std::string& what, bool may_fail) {
  if (!scheduler_.is_running()) return true;  // the observer, between turns
  if (scheduler_.current().is_dead) {
    errno = EIO;
    return false;
  }
  ++calls_;
  scheduler_.note(static_cast<uint64_t>(calls_) * 31 + what.size());
  if (scheduler_.keeps_log()) scheduler_.log(fmt::format("{} {}", call, shown(what)));
  cut_share_ = 1;
  crashing_ = calls_to_crash_ >= 0 && --calls_to_crash_ < 0;
  if (crashing_) {
    // Before the call, after it, or in its middle.
    cut_share_ = scheduler_.random.chance(0.3)   ? 0
                 : scheduler_.random.chance(0.5) ? 1
                                                 : scheduler_.random.between(0, 1);
    if (cut_share_ > 0) return true;  // the crash follows in pass
    errno = EIO;
    const int64_t group = scheduler_.current().group;
    scheduler_.log(crash_takes_power_ ? "crash: power" : "crash: killed");
    crashing_ = false;
    if (crash_takes_power_) {
      on_power_cut();
    } else {
      on_kill(group);
    }
    return false;
  }
  scheduler_.pass();
  if (scheduler_.current().is_dead) {
    errno = EIO;
    return false;
  }
  if (forgets_locks) {
    for (const auto& weak : nodes_)
      if (const NodePointer node = weak.lock()) node->lock = -1;
  }
  if (may_fail && error_rate > 0 && scheduler_.random.chance(error_rate)) {
    scheduler_.log("error: no space");
    errno = ENOSPC;
    return false;
  }
  return true;
}

int FakeDisk::fail(int error) const {
  errno = error;
  return -1;
}

// A call that was interrupted by the crash has had its effect, or a part of it.
#define RETURN_UNLESS_CRASHED(value)                                         \
  do {                                                                       \
    const auto answer_ = (value);                                            \
    if (crashing_) {                                                         \
      crashing_ = false;                                                     \
      scheduler_.log(crash_takes_power_ ? "crash: power" : "crash: killed"); \
      const int64_t group_ = scheduler_.current().group;                     \
      if (crash_takes_power_)                                                \
        on_power_cut();                                                      \
      else                                                                   \
        on_kill(group_);                                                     \
      errno = EIO;                                                           \
      return -1;                                                             \
    }                                                                        \
    return answer_;                                                          \
  } while (false)

FakeDisk::NodePointer FakeDisk::make_node(bool is_folder) {
  auto node = std::make_shared<Node>();
  node->is_folder = is_folder;
  node->number = next_number_++;
  node->changed_at = scheduler_.now() + clock_jump;
  nodes_.push_back(node);
  return node;
}

FakeDisk::NodePointer FakeDisk::entry(const Entries& entries, const std::string& name) {
  for (const auto& [key, node] : entries)
    if (key == name) return node;
  return nullptr;
}

void FakeDisk::apply(Entries& entries, const Change& change) {
  for (const auto& [name, node] : change) {
    const auto found = std::find_if(entries.begin(), entries.end(),
                                    [&](const auto& each) { return each.first == name; });
    if (found != entries.end()) {
      if (node == nullptr)
        entries.erase(found);
      else
        found->second = node;
    } else if (node != nullptr) {
      entries.emplace_back(name, node);
    }
  }
}

void FakeDisk::change(const NodePointer& folder, Change change) {
  apply(folder->entries, change);
  folder->changes.push_back(std::move(change));
}

FakeDisk::NodePointer FakeDisk::find(const std::string& path) const {
  NodePointer node = root_;
  size_t at = 0;
  while (node != nullptr && at < path.size()) {
    const size_t end = std::min(path.find('/', at), path.size());
    const bool is_name = end > at && path.compare(at, end - at, ".") != 0;
    if (is_name) node = node->is_folder ? entry(node->entries, path.substr(at, end - at)) : nullptr;
    at = end + 1;
  }
  return node;
}

FakeDisk::NodePointer FakeDisk::parent_of(const std::string& path, std::string& name) const {
  const size_t slash = path.rfind('/');
  name = slash == std::string::npos ? path : path.substr(slash + 1);
  const NodePointer folder = find(slash == std::string::npos ? "" : path.substr(0, slash));
  return folder != nullptr && folder->is_folder ? folder : nullptr;
}

FakeDisk::OpenFile* FakeDisk::opened(int file) {
  const auto found = files_.find(file);
  return found != files_.end() ? &found->second : nullptr;
}

int FakeDisk::open(const char* path, int flags, unsigned) {
  if (!begin("open", path, false)) return -1;
  std::string name;
  const NodePointer folder = parent_of(path, name);
  NodePointer node = find(path);
  if (node == nullptr) {
    if ((flags & O_CREAT) == 0 || folder == nullptr) return fail(ENOENT);
    node = make_node(false);
    change(folder, {{name, node}});
  } else if ((flags & O_CREAT) != 0 && (flags & O_EXCL) != 0) {
    return fail(EEXIST);
  }
  const int file = next_file_++;
  files_[file] = {node, process(), 0, (flags & O_APPEND) != 0, (flags & (O_WRONLY | O_RDWR)) != 0,
                  path};
  RETURN_UNLESS_CRASHED(file);
}

int FakeDisk::close(int file) {
  // Never fails and never waits: destructors call it.
  if (OpenFile* opened_file = opened(file)) {
    if (opened_file->node->lock == file) opened_file->node->lock = -1;
    files_.erase(file);
  }
  return 0;
}

ssize_t FakeDisk::pread(int file, void* target, size_t bytes, off_t position) {
  const OpenFile* from = opened(file);
  if (from == nullptr) return fail(EBADF);
  if (scheduler_.is_running() && scheduler_.current().is_dead) return fail(EIO);
  const int64_t left = from->node->content.size - position;
  const int64_t count = std::clamp<int64_t>(left, 0, static_cast<int64_t>(bytes));
  from->node->content.read(position, static_cast<char*>(target), count);
  return static_cast<ssize_t>(count);
}

void FakeDisk::add_write(OpenFile& file, int64_t position, const char* data, size_t bytes) {
  const auto done = static_cast<size_t>(static_cast<double>(bytes) * cut_share_);
  file.node->content.write(position, data, static_cast<int64_t>(done));
  file.node->pending.push_back({position, std::string(data, done)});
  file.node->changed_at = scheduler_.now() + clock_jump;
}

ssize_t FakeDisk::write(int file, const void* data, size_t bytes) {
  OpenFile* to = opened(file);
  if (!begin("write", to != nullptr ? to->path : "", true)) return -1;
  to = opened(file);
  if (to == nullptr || !to->writes) return fail(EBADF);
  if (to->appends) to->position = to->node->content.size;
  add_write(*to, to->position, static_cast<const char*>(data), bytes);
  to->position += static_cast<int64_t>(bytes);
  RETURN_UNLESS_CRASHED(static_cast<ssize_t>(bytes));
}

ssize_t FakeDisk::pwrite(int file, const void* data, size_t bytes, off_t position) {
  OpenFile* to = opened(file);
  if (!begin("pwrite", to != nullptr ? to->path : "", true)) return -1;
  to = opened(file);
  if (to == nullptr || !to->writes) return fail(EBADF);
  add_write(*to, position, static_cast<const char*>(data), bytes);
  RETURN_UNLESS_CRASHED(static_cast<ssize_t>(bytes));
}

int FakeDisk::ftruncate(int file, off_t) {
  if (!begin("ftruncate", "", true)) return -1;
  OpenFile* to = opened(file);
  if (to == nullptr) return fail(EBADF);
  to->node->content = {};
  to->node->pending.push_back({0, "", true});
  RETURN_UNLESS_CRASHED(0);
}

int FakeDisk::fsync(int file) {
  const OpenFile* of = opened(file);
  if (!begin("fsync", of != nullptr ? of->path : "", true)) return -1;
  of = opened(file);
  if (of == nullptr) return fail(EBADF);
  Node& node = *of->node;
  if (node.is_folder ? !ignores_folder_sync : !ignores_file_sync) {
    node.kept = node.content;
    node.pending.clear();
    node.kept_entries = node.entries;
    node.changes.clear();
  }
  RETURN_UNLESS_CRASHED(0);
}

int FakeDisk::fdatasync(int file) {
  const OpenFile* of = opened(file);
  if (!begin("fdatasync", of != nullptr ? of->path : "", true)) return -1;
  of = opened(file);
  if (of == nullptr) return fail(EBADF);
  if (!ignores_data_sync) {
    of->node->kept = of->node->content;
    of->node->pending.clear();
  }
  RETURN_UNLESS_CRASHED(0);
}

void FakeDisk::fill(const NodePointer& node, struct stat& status) const {
  status = {};
  status.st_mode = node->is_folder ? S_IFDIR | 0700 : S_IFREG | 0600;
  status.st_ino = node->number;
  status.st_size = node->content.size;
  const double changed = node->changed_at + 1e6;
  status.st_mtim.tv_sec = static_cast<time_t>(changed);
  status.st_mtim.tv_nsec =
      static_cast<long>((changed - static_cast<double>(status.st_mtim.tv_sec)) * 1e9);
}

int FakeDisk::fstat(int file, struct stat& status) {
  const OpenFile* of = opened(file);
  if (of == nullptr) return fail(EBADF);
  fill(of->node, status);
  return 0;
}

int FakeDisk::flock(int file) {
  if (!begin("flock", "", false)) return -1;
  OpenFile* of = opened(file);
  if (of == nullptr) return fail(EBADF);
  if (of->node->lock >= 0 && of->node->lock != file) return fail(EWOULDBLOCK);
  of->node->lock = file;
  RETURN_UNLESS_CRASHED(0);
}

int FakeDisk::stat(const char* path, struct stat& status) {
  if (!begin("stat", path, false)) return -1;
  const NodePointer node = find(path);
  if (node == nullptr) return fail(ENOENT);
  fill(node, status);
  RETURN_UNLESS_CRASHED(0);
}

int FakeDisk::lstat(const char* path, struct stat& status) {
  return stat(path, status);
}

int FakeDisk::mkdir(const char* path, unsigned) {
  if (!begin("mkdir", path, true)) return -1;
  std::string name;
  const NodePointer folder = parent_of(path, name);
  if (folder == nullptr) return fail(ENOENT);
  if (entry(folder->entries, name) != nullptr) return fail(EEXIST);
  change(folder, {{name, make_node(true)}});
  RETURN_UNLESS_CRASHED(0);
}

int FakeDisk::unlink(const char* path) {
  if (!begin("unlink", path, false)) return -1;
  std::string name;
  const NodePointer folder = parent_of(path, name);
  if (folder == nullptr || entry(folder->entries, name) == nullptr) return fail(ENOENT);
  change(folder, {{name, nullptr}});
  RETURN_UNLESS_CRASHED(0);
}

int FakeDisk::rmdir(const char* path) {
  const NodePointer node = find(path);
  if (node != nullptr && !node->entries.empty()) return fail(ENOTEMPTY);
  return unlink(path);
}

int FakeDisk::rename(const char* from, const char* to) {
  if (!begin("rename", std::string(from) + " -> " + to, true)) return -1;
  std::string old_name, new_name;
  const NodePointer folder = parent_of(from, old_name), target = parent_of(to, new_name);
  if (folder == nullptr || folder != target) return fail(folder == nullptr ? ENOENT : EXDEV);
  const NodePointer node = entry(folder->entries, old_name);
  if (node == nullptr) return fail(ENOENT);
  const NodePointer there = entry(folder->entries, new_name);
  if (there != nullptr && there->is_folder && !there->entries.empty()) return fail(ENOTEMPTY);
  change(folder, {{old_name, nullptr}, {new_name, node}});
  RETURN_UNLESS_CRASHED(0);
}

int FakeDisk::exchange(const char* one, const char* other) {
  if (!begin("exchange", std::string(one) + " <-> " + other, true)) return -1;
  std::string first, second;
  const NodePointer folder = parent_of(one, first), same = parent_of(other, second);
  if (folder == nullptr || folder != same) return fail(ENOENT);
  const NodePointer a = entry(folder->entries, first), b = entry(folder->entries, second);
  if (a == nullptr || b == nullptr) return fail(ENOENT);
  change(folder, {{first, b}, {second, a}});
  RETURN_UNLESS_CRASHED(0);
}

std::vector<std::string> FakeDisk::names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  if (!begin("list", folder.string(), false)) return names;
  const NodePointer node = find(folder.string());
  crashing_ = false;
  if (node == nullptr) return names;
  for (const auto& [name, ignored] : node->entries) names.push_back(name);
  return names;
}

std::optional<std::filesystem::path> FakeDisk::canonical(const std::filesystem::path& path) {
  if (find(path.string()) == nullptr) return std::nullopt;
  return path.lexically_normal();
}

int64_t FakeDisk::process() {
  return scheduler_.is_running() ? scheduler_.current().group : 0;
}

bool FakeDisk::is_alive(int64_t process) {
  return scheduler_.is_alive(process);
}

}  // namespace moonshard::simulation
