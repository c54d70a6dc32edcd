#include "viewer/readers/sweep_file.h"

#include <fmt/format.h>

#include "runtime/input/json_fields.h"
#include "runtime/records/reader.h"
#include "runtime/records/sweep_file.h"
#include "viewer/readers/record_stream.h"

namespace moonshard::viewer {
namespace {

constexpr size_t kMaxAxes = 1000;
constexpr size_t kMaxLineBytes = 16 * 1024;

void read_baseline(JsonStream& stream, RunData& run) {
  for_each_key(stream, [&](const std::string& key, JsonToken token) {
    if (key == "axis") {
      take_text(stream, token, run.baseline_axis);
    } else if (key == "value" && token != JsonToken::Null) {
      run.baseline_value = text_of_value(stream, token, kMaxNameBytes);
    } else {
      stream.skip_rest(token);
    }
  });
}

void read_axes(JsonStream& stream, RunData& run) {
  for_each_element(stream, [&](JsonToken token) {
    if (token == JsonToken::String && run.axes.size() < kMaxAxes) {
      run.axes.push_back(cut_text(stream.text(), kMaxNameBytes));
    } else {
      stream.skip_rest(token);
    }
  });
}

PlannedPoint read_planned_point(JsonStream& stream) {
  PlannedPoint point;
  read_fields(stream, [&](FieldReader& field) {
    field("id", point.id);
    field("options", JsonToken::BeginObject, [&] {
      point.options = static_cast<size_t>(stream.offset()) - 1;
      stream.skip_rest(JsonToken::BeginObject);
      point.options_size = static_cast<size_t>(stream.offset()) - point.options;
    });
  });
  return point;
}

void read_points(JsonStream& stream, RunData& run, std::vector<PlannedPoint>& points) {
  for_each_element(stream, [&](JsonToken token) {
    PlannedPoint point;
    if (token == JsonToken::BeginObject) {
      point = read_planned_point(stream);
    } else {
      stream.skip_rest(token);
    }
    if (!records::is_plain_name(point.id)) {
      add_problem(run, fmt::format("sweep.json: a point's id is '{}', expected letters and digits",
                                   point.id.substr(0, 40)));
    } else if (points.size() < records::kMaxPointsPerFolder) {
      points.push_back(std::move(point));
    } else if (points.size() == records::kMaxPointsPerFolder) {
      add_problem(run, fmt::format("sweep.json: more than {} points, the rest is not shown",
                                   records::kMaxPointsPerFolder));
      points.push_back(std::move(point));  // says that it was said
    }
  });
  if (points.size() > records::kMaxPointsPerFolder) points.resize(records::kMaxPointsPerFolder);
}

}  // namespace

std::vector<PlannedPoint> read_sweep(std::string_view text, const std::string& where, RunData& run,
                                     Cells& common) {
  MemorySource source(text);
  JsonStream stream(source, where);
  std::vector<PlannedPoint> points;
  double version = 0;
  const JsonToken first = stream.next();
  if (first != JsonToken::BeginObject) {
    stream.skip_rest(first);
  } else {
    read_fields(stream, [&](FieldReader& field) {
      field("schema_version", version);
      field("name", run.name);
      field("created", run.created);
      field("axes", JsonToken::BeginArray, [&] { read_axes(stream, run); });
      field("common", JsonToken::BeginObject, [&] { common.read(stream); });
      field("points", JsonToken::BeginArray, [&] { read_points(stream, run, points); });
      field("request", JsonToken::BeginObject, [&] {
        read_fields(stream, [&](FieldReader& asked) {
          asked("baseline", JsonToken::BeginObject, [&] { read_baseline(stream, run); });
        });
      });
    });
  }
  stream.next();  // nothing may follow
  if (version < 1 || version > records::kSweepVersion) {
    throw IoError(
        fmt::format("{}: expected schema_version 1 to {}, got {}; open it with a newer moonshard",
                    where, records::kSweepVersion, version));
  }
  return points;
}

std::vector<TextPair> read_environment(std::string_view text, const std::string& where) {
  MemorySource source(text);
  JsonStream stream(source, where);
  std::vector<TextPair> lines;
  begin_object(stream);
  for_each_key(stream, [&](const std::string& key, JsonToken token) {
    lines.push_back({key, text_of_value(stream, token, kMaxLineBytes)});
  });
  stream.next();
  return lines;
}

SweepProgress read_progress(std::string_view text, const std::string& where) {
  MemorySource source(text);
  JsonStream stream(source, where);
  SweepProgress progress;
  begin_object(stream);
  std::string id;
  read_fields(stream, [&](FieldReader& field) {
    field("state", progress.state);
    field("updated", progress.updated);
    field("total", progress.total);
    field("done", progress.done);
    field("elapsed_s", progress.elapsed_s);
    field("eta_s", progress.eta_s);
    field("current", JsonToken::BeginObject, [&] {
      read_fields(stream, [&](FieldReader& current) {
        current("label", progress.current);
        current("id", id);
      });
    });
    field("current", progress.current);
  });
  if (progress.current.empty()) progress.current = id;
  stream.next();
  return progress;
}

}  // namespace moonshard::viewer
