#include "viewer/readers/readers.h"

#include <algorithm>
#include <atomic>
#include <future>

#include <fmt/format.h>

#include "runtime/input/json_fields.h"
#include "runtime/input/open_file.h"
#include "runtime/records/reader.h"
#include "runtime/records/sweep_file.h"
#include "viewer/readers/index_file.h"
#include "viewer/readers/point_summary.h"
#include "viewer/readers/sweep_file.h"

namespace moonshard::viewer {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxRecordBytes = 64u << 20;
// Tables are points times keys: a folder in which every point has different keys must not fill
// memory.
constexpr size_t kMaxTableCells = 16'000'000, kMaxKeys = 10'000, kFewestKeys = 100;
constexpr size_t kMaxTextBytes = 256u << 20;  // of all texts of a run
constexpr size_t kPointsAtATime = 256;  // read in two threads, then put into the tables in order
constexpr size_t kWorthAThread = 8;

std::string read_sweep_text(const fs::path& folder, const InsideFolder& inside) {
  std::optional<OpenFile> file = inside.open("sweep.json");
  if (file) return file->read_all(records::kSweepLimits.max_bytes);
  records::refuse_folder_without_sweep(folder);
}

// A file that may be absent; one that cannot be read is a problem of the run, not its end.
template <typename Value, typename Read>
void read_beside(const InsideFolder& inside, const fs::path& folder, const char* name, RunData& run,
                 Value& into, const Read& read) {
  try {
    std::optional<OpenFile> file = inside.open(name);
    const std::string text = file ? file->read_all(kMaxRecordBytes) : "";
    if (!text.empty()) into = read(text, (folder / name).string());
  } catch (const IoError& problem) {
    add_problem(run, problem.what());
  }
}

std::string first_word(std::string text) {
  text.resize(std::min(text.find_first_of(" \n"), text.size()));
  return cut_text(text, 64);
}

// One point as it is on the disk. The status file is written by the sweep's parent; a complete
// result takes precedence, because a parent that was killed could not update it.
void read_point_files(const InsideFolder& inside, const fs::path& at, const ReadControl& control,
                      PointSummary& point) {
  control.check();
  std::string status_problem;
  try {
    if (std::optional<OpenFile> status = inside.open(at / "status")) {
      point.status = first_word(status->read_all(256));
    }
  } catch (const IoError& problem) {
    status_problem = problem.what();  // matters only when there is no result
  }
  std::optional<OpenFile> result = inside.open(at / "result.json");
  if (!result && !status_problem.empty()) throw IoError(status_problem);
  if (!result) return;
  const std::string where = result->name();
  FileSource source(std::move(*result), control);
  JsonStream stream(source, where);
  read_point_summary(stream, point);
}

// A point, and the options that only sweep.json has of it.
struct ReadPoint {
  PointSummary now;
  Cells planned;
  bool has_common = false;  ///< the sweep's common options are its own as well
};

ReadPoint read_point(const InsideFolder& inside, const IndexFile& index, std::string_view sweep,
                     const PlannedPoint& planned, const ReadControl& control) {
  ReadPoint read;
  PointSummary& point = read.now;
  try {
    if (!index.read(inside, planned.id, point)) {
      point.status = "planned";
      read_point_files(inside, fs::path("points") / planned.id, control, point);
    }
  } catch (const IoError& problem) {
    point = {};
    point.status = "unreadable";
    point.error = cut_text(problem.what(), 4096);
  }
  read.has_common = !point.has_options;
  if (!point.has_options && planned.options_size > 0) {
    MemorySource source(sweep.substr(planned.options, planned.options_size));
    JsonStream stream(source, "sweep.json");
    stream.next();
    read.planned.read(stream);
  }
  return read;
}

// Calls work(i) for all i below count, in this thread and one more.
template <typename Work>
void in_two_threads(size_t count, const Work& work) {
  std::atomic<size_t> next{0};
  const auto run = [&] {
    try {
      for (size_t i = next++; i < count; i = next++) work(i);
    } catch (...) {
      next = count;  // the other one stops, too
      throw;
    }
  };
  if (count < kWorthAThread) return run();
  std::future<void> second = std::async(std::launch::async, run);
  run();
  second.get();
}

// Puts what was read into the run's tables, within the limits of the whole run.
class TableFiller {
 public:
  TableFiller(RunData& run, size_t num_points)
      : run_(run),
        builder_(run, std::clamp(kMaxTableCells / std::max<size_t>(num_points, 1), kFewestKeys,
                                 kMaxKeys)) {}

