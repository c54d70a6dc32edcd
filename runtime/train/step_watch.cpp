#include "runtime/train/step_watch.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "runtime/base/check.h"
#include "runtime/base/json.h"
#include "runtime/privacy/norm_engine.h"
#include "runtime/profile/trace_request.h"

namespace moonshard::train {
namespace {

enum class Log { Off, Phases, Layers };

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' && std::string(value) != "0";
}

Log log_wish() {
  static const Log wish = [] {
    const char* own = std::getenv("MOONSHARD_PROFILE");
    if (own != nullptr && std::string(own) == "layers") return Log::Layers;
    if (is_set("OPACUS_PROFILE_FSDP_DETAILED")) return Log::Layers;
    return is_set("MOONSHARD_PROFILE") || is_set("OPACUS_PROFILE_FSDP") ? Log::Phases : Log::Off;
  }();
  return wish;
}

std::string numbers_text(const std::vector<double>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size() && i < 16; ++i)
    text += fmt::format("{}{:.6g}", i > 0 ? " " : "", numbers[i]);
  return numbers.size() > 16 ? text + " …" : text;
}

std::string squares_text(std::vector<double> norms) {
  for (double& norm : norms) norm *= norm;
  return numbers_text(norms);
}

// What to look at where ranks disagree: norms before and after they are put together.
std::string norm_lines(const StepReport& report) {
  if (report.squares_before_sum.empty())
    return fmt::format("  squared norms of this rank: {}\n  squared norms of all ranks: {}\n",
                       squares_text(report.norms), squares_text(report.all_norms));
  return fmt::format(
      "  squared norms of this rank, before the sum: {}\n  squared norms after the sum over ranks: "
      "{}\n",
      numbers_text(report.squares_before_sum), squares_text(report.norms));
}

}  // namespace

records::NormTimes norm_times(const std::vector<profile::Span>& spans) {
  records::NormTimes times{0, 0, 0, 0};
  bool any = false;
  for (const profile::Span& span : spans) {
    const double ms = span.end_ms - span.begin_ms;
    if (span.lane == privacy::kLocalNorms)
      times.local += ms;
    else if (span.lane == privacy::kNormStacking)
      times.stacking += ms;
    else if (span.lane == privacy::kNormReduce)
      times.reduce += ms;
    else if (span.lane == privacy::kNormFinal)
      times.final += ms;
    else
      continue;
    any = true;
  }
  return any ? times : records::NormTimes();
}

std::vector<records::LayerTime> layer_times(const std::vector<profile::Span>& spans) {
  std::vector<records::LayerTime> rows;
  for (const profile::Span& span : spans) {
    if (span.lane != privacy::kLocalNorms) continue;
    const double ms = span.end_ms - span.begin_ms;
    const auto known = std::find_if(rows.begin(), rows.end(),
                                    [&](const auto& row) { return row.layer == span.name; });
    if (known != rows.end()) {
      known->norm_ms += ms;
    } else {
      rows.push_back({span.name, ms, ""});
    }
  }
  return rows;
}

StepWatch::StepWatch(c10::Device device) : device_(device) {}
StepWatch::~StepWatch() {
  stop();
  finish_trace();  // fewer steps than were asked for are better than none
}

void StepWatch::ask_for_trace(int64_t steps, const std::filesystem::path& file) {
  MS_CHECK(steps >= 1, "trainer: trace: expected at least 1 step, got {}", steps);
  std::error_code ignored;
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
  MS_CHECK(std::filesystem::is_directory(folder, ignored) && ::access(folder.c_str(), W_OK) == 0,
           "trainer: trace: expected a folder that can be written to, got '{}'",
           folder.string().substr(0, 200));
  finish_trace();
  trace_steps_ = steps;
  trace_file_ = file;
}

