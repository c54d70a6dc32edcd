#include "runtime/launch/ranks.h"

#include <signal.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/base/interrupt.h"
#include "runtime/comm/pulse.h"
#include "runtime/launch/group_guard.h"
#include "runtime/profile/trace_request.h"

namespace moonshard::launch {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;
constexpr auto kPoll = 10ms;
constexpr auto kLeftOver = 1s;  // for processes that a rank has left behind

std::string random_token() {
  unsigned char bytes[16];
  if (::getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
    throw IoError(fmt::format("launch: no random bytes: {}", std::strerror(errno)));
  std::string token;
  for (const unsigned char byte : bytes) token += fmt::format("{:02x}", byte);
  return token;
}

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

// The last lines of a log, fit for a terminal.
std::string tail_of(const std::filesystem::path& file) {
  constexpr std::streamoff kBytes = 4096;
  constexpr size_t kLines = 10;
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  if (!in) return "";
  in.seekg(std::max<std::streamoff>(0, static_cast<std::streamoff>(in.tellg()) - kBytes));
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    std::replace_if(
        line.begin(), line.end(),
        [](char letter) { return static_cast<unsigned char>(letter) < 32 && letter != '\t'; }, '?');
    lines.push_back(line);
  }
  std::string text;
  for (size_t i = lines.size() > kLines ? lines.size() - kLines : 0; i < lines.size(); ++i)
    text += "\n    " + lines[i];
  return text;
}

struct Rank {
  pid_t pid = 0;               // here
  RemoteHost* host = nullptr;  // or there
  bool has_ended = false;
  bool was_stopped = false;  // when its time was up
  bool was_made_to_end = false;
  ProcessResult end;
  bool failed() const { return has_ended && (end.exit_code != 0 || end.signal != 0); }
};

class Job {
 public:
  explicit Job(const RanksRequest& request) : request_(request) {}
  ~Job() { end_all(); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  void start() {
    const std::string token = random_token();
    meeting_ = request_.make_meeting_point(token);
    variables_ = {{"MOONSHARD_JOB_TOKEN", token}, {"MOONSHARD_STORE", meeting_.store}};
    if (!meeting_.first_machine.empty())
      variables_.emplace_back("MASTER_ADDR", meeting_.first_machine);
    std::vector<HostRanks> hosts = request_.hosts;
    if (hosts.empty()) hosts = {HostRanks{"", request_.count, true}};
    for (const HostRanks& host : hosts) host.is_here ? start_here(host) : start_there(host);
  }

  // Until all have ended, one has failed, or the user asks to stop.
  void watch() {
    while (look() > 0 && failures_.empty()) {
      throw_if_interrupted();
      // A trace request to the launcher is meant for the ranks.
      if (profile::take_trace_request().steps > 0) send(SIGUSR2);
      std::this_thread::sleep_for(kPoll);
    }
  }

  /// True when all have ended by then.
  bool wait_for_all(std::chrono::milliseconds most) {
    const auto deadline = Clock::now() + most;
    while (look() > 0) {
      if (Clock::now() >= deadline) return false;
      std::this_thread::sleep_for(kPoll);
    }
    return true;
  }

  void send(int signal) {
    for (size_t i = 0; i < ranks_.size(); ++i) {
      const Rank& rank = ranks_[i];
      if (rank.has_ended) continue;
      if (rank.host != nullptr) {
        rank.host->send_signal(static_cast<int>(i), signal);
      } else {
        ::kill(-rank.pid, signal);
      }
    }
  }

  void wind_up() {
    const auto deadline = Clock::now() + milliseconds(request_.last_words_s);
    while (look() > 0 && Clock::now() < deadline && !all_are_stopped())
      std::this_thread::sleep_for(kPoll);
    if (look() == 0) return;
    for (Rank& rank : ranks_) {
      if (rank.has_ended) continue;
      rank.was_made_to_end = true;
      rank.was_stopped = is_stopped(rank);
    }
    send(SIGTERM);
    send(SIGCONT);  // a stopped process would not handle the signal
    if (wait_for_all(milliseconds(request_.terminate_s))) return;
    send(SIGKILL);
    wait_for_all(60s);
  }

  // Ends and reaps everything, the ranks' own children included.
  void end_all() {
    send(SIGKILL);
    wait_for_all(60s);
    for (const auto& host : hosts_) guard_.remove(host->shell());
    std::erase_if(ranks_, [](const Rank& rank) { return rank.host != nullptr; });
    hosts_.clear();  // ends what is left there
    for (const Rank& rank : ranks_) ::waitpid(rank.pid, nullptr, WNOHANG);
    // The groups got SIGTERM when their leaders ended.
    const auto deadline = Clock::now() + kLeftOver;
    const auto some_left = [&] {
      return std::any_of(ranks_.begin(), ranks_.end(),
                         [](const Rank& rank) { return ::kill(-rank.pid, 0) == 0; });
    };
    while (some_left() && Clock::now() < deadline) std::this_thread::sleep_for(kPoll);
    for (const Rank& rank : ranks_) {
      ::kill(-rank.pid, SIGKILL);
      guard_.remove(rank.pid);
    }
    ranks_.clear();
  }

  RanksResult result() const {
    RanksResult result;
    if (failures_.empty()) return result;
    const std::vector<std::optional<comm::Pulse>> pulses = read_pulses();
    result.failed_rank = root_cause(pulses);
    const auto index = static_cast<size_t>(result.failed_rank);
    const Rank& failed = ranks_[index];
    result.exit_code = failed.end.signal != 0 ? 128 + failed.end.signal : failed.end.exit_code;
    // A rank that reported a failure, and then hung on exit or ended with code 0.
    if (failed.was_made_to_end || result.exit_code == 0) result.exit_code = 1;
    if (result.exit_code == kExitToContinue) {
      result.report = "the job was asked to end, and has saved a checkpoint";
      return result;
    }
    std::string where;
    if (pulses[index]) {
      where = ", " + comm::describe_position(*pulses[index]);
      if (pulses[index]->state == comm::RankState::Failed) result.error = pulses[index]->error;
    }
    result.report =
        fmt::format("rank {} of {} failed first: {}{}", result.failed_rank, request_.count,
                    failed.was_made_to_end ? "an error" : how_ended(index), where);
    result.failed_host = host_of(index);
    result.lost_host = !why_lost(index).empty();
    if (result.failed_rank != 0 || request_.rank_0_has_log) {
      const auto log = rank_log(request_.log_dir, result.failed_rank);
      const std::string tail = tail_of(log);
      if (!tail.empty()) result.report += fmt::format("\n  the end of {}:{}", log.string(), tail);
    }
    for (size_t i = 0; i < ranks_.size(); ++i) {
      const std::string lost = why_lost(i);
      if (!lost.empty() && lost != why_lost(index))
        result.report += fmt::format("\n  rank {}: {}", i, lost);
      if (!ranks_[i].was_made_to_end) continue;
      result.report +=
          fmt::format("\n  rank {} {} and was made to end", i,
                      ranks_[i].was_stopped ? "was stopped (SIGSTOP, a debugger)" : "went on");
    }
    return result;
  }

 private:
  void start_here(const HostRanks& host) {
    for (int local = 0; local < host.count; ++local) {
      const int rank = static_cast<int>(ranks_.size());
      ProcessRequest process;
      process.arguments = request_.arguments;
      if (rank != 0 || request_.rank_0_has_log) {
        process.log = rank_log(request_.log_dir, rank);
        std::error_code ignored;
        std::filesystem::remove(process.log, ignored);  // an earlier job's
      }
      process.variables = rank_variables(rank, request_.count, local, host.count);
      process.variables.insert(process.variables.end(), variables_.begin(), variables_.end());
      Rank started;
      started.pid = start_process(process);
      guard_.add(started.pid);
      ranks_.push_back(started);
    }
  }

  void start_there(const HostRanks& host) {
    JobThere job;
    job.directory = std::filesystem::current_path().string();
    job.patience_s = host_patience_s();
    job.first_rank = static_cast<int>(ranks_.size());
    job.count = host.count;
    job.world = request_.count;
    job.arguments = request_.arguments;
    job.variables = travelling_variables();
    job.variables.insert(job.variables.end(), variables_.begin(), variables_.end());
    hosts_.push_back(std::make_unique<RemoteHost>(host, request_.remote_shell,
                                                  request_.arguments[0], job, request_.log_dir,
                                                  request_.rank_0_has_log));
    guard_.add(hosts_.back()->shell());
    Rank there;
    there.host = hosts_.back().get();
    ranks_.insert(ranks_.end(), static_cast<size_t>(host.count), there);
  }

  std::optional<ProcessResult> end_of(size_t index) const {
    const Rank& rank = ranks_[index];
    if (rank.host == nullptr) return peek_end(rank.pid);
    const RemoteHost::RankThere& there = rank.host->rank(static_cast<int>(index));
    return there.has_ended ? std::optional(there.end) : std::nullopt;
  }

  // "signal 9 (Killed)", and where, or that its host was lost.
  std::string how_ended(size_t index) const {
    const Rank& rank = ranks_[index];
    if (rank.host == nullptr) return describe(rank.end);
    const std::string lost = why_lost(index);
    return lost.empty() ? fmt::format("{} on {}", describe(rank.end), rank.host->host().name)
                        : lost;
  }

  // Empty when its end is known.
  std::string why_lost(size_t index) const {
    const Rank& rank = ranks_[index];
    return rank.host != nullptr ? rank.host->rank(static_cast<int>(index)).lost : "";
  }

  std::string host_of(size_t index) const {
    for (const HostRanks& host : request_.hosts) {
      if (index < static_cast<size_t>(host.count)) return host.name;
      index -= static_cast<size_t>(host.count);
    }
    return "";
  }

  // Looks for ranks that have ended. Returns how many have not.
  size_t look() {
    size_t running = 0;
    for (const auto& host : hosts_) host->pump();
    for (size_t i = 0; i < ranks_.size(); ++i) {
      Rank& rank = ranks_[i];
      if (rank.has_ended) continue;
      const auto end = end_of(i);
      if (!end) {
        ++running;
        continue;
      }
      rank.has_ended = true;
      rank.end = *end;
      if (rank.failed() && !rank.was_made_to_end) failures_.push_back(static_cast<int>(i));
      post_end(i);
      // Its children; the leader is a zombie and keeps the number.
      if (rank.host == nullptr) ::kill(-rank.pid, SIGTERM);
    }
    return running;
  }

  void post_end(size_t index) const {
    try {
      meeting_.board->post(comm::end_key(static_cast<int>(index)), how_ended(index));
    } catch (const IoError&) {
      // Only the ranks' reports lose detail.
    }
  }

  // Stopped ranks (SIGSTOP) will not report: no need to wait for them.
  bool all_are_stopped() const {
    return std::all_of(ranks_.begin(), ranks_.end(),
                       [this](const Rank& rank) { return rank.has_ended || is_stopped(rank); });
  }

  bool is_stopped(const Rank& rank) const {
    if (rank.host != nullptr)
      return rank.host->rank(static_cast<int>(&rank - ranks_.data())).is_stopped;
    siginfo_t info{};
    return ::waitid(P_PID, static_cast<id_t>(rank.pid), &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == rank.pid;
  }

  std::vector<std::optional<comm::Pulse>> read_pulses() const {
    std::vector<std::optional<comm::Pulse>> pulses(ranks_.size());
    try {
      for (size_t i = 0; i < ranks_.size(); ++i) {
        if (const auto text = meeting_.board->read(comm::pulse_key(static_cast<int>(i))))
          pulses[i] = comm::read_pulse(*text);
      }
    } catch (const IoError&) {
      // The report then has less detail.
    }
    return pulses;
  }

  // The first that ended badly; but a rank that gave up because of others is not the cause when
  // another rank, perhaps still exiting, failed by itself.
  int root_cause(const std::vector<std::optional<comm::Pulse>>& pulses) const {
    const auto state_of = [&](int rank) {
      const auto& pulse = pulses[static_cast<size_t>(rank)];
      return pulse ? pulse->state : comm::RankState::Running;
    };
    for (const int rank : failures_)
      if (state_of(rank) != comm::RankState::GaveUp) return rank;
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank)
      if (state_of(rank) == comm::RankState::Failed) return rank;
    return failures_[0];
  }

  const RanksRequest& request_;
  GroupGuard guard_;
  MeetingPoint meeting_;
  std::vector<std::pair<std::string, std::string>> variables_;  // of every rank
  std::vector<std::unique_ptr<RemoteHost>> hosts_;              // the other machines
  std::vector<Rank> ranks_;
  std::vector<int> failures_;  // in the order they were seen
};

}  // namespace

RanksResult launch_ranks(const RanksRequest& request) {
  MS_CHECK(request.count >= 1 && request.count <= kMaxRanks,
           "launch: option 'nproc': expected an integer from 1 to {}, got {}", kMaxRanks,
           request.count);
  std::error_code error;
  std::filesystem::create_directories(request.log_dir, error);
  if (error) {
    throw IoError(fmt::format("{}: cannot make the folder for logs: {}", request.log_dir.string(),
                              error.message()));
  }
  Job job(request);
  job.start();
  try {
    job.watch();
  } catch (const Interrupted&) {
    const bool may_save = request.ending_signal && request.ending_signal() == SIGTERM;
    job.send(may_save ? SIGTERM : SIGINT);
    job.wait_for_all(milliseconds(may_save ? request.save_s : request.interrupt_s));
    const RanksResult result = job.result();
    job.end_all();
    if (result.exit_code == kExitToContinue) return result;
    throw;
  }
  job.wind_up();
  const RanksResult result = job.result();
  job.end_all();
  return result;
}

}  // namespace moonshard::launch