  /// Options that points have unless they have others.
  void set_common(const Cells& cells) {
    for (const Cells::Cell& cell : cells.list())
      builder_.set_common(run_.options, cell.key, value_of(cell));
  }

  void add(const std::string& id, ReadPoint read) {
    PointSummary& point = read.now;
    if (text_bytes_ + point.error.size() > kMaxTextBytes) {
      point.error.clear();
      was_cut_ = true;
    }
    text_bytes_ += point.error.size();
    if (point.status == "unreadable" && !point.error.empty()) add_problem(run_, point.error);
    const size_t row = builder_.add_point({id, std::move(point.status), std::move(point.error)});
    if (read.has_common) builder_.use_common(row);
    fill(run_.options, row, read.planned);
    fill(run_.options, row, point.options);
    fill(run_.metrics, row, point.metrics);
  }

  void finish() {
    builder_.finish();
    if (builder_.num_dropped() > 0) {
      add_problem(run_, fmt::format("{}: {} values of rare names are not shown; too many names",
                                    run_.name, builder_.num_dropped()));
    }
    if (was_cut_) add_problem(run_, fmt::format("{}: texts that are too long were cut", run_.name));
  }

 private:
  void fill(ValueTable& table, size_t row, const Cells& cells) {
    was_cut_ = was_cut_ || cells.was_cut();
    for (const Cells::Cell& cell : cells.list()) builder_.set(table, row, cell.key, value_of(cell));
  }

  // A text beyond what all of a run may have is none.
  Value value_of(const Cells::Cell& cell) {
    if (cell.kind != Value::Kind::Text) return {cell.kind, 0, cell.number};
    if (text_bytes_ + cell.text.size() > kMaxTextBytes) {
      was_cut_ = true;
      return {};
    }
    const size_t before = run_.texts.size();
    const Value value = builder_.text(cell.text);
    if (run_.texts.size() > before) text_bytes_ += cell.text.size();
    return value;
  }

  RunData& run_;
  RunBuilder builder_;
  size_t text_bytes_ = 0;
  bool was_cut_ = false;
};

}  // namespace

RunData read_run(const fs::path& folder, const ReadControl& control) {
  return read_run_in(InsideFolder(folder), control);
}

RunData read_run_in(const InsideFolder& inside, const ReadControl& control) {
  const fs::path& folder = inside.path();
  RunData run;
  run.path = folder.string();
  run.name = folder.filename().string();
  const std::string sweep = read_sweep_text(folder, inside);
  Cells common;
  const std::vector<PlannedPoint> planned =
      read_sweep(sweep, (folder / "sweep.json").string(), run, common);
  const IndexFile index(inside);
  read_beside(inside, folder, "env.json", run, run.environment, read_environment);
  read_beside(inside, folder, "progress.json", run, run.progress, read_progress);

  TableFiller tables(run, planned.size());
  tables.set_common(common);
  std::vector<ReadPoint> block;
  for (size_t begin = 0; begin < planned.size(); begin += kPointsAtATime) {
    control.check();
    control.report(static_cast<double>(begin) / static_cast<double>(planned.size()));
    block.clear();
    block.resize(std::min(kPointsAtATime, planned.size() - begin));
    in_two_threads(block.size(), [&](size_t i) {
      block[i] = read_point(inside, index, sweep, planned[begin + i], control);
    });
    for (size_t i = 0; i < block.size(); ++i)
      tables.add(planned[begin + i].id, std::move(block[i]));
  }
  tables.finish();
  run.plots = inside.names("visualizations", {".plot.json"});
  run.tables = inside.names("", {".csv"});
  control.report(1);
  return run;
}

}  // namespace moonshard::viewer
