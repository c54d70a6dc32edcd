#include "runtime/tracing/trace_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>

#include <fmt/format.h>

#include "runtime/base/check.h"
#include "runtime/input/byte_source.h"
#include "runtime/input/json_fields.h"
#include "runtime/input/json_stream.h"
#include "runtime/input/name_table.h"

namespace moonshard::tracing {
namespace {

constexpr size_t kMaxNames = 1'000'000;
constexpr uint64_t kEventsPerCheck = 4096;
constexpr double kLongestUs = 1e15;  // thirty years; times beyond are damage

bool is_sane(double time) {
  return std::isfinite(time) && std::abs(time) < 1e18;
}

// One end of an arrow from a call to what it started (cat "ac2g").
struct FlowEnd {
  double time_us = 0;
  int64_t id = -1;
  uint32_t lane = 0;
};

struct EventText {
  char phase = '\0';
  std::string category, name, process, thread, id;
  double time = NAN, length = 0;
  double correlation = -1, record_correlation = -1, stream = -1, awaited_stream = -1;
  std::string label;  // args.name of metadata

  void clear() {
    phase = '\0';
    category.clear(), name.clear(), process.clear(), thread.clear(), id.clear(), label.clear();
    time = NAN, length = 0, correlation = record_correlation = stream = awaited_stream = -1;
  }
};

bool sends(std::string_view name) {
  return name.find("nccl") != std::string_view::npos ||
         name.find("delay_kernel") != std::string_view::npos ||  // a modelled link
         name.find("rccl") != std::string_view::npos;
}

// Of a plan's simulated step.
EventKind modelled_kind(std::string_view name) {
  for (const char* word : {"all_gather", "reduce_scatter", "all_reduce", "broadcast"})
    if (name.starts_with(word)) return EventKind::Communication;
  for (const char* word : {"to host", "to device"})
    if (name.starts_with(word)) return EventKind::Copy;
  return EventKind::Kernel;
}

class EventsReader {
 public:
  EventsReader(OpenFile file, const ReadControl& control, const TraceReadLimits& limits)
      : control_(control), limits_(limits), names_(kMaxNames) {
    data_.file = file.name();
    source_ = open_text(std::move(file), control);
    JsonStreamOptions options;
    options.max_bytes = limits.max_text_bytes;
    options.refuse_duplicates = false;
    options.allow_nan = true;
    stream_.emplace(*source_.source, data_.file, options);
  }

  TraceData read() {
    const JsonToken first = stream_->next();
    if (first == JsonToken::BeginArray) {
      read_list();
    } else if (first == JsonToken::BeginObject) {
      while (stream_->next() == JsonToken::Key) read_part();
    }
    if (!found_events_) stream_->refuse("no traceEvents");
    return finish();
  }

 private:
  void read_part() {
    const std::string key = cut_text(stream_->text(), 64);
    const auto object = [&](const auto& take) {
      const JsonToken token = stream_->next();
      if (token != JsonToken::BeginObject) return stream_->skip_rest(token);
      for_each_key(*stream_, take);
    };
    if (key == "traceEvents") {
      const JsonToken token = stream_->next();
      if (token == JsonToken::BeginArray) return read_list();
      return stream_->skip_rest(token);
    }
    if (key == "distributedInfo") {
      return object([&](const std::string& name, JsonToken value) {
        double number = -1;
        take_number(*stream_, value, number);
        if (!(number >= 0 && number < 1e9)) return;
        if (name == "rank") data_.rank = static_cast<int64_t>(number);
        if (name == "world_size") data_.world = static_cast<int64_t>(number);
      });
    }
    if (key == "moonshard") {
      return object([&](const std::string& name, JsonToken value) {
        if (name == "what") return take_text(*stream_, value, data_.what);
        if (name == "update_bytes") return take_number(*stream_, value, data_.update_bytes);
        stream_->skip_rest(value);
      });
    }
    if (key == "modelled") return take_truth(*stream_, stream_->next(), data_.is_modelled);
    if (key == "deviceProperties") return read_devices();
    stream_->skip_value();
  }

  void read_devices() {
    const JsonToken token = stream_->next();
    if (token != JsonToken::BeginArray) return stream_->skip_rest(token);
    for_each_element(*stream_, [&](JsonToken element) {
      if (element != JsonToken::BeginObject) return stream_->skip_rest(element);
      for_each_key(*stream_, [&](const std::string& name, JsonToken value) {
        if (name == "name" && data_.device.empty()) return take_text(*stream_, value, data_.device);
        stream_->skip_rest(value);
      });
    });
  }

  void read_list() {
    found_events_ = true;
    for (JsonToken token = stream_->next(); is_value(token); token = stream_->next()) {
      if (token != JsonToken::BeginObject) {
        stream_->skip_rest(token);
        continue;
      }
      text_.clear();
      while (stream_->next() == JsonToken::Key) read_field();
      store();
      if (++data_.num_events % kEventsPerCheck == 0) control_.check();
      if (data_.num_events > limits_.max_events)
        throw IoError(fmt::format("{}: expected at most {} events, got more", stream_->where(),
                                  limits_.max_events));
    }
  }

