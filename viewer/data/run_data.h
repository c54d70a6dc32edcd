// A run folder as the table and the charts need it: one row per point, options and metrics as
// columns of plain values. Made by readers/run_reader from untrusted files; immutable.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/records/schema.h"

namespace moonshard::viewer {

/// One cell: nothing, a truth value, a number or a text (an index into RunData::texts).
struct Value {
  enum class Kind : uint8_t { None, Bool, Number, Text };
  Kind kind = Kind::None;
  uint32_t text = 0;
  double number = 0;  ///< also 0 or 1 for a truth value
};

/// Points times keys, row by row.
struct ValueTable {
  std::vector<std::string> keys;
  std::vector<Value> cells;  ///< keys.size() per point

  /// Place of a key; nothing when no point has it.
  std::optional<size_t> find(std::string_view key) const {
    for (size_t i = 0; i < keys.size(); ++i) {
      if (keys[i] == key) return i;
    }
    return std::nullopt;
  }
  /// The same where a neighbour has the key at `hint`: runs of one program list their keys in the
  /// same order, and a thousand of them are looked through one after the other.
  std::optional<size_t> find_near(std::string_view key, std::optional<size_t> hint) const {
    if (hint && *hint < keys.size() && keys[*hint] == key) return hint;
    return find(key);
  }
  const Value& at(size_t point, size_t key) const { return cells[point * keys.size() + key]; }
  /// By its key; none where no point has it.
  Value get(size_t point, std::string_view key) const {
    const std::optional<size_t> place = find(key);
    return place ? at(point, *place) : Value();
  }
};

struct PointHead {
  std::string id;      ///< plain name: letters, digits, '_' and '-'
  std::string status;  ///< planned, running, ok, oom, failed, timeout, skipped, unreadable, ...
  std::string error;   ///< why, when the status is not ok
};

struct TextPair {
  std::string key, value;
};

/// progress.json of the sweep's parent.
struct SweepProgress {
  std::string state;  ///< running, finished, interrupted, ...; empty: there is none
  double total = 0, done = 0;
  double elapsed_s = 0;
  double eta_s = NAN;   ///< NaN: not known
  std::string current;  ///< the point under way, in words; may be empty
  std::string updated;  ///< ISO time
};

struct RunData {
  std::string path;  ///< as it was opened
  std::string name;
  std::string created;                        ///< ISO time, as the writer's clock said
  std::vector<std::string> axes;              ///< swept option names, in grid order
  std::string baseline_axis, baseline_value;  ///< what the sweep named; may be empty
  std::vector<TextPair> environment;          ///< env.json, one line each
  std::vector<PointHead> points;              ///< in the sweep's order
  ValueTable options, metrics;                ///< a row for each of points
  std::vector<std::string> texts;             ///< what the text cells say
  std::vector<std::string> plots;             ///< file names of visualizations/*.plot.json
  std::vector<std::string> tables;            ///< file names of *.csv in the folder
  SweepProgress progress;
  std::vector<std::string> problems;  ///< what could not be read, to be shown

  const std::string& text_of(const Value& value) const { return texts[value.text]; }
  /// A metric as a number; NaN where the point has none.
  double metric(size_t point, std::string_view key) const { return number_in(metrics, point, key); }
  double option_number(size_t point, std::string_view key) const {
    return number_in(options, point, key);
  }

 private:
  static double number_in(const ValueTable& table, size_t point, std::string_view key) {
    const Value value = table.get(point, key);
    return value.kind == Value::Kind::Number ? value.number : NAN;
  }
};

// Everything of one point that only its own panels need: its whole record and the files beside it.
// Read when the point is selected, from an untrusted result.json.

using records::Collective;
using records::LayerTime;
using records::MemoryTimeline;
using records::OwnedBytes;
using records::PrivacyPart;
using records::PrivacyPhase;
using records::RankRow;
using records::Statistics;
using records::StepRow;
using PhaseTime = records::Named<Statistics>;

/// Of the record's free objects, options are the run table's and data is a list of lines here.
struct PointDetail : records::Result {
  std::vector<TextPair> data_lines;
  std::vector<std::string> traces;     ///< file names in the point's folder: *.json, *.json.gz
  std::vector<std::string> snapshots;  ///< *.pickle
  std::vector<std::string> logs;       ///< log.*.txt
  std::vector<std::string> tables;     ///< *.csv
};

/// A number with 14 digits at most, as Lua writes it.
std::string plain_number(double value);
/// A cell as filters, baselines and scripts name it; empty for none.
std::string plain_text(const RunData& run, const Value& value);

/// Fills a RunData row by row and shares equal texts; used by the reader and by tests.
class RunBuilder {
 public:
  /// A table gets at most max_keys columns; values of further keys are dropped and counted.
  explicit RunBuilder(RunData& run, size_t max_keys = SIZE_MAX) : run_(run), max_keys_(max_keys) {}
  size_t num_dropped() const { return num_dropped_; }

  /// A point that is not there yet gets a new row; returns its index.
  size_t add_point(PointHead head) {
    run_.points.push_back(std::move(head));
    return run_.points.size() - 1;
  }
  void set(ValueTable& table, size_t point, std::string_view key, bool value) {
    set_value(table, point, key, {Value::Kind::Bool, 0, value ? 1.0 : 0.0});
  }
  void set(ValueTable& table, size_t point, std::string_view key, double value) {
    set_value(table, point, key, {Value::Kind::Number, 0, value});
  }
  void set(ValueTable& table, size_t point, std::string_view key, std::string_view value);
  /// A value made before; one of kind None takes away what was set.
  void set(ValueTable& table, size_t point, std::string_view key, Value value) {
    set_value(table, point, key, value);
  }
  /// The cell of a text.
  Value text(std::string_view text);
  /// A value of all points that use_common names, unless another is set: of the many options of a
  /// sweep few vary.
  void set_common(ValueTable& table, std::string_view key, Value value);
  void use_common(size_t point);
  /// Values that were set so far become the table's cells. Call once, at the end.
  void finish();

 private:
  struct Entry {
    size_t point;
    size_t key;
    Value value;
  };
  struct Columns {
    std::unordered_map<std::string, size_t> places;
    std::vector<Entry> entries;
    std::vector<std::pair<size_t, Value>> common;  ///< place and value
  };
  /// Place of a key; nothing beyond the most keys of a table.
  std::optional<size_t> place_of(ValueTable& table, std::string_view key);
  Columns& columns_of(const ValueTable& table) {
    return &table == &run_.options ? options_ : metrics_;
  }
  void set_value(ValueTable& table, size_t point, std::string_view key, Value value);

  RunData& run_;
  size_t max_keys_;
  size_t num_dropped_ = 0;
  Columns options_, metrics_;
  std::vector<bool> uses_common_;  ///< by point; may be shorter
  std::unordered_map<std::string, uint32_t> text_places_;
};

}  // namespace moonshard::viewer
