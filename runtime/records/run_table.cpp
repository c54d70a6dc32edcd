#include "runtime/records/run_table.h"

#include <algorithm>
#include <set>

#include "runtime/base/check.h"
#include "runtime/base/disk.h"
#include "runtime/records/csv.h"

namespace moonshard::records {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostRecordBytes = 64u << 20;

std::string text_or_nothing(const Json& object) {
  return object.empty() ? "" : one_line(object);
}

Json object_of(const std::string& text) {
  return text.empty() ? Json::object() : parse_json(text, "sweep.json");
}

// What a record has beyond the plan, for the index: changed and new values, null for missing ones.
Json beyond_plan(const Json& planned, const Json& had) {
  Json differences = Json::object();
  for (const auto& [key, value] : had.items()) {
    const auto found = planned.find(key);
    if (found == planned.end() || *found != value) differences[key] = value;
  }
  for (const auto& [key, value] : planned.items())
    if (!had.contains(key)) differences[key] = nullptr;
  return differences;
}

// What of a point is modelled: its communication (world = fake:N), or all of it (simulated by a
// plan).
std::string modelled_part(const PointRecord& point) {
  const std::string world = string_or(point.options, "world", "");
  return world.starts_with("modelled:") ? "all" : world.starts_with("fake:") ? "communication" : "";
}

}  // namespace

RunTable::RunTable(const fs::path& folder)
    : path_(folder),
      head_(read_sweep_file(folder,
                            [this](PlannedPoint&& point) {
                              const auto place = static_cast<uint32_t>(points_.size());
                              points_.push_back({std::move(point.id), std::move(point.file_name),
                                                 text_or_nothing(point.options),
                                                 text_or_nothing(point.asked)});
                              places_.try_emplace(points_.back().id, place);
                            })),
      index_(folder) {}

std::optional<size_t> RunTable::find(const std::string& id) const {
  const auto found = places_.find(id);
  return found == places_.end() ? std::nullopt : std::optional<size_t>(found->second);
}

PlannedPoint RunTable::planned(size_t point) const {
  const Planned& entry = points_[point];
  return {entry.id, all_options(head_.common, object_of(entry.own)), entry.file,
          object_of(entry.asked)};
}

PointRecord RunTable::summary(size_t point) const {
  PointRecord summary;
  summary.id = points_[point].id;
  summary.status = "planned";
  summary.options = all_options(head_.common, object_of(points_[point].own));
  if (const std::optional<IndexEntry> entry = index_.find(summary.id)) {
    summary.status = entry->status;
    summary.error = entry->error;
    summary.metrics = entry->metrics;
    summary.own_metrics = entry->own_metrics;
    summary.has_record = true;
    for (const auto& [key, value] : entry->options.items()) {
      if (value.is_null())
        summary.options.erase(key);
      else
        summary.options[key] = value;
    }
    return summary;
  }
  const Json planned = summary.options;
  summary.problem = read_point(path_, summary);
  summary.result = Json::object();
  // A record writes 1e8 where the plan has 100000000: tables show the plan's form, as they do with
  // an index.
  for (const auto& [key, value] : planned.items())
    if (summary.options.is_object() && summary.options.value(key, Json()) == value)
      summary.options[key] = value;
  return summary;
}

std::pair<std::string, bool> RunTable::status(size_t point) const {
  if (std::optional<std::string> known = index_.status_of(points_[point].id))
    return {std::move(*known), true};
  const PointRecord record = summary(point);
  return {record.status, record.has_record};
}

void RunTable::add_to_index(const PointRecord& record) {
  const std::optional<size_t> place = find(record.id);
  if (!record.has_record || record.status == "unreadable") return;
  IndexEntry entry;
  entry.id = record.id;
  entry.status = record.status;
  entry.error = record.error;
  entry.digest = record.digest_text;
  entry.options = beyond_plan(place ? planned(*place).options : Json::object(), record.options);
  for (const auto& [key, value] : record.metrics.items())
    if (value.is_primitive()) entry.metrics[key] = value;
  entry.own_metrics = record.own_metrics;
  index_.add(std::move(entry));
}