  void take(std::string& into) {
    const JsonToken token = stream_->next();
    if (token == JsonToken::String || token == JsonToken::Number) {
      into = stream_->text();
    } else {
      stream_->skip_rest(token);
    }
  }

  void read_field() {
    const std::string_view key = stream_->text();
    if (key == "ph") {
      std::string phase;
      take(phase);
      text_.phase = phase.size() == 1 ? phase[0] : '\0';
      return;
    }
    if (key == "cat") return take(text_.category);
    if (key == "name") return take(text_.name);
    if (key == "pid") return take(text_.process);
    if (key == "tid") return take(text_.thread);
    if (key == "id") return take(text_.id);
    if (key == "ts") return take_number(*stream_, stream_->next(), text_.time);
    if (key == "dur") return take_number(*stream_, stream_->next(), text_.length);
    if (key == "args" && wants_arguments()) return read_arguments();
    stream_->skip_value();
  }

  // Shapes of operators are most of a file's bytes, and nobody asks for them.
  bool wants_arguments() const {
    return text_.category != "cpu_op" && text_.category != "user_annotation" &&
           text_.category != "python_function";
  }

  void read_arguments() {
    const JsonToken token = stream_->next();
    if (token != JsonToken::BeginObject) return stream_->skip_rest(token);
    while (stream_->next() == JsonToken::Key) {
      const std::string_view key = stream_->text();
      if (key == "correlation") {
        take_number(*stream_, stream_->next(), text_.correlation);
      } else if (key == "wait_on_cuda_event_record_corr_id") {
        take_number(*stream_, stream_->next(), text_.record_correlation);
      } else if (key == "wait_on_stream") {
        take_number(*stream_, stream_->next(), text_.awaited_stream);
      } else if (key == "stream") {
        take_number(*stream_, stream_->next(), text_.stream);
      } else if (key == "name") {
        take(text_.label);
      } else {
        stream_->skip_value();
      }
    }
  }

  void store() {
    const char phase = text_.phase;
    if (phase == 'M') return store_label();
    if (!is_sane(text_.time)) return;
    if (phase == 's' || phase == 'f') return store_flow();
    if (phase == 'E') return end_open();
    if (phase != 'X' && phase != 'B') return;
    if (phase == 'X' && !(text_.length >= 0 && text_.length < kLongestUs)) {
      num_bad_ += 1;
      return;
    }
    EventKind kind = EventKind::Op;
    const std::string& category = text_.category;
    if (category == "kernel" || category == "concurrent_kernel") {
      kind = sends(text_.name) ? EventKind::Communication : EventKind::Kernel;
    } else if (category == "gpu_memcpy" || category == "gpu_memset") {
      kind = EventKind::Copy;
    } else if (category == "cuda_runtime" || category == "cuda_driver") {
      kind = EventKind::Call;
    } else if (category == "user_annotation") {
      kind = EventKind::Annotation;
    } else if (category == "cuda_sync") {
      return store_wait();
    } else if (category == "modelled") {
      kind = modelled_kind(text_.name);
    } else if (category == "gpu_user_annotation" || category == "overhead" || category == "Trace" ||
               category == "ac2g" || category == "fwdbwd") {
      return;
    }
    const uint32_t at = lane();
    if (at == kNone) return;
    EventLane& owner = data_.lanes[at];
    const auto correlation = text_.correlation >= 0 && text_.correlation < 1e15
                                 ? static_cast<int64_t>(text_.correlation)
                                 : int64_t{-1};
    if (phase == 'B') open_[at].push_back(data_.events.size());
    owner.is_device = owner.is_device || runs_on_device(kind);
    data_.events.push_back({text_.time, phase == 'X' ? text_.length : 0, correlation,
                            names_.number(text_.name), at, kind});
  }

  void end_open() {
    const uint32_t at = lane();
    if (at == kNone || open_[at].empty()) return;
    TraceEvent& event = data_.events[open_[at].back()];
    open_[at].pop_back();
    event.length_us = std::clamp(text_.time - event.start_us, 0.0, kLongestUs);
  }

  void store_wait() {
    if (text_.record_correlation < 0 || text_.correlation < 0 ||
        text_.name.find("Wait") == std::string::npos)
      return;
    const auto whole = [](double value) {
      return std::abs(value) < 1e15 ? static_cast<int64_t>(value) : int64_t{-1};
    };
    data_.waits.push_back({whole(text_.correlation), whole(text_.record_correlation),
                           whole(text_.stream), whole(text_.awaited_stream)});
  }

  void store_flow() {
    if (text_.category != "ac2g") return;
    int64_t id = -1;
    std::from_chars(text_.id.data(), text_.id.data() + text_.id.size(), id);
    const uint32_t at = lane();
    if (id < 0 || at == kNone) return;
    flows_.push_back({text_.time, id, at});
  }

