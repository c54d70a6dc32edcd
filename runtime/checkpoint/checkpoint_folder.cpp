#include "runtime/checkpoint/checkpoint_folder.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <system_error>
#include <utility>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/disk.h"
#include "runtime/base/files.h"
#include "runtime/base/json.h"

namespace moonshard::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLatest = "latest";
constexpr const char* kLock = ".lock";

// The step of "step_00000120"; -1 for other names.
int64_t step_of(const std::string& name) {
  const std::string_view head = "step_";
  if (!name.starts_with(head) || name.size() < head.size() + 8 || name.size() > head.size() + 16)
    return -1;
  const std::string digits = name.substr(head.size());
  return digits.find_first_not_of("0123456789") == std::string::npos ? std::stoll(digits) : -1;
}

bool is_complete(const fs::path& checkpoint) {
  return is_there(checkpoint / kIndexName);
}

std::string random_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

// Held while a checkpoint is written: partial folders that are there meanwhile are dead ones. The
// system lets go of it with the process, however that ends.
Descriptor lock(const fs::path& folder, bool& is_held) {
  Descriptor file(disk().open((folder / kLock).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  is_held = file.number() >= 0 && disk().flock(file.number()) == 0;
  return file;
}

void sweep(const fs::path& folder) {
  for (const std::string& name : disk().names_in(folder)) {
    if (name.starts_with(".step_") && name.find(".partial-") != std::string::npos)
      remove_tree(folder / name);
  }
  sweep_stale_temporaries(folder);
}

}  // namespace

std::string checkpoint_name(int64_t step) {
  return fmt::format("step_{:08}", step);
}

std::vector<std::string> checkpoints_newest_first(const fs::path& folder) {
  std::vector<std::pair<int64_t, std::string>> found;
  for (const std::string& name : disk().names_in(folder)) {
    const int64_t step = step_of(name);
    if (step >= 0 && is_complete(folder / name)) found.emplace_back(step, name);
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<std::string> names;
  for (const auto& [step, name] : found) names.push_back(name);
  if (!is_there(folder / kLatest)) return names;
  std::string latest = read_text_file(folder / kLatest, 4096);
  latest.resize(latest.find_last_not_of(" \r\n") + 1);
  // An untrusted name never leads out of the folder: it must be one of those that were found.
  const auto place = std::find(names.begin(), names.end(), latest);
  if (place != names.end()) std::rotate(names.begin(), place, place + 1);
  return names;
}

fs::path find_checkpoint(const fs::path& where) {
  if (is_complete(where)) return where;
  const std::vector<std::string> names = checkpoints_newest_first(where);
  return names.empty() ? fs::path() : where / names.front();
}

void sweep_partial_checkpoints(const fs::path& folder) {
  if (!is_there(folder / kLock)) return;
  bool is_held = false;
  const Descriptor held = lock(folder, is_held);
  if (is_held) sweep(folder);
}

void prune_checkpoints(const fs::path& folder, const std::string& newest, int64_t keep,
                       int64_t keep_every) {
  if (keep == 0) return;
  std::vector<std::pair<int64_t, fs::path>> older;
  for (const std::string& name : disk().names_in(folder)) {
    const int64_t step = step_of(name);
    if (step >= 0 && name != newest) older.emplace_back(step, folder / name);
  }
  std::sort(older.rbegin(), older.rend());
  for (size_t i = static_cast<size_t>(keep - 1); i < older.size(); ++i) {
    const auto& [step, path] = older[i];
    if (keep_every > 0 && step % keep_every == 0) continue;
    // Under the name of a partial one: readers never see a part of it, and the next save sweeps.
    const fs::path aside =
        folder / fmt::format(".{}.partial-{}", path.filename().string(), random_id());
    if (disk().rename(path.c_str(), aside.c_str()) == 0) remove_tree(aside);
  }
}

PartialCheckpoint::PartialCheckpoint(const fs::path& folder, int64_t step)
    : folder_(folder), target_(folder / checkpoint_name(step)), step_(step), id_(random_id()) {
  create_private_folders(folder);
  bool is_held = false;
  lock_ = lock(folder, is_held);
  if (lock_.number() < 0) fail_to_write(folder, "write to the folder", errno);
  const bool by_another = !is_held && errno == EWOULDBLOCK;
  MS_CHECK(!by_another,
           "checkpoint: {}: expected a folder that nobody else saves to, got one where another "
           "process is saving; give each job its own",
           folder.string());
  if (is_held) sweep(folder);  // a disk without locks keeps its leftovers
  partial_ = folder / fmt::format(".{}.partial-{}", checkpoint_name(step), id_);
  // Readable by its owner alone: weights, and the seed that the noise comes from.
  if (disk().mkdir(partial_.c_str(), 0700) != 0) {
    const int reason = errno;
    partial_.clear();
    fail_to_write(folder, "make a folder in it", reason);
  }
}

PartialCheckpoint::~PartialCheckpoint() {
  if (!partial_.empty()) remove_tree(partial_);
}

void PartialCheckpoint::publish(const std::string& index_text) {
  write_file_atomically(partial_ / kIndexName, index_text, Access::Private);
  if (disk().rename(partial_.c_str(), target_.c_str()) == 0) {
    partial_.clear();
  } else if (errno == ENOTEMPTY || errno == EEXIST) {
    // The old one takes the partial's name, and is removed with it.
    if (disk().exchange(partial_.c_str(), target_.c_str()) != 0) {
      throw IoError(
          fmt::format("{}: cannot replace the checkpoint that is there: {}; remove it first, or "
                      "save to another folder",
                      target_.string(), std::strerror(errno)));
    }
  } else {
    fail_to_write(target_, "rename the finished checkpoint to it", errno);
  }
  sync_folder(folder_);
  write_file_atomically(folder_ / kLatest, target_.filename().string() + "\n", Access::Private);
}

}  // namespace moonshard::checkpoint
