#include "bindings/host/verbs.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>

#include "bindings/host/ranks_command.h"
#include "bindings/lua_error.h"
#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/checkpoint/examine.h"
#include "runtime/experiment/experiment.h"
#include "runtime/launch/doctor.h"
#include "runtime/launch/process.h"
#include "runtime/launch/program_ranks.h"
#include "runtime/records/csv.h"
#include "runtime/records/folder_check.h"
#include "runtime/records/schema_json.h"
#include "runtime/records/writer.h"

namespace moonshard::host {
namespace {

constexpr double kMiB = 1048576.0;

void print_head(const records::Result& record) {
  experiment::ExperimentOptions options;
  experiment::experiment_schema().assign_all(&options, record.options);
  const bool is_mixed = options.dtype != options.param_dtype;
  fmt::print(
      "\n{} {}, batch {}, {} tokens, {} on {}\n", options.model, options.mode, options.batch_size,
      options.seq_length,
      is_mixed ? options.dtype + " (computes in " + options.param_dtype + ")" : options.dtype,
      options.device);
  if (options.seed < 0) fmt::print("  seed {:.0f}, drawn for this run\n", record.seed);
  if (records::is_missing(record.sharding)) return;
  fmt::print("  rank {} of {}{}, {} {}, over {}\n", record.sharding.rank, record.sharding.world,
             record.sharding.fake ? " (the others are modelled)" : "", options.parallel,
             options.parallel == "fsdp" ? options.sharding : "", record.sharding.transport);
}

void print_time(const records::Result& record) {
  const records::Statistics& time = record.time.step_ms;
  fmt::print("  step      median {:.2f} ms, min {:.2f}, p95 {:.2f}, IQR {:.2f} over {} steps\n",
             time.median, time.min, time.p95, time.iqr, time.count);
  for (const auto& [phase, summary] : record.time.phases_ms)
    fmt::print("    {:<16} {:8.2f} ms\n", phase, summary.median);
  const records::NormTimes& norms = record.norms_ms;
  if (!records::is_missing(norms))
    fmt::print("  norms     stacking {:.2f} ms, local {:.2f}, reduce {:.2f}, final {:.2f}\n",
               norms.stacking, norms.local, norms.reduce, norms.final);
}

void print_memory(const records::Result& record) {
  fmt::print("  memory    peak {:.1f} MiB\n", record.metrics.peak_memory_mb);
  if (records::is_missing(record.memory)) return;
  fmt::print("    of the detailed step, in phase {}:\n", record.memory.peak_phase);
  for (const records::OwnedBytes& row : record.memory.breakdown)
    fmt::print("    {:<20} {:10.2f} MiB\n", row.owner, row.bytes / kMiB);
}

void print_speed(const records::Metrics& metrics) {
  fmt::print("  speed     {:.0f} tokens/s, {:.1f} samples/s", metrics.tokens_per_s,
             metrics.samples_per_s);
  if (!std::isnan(metrics.mfu_percent))
    fmt::print(", {:.1f} % of the device's peak", metrics.mfu_percent);
  if (!std::isnan(metrics.gpu_utilization_percent))
    fmt::print(", GPU busy {:.0f} %", metrics.gpu_utilization_percent);
  fmt::print(", CPU {:.0f} %, data {:.1f} %\n", metrics.cpu_percent,
             std::isnan(metrics.data_share_percent) ? 0 : metrics.data_share_percent);
  if (!std::isnan(metrics.profiler_overhead_percent))
    fmt::print("  profiler  the detailed step took {:+.1f} % against the median\n",
               metrics.profiler_overhead_percent);
  fmt::print("  loss      {:.4f}\n", metrics.final_loss);
}

void print_privacy(const records::PrivacyPart& privacy) {
  if (std::isnan(privacy.epsilon)) {
    fmt::print("  privacy   not private: no epsilon: {}\n", privacy.why_no_epsilon);
    return;
  }
  fmt::print(
      "  privacy   epsilon {:.4f} at delta {:g} by {}: {} steps, sampling rate {:.4g}, noise "
      "{:.4f} from a secret\n",
      privacy.epsilon, privacy.delta, privacy.accountant, privacy.steps, privacy.sampling_rate,
      privacy.noise_multiplier);
}

void print_record(const records::Result& record) {
  print_head(record);
  print_time(record);
  print_memory(record);
  for (const records::Collective& row : record.comm)
    fmt::print(
        "  comm      {} {} times, {:.1f} MiB, work {:.2f} ms, exposed {:.2f}, overlap {:.0f} %\n",
        row.operation, row.count, row.bytes / kMiB, row.work_ms, row.exposed_ms,
        row.overlap_percent);
  print_speed(record.metrics);
  print_privacy(record.privacy);
}

using launch::kExitOutOfMemory;

void print_step(const train::StepReport& report, bool is_warmup) {
  const std::string spent =
      report.epsilon ? fmt::format(", epsilon <= {:.3f}", *report.epsilon) : std::string();
  fmt::print("step {}{}: loss {:.4f}, {:.2f} ms, peak {:.1f} MiB{}\n", report.step,
             is_warmup ? " (warm-up)" : "", report.loss, report.time_ms,
             static_cast<double>(report.memory.max_allocated_bytes) / 1048576.0, spent);
  std::fflush(stdout);
}

struct ProfileFlags {
  bool json = false;
  std::string output, log_dir;
};

const OptionSchema& profile_flags() {
  static const OptionSchema schema("profile", [](OptionSchema& s) {
    using T = ProfileFlags;
    s.boolean<T>("json", &T::json, "print the whole record as JSON");
    s.text<T>("output", &T::output, "write the result to this file").aliases = {"out"};
    s.text<T>("log_dir", &T::log_dir, "folder for the logs of ranks other than 0");
  });
  return schema;
}

struct DoctorFlags {
  bool json = false;
};

const OptionSchema& doctor_flags() {
  static const OptionSchema schema("doctor", [](OptionSchema& s) {
    s.boolean<DoctorFlags>("json", &DoctorFlags::json, "print findings as JSON");
  });
  return schema;
}

std::string size_text(double bytes) {
  constexpr double kGiB = 1073741824.0;
  if (bytes < 0) return "an unknown amount";
  return bytes >= kGiB ? fmt::format("{:.2f} GiB", bytes / kGiB)
                       : fmt::format("{:.1f} MiB", bytes / kMiB);
}

// Who held the memory at that moment, and what to change.
void print_savings(const Json& record) {
  if (!record.contains("savings")) return;
  const Json& memory = record["memory"];
  const double held = number_or(memory, "peak_bytes", 0);
  const bool is_planned = string_or(record, "phase", "") == "plan";  // nothing was started
  if (is_planned) {
    fmt::print(stderr, "moonshard: a step would hold {}:\n", size_text(held));
  } else {
    fmt::print(stderr,
               "moonshard: {} were held in phase {}, {} more were asked for, {} were free\n",
               size_text(held), string_or(record, "phase", "?"),
               size_text(number_or(record, "bytes_asked", -1)),
               size_text(number_or(record, "bytes_free", -1)));
  }
  for (const Json& row : memory["breakdown"]) {
    const double bytes = number_or(row, "bytes", 0);
    if (bytes >= held / 50)
      fmt::print(stderr, "    {:<20} {:>12}\n", string_or(row, "owner", ""), size_text(bytes));
  }
  fmt::print(stderr, "moonshard: what would save memory of the step's peak, each by itself:\n");
  for (const Json& row : record["savings"])
    fmt::print(stderr, "    {:<32} {:>12}  {}\n", string_or(row, "change", ""),
               size_text(number_or(row, "bytes", 0)), string_or(row, "reason", ""));
}

// The exit code of an experiment; one that ran out of memory is reported on stderr.
int report_out_of_memory(const Json& record) {
  if (record["status"] != "oom") return 0;
  fmt::print(stderr, "moonshard: {}\n", record["error"].get<std::string>());
  print_savings(record);
  end_rank(record["error"].get<std::string>());
  return kExitOutOfMemory;
}

// The point that this process is for: id and options. A sweep's parent hands them over, because
// reading the grid of 100,000 points would take longer than many a point; started by hand, they
// are looked up in sweep.json.
Json planned_point(const std::string& folder, const std::string& id) {
  if (const char* told = std::getenv("MOONSHARD_POINT"); told != nullptr && *told != '\0') {
    Json point = parse_json(told, "MOONSHARD_POINT");
    if (string_or(point, "id", "") == id && point.contains("options")) return point;
  }
  const records::RunTable table(folder);
  const std::optional<size_t> place = table.find(id);
  if (!place)
    throw UsageError(fmt::format("point: expected an id of {}/sweep.json, got '{}'", folder, id));
  const records::PlannedPoint planned = table.planned(*place);
  return {{"id", planned.id}, {"options", planned.options}};
}

// Runs one point as several ranks: this process is their launcher, rank 0 writes to its log.
int run_point_ranks(records::RunFolderWriter& writer, const std::string& id, const Json& options,
                    int count) {
  launch::ProgramRanks program;
  program.words = {"point", writer.path().string(), id};
  program.count = count;
  program.log_dir = writer.point_folder(id);
  const launch::ProgramRanksResult result = launch::run_program_ranks(program);
  if (result.exit_code == 0) return 0;
  fmt::print("{}\n", result.report);
  // Rank 0's record may only say that another rank was lost; that rank's own failure says why.
  std::error_code ignored;
  const bool has_record = std::filesystem::exists(program.log_dir / "result.json", ignored);
  if (!has_record || result.failed_rank != 0 || result.exit_code > 128) {
    Json record = launch::failure_record(result, options);
    record["id"] = id;
    writer.write_result(id, record);
  }
  return result.exit_code;
}

}  // namespace

std::string profile_help(const Verb& verb) {
  const ProfileFlags own;
  const experiment::ExperimentOptions defaults;
  return usage_text(verb, "[--model NAME] [--mode ENGINE] …",
                    "Runs one experiment and prints what it measured. Options [type: default]:") +
         describe_flags(profile_flags(), &own) + "\n" +
         describe_flags(experiment::experiment_schema(), &defaults);
}

int profile_command(const Verb& verb, const Words& words) {
  ProfileFlags flags;
  experiment::ExperimentOptions options;
  read_flags({{profile_flags(), &flags}, {experiment::experiment_schema(), &options}}, words);
  if (must_start_ranks(options.nproc))
    return start_ranks({options.nproc, flags.log_dir}, verb, without_flags(words, {"log_dir"}));
  const std::filesystem::path output(flags.output);
  experiment::FilesBeside beside;
  if (output.has_parent_path()) beside.folder = output.parent_path();
  if (!output.empty() && output.stem() != "result") beside.prefix = output.stem().string() + ".";
  const records::Result result = experiment::measure_experiment(
      options, flags.json ? experiment::StepObserver() : &print_step, beside);
  const Json record = records::json_of(result);
  if (!output.empty() && is_first_rank()) {
    const bool whole = record["status"] == "ok";
    Json file = whole ? experiment::seed_result(record) : Json::object();
    file["schema_version"] = kSchemaVersion;
    file["status"] = record["status"];
    file["record"] = record;
    write_file_atomically(output, to_text(file));
  }
  // Other launchers merge the output of all ranks, and JSON must be one document.
  if (flags.json && is_first_rank()) {
    fmt::print("{}", to_text(record));
  } else if (record["status"] == "ok" && is_first_rank()) {
    print_record(result);
  }
  return report_out_of_memory(record);
}

int point_command(const Verb&, const Words& words) {
  MS_CHECK(words.size() == 2, "point: expected a run folder and the id of a point, got {} words",
           words.size());
  const std::string &folder = words[0], &id = words[1];
  const Json planned = planned_point(folder, id);
  const Json& options = planned.at("options");
  Json record;
  int code = 0;
  try {
    experiment::ExperimentOptions read;
    experiment::experiment_schema().assign_all(&read, options);
    if (must_start_ranks(read.nproc)) {
      records::RunFolderWriter writer = records::RunFolderWriter::attach(folder);
      return run_point_ranks(writer, id, options, static_cast<int>(read.nproc));
    }
    const std::filesystem::path place =
        records::RunFolderWriter::attach(folder).make_point_folder(id);
    record = experiment::run_experiment(read, &print_step, place);
    if (record["status"] == "oom") code = kExitOutOfMemory;
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& error) {
    record = Json{{"schema_version", kSchemaVersion}, {"status", "failed"}, {"options", options}};
    record["error"] = bindings::readable_message(error);
    fmt::print("{}\n", record["error"].get<std::string>());
    code = 1;
  }
  if (code != 0) end_rank(record["error"].get<std::string>());
  if (!is_first_rank()) return code;
  record["id"] = id;
  // The parent writes the copy under the profiling suites' file name: it may change its content.
  records::RunFolderWriter writer = records::RunFolderWriter::attach(folder);
  for (const auto& [name, text] : records::point_tables(record))
    writer.write_file("points/" + id + "/" + name, text);
  writer.write_result(id, record);  // last: a point that has it is done
  return code;
}

int experiment_command(const Verb&, const Words& words) {
  MS_CHECK(words.size() == 2,
           "experiment: expected a file of options and one to write, got {} words", words.size());
  experiment::ExperimentOptions options;
  experiment::experiment_schema().assign_all(&options, read_json_file(words[0]));
  const Json record = experiment::run_experiment(options, &print_step);
  if (is_first_rank()) write_file_atomically(words[1], to_text(record));
  return report_out_of_memory(record);
}

std::string doctor_help(const Verb& verb) {
  const DoctorFlags flags;
  return usage_text(
             verb, "[--json] [DIR|FILE …]",
             "Looks at this machine and says what to do about each problem. With run folders, "
             "folders of result files\nor single files: reads every file, compares records with "
             "their schema, ids with the options, tables with\nthe records, and names each defect. "
             "With checkpoints or weights: reads every byte and compares\nit with its checksum. "
             "Exit code 1 when there is a defect.") +
         describe_flags(doctor_flags(), &flags);
}

namespace {

std::optional<Json> typed_options(const Json& options) {
  experiment::ExperimentOptions read;
  try {
    experiment::experiment_schema().assign_all(&read, options);
  } catch (const std::exception&) {
    return std::nullopt;
  }
  const Json all = experiment::experiment_schema().to_json(&read);
  Json typed = Json::object();  // options that came later are not part of the id
  for (const auto& [name, value] : options.items()) typed[name] = all.at(name);
  return typed;
}

int examine_folders(const Words& paths, bool as_json) {
  Json list = Json::array();
  size_t defects = 0;
  for (const std::string& path : paths) {
    std::error_code ignored;
    MS_CHECK(std::filesystem::exists(path, ignored),
             "doctor: expected a run folder, a folder of result files, a JSON file, checkpoints or "
             "weights, got '{}', which is not there",
             path.substr(0, 200));
    const auto kept = checkpoint::examine(path);
    const records::FolderCheck check = kept ? *kept : records::check_folder(path, &typed_options);
    defects += check.defects.size();
    list.push_back(records::to_json(check));
    if (as_json) continue;
    for (const records::Defect& defect : check.defects)
      fmt::print("BAD   {}/{}: {}\n", path, defect.file, defect.what);
    constexpr size_t kShown = 5;
    for (size_t i = 0; i < std::min(check.notes.size(), kShown); ++i)
      fmt::print("note  {}: {}\n", path, check.notes[i]);
    if (check.notes.size() > kShown)
      fmt::print("note  {}: … {} more; --json lists them\n", path, check.notes.size() - kShown);
    fmt::print(
        "{}  {}: {} files, {} records, {}\n", check.defects.empty() ? "ok  " : "BAD ", path,
        check.files, check.points,
        check.defects.empty() ? "no defects" : fmt::format("{} defects", check.defects.size()));
  }
  if (as_json) fmt::print("{}", to_text(Json{{"folders", std::move(list)}, {"defects", defects}}));
  return defects == 0 ? 0 : 1;
}

}  // namespace

int doctor_command(const Verb&, const Words& words) {
  DoctorFlags flags;
  Words paths, options;
  for (const std::string& word : words) (word.starts_with("--") ? options : paths).push_back(word);
  read_flags({{doctor_flags(), &flags}}, options);
  if (!paths.empty()) return examine_folders(paths, flags.json);
  const std::vector<launch::Finding> findings = launch::examine_machine();
  if (flags.json) {
    fmt::print("{}", to_text(launch::to_json(findings)));
    return 0;
  }
  static constexpr const char* kMarks[] = {"ok  ", "note", "BAD "};
  for (const launch::Finding& finding : findings) {
    fmt::print("{}  {:<11} {}\n", kMarks[static_cast<int>(finding.health)], finding.subject,
               finding.found);
    if (!finding.advice.empty()) fmt::print("                  -> {}\n", finding.advice);
  }
  return 0;
}

int view_command(const Verb&, const Words& words) {
  const std::string program = launch::sibling_program("moonshard-view").string();
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execv(program.c_str(), argv.data());
  throw IoError(fmt::format("{}: cannot start the viewer: {}; build it with -DMOONSHARD_VIEWER=ON",
                            program, std::strerror(errno)));
}

}  // namespace moonshard::host
