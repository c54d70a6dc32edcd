#include "runtime/launch/program_ranks.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/comm/rendezvous.h"

namespace moonshard::launch {
namespace {

std::filesystem::path make_temporary_folder() {
  std::string pattern =
      (std::filesystem::temp_directory_path() / "moonshard_ranks_XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr)
    throw IoError(
        fmt::format("{}: cannot make a folder: {}; set TMPDIR", pattern, std::strerror(errno)));
  return pattern;
}

// Keeps the store alive that the board uses.
MeetingPoint make_store(const std::string& token) {
  struct Kept {
    explicit Kept(const std::string& job) : host(job), board(host.board()) {}
    comm::RendezvousHost host;
    std::shared_ptr<comm::Board> board;
  };
  const auto kept = std::make_shared<Kept>(token);
  return {kept->host.socket(), std::shared_ptr<comm::Board>(kept, kept->board.get())};
}

}  // namespace

ProgramRanksResult run_program_ranks(const ProgramRanks& program) {
  RanksRequest request;
  request.arguments = {
      (program.program.empty() ? sibling_program("moonshard") : program.program).string()};
  request.arguments.insert(request.arguments.end(), program.words.begin(), program.words.end());
  request.count = program.count;
  const bool is_temporary = program.log_dir.empty();
  request.log_dir = is_temporary ? make_temporary_folder() : program.log_dir;
  request.rank_0_has_log = program.rank_0_has_log;
  request.ending_signal = program.ending_signal;
  request.make_meeting_point = &make_store;
  ProgramRanksResult result;
  static_cast<RanksResult&>(result) = launch_ranks(request);
  if (is_temporary && result.exit_code == 0) {
    std::error_code ignored;
    std::filesystem::remove_all(request.log_dir, ignored);
  } else {
    result.log_dir = request.log_dir;
  }
  return result;
}

Json run_experiment_ranks(const Json& options, int count) {
  const std::filesystem::path folder = make_temporary_folder();
  const std::filesystem::path asked = folder / "options.json", answer = folder / "result.json";
  write_file_atomically(asked, to_text(options));
  ProgramRanks program;
  program.words = {"experiment", asked.string(), answer.string()};
  program.count = count;
  program.log_dir = folder;
  program.rank_0_has_log = true;
  const ProgramRanksResult result = run_program_ranks(program);
  if (result.exit_code != 0 && result.exit_code != kExitOutOfMemory)
    throw Error(fmt::format("{}\n  logs: {}", result.report, folder.string()));
  Json record = result.exit_code == 0 || result.failed_rank == 0 ? read_json_file(answer)
                                                                 : failure_record(result, options);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return record;
}

Json failure_record(const RanksResult& result, const Json& options) {
  return Json{{"schema_version", kSchemaVersion},
              {"status", result.exit_code == kExitOutOfMemory ? "oom" : "failed"},
              {"options", options},
              {"error", result.error.empty()
                            ? result.report
                            : fmt::format("rank {}: {}", result.failed_rank, result.error)}};
}

}  // namespace moonshard::launch
