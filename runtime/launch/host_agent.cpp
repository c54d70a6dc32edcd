#include "runtime/launch/host_agent.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <thread>

#include "runtime/base/check.h"
#include "runtime/launch/group_guard.h"
#include "runtime/launch/remote_ranks.h"

namespace moonshard::launch {
namespace {

using AgentClock = std::chrono::steady_clock;
using namespace std::chrono_literals;
constexpr auto kAgentTick = 20ms;
constexpr auto kChildrenLeft = 1s;       // for processes that a rank has left behind
constexpr auto kAcceptedSoon = 5s;       // for the last messages
constexpr size_t kMostQueued = 1 << 20;  // then ranks wait with their output
constexpr double kJobPatience = 60;      // for the job itself

int whole_number(const std::string& text) {
  int number = -1;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

struct RankHere {
  int number = 0;
  pid_t pid = 0;
  Descriptor out, err;
  bool is_stopped = false;
  std::optional<ProcessResult> end;
  bool is_told = false;
};

class HostAgent {
 public:
  explicit HostAgent(HostChannel& channel) : channel_(channel) {}
  ~HostAgent() { end_ranks(); }
  HostAgent(const HostAgent&) = delete;
  HostAgent& operator=(const HostAgent&) = delete;

  // Nothing when the launcher is gone before it has said what to do.
  bool wait_for_job() {
    while (!channel_.is_over() && channel_.silent_s() < kJobPatience) {
      channel_.flush();
      for (const HostChannel::Message& message : channel_.receive()) {
        if (auto job = read_job(message)) {
          job_ = std::move(*job);
          return true;
        }
      }
      wait();
    }
    return false;
  }

  void start() {
    if (::chdir(job_.directory.c_str()) != 0) {
      throw IoError(
          fmt::format("{}: cannot enter the launcher's folder there: {}; the hosts of a "
                      "job share a file system",
                      job_.directory, std::strerror(errno)));
    }
    for (int i = 0; i < job_.count; ++i) {
      RankHere rank;
      rank.number = job_.first_rank + i;
      ProcessRequest request;
      request.arguments = job_.arguments;
      request.variables = job_.variables;
      for (const auto& each : rank_variables(rank.number, job_.world, i, job_.count))
        if (!job_has(each.first)) request.variables.push_back(each);
      const Descriptor out = make_pipe(rank.out), err = make_pipe(rank.err);
      const Descriptor nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
      request.input = nothing.number();
      request.output = out.number();
      request.errors = err.number();
      rank.pid = start_process(request);
      guard_.add(rank.pid);
      ranks_.push_back(std::move(rank));
    }
  }

  // True when all has been told; false when the launcher is gone.
  bool serve() {
    while (!all_are_told()) {
      channel_.flush();
      for (const HostChannel::Message& message : channel_.receive()) obey(message);
      if (channel_.is_over()) return false;
      if (channel_.silent_s() > job_.patience_s) {
        fmt::print(stderr,
                   "moonshard: nothing heard of the launcher for {:.0f} s; the ranks of this host "
                   "end\n",
                   channel_.silent_s());
        return false;
      }
      for (RankHere& rank : ranks_) look_after(rank);
      wait();
    }
    return true;
  }

  void finish() {
    const auto left = AgentClock::now() + kChildrenLeft;
    const auto some_left = [&] {
      return std::any_of(ranks_.begin(), ranks_.end(), [](const RankHere& rank) {
        ::waitpid(rank.pid, nullptr, WNOHANG);
        return ::kill(-rank.pid, 0) == 0;
      });
    };
    send_rest();
    while (some_left() && AgentClock::now() < left) std::this_thread::sleep_for(kAgentTick);
    end_ranks();
    wait_for_goodbye();
  }

  void send_rest() {
    const auto deadline = AgentClock::now() + kAcceptedSoon;
    while (channel_.queued_bytes() > 0 && !channel_.is_over() && AgentClock::now() < deadline) {
      channel_.flush();
      channel_.receive();
      std::this_thread::sleep_for(1ms);
    }
  }

 private:
  void end_ranks() {
    for (const RankHere& rank : ranks_) ::kill(-rank.pid, SIGKILL);
    for (const RankHere& rank : ranks_) ::waitpid(rank.pid, nullptr, 0);
    for (const RankHere& rank : ranks_) guard_.remove(rank.pid);
    ranks_.clear();
  }

  // A connection that is closed while the launcher's signs of life are unread is reset: what was
  // said last, and is still on its way, would be lost with it.
  void wait_for_goodbye() {
    while (!channel_.is_over() && channel_.silent_s() <= job_.patience_s) {
      channel_.flush();
      channel_.receive();
      wait();
    }
  }

  // The writing end; the other is ours and never blocks.
  static Descriptor make_pipe(Descriptor& reading) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0)
      throw IoError(
          fmt::format("launch: no pipe: {}; raise 'ulimit -n' there", std::strerror(errno)));
    reading = Descriptor(ends[0]);
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    return Descriptor(ends[1]);
  }