void RunTable::complete_index() {
  for (const Planned& point : points_) {
    if (!index_.status_of(point.id)) add_to_index(load_point(path_, point.id));
  }
}

void RunTable::write_csv(const std::function<void(const std::string&)>& write) const {
  std::set<std::string> names;
  bool has_modelled = false;
  for (size_t i = 0; i < size(); ++i) {
    const PointRecord point = summary(i);
    has_modelled = has_modelled || !modelled_part(point).empty();
    for (const auto& [key, value] : point.metrics.items())
      if (value.is_primitive()) names.insert(key);
  }
  CsvTable table;
  table.columns = {"id", "status"};
  // Where figures are those of a model, the table says so.
  if (has_modelled) table.columns.push_back("modelled");
  table.columns.insert(table.columns.end(), head_.axes.begin(), head_.axes.end());
  table.columns.insert(table.columns.end(), names.begin(), names.end());
  table.columns.push_back("error");
  write(csv_row(table.columns));
  for (size_t i = 0; i < size(); ++i) {
    const PointRecord point = summary(i);
    std::vector<std::string> cells{point.id, point.status};
    if (has_modelled) cells.push_back(modelled_part(point));
    for (const std::string& axis : head_.axes)
      cells.push_back(cell_text(point.options.value(axis, Json())));
    for (const std::string& name : names) {
      const Json value = point.metrics.value(name, Json());
      cells.push_back(value.is_primitive() ? cell_text(value) : "");
    }
    cells.push_back(point.error);
    write(csv_row(cells));
  }
}

std::string RunTable::altered(size_t point) const {
  const std::string& id = points_[point].id;
  const std::string name = "points/" + id + "/result.json";
  const fs::path file = path_ / name;
  if (!is_there(file) || !lies_inside(path_, file)) return "";
  const std::string text = read_text_file(file, kMostRecordBytes);
  const Digest digest = check_digest(text);
  if (digest == Digest::Right) {
    const std::optional<IndexEntry> entry = index_.find(id);
    if (entry && entry->digest == digest_in(text)) return "";
  }
  Json record;
  try {
    record = parse_json(text, name);
  } catch (const IoError&) {
    return "";  // an unreadable record is no result: the point runs again
  }
  if (!record.is_object()) return "";
  if (const std::string own = string_or(record, "id", id); own != id)
    return fmt::format("{}: is the record of point {}", name, own.substr(0, 64));
  const Json had = record.value("options", Json::object());
  const std::vector<std::string> differences = option_differences(
      head_.axes, planned(point).options, had.is_object() ? had : Json::object(), false);
  if (digest == Digest::Wrong)
    return name + ": was changed after it was written" +
           (differences.empty() ? "" : "; " + differences.front());
  return differences.empty() ? "" : name + ": " + differences.front();
}

namespace {

// On a GPU a run warms up for longer than it was asked to where steps that make a graph, or that
// try two ways of training, would be measured else.
bool is_longer_warmup(const std::string& name, const Json& wanted, const Json& got,
                      const Json& had) {
  return name == "warmup" && wanted.is_number() && got.is_number() &&
         got.get<double>() > wanted.get<double>() &&
         string_or(had, "device", "").starts_with("cuda");
}

}  // namespace

std::vector<std::string> option_differences(const std::vector<std::string>& axes,
                                            const Json& planned, const Json& had, bool all) {
  std::vector<std::string> names = axes, differences;
  if (all) {
    for (const auto& [key, value] : planned.items())
      if (std::find(names.begin(), names.end(), key) == names.end()) names.push_back(key);
  }
  for (const std::string& name : names) {
    const Json wanted = planned.value(name, Json()), got = had.value(name, Json());
    if (wanted != got && !is_longer_warmup(name, wanted, got, had))
      differences.push_back(fmt::format("options.{}: expected {} as in sweep.json, got {}", name,
                                        one_line(wanted).substr(0, 60),
                                        one_line(got).substr(0, 60)));
  }
  return differences;
}

}  // namespace moonshard::records
