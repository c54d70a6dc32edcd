#include "runtime/checkpoint/durable.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <span>
#include <utility>

#include <ATen/ATen.h>

#include "runtime/base/check.h"
#include "runtime/base/checksum.h"
#include "runtime/base/files.h"
#include "runtime/base/json.h"
#include "runtime/checkpoint/all_or_none.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/checkpoint_folder.h"

namespace moonshard::checkpoint {
namespace {

constexpr const char* kSpentName = "spent";
// Far above any schedule's history.
constexpr int64_t kSpentSlot = 1 << 20;

uint32_t sum_of_text(const std::string& text) {
  return crc32c(std::as_bytes(std::span(text)));
}

// A slot's line: its number, its checksum and the history. Empty when it is torn or was never
// written.
std::string read_slot(const ReadOnlyFile& file, int64_t slot, uint64_t& number) {
  const int64_t begin = slot * kSpentSlot;
  const int64_t bytes = std::min(kSpentSlot, file.size() - begin);
  if (bytes <= 0) return "";
  std::string text(static_cast<size_t>(bytes), '\0');
  file.read_at(begin, text.data(), bytes, "account");
  const size_t end = text.find('\n');
  unsigned long long told = 0;
  unsigned sum = 0;
  int head = 0;
  if (end == std::string::npos || std::sscanf(text.c_str(), "%llu %x %n", &told, &sum, &head) != 2)
    return "";
  const std::string history =
      text.substr(static_cast<size_t>(head), end - static_cast<size_t>(head));
  if (sum_of_text(std::to_string(told) + history) != sum) return "";
  number = told;
  return history;
}

}  // namespace

// Two slots, written in turn: a kill in the middle of one leaves the other. Synced once a second at
// most: a kill takes nothing from the system's memory, and what a power cut takes from it was never
// seen by anybody but on a screen.
class DurableRun::SpentFile {
 public:
  explicit SpentFile(const std::filesystem::path& path)
      : path_(path),
        file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)) {
    if (file_.number() < 0) fail_to_write(path_, "open", errno);
    uint64_t first = 0, second = 0;
    const ReadOnlyFile before = ReadOnlyFile::open(path);
    read_slot(before, 0, first);
    read_slot(before, 1, second);
    number_ = std::max(first, second);
  }

  /// The history of the newest whole slot; an empty list when there is none.
  static std::string newest(const std::filesystem::path& path) {
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) return "[]";
    const ReadOnlyFile file = ReadOnlyFile::open(path);
    std::array<std::string, 2> histories;
    std::array<uint64_t, 2> numbers{};
    for (size_t slot = 0; slot < 2; ++slot)
      histories[slot] = read_slot(file, static_cast<int64_t>(slot), numbers[slot]);
    const std::string& found = numbers[1] > numbers[0] ? histories[1] : histories[0];
    if (!found.empty() || file.size() == 0) return found.empty() ? "[]" : found;
    throw IoError(
        fmt::format("{}: expected the account of the last step, got none that is whole; what was "
                    "spent since the last checkpoint is unknown: remove the file to go on without "
                    "it, and do not claim an epsilon",
                    path.string()));
  }

  void write(const accountant::History& history) {
    const std::string text = one_line(history.to_json());
    const uint64_t number = ++number_;
    const std::string line =
        fmt::format("{} {:08x} {}\n", number, sum_of_text(std::to_string(number) + text), text);
    MS_CHECK(static_cast<int64_t>(line.size()) < kSpentSlot,
             "{}: expected an account of less than {} bytes, got {}", path_.string(), kSpentSlot,
             line.size());
    const auto place = static_cast<off_t>(static_cast<int64_t>(number % 2) * kSpentSlot);
    if (::pwrite(file_.number(), line.data(), line.size(), place) !=
        static_cast<ssize_t>(line.size()))
      fail_to_write(path_, "write", errno);
    const auto now = std::chrono::steady_clock::now();
    if (now - synced_ < std::chrono::seconds(1)) return;
    if (::fdatasync(file_.number()) != 0) fail_to_write(path_, "sync", errno);
    synced_ = now;
  }

 private:
  std::filesystem::path path_;
  Descriptor file_;
  uint64_t number_ = 0;
  std::chrono::steady_clock::time_point synced_{};
};

