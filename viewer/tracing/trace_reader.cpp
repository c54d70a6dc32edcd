#include "viewer/tracing/trace.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "runtime/input/byte_source.h"
#include "runtime/input/json_fields.h"
#include "viewer/tracing/trace_events.h"

namespace moonshard::viewer {
namespace {

namespace fs = std::filesystem;

constexpr double kLatestTime = 1e17;  // microseconds: some thousand years
constexpr uint64_t kEventsBetweenChecks = 4096;

bool is_time(double value) {
  return std::isfinite(value) && value >= 0 && value <= kLatestTime;
}

/// One event's fields. The strings are reused from event to event.
struct EventFields {
  struct Argument {
    std::string key, text;
    double number = NAN;
  };
  std::string phase, name, category, process, thread;
  double time = NAN, length = 0;
  std::vector<Argument> arguments;
  size_t num_arguments = 0;

  void clear() {
    phase.clear(), name.clear(), category.clear(), process.clear(), thread.clear();
    time = NAN, length = 0, num_arguments = 0;
  }
  const Argument* argument(std::string_view key) const {
    for (size_t i = 0; i < num_arguments; ++i) {
      if (arguments[i].key == key) return &arguments[i];
    }
    return nullptr;
  }
};

class EventReader {
 public:
  EventReader(JsonStream& stream, RawTrace& trace) : stream_(stream), trace_(trace) {}

  /// Reads one event whose BeginObject was taken and adds it to the trace.
  void read() {
    fields_.clear();
    while (stream_.next() == JsonToken::Key) read_field();
    store();
  }

 private:
  static constexpr size_t kMaxArguments = 64;

  void read_field() {
    const std::string_view key = stream_.text();
    if (key == "ph") return take(fields_.phase);
    if (key == "cat") return take(fields_.category);
    if (key == "name") return take(fields_.name);
    if (key == "pid") return take(fields_.process);
    if (key == "tid") return take(fields_.thread);
    if (key == "ts") return take(fields_.time);
    if (key == "dur") return take(fields_.length);
    if (key == "args" && wants_arguments()) return read_arguments();
    stream_.skip_value();
  }

  // Most arguments are shapes of tensors, which are not shown.
  bool wants_arguments() const {
    const std::string& phase = fields_.phase;
    return phase.empty() || phase == "C" || phase == "M" || fields_.name == "[memory]";
  }

  void take(std::string& into) {
    const JsonToken token = stream_.next();
    if (token == JsonToken::String || token == JsonToken::Number) {
      into = stream_.text();
    } else {
      stream_.skip_rest(token);
    }
  }

  void take(double& into) { take_number(stream_, stream_.next(), into); }

  void read_arguments() {
    const JsonToken token = stream_.next();
    if (token != JsonToken::BeginObject) return stream_.skip_rest(token);
    fields_.num_arguments = 0;
    while (stream_.next() == JsonToken::Key) {
      if (fields_.num_arguments >= kMaxArguments) {
        stream_.skip_value();
        continue;
      }
      if (fields_.arguments.size() <= fields_.num_arguments) fields_.arguments.emplace_back();
      EventFields::Argument& argument = fields_.arguments[fields_.num_arguments++];
      argument.key = stream_.text().substr(0, kMaxNameBytes);
      argument.text.clear();
      argument.number = NAN;
      const JsonToken value = stream_.next();
      if (value == JsonToken::String) argument.text = stream_.text().substr(0, kMaxNameBytes);
      if (value == JsonToken::Number) argument.number = stream_.number();
      stream_.skip_rest(value);
    }
  }

  void store() {
    const char phase = fields_.phase.size() == 1 ? fields_.phase[0] : '\0';
    if (phase == 'M') return store_metadata();
    if (phase != 'X' && phase != 'B' && phase != 'E' && phase != 'i' && phase != 'I' &&
        phase != 'C') {
      trace_.num_skipped += 1;
      return;
    }
    if (!is_time(fields_.time) || (phase == 'X' && !is_time(fields_.length))) {
      trace_.num_skipped += 1;
      trace_.num_bad_times += 1;
      return;
    }
    if (phase == 'C') return store_counter();
    const std::optional<uint32_t> lane = trace_.lane(fields_.process, fields_.thread);
    if (!lane) {
      trace_.num_skipped += 1;
      trace_.num_lane_overflow += 1;
    } else if (phase == 'E') {
      trace_.end_span(*lane, fields_.time);
    } else {
      const double length = phase == 'X' ? fields_.length : phase == 'B' ? -1 : 0;
      trace_.add_span(*lane, fields_.name, fields_.category, fields_.time, length);
      if (fields_.name == "[memory]") store_memory();
    }
  }

  void store_counter() {
    for (size_t i = 0; i < fields_.num_arguments; ++i) {
      const EventFields::Argument& argument = fields_.arguments[i];
      if (!std::isfinite(argument.number)) continue;
      const bool alone = fields_.num_arguments == 1;
      trace_.add_counter(alone ? fields_.name : fields_.name + " " + argument.key, fields_.time,
                         argument.number);
    }
  }

  // Kineto records every allocation as an instant event; its totals make a curve.
  void store_memory() {
    const EventFields::Argument* type = fields_.argument("Device Type");
    const EventFields::Argument* total = fields_.argument("Total Allocated");
    if (type == nullptr || total == nullptr || !std::isfinite(total->number)) return;
    std::string name = "CPU memory (bytes)";
    if (type->number != 0) {
      const EventFields::Argument* id = fields_.argument("Device Id");
      name = fmt::format("GPU {} memory (bytes)", id != nullptr ? id->number : 0);
    }
    trace_.add_counter(name, fields_.time, total->number);
  }

