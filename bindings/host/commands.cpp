#include "bindings/host/commands.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "bindings/host/flags.h"
#include "bindings/host/ranks_command.h"
#include "bindings/lua_error.h"
#include "runtime/base/atomic_file.h"
#include "runtime/experiment/experiment.h"
#include "runtime/launch/doctor.h"
#include "runtime/launch/process.h"
#include "runtime/launch/program_ranks.h"
#include "runtime/records/point_tables.h"
#include "runtime/records/writer.h"

namespace moonshard::host {
namespace {

using launch::kExitOutOfMemory;

void print_step(const train::StepReport& report, bool is_warmup) {
  const std::string spent =
      report.epsilon ? fmt::format(", epsilon <= {:.3f}", *report.epsilon) : std::string();
  fmt::print("step {}{}: loss {:.4f}, {:.2f} ms, peak {:.1f} MiB{}\n", report.step,
             is_warmup ? " (warm-up)" : "", report.loss, report.time_ms,
             static_cast<double>(report.memory.max_allocated_bytes) / 1048576.0, spent);
  std::fflush(stdout);
}

void print_privacy(const Json& privacy) {
  if (privacy["epsilon"].is_null()) {
    fmt::print("  privacy   not private: no epsilon: {}\n",
               privacy["why_no_epsilon"].get<std::string>());
    return;
  }
  fmt::print(
      "  privacy   epsilon {:.4f} at delta {:g} by {}: {} steps, sampling rate {:.4g}, noise "
      "{:.4f} ({})\n",
      privacy["epsilon"].get<double>(), privacy["delta"].get<double>(),
      privacy["accountant"].get<std::string>(), privacy["steps"].get<int64_t>(),
      privacy["sampling_rate"].get<double>(), privacy["noise_multiplier"].get<double>(),
      privacy["noise"] == "secure" ? "secret" : "repeatable from the seed");
}

void print_record(const Json& record) {
  const Json& metrics = record["metrics"];
  const Json& options = record["options"];
  const std::string weights = options["dtype"], computes = options["param_dtype"];
  fmt::print("\n{} {}, batch {}, {} tokens, {} on {}\n", options["model"].get<std::string>(),
             options["mode"].get<std::string>(), options["batch_size"].get<int64_t>(),
             options["seq_length"].get<int64_t>(),
             weights == computes ? weights : weights + " (computes in " + computes + ")",
             options["device"].get<std::string>());
  if (record.contains("sharding")) {
    const Json& sharding = record["sharding"];
    fmt::print("  rank {} of {}{}, {} {}, over {}\n", sharding["rank"].get<int64_t>(),
               sharding["world"].get<int64_t>(),
               sharding["fake"].get<bool>() ? " (the others are modelled)" : "",
               options["parallel"].get<std::string>(),
               options["parallel"] == "fsdp" ? options["sharding"].get<std::string>() : "",
               sharding["transport"].get<std::string>());
  }
  const Json& time = record["time"]["step_ms"];
  fmt::print("  step      median {:.2f} ms, min {:.2f}, p95 {:.2f}, IQR {:.2f} over {} steps\n",
             time["median"].get<double>(), time["min"].get<double>(), time["p95"].get<double>(),
             time["iqr"].get<double>(), time["count"].get<int64_t>());
  for (const auto& [phase, summary] : record["time"]["phases_ms"].items()) {
    fmt::print("    {:<16} {:8.2f} ms\n", phase, summary["median"].get<double>());
  }
  if (record.contains("norms_ms")) {
    const Json& norms = record["norms_ms"];
    fmt::print("  norms     stacking {:.2f} ms, local {:.2f}, reduce {:.2f}, final {:.2f}\n",
               norms["stacking"].get<double>(), norms["local"].get<double>(),
               norms["reduce"].get<double>(), norms["final"].get<double>());
  }
  fmt::print("  memory    peak {:.1f} MiB\n", metrics["peak_memory_mb"].get<double>());
  if (record.contains("memory")) {
    fmt::print("    of the detailed step, in phase {}:\n",
               record["memory"]["peak_phase"].get<std::string>());
    for (const Json& row : record["memory"]["breakdown"])
      fmt::print("    {:<20} {:10.2f} MiB\n", row["owner"].get<std::string>(),
                 row["bytes"].get<double>() / 1048576.0);
  }
  if (record.contains("comm")) {
    for (const Json& row : record["comm"])
      fmt::print(
          "  comm      {} {} times, {:.1f} MiB, work {:.2f} ms, exposed {:.2f}, overlap "
          "{:.0f} %\n",
          row["operation"].get<std::string>(), row["count"].get<int64_t>(),
          row["bytes"].get<double>() / 1048576.0, row["work_ms"].get<double>(),
          row["exposed_ms"].get<double>(), row["overlap_percent"].get<double>());
  }
  fmt::print("  speed     {:.0f} tokens/s, {:.1f} samples/s", metrics["tokens_per_s"].get<double>(),
             metrics["samples_per_s"].get<double>());
  if (metrics.contains("mfu_percent"))
    fmt::print(", {:.1f} % of the device's peak", metrics["mfu_percent"].get<double>());
  if (metrics.contains("gpu_utilization_percent"))
    fmt::print(", GPU busy {:.0f} %", metrics["gpu_utilization_percent"].get<double>());
  fmt::print(", CPU {:.0f} %, data {:.1f} %\n", metrics["cpu_percent"].get<double>(),
             number_or(metrics, "data_share_percent", 0));
  if (metrics.contains("profiler_overhead_percent"))
    fmt::print("  profiler  the detailed step took {:+.1f} % against the median\n",
               metrics["profiler_overhead_percent"].get<double>());
  fmt::print("  loss      {:.4f}\n", metrics["final_loss"].get<double>());
  print_privacy(record["privacy"]);
}

// The entry of a point in sweep.json: id, file, asked, options.
Json planned_point(const std::string& folder, const std::string& id) {
  const Json sweep = read_json_file(std::filesystem::path(folder) / "sweep.json");
  for (const Json& point : sweep.at("points")) {
    if (string_or(point, "id", "") == id) return point;
  }
  throw UsageError(fmt::format("point: expected an id of {}/sweep.json, got '{}'", folder, id));
}

// The ranks of one point: the point's process becomes their launcher. Rank 0 has its log.
int run_point_ranks(records::RunFolderWriter& writer, const std::string& id, const Json& options,
                    int count) {
  launch::ProgramRanks program;
  program.words = {"point", writer.path().string(), id};
  program.count = count;
  program.log_dir = writer.point_folder(id);
  const launch::ProgramRanksResult result = launch::run_program_ranks(program);
  if (result.exit_code == 0) return 0;
  fmt::print("{}\n", result.report);
  // Rank 0 may have written that another rank is missing; the cause says more.
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

std::string profile_help() {
  const train::ExperimentOptions defaults;
  return "Runs one experiment and prints what it measured. Options [type: default]:\n" +
         describe_flags(train::experiment_schema(), &defaults);
}

int64_t profile_ranks(const std::vector<std::string>& words) {
  train::ExperimentOptions options;
  read_flags(train::experiment_schema(), words, &options);
  return options.nproc;
}

int profile_command(const std::vector<std::string>& words, bool as_json,
                    const std::string& output) {
  train::ExperimentOptions options;
  read_flags(train::experiment_schema(), words, &options);
  const std::filesystem::path beside = std::filesystem::path(output).parent_path();
  const Json record = train::run_experiment(options, as_json ? train::StepObserver() : &print_step,
                                            beside.empty() ? "." : beside);
  if (!output.empty() && is_first_rank()) {
    const bool whole = record["status"] == "ok";
    Json file = whole ? train::seed_result(record) : Json::object();
    file["schema_version"] = kSchemaVersion;
    file["status"] = record["status"];
    file["record"] = record;
    write_file_atomically(output, to_text(file));
  }
  // Other launchers show all ranks' output: one record is enough, and JSON must be one.
  if (as_json && is_first_rank()) {
    fmt::print("{}", to_text(record));
  } else if (record["status"] == "ok" && is_first_rank()) {
    print_record(record);
  }
  if (record["status"] != "oom") return 0;
  fmt::print(stderr, "moonshard: {}\n", record["error"].get<std::string>());
  end_rank(record["error"].get<std::string>());
  return kExitOutOfMemory;
}

int point_command(const std::string& folder, const std::string& id) {
  const Json planned = planned_point(folder, id);
  const Json& options = planned.at("options");
  Json record;
  int code = 0;
  try {
    train::ExperimentOptions read;
    train::experiment_schema().assign_all(&read, options);
    if (must_start_ranks(read.nproc)) {
      records::RunFolderWriter writer = records::RunFolderWriter::attach(folder);
      return run_point_ranks(writer, id, options, static_cast<int>(read.nproc));
    }
    const std::filesystem::path place = std::filesystem::path(folder) / "points" / id;
    std::filesystem::create_directories(place);
    record = train::run_experiment(read, &print_step, place);
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
  // The copy under the suites' name is the parent's: it may have its own idea of that file.
  records::RunFolderWriter writer = records::RunFolderWriter::attach(folder);
  for (const auto& [name, text] : records::point_tables(record))
    writer.write_file("points/" + id + "/" + name, text);
  writer.write_result(id, record);  // last: a point that has it is done
  return code;
}

int experiment_command(const std::string& options_file, const std::string& result_file) {
  train::ExperimentOptions options;
  train::experiment_schema().assign_all(&options, read_json_file(options_file));
  const Json record = train::run_experiment(options, &print_step);
  if (is_first_rank()) write_file_atomically(result_file, to_text(record));
  if (record["status"] != "oom") return 0;
  fmt::print(stderr, "moonshard: {}\n", record["error"].get<std::string>());
  end_rank(record["error"].get<std::string>());
  return kExitOutOfMemory;
}

int doctor_command(bool as_json) {
  const std::vector<launch::Finding> findings = launch::examine_machine();
  if (as_json) {
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

int view_command(const std::vector<std::string>& words) {
  const std::string program = launch::sibling_program("moonshard-view").string();
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execv(program.c_str(), argv.data());
  throw IoError(fmt::format("{}: cannot start the viewer: {}; build it with -DMOONSHARD_VIEWER=ON",
                            program, std::strerror(errno)));
}

}  // namespace moonshard::host
