#include "runtime/checkpoint/durable_course.h"

#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/base/json.h"
#include "runtime/checkpoint/checkpoint_folder.h"

namespace moonshard::checkpoint {
namespace {

constexpr const char* kSpentName = "spent";

}  // namespace

DurableCourse::DurableCourse(DurableParts& parts, std::filesystem::path folder,
                             const DurableOptions& options)
    : parts_(parts), folder_(std::move(folder)), options_(options) {
  MS_CHECK(options.every >= 1, "checkpoint: option 'every': expected at least 1 step, got {}",
           options.every);
  AllOrNone ranks = parts.ranks();
  ranks.run_on_first([&] {
    create_private_folders(folder_);
    return std::string();
  });
  if (parts.has_secret_noise()) charge_lost_steps(ranks);
  resume_newest(ranks);
  ranks.run_on_first([&] {
    if (parts.has_secret_noise()) spent_ = std::make_unique<SpentFile>(folder_ / kSpentName);
    return std::string();
  });
}

std::vector<std::string> DurableCourse::take_warnings() {
  return std::exchange(warnings_, {});
}

void DurableCourse::charge_lost_steps(AllOrNone& ranks) {
  const std::string text =
      ranks.run_on_first([&] { return SpentFile::newest(folder_ / kSpentName); });
  const std::string where = (folder_ / kSpentName).string();
  parts_.charge(accountant::History::from_json(parse_json(text, where), where));
}

void DurableCourse::resume_newest(AllOrNone& ranks) {
  const std::string told = ranks.run_on_first([&] {
    Json names = Json::array();
    for (const std::string& name : checkpoints_newest_first(folder_)) names.push_back(name);
    return one_line(names);
  });
  std::string first_error;
  for (const Json& name : parse_json(told, folder_.string())) {
    try {
      resumed_step_ = parts_.resume(folder_ / name.get<std::string>());
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

void DurableCourse::before_step() {
  if (spent_ == nullptr) return;
  if (const auto account = parts_.account_after_step()) spent_->write(*account, parts_.seconds());
}

void DurableCourse::after_step(int64_t step) {
  for (const SaveOutcome& outcome : parts_.ended_saves())
    if (!outcome.error.empty()) warnings_.push_back(failed_save(outcome.step, outcome.error));
  const bool stops = parts_.must_stop();
  if (!stops && step % options_.every != 0) return;
  SaveOptions save = options_;
  save.wait = save.wait || stops;
  std::filesystem::path path;
  try {
    path = parts_.save(folder_, save);
  } catch (const IoError& error) {
    if (stops) throw;
    warnings_.push_back(failed_save(step, error.what()));
    return;
  }
  if (!stops) return;
  throw Stopped(fmt::format(
      "asked to end (SIGTERM): step {} is saved in {}; start it again to go on from there", step,
      path.string()));
}

}  // namespace moonshard::checkpoint