  void store_label() {
    if (text_.name != "thread_name" || labels_.size() > 2 * limits_.max_lanes) return;
    labels_[{cut_text(text_.process, kMaxNameBytes), cut_text(text_.thread, kMaxNameBytes)}] =
        cut_text(text_.label, kMaxNameBytes);
  }

  uint32_t lane() {
    key_.assign(text_.process);
    key_ += '\n';
    key_ += text_.thread;
    if (key_ == last_key_) return last_lane_;
    last_key_ = key_;
    const auto known = places_.find(key_);
    if (known != places_.end()) return last_lane_ = known->second;
    if (data_.lanes.size() >= limits_.max_lanes) return last_lane_ = kNone;
    last_lane_ = static_cast<uint32_t>(data_.lanes.size());
    places_.emplace(key_, last_lane_);
    data_.lanes.push_back({cut_text(text_.process, kMaxNameBytes),
                           cut_text(text_.thread, kMaxNameBytes), "", false, 0, 0});
    open_.emplace_back();
    return last_lane_;
  }

  // Traces of some tools name what a call started by arrows alone.
  void correlate_by_flows() {
    const bool is_needed =
        std::any_of(data_.events.begin(), data_.events.end(), [](const TraceEvent& event) {
          return runs_on_device(event.kind) && event.correlation < 0;
        });
    if (!is_needed || flows_.empty()) return;
    std::map<std::pair<uint32_t, double>, int64_t> by_place;
    for (const FlowEnd& end : flows_) by_place[{end.lane, end.time_us}] = end.id;
    for (TraceEvent& event : data_.events) {
      if (event.correlation >= 0) continue;
      if (!runs_on_device(event.kind) && event.kind != EventKind::Call) continue;
      const auto known = by_place.find({event.lane, event.start_us});
      if (known != by_place.end()) event.correlation = known->second;
    }
  }

  void name_lanes() {
    for (EventLane& lane : data_.lanes) {
      const auto label = labels_.find({lane.process, lane.thread});
      const bool has_label = label != labels_.end() && !label->second.empty();
      const bool is_number =
          !lane.thread.empty() && lane.thread.find_first_not_of("0123456789-") == std::string::npos;
      if (has_label) {
        lane.name = label->second;
      } else if (is_number) {
        lane.name = (lane.is_device ? "stream " : "thread ") + lane.thread;
      } else {
        lane.name = lane.thread;
      }
    }
  }

  TraceData finish() {
    correlate_by_flows();
    name_lanes();
    std::vector<TraceEvent>& events = data_.events;
    if (events.empty())
      throw IoError(
          fmt::format("{}: expected a trace with spans (ph X), got none of them among {} "
                      "events; trace a step again",
                      data_.file, data_.num_events));
    data_.first_us =
        std::min_element(events.begin(), events.end(), [](const auto& a, const auto& b) {
          return a.start_us < b.start_us;
        })->start_us;
    // By lane first, in place of one sort over all.
    std::vector<uint32_t> counts(data_.lanes.size() + 1, 0);
    for (const TraceEvent& event : events) counts[event.lane + 1] += 1;
    for (size_t i = 1; i < counts.size(); ++i) counts[i] += counts[i - 1];
    std::vector<TraceEvent> sorted(events.size());
    std::vector<uint32_t> next(counts.begin(), counts.end() - 1);
    for (TraceEvent& event : events) {
      event.start_us -= data_.first_us;
      sorted[next[event.lane]++] = event;
    }
    for (size_t i = 0; i < data_.lanes.size(); ++i) {
      data_.lanes[i].first = counts[i];
      data_.lanes[i].last = counts[i + 1];
      std::sort(sorted.begin() + counts[i], sorted.begin() + counts[i + 1],
                [](const TraceEvent& a, const TraceEvent& b) {
                  return a.start_us != b.start_us ? a.start_us < b.start_us
                                                  : a.length_us > b.length_us;
                });
    }
    events = std::move(sorted);
    data_.names = names_.take();
    if (num_bad_ > 0)
      data_.notes.push_back(fmt::format("{} events without a length were left out", num_bad_));
    return std::move(data_);
  }

  const ReadControl& control_;
  TraceReadLimits limits_;
  TraceData data_;
  NameTable names_;
  OpenText source_;
  std::optional<JsonStream> stream_;
  EventText text_;
  std::vector<std::vector<size_t>> open_;  // by lane: spans that have begun (ph B)
  std::vector<FlowEnd> flows_;
  std::map<std::pair<std::string, std::string>, std::string> labels_;
  std::unordered_map<std::string, uint32_t> places_;
  std::string key_, last_key_ = "\n\n";
  uint32_t last_lane_ = kNone;
  uint64_t num_bad_ = 0;
  bool found_events_ = false;
};

}  // namespace

TraceData read_events(const std::filesystem::path& file, const ReadControl& control,
                      const TraceReadLimits& limits) {
  return read_events(open_plain_file(file), control, limits);
}

TraceData read_events(OpenFile file, const ReadControl& control, const TraceReadLimits& limits) {
  return EventsReader(std::move(file), control, limits).read();
}

}  // namespace moonshard::tracing