DurableRun::DurableRun(train::Trainer& trainer, Saver& saver, std::filesystem::path folder,
                       const DurableOptions& options)
    : trainer_(trainer), saver_(saver), folder_(std::move(folder)), options_(options) {
  MS_CHECK(options.every >= 1, "checkpoint: option 'every': expected at least 1 step, got {}",
           options.every);
  const bool has_secret = trainer.account().secret() != nullptr;
  AllOrNone ranks(trainer.world().group("checkpoint", c10::kCPU), "durable run");
  ranks.run_on_first([&] {
    create_private_folders(folder_);
    return std::string();
  });
  if (has_secret) charge_lost_steps();
  resume_newest();
  ranks.run_on_first([&] {
    if (has_secret) spent_ = std::make_unique<SpentFile>(folder_ / kSpentName);
    return std::string();
  });
}

DurableRun::~DurableRun() = default;

std::vector<std::string> DurableRun::take_warnings() {
  return std::exchange(warnings_, {});
}

void DurableRun::charge_lost_steps() {
  AllOrNone ranks(trainer_.world().group("checkpoint", c10::kCPU), "durable run");
  const std::string text =
      ranks.run_on_first([&] { return SpentFile::newest(folder_ / kSpentName); });
  const std::string where = (folder_ / kSpentName).string();
  trainer_.charge(accountant::History::from_json(parse_json(text, where), where));
}

void DurableRun::resume_newest() {
  AllOrNone ranks(trainer_.world().group("checkpoint", c10::kCPU), "durable run");
  const std::string told = ranks.run_on_first([&] {
    Json names = Json::array();
    for (const std::string& name : checkpoints_newest_first(folder_)) names.push_back(name);
    return one_line(names);
  });
  std::string first_error;
  for (const Json& name : parse_json(told, folder_.string())) {
    try {
      resumed_step_ = resume(trainer_, folder_ / name.get<std::string>());
      return;
    } catch (const IoError& error) {
      // Damaged: an older one may be whole. What does not fit is an error of the script's.
      warnings_.push_back(fmt::format("passed over a checkpoint: {}", error.what()));
      if (first_error.empty()) first_error = error.what();
    }
  }
  // A run that silently begins again from the start would be worse than one that does not.
  if (!first_error.empty()) {
    throw IoError(
        fmt::format("{}: expected a whole checkpoint to go on from, got none; the newest: {}",
                    folder_.string(), first_error));
  }
}

void DurableRun::before_step() {
  if (spent_ == nullptr || !trainer_.account().has_claim()) return;
  accountant::History history = trainer_.account().history();
  const double sigma = trainer_.clip_options().noise_multiplier;
  if (sigma > 0) history.add({trainer_.account().sampling().rate, sigma, 1});
  spent_->write(history);
}

bool DurableRun::must_stop() {
  if (trainer_.world().size() == 1) return stop_requested();
  agreeing_.wait();
  const bool answer = agreed_.defined() && agreed_.item<int>() == 1;
  agreed_ = at::tensor({stop_requested() ? 1 : 0}, at::kInt);
  agreeing_ = trainer_.world()
                  .group("durable", c10::kCPU)
                  ->all_reduce(agreed_, "wish to stop", comm::Reduction::Max);
  return answer;
}

void DurableRun::hear_of_saves() {
  for (const SaveOutcome& outcome : saver_.ended())
    if (!outcome.error.empty()) warnings_.push_back(failed_save(outcome.step, outcome.error));
}

void DurableRun::after_step(int64_t step) {
  hear_of_saves();
  const bool stops = must_stop();
  if (!stops && step % options_.every != 0) return;
  SaveOptions save = options_;
  save.wait = save.wait || stops;
  std::filesystem::path path;
  try {
    path = saver_.save(folder_, save);
  } catch (const IoError& error) {
    if (stops) throw;
    warnings_.push_back(failed_save(step, error.what()));
    return;
  }
  if (!stops) return;
  agreeing_.wait();
  note_stopped();
  throw Stopped(fmt::format(
      "asked to end (SIGTERM): step {} is saved in {}; start it again to go on from there", step,
      path.string()));
}

}  // namespace moonshard::checkpoint