// By a signal, while the job runs: an error of the request is only printed.
void StepWatch::take_request(int rank) {
  const profile::TraceRequest request = profile::take_trace_request();
  if (request.steps == 0) return;
  std::error_code ignored;
  std::filesystem::create_directories(request.folder, ignored);
  try {
    ask_for_trace(request.steps, request.folder / profile::trace_file_name(rank));
  } catch (const UsageError& error) {
    std::fprintf(stderr, "moonshard: no trace: %s\n", error.what());
  }
}

void StepWatch::finish_trace() {
  trace_steps_ = 0;
  if (trace_ == nullptr) return;
  const std::unique_ptr<profile::Trace> done = std::move(trace_);
  try {
    done->save(trace_file_, who_);
    std::fprintf(stderr, "moonshard: trace written: %s\n", trace_file_.c_str());
  } catch (const std::exception& error) {  // the step is done and counts
    std::fprintf(stderr, "moonshard: no trace: %s\n", error.what());
  }
}

bool StepWatch::traces_next_step(int rank) {
  if (trace_steps_ == 0 && !wishes.details) take_request(rank);
  return trace_steps_ > 0;
}

void StepWatch::begin(const profile::TraceInfo& who) {
  MS_CHECK(
      step_ == nullptr,
      "trainer: expected the running step to end before the next one, got a step inside of it");
  who_ = who;
  // A trace hears of memory by the same way as the ledger does: details end it early.
  if (wishes.details) finish_trace();
  if (traces_next_step(who.rank) && trace_ == nullptr && !profile::trace_is_recording())
    trace_ = std::make_unique<profile::Trace>(device_);
  const bool timeline = wishes.timeline || wishes.details || log_wish() == Log::Layers;
  const bool ledger = wishes.details && !profile::trace_holds_this_thread();
  step_ = std::make_unique<profile::StepScope>(device_, profile::StepRecording{timeline, ledger});
}

void StepWatch::end(StepReport& report) {
  const std::shared_ptr<profile::Context> recorded = step_->context();
  step_.reset();
  std::vector<profile::Span> spans;
  if (recorded->timeline != nullptr) spans = recorded->timeline->finish();
  if (recorded->ledger != nullptr) {
    auto details = std::make_shared<StepDetails>();
    details->memory = recorded->ledger->finish();
    details->spans = spans;
    report.details = std::move(details);
  }
  if (log_wish() != Log::Off) write_log(report, spans);
  if (wishes.timeline) report.spans = std::move(spans);
  if (trace_ != nullptr && --trace_steps_ == 0) finish_trace();
}

void StepWatch::stop() {
  step_.reset();
}

bool StepWatch::is_recording() const {
  const bool recorded = step_ != nullptr && (step_->context()->timeline != nullptr ||
                                             step_->context()->ledger != nullptr);
  return recorded || profile::trace_is_recording();
}

void StepWatch::write_log(const StepReport& report, const std::vector<profile::Span>& spans) const {
  std::string text = fmt::format("moonshard profile: rank {} step {}:", who_.rank, report.step);
  for (const auto& [phase, ms] : report.phases) text += fmt::format(" {} {:.3f}", phase, ms);
  text += fmt::format(" total {:.3f} ms, allocated {} max {} bytes\n", report.time_ms,
                      report.memory.allocated_bytes, report.memory.max_allocated_bytes);
  if (log_wish() == Log::Layers) {
    const records::NormTimes norms = norm_times(spans);
    if (!std::isnan(norms.local)) {
      text += fmt::format("  norms: stacking {:.3f} local {:.3f} reduce {:.3f} final {:.3f} ms\n",
                          norms.stacking, norms.local, norms.reduce, norms.final);
      text += norm_lines(report);
    }
    for (const records::LayerTime& row : layer_times(spans))
      text += fmt::format("  norm of {} {:.3f} ms\n", row.layer, row.norm_ms);
    for (const profile::CollectiveTimes& times : profile::collective_times(spans))
      text += fmt::format("  {}: {} times, work {:.3f} ms, exposed {:.3f} ms, overlap {:.0f} %\n",
                          times.operation, times.count, times.work_ms, times.exposed_ms,
                          times.overlap_percent());
  }
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace moonshard::train
