#include "bindings/host/commands.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "bindings/host/print_record.h"
#include "bindings/host/ranks_command.h"
#include "bindings/lua_error.h"
#include "runtime/base/staged_file.h"
#include "runtime/experiment/experiment.h"
#include "runtime/launch/doctor.h"
#include "runtime/launch/process.h"
#include "runtime/launch/program_ranks.h"
#include "runtime/records/point_tables.h"
#include "runtime/records/schema_json.h"
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

struct ProfileFlags {
  bool json = false;
  std::string output, log_dir;
};

const OptionSchema& profile_flags() {
  static const OptionSchema schema = [] {
    OptionSchema s("profile");
    s.boolean<ProfileFlags>("json", &ProfileFlags::json, "print the whole record as JSON");
    s.text<ProfileFlags>("output", &ProfileFlags::output, "write the result to this file")
        .aliases = {"out"};
    s.text<ProfileFlags>("log_dir", &ProfileFlags::log_dir,
                         "folder for the logs of ranks other than 0");
    return s;
  }();
  return schema;
}

struct DoctorFlags {
  bool json = false;
};

const OptionSchema& doctor_flags() {
  static const OptionSchema schema = [] {
    OptionSchema s("doctor");
    s.boolean<DoctorFlags>("json", &DoctorFlags::json, "print findings as JSON");
    return s;
  }();
  return schema;
}

// The exit code of an experiment; one that ran out of memory is reported on stderr.
int report_out_of_memory(const Json& record) {
  if (record["status"] != "oom") return 0;
  fmt::print(stderr, "moonshard: {}\n", record["error"].get<std::string>());
  end_rank(record["error"].get<std::string>());
  return kExitOutOfMemory;
}

// The entry of a point in sweep.json: id, file, asked, options.
Json planned_point(const std::string& folder, const std::string& id) {
  const Json sweep = read_json_file(std::filesystem::path(folder) / "sweep.json");
  for (const Json& point : sweep.at("points")) {
    if (string_or(point, "id", "") == id) return point;
  }
  throw UsageError(fmt::format("point: expected an id of {}/sweep.json, got '{}'", folder, id));
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
  const std::string& output = flags.output;
  const std::filesystem::path beside = std::filesystem::path(output).parent_path();
  const records::Result result =
      experiment::measure_experiment(options, flags.json ? experiment::StepObserver() : &print_step,
                                     beside.empty() ? "." : beside);
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
    const std::filesystem::path place = std::filesystem::path(folder) / "points" / id;
    std::filesystem::create_directories(place);
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
  return usage_text(verb, "[--json]",
                    "Looks at this machine and says what to do about each problem.") +
         describe_flags(doctor_flags(), &flags);
}

int doctor_command(const Verb&, const Words& words) {
  DoctorFlags flags;
  read_flags({{doctor_flags(), &flags}}, words);
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
