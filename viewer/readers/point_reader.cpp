#include "viewer/readers/point_reader.h"

#include <algorithm>

#include "runtime/records/reader.h"
#include "viewer/input/json_fields.h"
#include "viewer/input/open_file.h"
#include "viewer/readers/memory_fields.h"

namespace moonshard::viewer {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxFileNames = 10'000;

Statistics read_statistics(JsonStream& stream) {
  Statistics made;
  for_each_key(stream, [&](const std::string& key, JsonToken token) {
    double ignored = 0;
    double& field = key == "count"    ? made.count
                    : key == "mean"   ? made.mean
                    : key == "median" ? made.median
                    : key == "min"    ? made.min
                    : key == "max"    ? made.max
                    : key == "p95"    ? made.p95
                    : key == "iqr"    ? made.iqr
                                      : ignored;
    take_number(stream, token, field);
  });
  return made;
}

// Phases by the order of the step; those it does not name come after, as they stand.
void order_phases(std::vector<PhaseTime>& phases, const std::vector<std::string>& order) {
  const auto place = [&](const PhaseTime& phase) {
    return std::find(order.begin(), order.end(), phase.name) - order.begin();
  };
  std::stable_sort(phases.begin(), phases.end(),
                   [&](const PhaseTime& a, const PhaseTime& b) { return place(a) < place(b); });
}

void read_time(JsonStream& stream, PointDetail& detail) {
  std::vector<std::string> order;
  for_each_key(stream, [&](const std::string& key, JsonToken token) {
    if (key == "step_ms" && token == JsonToken::BeginObject) {
      detail.step_ms = read_statistics(stream);
    } else if (key == "phases_ms" && token == JsonToken::BeginObject) {
      for_each_key(stream, [&](const std::string& name, JsonToken value) {
        if (value == JsonToken::BeginObject && detail.phases.size() < kMaxParts) {
          detail.phases.push_back({name, read_statistics(stream)});
        } else {
          stream.skip_rest(value);
        }
      });
    } else if (key == "phase_order" && token == JsonToken::BeginArray) {
      for_each_element(stream, [&](JsonToken value) {
        std::string name;
        take_text(stream, value, name);
        if (order.size() < kMaxParts) order.push_back(std::move(name));
      });
    } else if (key == "samples_ms") {
      take_numbers(stream, token, detail.samples_ms);
    } else if (key == "warmup_ms") {
      take_numbers(stream, token, detail.warmup_ms);
    } else {
      stream.skip_rest(token);
    }
  });
  order_phases(detail.phases, order);
}

void read_norms(JsonStream& stream, PointDetail& detail) {
  for_each_key(stream, [&](const std::string& key, JsonToken token) {
    if (token != JsonToken::Number || detail.norms.size() >= kMaxParts) {
      return stream.skip_rest(token);
    }
    PhaseTime part{key, {}};
    part.ms.count = 1;
    part.ms.mean = part.ms.median = part.ms.min = part.ms.max = stream.number();
    detail.norms.push_back(std::move(part));
  });
}

LayerTime read_layer(JsonStream& stream) {
  LayerTime layer;
  for_each_key(stream, [&](const std::string& key, JsonToken token) {
    if (key == "layer" || key == "kind") {
      take_text(stream, token, key == "layer" ? layer.layer : layer.kind);
    } else if (key == "norm_ms") {
      take_number(stream, token, layer.norm_ms);
    } else {
      stream.skip_rest(token);
    }
  });
  return layer;
}

Collective read_collective(JsonStream& stream) {
  Collective made;
  for_each_key(stream, [&](const std::string& key, JsonToken token) {
    double ignored = 0;
    if (key == "operation") return take_text(stream, token, made.operation);
    double& field = key == "count"             ? made.count
                    : key == "bytes"           ? made.bytes
                    : key == "work_ms"         ? made.work_ms
                    : key == "exposed_ms"      ? made.exposed_ms
                    : key == "overlap_percent" ? made.overlap_percent
                                               : ignored;
    take_number(stream, token, field);
  });
  return made;
}

RankSummary read_rank(JsonStream& stream) {
  RankSummary rank;
  for_each_key(stream, [&](const std::string& key, JsonToken token) {
    double ignored = 0;
    double& field = key == "rank"                   ? rank.rank
                    : key == "peak_memory_bytes"    ? rank.peak_memory_bytes
                    : key == "median_time_ms"       ? rank.median_time_ms
                    : key == "comm_work_ms"         ? rank.comm_work_ms
                    : key == "comm_exposed_ms"      ? rank.comm_exposed_ms
                    : key == "comm_overlap_percent" ? rank.comm_overlap_percent
                                                    : ignored;
    take_number(stream, token, field);
  });
  return rank;
}

StepRow read_step(JsonStream& stream) {
  StepRow step;
  for_each_key(stream, [&](const std::string& key, JsonToken token) {
    double ignored = 0;
    if (key == "warmup") return take_truth(stream, token, step.warmup);
    double& field = key == "step"            ? step.step
                    : key == "loss"          ? step.loss
                    : key == "lr"            ? step.lr
                    : key == "time_ms"       ? step.time_ms
                    : key == "clip_fraction" ? step.clip_fraction
                    : key == "epsilon"       ? step.epsilon
                                             : ignored;
    take_number(stream, token, field);
  });
  return step;
}

void read_histogram(JsonStream& stream, PrivacyClaim& claim) {
  for_each_key(stream, [&](const std::string& key, JsonToken token) {
    if (key == "edges" || key == "counts") {
      take_numbers(stream, token, key == "edges" ? claim.norm_edges : claim.norm_counts);
    } else {
      stream.skip_rest(token);
    }
  });
  // One edge more than counts, or it is no histogram.
  if (claim.norm_counts.empty() || claim.norm_edges.size() != claim.norm_counts.size() + 1) {
    claim.norm_edges.clear();
    claim.norm_counts.clear();
  }
}

PrivacyPhase read_phase(JsonStream& stream) {
  PrivacyPhase phase;
  for_each_key(stream, [&](const std::string& key, JsonToken token) {
    double ignored = 0;
    double& field = key == "q"       ? phase.q
                    : key == "sigma" ? phase.sigma
                    : key == "steps" ? phase.steps
                                     : ignored;
    take_number(stream, token, field);
  });
  return phase;
}

void read_privacy(JsonStream& stream, PrivacyClaim& claim) {
  claim.present = true;
  for_each_key(stream, [&](const std::string& key, JsonToken token) {
    double ignored = 0;
    if (key == "private_engine") return take_truth(stream, token, claim.private_engine);
    if (key == "sampler") return take_text(stream, token, claim.sampler);
    if (key == "accountant") return take_text(stream, token, claim.accountant);
    if (key == "noise") return take_text(stream, token, claim.noise);
    if (key == "why_no_epsilon") return take_text(stream, token, claim.why_no_epsilon);
    if (key == "norms_histogram" && token == JsonToken::BeginObject) {
      return read_histogram(stream, claim);
    }
    if (key == "history" && token == JsonToken::BeginArray) {
      return take_objects(stream, claim.history, read_phase);
    }
    double& field = key == "epsilon"            ? claim.epsilon
                    : key == "delta"            ? claim.delta
                    : key == "sampling_rate"    ? claim.sampling_rate
                    : key == "noise_multiplier" ? claim.noise_multiplier
                    : key == "steps"            ? claim.steps
                    : key == "max_grad_norm"    ? claim.max_grad_norm
                                                : ignored;
    take_number(stream, token, field);
  });
}

}  // namespace

