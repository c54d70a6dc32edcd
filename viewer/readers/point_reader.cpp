#include "viewer/readers/readers.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "runtime/input/json_fields.h"
#include "runtime/input/open_file.h"
#include "runtime/records/reader.h"
#include "viewer/readers/record_stream.h"

namespace moonshard::viewer {
namespace {

namespace fs = std::filesystem;

// Phases by the order of the step; those it does not name come after, as they stand.
void order_phases(records::TimePart& time) {
  const std::vector<std::string>& order = time.phase_order;
  const auto place = [&](const PhaseTime& phase) {
    return std::ranges::find(order, phase.name) - order.begin();
  };
  std::ranges::stable_sort(
      time.phases_ms, [&](const PhaseTime& a, const PhaseTime& b) { return place(a) < place(b); });
}

// Lists of unequal length are cut to the shortest, so that every moment has every number. A list
// that is not there at all is filled.
void make_equally_long(MemoryTimeline& timeline) {
  size_t size = timeline.ms.size();
  std::vector<uint32_t>& phase = timeline.phase.index;
  if (!timeline.total.empty()) size = std::min(size, timeline.total.size());
  if (!phase.empty()) size = std::min(size, phase.size());
  for (const auto& owner : timeline.owners) size = std::min(size, owner.value.size());
  timeline.ms.resize(size);
  timeline.total.resize(size, NAN);
  if (phase.empty() && size > 0) timeline.phase.names.emplace_back();
  phase.resize(size, 0);
  for (auto& owner : timeline.owners) owner.value.resize(size);
}

// One edge more than counts, or it is no histogram.
void drop_bad_histogram(records::NormHistogram& histogram) {
  if (!histogram.counts.empty() && histogram.edges.size() == histogram.counts.size() + 1) return;
  histogram.edges.clear();
  histogram.counts.clear();
}

void read_data_lines(JsonStream& stream, std::vector<TextPair>& lines) {
  constexpr size_t kMaxLineBytes = 1024;
  for_each_key(stream, [&](const std::string& key, JsonToken token) {
    if (lines.size() >= kMaxParts) return stream.skip_rest(token);
    lines.push_back({key, text_of_value(stream, token, kMaxLineBytes)});
  });
}

}  // namespace

PointDetail read_result_detail(JsonStream& stream) {
  PointDetail detail;
  begin_object(stream);
  read_fields(stream, [&](FieldReader& field) {
    field("data", JsonToken::BeginObject, [&] { read_data_lines(stream, detail.data_lines); });
    fields(field, static_cast<records::Result&>(detail));
  });
  stream.next();  // nothing may follow
  order_phases(detail.time);
  make_equally_long(detail.memory.timeline);
  drop_bad_histogram(detail.privacy.norms_histogram);
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
  detail.traces = inside.names(at, {".json", ".json.gz"});
  std::erase_if(detail.traces, [](const std::string& name) { return !name.starts_with("trace"); });
  detail.snapshots = inside.names(at, {".pickle"});
  detail.logs = inside.names(at, {".txt"});
  std::erase_if(detail.logs, [](const std::string& name) { return !name.starts_with("log."); });
  detail.tables = inside.names(at, {".csv"});
  return detail;
}

}  // namespace moonshard::viewer