  void store_metadata() {
    const bool of_process = fields_.name.starts_with("process_");
    if (trace_.labels.size() >= trace_.limits.max_lanes * 2) return;
    TraceLabel& label = trace_.labels[{static_cast<uint32_t>(trace_.files.size() - 1),
                                       cut_text(fields_.process, kMaxNameBytes),
                                       of_process ? "" : cut_text(fields_.thread, kMaxNameBytes)}];
    const EventFields::Argument* name = fields_.argument("name");
    const EventFields::Argument* labels = fields_.argument("labels");
    const EventFields::Argument* index = fields_.argument("sort_index");
    if (fields_.name.ends_with("_name") && name != nullptr) label.name = name->text;
    if (fields_.name.ends_with("_labels") && labels != nullptr) label.labels = labels->text;
    if (fields_.name.ends_with("_sort_index") && index != nullptr && std::isfinite(index->number)) {
      label.sort_index = index->number;
    }
  }

  JsonStream& stream_;
  RawTrace& trace_;
  EventFields fields_;
};

// Reads one file into the trace.
class FileReader {
 public:
  FileReader(OpenFile file, RawTrace& trace, const ReadControl& control, double before,
             double share)
      : where_(file.name()), trace_(trace), control_(control), before_(before), share_(share) {
    text_ = open_text(std::move(file), control);
    JsonStreamOptions options;
    options.max_bytes = trace.limits.max_text_bytes;
    options.refuse_duplicates = false;  // costs time, and an event of two names harms nobody
    options.allow_nan = true;
    stream_.emplace(*text_.source, where_, options);
  }

  void read() {
    trace_.files.emplace_back().rank = rank_in_name();
    try {
      read_text();
    } catch (const IoError& problem) {
      if (!found_events_) throw;
      trace_.add_problem(fmt::format("{}; what came before is shown", problem.what()));
    }
  }

 private:
  int64_t rank_in_name() const {
    const std::string_view name = std::string_view(where_).substr(where_.rfind('/') + 1);
    const size_t place = name.find("rank");
    if (place == std::string_view::npos) return -1;
    int64_t rank = -1;
    std::from_chars(name.data() + place + 4, name.data() + name.size(), rank);
    return std::max<int64_t>(rank, -1);
  }

  void read_text() {
    const JsonToken first = stream_->next();
    if (first == JsonToken::BeginArray) {
      read_events();
    } else if (first == JsonToken::BeginObject) {
      while (stream_->next() == JsonToken::Key) read_part();
    }
    if (!found_events_) stream_->refuse("no traceEvents");
    if (!trace_.is_full()) stream_->next();  // nothing may follow
  }

  void read_part() {
    const std::string key = cut_text(stream_->text(), 64);
    if (key == "traceEvents") {
      const JsonToken token = stream_->next();
      if (token == JsonToken::BeginArray) return read_events();
      return stream_->skip_rest(token);
    }
    if (key == "distributedInfo") {
      const JsonToken token = stream_->next();
      if (token != JsonToken::BeginObject) return stream_->skip_rest(token);
      return for_each_key(*stream_, [&](const std::string& name, JsonToken value) {
        double rank = -1;
        take_number(*stream_, value, rank);
        if (name == "rank" && rank >= 0 && rank < 1e9) {
          trace_.files.back().rank = static_cast<int64_t>(rank);
        }
      });
    }
    if (key == "baseTimeNanoseconds") {
      const JsonToken token = stream_->next();
      int64_t base = 0;
      if (token == JsonToken::Number) {
        const std::string_view text = stream_->text();
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), base);
        if (error == std::errc() && end == text.data() + text.size()) {
          trace_.files.back().base_ns = base;
        }
      }
      return stream_->skip_rest(token);
    }
    stream_->skip_value();
  }

  void read_events() {
    found_events_ = true;
    EventReader events(*stream_, trace_);
    uint64_t count = 0;
    for (JsonToken token = stream_->next(); is_value(token); token = stream_->next()) {
      if (token == JsonToken::BeginObject) {
        events.read();
      } else {
        trace_.num_skipped += 1;
        stream_->skip_rest(token);
      }
      if (trace_.is_full()) {
        throw IoError(fmt::format("{}: expected at most {} events, got more", stream_->where(),
                                  trace_.limits.max_events));
      }
      if (++count % kEventsBetweenChecks == 0) {
        control_.check();
        const double done =
            static_cast<double>(text_.file->taken()) / static_cast<double>(text_.size + 1);
        control_.report(before_ + share_ * std::min(done, 1.0));
      }
    }
  }

  std::string where_;
  RawTrace& trace_;
  const ReadControl& control_;
  double before_, share_;
  OpenText text_;
  std::optional<JsonStream> stream_;
  bool found_events_ = false;
};

Trace finish(RawTrace raw, const ReadControl& control) {
  control.check();
  Trace trace = make_trace(std::move(raw));
  control.report(1);
  return trace;
}

}  // namespace

Trace read_trace(const std::vector<fs::path>& files, const ReadControl& control,
                 const TraceLimits& limits) {
  RawTrace raw(limits);
  for (size_t i = 0; i < files.size(); ++i) {
    control.check();
    const double share = 0.9 / static_cast<double>(files.size());
    FileReader(open_plain_file(files[i]), raw, control, share * static_cast<double>(i), share)
        .read();
  }
  return finish(std::move(raw), control);
}

Trace read_trace(OpenFile file, const ReadControl& control, const TraceLimits& limits) {
  RawTrace raw(limits);
  FileReader(std::move(file), raw, control, 0, 0.9).read();
  return finish(std::move(raw), control);
}

}  // namespace moonshard::viewer
