#include "runtime/launch/program_ranks.h"

#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/comm/own_address.h"
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
struct KeptStore {
  explicit KeptStore(const std::string& token) : host(token), board(host.board()) {}
  KeptStore(const std::string& token, const std::string& address)
      : host(token, address), board(host.board()) {}
  comm::RendezvousHost host;
  std::shared_ptr<comm::Board> board;
};

MeetingPoint meeting_at(const std::shared_ptr<KeptStore>& kept) {
  return {kept->host.store(), std::shared_ptr<comm::Board>(kept, kept->board.get())};
}

// Where the other hosts reach this machine.
std::string launcher_address(const std::vector<HostRanks>& hosts) {
  const char* given = std::getenv("MASTER_ADDR");
  if (given != nullptr && *given != '\0') return given;
  comm::Route first;
  std::string first_host;
  for (const HostRanks& host : hosts) {
    if (host.is_here) continue;
    try {
      const comm::Route route = comm::route_to(network_name(host));
      MS_CHECK(first_host.empty() || route.own == first.own,
               "run: expected one address of this machine for all hosts, got {} towards {} and {} "
               "towards {}; set MASTER_ADDR to one that all of them reach",
               to_text(first), first_host, to_text(route), host.name);
      first = route;
      first_host = host.name;
    } catch (const IoError& error) {
      throw IoError(
          fmt::format("run: {}; set MASTER_ADDR to the address at which the hosts reach "
                      "this machine",
                      error.what()));
    }
  }
  return first.own;
}

std::string list_hosts(const std::vector<HostRanks>& hosts) {
  std::string text;
  for (const HostRanks& host : hosts) {
    text += fmt::format("{}{} ({} rank{}{})", text.empty() ? "" : ", ", host.name, host.count,
                        host.count == 1 ? "" : "s", host.is_here ? ", this machine" : "");
  }
  return text;
}

MeetingPoint meet_across_hosts(const ProgramRanks& program, const std::string& token) {
  const std::string address = launcher_address(program.hosts);
  const auto kept = std::make_shared<KeptStore>(token, address);
  MeetingPoint meeting = meeting_at(kept);
  const HostRanks& first = program.hosts.front();
  meeting.first_machine = first.is_here ? address : network_name(first);
  if (program.say) {
    program.say(fmt::format("hosts: {}; rendezvous at {}", list_hosts(program.hosts),
                            meeting.store.substr(meeting.store.find(':') + 1)));
  }
  return meeting;
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
  request.hosts = program.hosts;
  request.remote_shell = program.remote_shell;
  const bool is_all_here = std::all_of(program.hosts.begin(), program.hosts.end(),
                                       [](const HostRanks& host) { return host.is_here; });
  request.make_meeting_point = [&](const std::string& token) {
    return is_all_here ? meeting_at(std::make_shared<KeptStore>(token))
                       : meet_across_hosts(program, token);
  };
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