  bool job_has(const std::string& variable) const {
    return std::any_of(job_.variables.begin(), job_.variables.end(),
                       [&](const auto& each) { return each.first == variable; });
  }

  bool all_are_told() const {
    return std::all_of(ranks_.begin(), ranks_.end(),
                       [](const RankHere& rank) { return rank.is_told; });
  }

  // Until something may have come, or a rank may have ended.
  void wait() const {
    std::vector<pollfd> polled{{channel_.input(), POLLIN, 0}};
    if (channel_.queued_bytes() > 0) polled.push_back({channel_.output(), POLLOUT, 0});
    if (channel_.queued_bytes() < kMostQueued) {
      for (const RankHere& rank : ranks_) {
        for (const int pipe : {rank.out.number(), rank.err.number()})
          if (pipe >= 0) polled.push_back({pipe, POLLIN, 0});
      }
    }
    ::poll(polled.data(), polled.size(), kAgentTick / 1ms);
  }

  void obey(const HostChannel::Message& message) {
    if (message.size() != 3 || message[0] != "signal") return;
    const int number = whole_number(message[1]), signal = whole_number(message[2]);
    for (const RankHere& rank : ranks_)
      if (rank.number == number && !rank.end && signal > 0) ::kill(-rank.pid, signal);
  }

  void look_after(RankHere& rank) {
    if (rank.is_told) return;
    if (!rank.end) {
      rank.end = peek_end(rank.pid);
      if (rank.end) ::kill(-rank.pid, SIGTERM);  // its children; the leader is a zombie
      tell_if_stopped(rank);
    }
    const bool out_is_empty = hand_over("out", rank, rank.out);
    const bool err_is_empty = hand_over("err", rank, rank.err);
    if (!rank.end || !out_is_empty || !err_is_empty) return;
    rank.is_told = true;
    rank.out.close();
    rank.err.close();
    channel_.send({"end", std::to_string(rank.number), std::to_string(rank.end->exit_code),
                   std::to_string(rank.end->signal)});
  }

  void tell_if_stopped(RankHere& rank) {
    siginfo_t info{};
    const bool stopped =
        ::waitid(P_PID, static_cast<id_t>(rank.pid), &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid == rank.pid;
    if (stopped == rank.is_stopped) return;
    rank.is_stopped = stopped;
    channel_.send({"stopped", std::to_string(rank.number), stopped ? "1" : "0"});
  }

  // True when there is nothing more for now.
  bool hand_over(const char* kind, const RankHere& rank, Descriptor& pipe) {
    char piece[65536];
    while (pipe.number() >= 0) {
      if (channel_.queued_bytes() >= kMostQueued) return false;
      const ssize_t got = ::read(pipe.number(), piece, sizeof piece);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EAGAIN) return true;
      if (got <= 0) {
        pipe.close();
        return true;
      }
      channel_.send({kind, std::to_string(rank.number), {piece, static_cast<size_t>(got)}});
    }
    return true;
  }

  HostChannel& channel_;
  GroupGuard guard_;
  JobThere job_;
  std::vector<RankHere> ranks_;
};

}  // namespace

int serve_host_ranks() {
  ::signal(SIGPIPE, SIG_IGN);
  // Whatever else is printed here must not come among the messages.
  Descriptor in(::fcntl(0, F_DUPFD_CLOEXEC, 3)), out(::fcntl(1, F_DUPFD_CLOEXEC, 3));
  MS_CHECK(in.number() >= 0 && out.number() >= 0,
           "host-ranks: expected to be started by moonshard run --hosts, got no input or output");
  ::dup2(2, 1);
  HostChannel channel(std::move(in), std::move(out), false);
  channel.send_text(kHostGreeting);
  HostAgent agent(channel);
  if (!agent.wait_for_job()) return 1;
  try {
    agent.start();
  } catch (const std::exception& error) {
    channel.send({"fail", error.what()});
    agent.send_rest();
    return 1;
  }
  if (!agent.serve()) return 1;
  agent.finish();
  return 0;
}

}  // namespace moonshard::launch
