#include "runtime/checkpoint/spent_file.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <span>

#include "runtime/base/check.h"
#include "runtime/base/checksum.h"
#include "runtime/base/disk.h"
#include "runtime/base/json.h"

namespace moonshard::checkpoint {
namespace {

constexpr int64_t kSlots = 3;
// Far above any schedule's history.
constexpr int64_t kSlotBytes = 1 << 20;
constexpr double kSyncEvery = 1;  // seconds

uint32_t sum_of_account(uint64_t number, const std::string& history) {
  const std::string text = std::to_string(number) + history;
  return crc32c(std::as_bytes(std::span(text)));
}

std::string line_of(uint64_t number, const std::string& history) {
  return fmt::format("{} {:08x} {}\n", number, sum_of_account(number, history), history);
}

struct Slot {
  uint64_t number = 0;  ///< 0: torn, or never written
  std::string history;
};

// A slot's line: its number, its checksum and the history.
Slot read_slot(const ReadOnlyFile& file, int64_t slot) {
  const int64_t begin = slot * kSlotBytes;
  const int64_t most = std::min(kSlotBytes, file.size() - begin);
  std::string text;
  size_t end = std::string::npos;
  // Nearly always short: a slot is read no further than its line.
  for (int64_t bytes = 4096; end == std::string::npos && static_cast<int64_t>(text.size()) < most;
       bytes *= 4) {
    const auto before = static_cast<int64_t>(text.size());
    const int64_t wanted = std::min(bytes, most) - before;
    text.resize(static_cast<size_t>(before + wanted));
    file.read_at(begin + before, text.data() + before, wanted, "account");
    end = text.find('\n', static_cast<size_t>(before));
  }
  unsigned long long told = 0;
  unsigned sum = 0;
  int head = 0;
  if (end == std::string::npos || std::sscanf(text.c_str(), "%llu %x %n", &told, &sum, &head) != 2)
    return {};
  Slot found{told, text.substr(static_cast<size_t>(head), end - static_cast<size_t>(head))};
  return sum_of_account(told, found.history) == sum ? found : Slot();
}

struct Newest : Slot {
  int64_t place = 0;
};

Newest newest_slot(const ReadOnlyFile& file) {
  Newest newest;
  for (int64_t place = 0; place < kSlots; ++place) {
    Slot slot = read_slot(file, place);
    if (slot.number > newest.number) newest = {std::move(slot), place};
  }
  return newest;
}

}  // namespace

SpentFile::SpentFile(const std::filesystem::path& path) : path_(path) {
  Newest before;
  if (is_there(path)) before = newest_slot(ReadOnlyFile::open(path));
  // From the beginning there is a whole account on the disk, whatever is torn later.
  if (before.number == 0)
    write_file_atomically(path, line_of(before.number = 1, "[]"), Access::Private);
  file_ = Descriptor(disk().open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0));
  if (file_.number() < 0) fail_to_write(path_, "open", errno);
  number_ = before.number;
  newest_slot_ = before.place;
  // Its writer, and who made it, may have been killed before that.
  sync();
  sync_folder(path.parent_path());
}

std::string SpentFile::newest(const std::filesystem::path& path) {
  if (!is_there(path)) return "[]";
  const ReadOnlyFile file = ReadOnlyFile::open(path);
  const Newest found = newest_slot(file);
  if (found.number > 0) return found.history;
  if (file.size() == 0) return "[]";
  throw IoError(
      fmt::format("{}: expected the account of the last step, got none that is whole; what was "
                  "spent since the last checkpoint is unknown: remove the file to go on without "
                  "it, and do not claim an epsilon",
                  path.string()));
}

void SpentFile::sync() {
  if (disk().fdatasync(file_.number()) != 0) fail_to_write(path_, "sync", errno);
  synced_slot_ = newest_slot_;
}

void SpentFile::write(const accountant::History& history, double now_s) {
  const uint64_t number = number_ + 1;
  const std::string line = line_of(number, one_line(history.to_json()));
  MS_CHECK(static_cast<int64_t>(line.size()) < kSlotBytes,
           "{}: expected an account of less than {} bytes, got {}", path_.string(), kSlotBytes,
           line.size());
  int64_t place = 0;
  while (place == synced_slot_ || place == newest_slot_) ++place;
  if (disk().pwrite(file_.number(), line.data(), line.size(),
                    static_cast<off_t>(place * kSlotBytes)) != static_cast<ssize_t>(line.size()))
    fail_to_write(path_, "write", errno);
  number_ = number;
  newest_slot_ = place;
  if (is_synced_ && now_s - synced_s_ < kSyncEvery) return;
  sync();
  synced_s_ = now_s;
  is_synced_ = true;
}

}  // namespace moonshard::checkpoint
