// Answers of the reading process: what does not fit together is refused before a panel indexes by
// it.
#include <limits>

#include "tests/viewer/reader_support.h"
#include "viewer/readers/codec_fields.h"

namespace moonshard::viewer {
namespace {

/// What is said of a good answer after a change; "" when it is taken.
template <class T, class Change>
std::string refusal_of(const T& good, const Change& change) {
  T answer = good;
  change(answer);
  return io_error_of([&] { check_decoded(decode<T>(encode(answer))); });
}

template <class T, class... Changes>
void expect_refused(const T& good, const std::string& part, const Changes&... changes) {
  EXPECT_EQ(refusal_of(good, [](T&) {}), "") << part;
  const std::string expected = "reading process: its answer does not fit together: " + part;
  for (const std::string& said : std::vector<std::string>{refusal_of(good, changes)...})
    EXPECT_EQ(said, expected);
}

TEST(Codec, a_run_has_a_cell_for_each_point_and_key) {
  RunData run;
  run.points.resize(2);
  run.texts = {"a"};
  run.options.keys = run.metrics.keys = {"lr"};
  run.options.cells = {{Value::Kind::Text, 0, 0}, {Value::Kind::Number, 0, 1}};
  run.metrics.cells.resize(2);
  expect_refused(
      run, "cells of the run table", [](RunData& r) { r.options.cells.pop_back(); },
      [](RunData& r) { r.metrics.keys.push_back("loss"); }, [](RunData& r) { r.points.clear(); });
  expect_refused(run, "kind of a value",
                 [](RunData& r) { r.metrics.cells[1].kind = static_cast<Value::Kind>(4); });
  expect_refused(run, "text of a value", [](RunData& r) { r.options.cells[0].text = 1; });
}

TEST(Codec, a_points_lists_are_equally_long) {
  PointDetail detail;
  MemoryTimeline& line = detail.memory.timeline;
  line.ms = line.total = {0, 1};
  line.phase = {{"forward"}, {0, 0}};
  line.owners = {{"gradients", {5, 6}}};
  detail.privacy.norms_histogram.edges = {0, 1, 2};
  detail.privacy.norms_histogram.counts = {3, 4};
  expect_refused(
      detail, "lists of the memory timeline",
      [](PointDetail& d) { d.memory.timeline.total.pop_back(); },
      [](PointDetail& d) { d.memory.timeline.phase.index.pop_back(); });
  expect_refused(detail, "phase of a moment",
                 [](PointDetail& d) { d.memory.timeline.phase.index[1] = 1; });
  expect_refused(detail, "bytes of an owner",
                 [](PointDetail& d) { d.memory.timeline.owners[0].value.clear(); });
  expect_refused(
      detail, "histogram of norms",
      [](PointDetail& d) { d.privacy.norms_histogram.edges.pop_back(); },
      [](PointDetail& d) { d.privacy.norms_histogram.counts.clear(); });
  expect_refused(PointDetail(), "histogram of norms");
}

TEST(Codec, a_traces_columns_are_equally_long_and_name_what_there_is) {
  Trace trace;
  trace.names = {"step"};
  trace.categories = {"cpu_op"};
  trace.lanes.resize(1);
  trace.lanes[0].rows = {{{0, 1}, {1, 1}, {0, 0}, {0, 0}}};
  trace.counters = {{"memory", {0, 1}, {5, 6}}};
  expect_refused(
      trace, "columns of a trace", [](Trace& t) { t.lanes[0].rows[0].length_us.pop_back(); },
      [](Trace& t) { t.lanes[0].rows[0].name.pop_back(); },
      [](Trace& t) { t.lanes[0].rows[0].category.pop_back(); });
  expect_refused(
      trace, "name of a span", [](Trace& t) { t.lanes[0].rows[0].name[1] = 1; },
      [](Trace& t) { t.lanes[0].rows[0].category[0] = 1; });
  expect_refused(trace, "values of a counter", [](Trace& t) { t.counters[0].value.clear(); });
}

TEST(Codec, a_paths_pieces_are_on_its_lanes_at_times_that_are_numbers) {
  TracePath path;
  path.lanes = {"1/2"};
  path.pieces = {{0, 1, 0, 4}};
  expect_refused(
      path, "piece of a critical path", [](TracePath& p) { p.pieces[0].lane = 1; },
      [](TracePath& p) { p.pieces[0].kind = 5; },
      [](TracePath& p) { p.pieces[0].start_us = -std::numeric_limits<double>::infinity(); },
      [](TracePath& p) { p.pieces[0].end_us = NAN; });
}

TEST(Codec, a_snapshots_allocations_have_a_site_and_last) {
  MemorySnapshot snapshot;
  snapshot.sites = {{"gradients", ""}};
  snapshot.allocations.resize(1);
  snapshot.allocations[0].end = 1;
  expect_refused(
      snapshot, "allocation of a snapshot", [](MemorySnapshot& s) { s.allocations[0].site = 1; },
      [](MemorySnapshot& s) { s.allocations[0].begin = 1; });
}

TEST(Codec, a_plots_lists_are_as_long_as_its_values) {
  using records::PlotSpec;
  PlotSpec spec;
  spec.panels.resize(1);
  records::PlotSeries series;
  series.x = {0, 1};
  series.y = {1.5, std::nullopt};
  spec.panels[0].series = {series};
  series.labels = series.status = series.texts = {"a", "b"};
  series.low = series.high = {1, 2};
  spec.panels[0].series.push_back(series);
  const auto with = [](auto field) {
    return [field](PlotSpec& s) { (s.panels[0].series[1].*field).resize(1); };
  };
  using records::PlotSeries;
  expect_refused(spec, "lists of a series", with(&PlotSeries::x), with(&PlotSeries::y),
                 with(&PlotSeries::labels), with(&PlotSeries::status), with(&PlotSeries::texts),
                 with(&PlotSeries::low), with(&PlotSeries::high));
  for (const int kind : {-1, 6})
    expect_refused(spec, "kind of a plot",
                   [&](PlotSpec& s) { s.panels[0].kind = static_cast<records::PlotKind>(kind); });
}

TEST(Codec, a_tables_rows_are_as_long_as_its_header) {
  const records::CsvTable table{{"a", "b"}, {{"1", "2"}}};
  expect_refused(
      table, "cells of a table's row", [](records::CsvTable& t) { t.rows[0].pop_back(); },
      [](records::CsvTable& t) { t.rows.emplace_back(); });
}

TEST(Codec, bytes_that_are_not_exactly_one_answer_are_refused) {
  const std::string bytes = encode(records::CsvTable{{"a"}, {{"1"}}});
  const auto error_of = [](const std::string& answer) {
    return io_error_of([&] { decode<records::CsvTable>(answer); });
  };
  EXPECT_EQ(error_of(bytes), "");
  EXPECT_EQ(error_of(bytes + "x"), "reading process: its answer is too long");
  EXPECT_EQ(error_of(bytes.substr(0, bytes.size() - 1)), "reading process: its answer ends early");
  EXPECT_EQ(error_of("\x01"), "reading process: its answer ends early");
  EXPECT_EQ(error_of(std::string(8, '\xff')), "reading process: its answer names an absurd length");
}

}  // namespace
}  // namespace moonshard::viewer