PointDetail read_result_detail(JsonStream& stream) {
  PointDetail detail;
  begin_object(stream);
  for_each_key(stream, [&](const std::string& key, JsonToken token) {
    const bool object = token == JsonToken::BeginObject, list = token == JsonToken::BeginArray;
    if (key == "time" && object) {
      read_time(stream, detail);
    } else if (key == "memory" && object) {
      read_memory(stream, detail);
    } else if (key == "memory_stages" && list) {
      take_objects(stream, detail.stages, read_stage);
    } else if (key == "norms_ms" && object) {
      read_norms(stream, detail);
    } else if (key == "layers" && list) {
      take_objects(stream, detail.layers, read_layer);
    } else if (key == "comm" && list) {
      take_objects(stream, detail.comm, read_collective);
    } else if (key == "ranks" && list) {
      take_objects(stream, detail.ranks, read_rank);
    } else if (key == "steps" && list) {
      take_objects(stream, detail.steps, read_step);
    } else if (key == "privacy" && object) {
      read_privacy(stream, detail.privacy);
    } else {
      stream.skip_rest(token);
    }
  });
  stream.next();  // nothing may follow
  return detail;
}

PointDetail read_point_detail(const fs::path& run_folder, const std::string& id,
                              const ReadControl& control) {
  if (!records::is_plain_name(id)) {
    throw IoError(fmt::format("run folder: expected a point's id of letters and digits, got '{}'",
                              id.substr(0, 60)));
  }
  const InsideFolder inside(run_folder);
  const fs::path at = fs::path("points") / id;
  PointDetail detail;
  if (std::optional<OpenFile> result = inside.open(at / "result.json")) {
    const std::string where = result->name();
    FileSource source(std::move(*result), control);
    JsonStream stream(source, where);
    detail = read_result_detail(stream);
  }
  control.check();
  detail.traces = inside.names(at, {".json", ".json.gz"}, kMaxFileNames);
  std::erase_if(detail.traces, [](const std::string& name) { return !name.starts_with("trace"); });
  detail.snapshots = inside.names(at, {".pickle"}, kMaxFileNames);
  detail.logs = inside.names(at, {".txt"}, kMaxFileNames);
  std::erase_if(detail.logs, [](const std::string& name) { return !name.starts_with("log."); });
  detail.tables = inside.names(at, {".csv"}, kMaxFileNames);
  return detail;
}

}  // namespace moonshard::viewer
