#include "runtime/launch/remote_ranks.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <set>
#include <sstream>
#include <thread>

#include "runtime/base/check.h"
#include "runtime/comm/own_address.h"
#include "runtime/comm/rank_environment.h"
#include "runtime/launch/group_guard.h"

extern char** environ;

namespace moonshard::launch {
namespace {

using HostClock = std::chrono::steady_clock;
using namespace std::chrono_literals;
constexpr auto kGoodbye = 3s;  // for an agent to end its ranks and itself

template <class Number>
bool read_number(const std::string& text, Number& number) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && stop == text.data() + text.size();
}

// For the shell at the other end.
std::string quoted_for_shell(const std::string& word) {
  std::string text = "'";
  for (const char letter : word) text += letter == '\'' ? "'\\''" : std::string(1, letter);
  return text + "'";
}

bool is_host_name(const std::string& name) {
  // Not the first: the remote shell would take it for an option.
  return !name.empty() && name[0] != '-' &&
         name.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
             "._-@") == std::string::npos;
}

Descriptor open_log(const std::filesystem::path& path) {
  std::error_code ignored;
  std::filesystem::remove(path, ignored);  // an earlier job's
  Descriptor file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (file.number() < 0) {
    throw IoError(fmt::format("{}: cannot write the log: {}; check the folder", path.string(),
                              std::strerror(errno)));
  }
  return file;
}

}  // namespace

std::vector<HostRanks> read_host_list(const std::string& text, int count_otherwise) {
  std::vector<HostRanks> hosts;
  std::set<std::string> names;
  std::istringstream stream(text + ",");
  for (std::string entry; std::getline(stream, entry, ',');) {
    HostRanks host;
    host.name = entry.substr(0, entry.find(':'));
    host.count = count_otherwise;
    const bool has_count = host.name.size() < entry.size();
    const bool is_right =
        !has_count || (read_number(entry.substr(host.name.size() + 1), host.count) &&
                       host.count >= 1 && host.count <= kMaxRanks);
    MS_CHECK(
        is_right && is_host_name(host.name),
        "command line: option '--hosts': expected HOST:RANKS,HOST:RANKS,... with names or IPv4 "
        "addresses, got '{}'",
        text);
    MS_CHECK(names.insert(host.name).second,
             "command line: option '--hosts': expected every host once, got '{}' twice; add its "
             "ranks up",
             host.name);
    host.is_here = comm::is_this_machine(network_name(host));
    MS_CHECK(!host.is_here || std::none_of(hosts.begin(), hosts.end(),
                                           [](const HostRanks& other) { return other.is_here; }),
             "command line: option '--hosts': expected every host once, got '{}', another name of "
             "this machine; add its ranks up",
             host.name);
    hosts.push_back(host);
  }
  return hosts;
}

std::string network_name(const HostRanks& host) {
  return host.name.substr(host.name.find('@') + 1);
}

std::vector<std::string> fields_of(const JobThere& job) {
  std::vector<std::string> fields{"job",
                                  job.directory,
                                  fmt::format("{}", job.patience_s),
                                  std::to_string(job.first_rank),
                                  std::to_string(job.count),
                                  std::to_string(job.world),
                                  std::to_string(job.arguments.size())};
  fields.insert(fields.end(), job.arguments.begin(), job.arguments.end());
  for (const auto& [name, value] : job.variables) fields.push_back(name + "=" + value);
  return fields;
}

std::optional<JobThere> read_job(const std::vector<std::string>& fields) {
  JobThere job;
  size_t arguments = 0;
  if (fields.size() < 8 || fields[0] != "job" || !read_number(fields[2], job.patience_s) ||
      !read_number(fields[3], job.first_rank) || !read_number(fields[4], job.count) ||
      !read_number(fields[5], job.world) || !read_number(fields[6], arguments))
    return std::nullopt;
  if (job.first_rank < 0 || job.count < 1 || job.world > kMaxRanks ||
      job.count > job.world - job.first_rank || arguments < 1 || arguments > fields.size() - 7)
    return std::nullopt;
  job.directory = fields[1];
  const auto first = fields.begin() + 7, last = first + static_cast<std::ptrdiff_t>(arguments);
  job.arguments.assign(first, last);
  for (auto each = last; each != fields.end(); ++each) {
    const size_t equals = each->find('=');
    if (equals == std::string::npos) return std::nullopt;
    job.variables.emplace_back(each->substr(0, equals), each->substr(equals + 1));
  }
  return job;
}

std::vector<std::pair<std::string, std::string>> travelling_variables() {
  // CUDA_VISIBLE_DEVICES is not among them: it counts the GPUs of this machine.
  static constexpr std::string_view kPrefixes[] = {"MOONSHARD_", "NCCL_",  "GLOO_", "OMP_",
                                                   "MKL_",       "TORCH_", "LUA_",  "HF_"};
  static const std::set<std::string, std::less<>> kNames{
      "LD_LIBRARY_PATH", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "TZ"};
  static const std::set<std::string, std::less<>> kOurs{
      "MOONSHARD_PARENT_PID", "MOONSHARD_STORE", "MOONSHARD_JOB_TOKEN", "MOONSHARD_REMOTE_SHELL"};
  std::vector<std::pair<std::string, std::string>> found;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = text.substr(0, equals);
    const bool travels =
        kNames.contains(name) ||
        std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                    [&](std::string_view prefix) { return name.starts_with(prefix); });
    if (travels && !kOurs.contains(name)) found.emplace_back(name, text.substr(equals + 1));
  }
  return found;
}

double host_patience_s() {
  return std::clamp(comm::collective_timeout_s(), 5.0, 25.0);
}

std::vector<std::pair<std::string, std::string>> rank_variables(int rank, int world, int local_rank,
                                                                int local_world) {
  std::vector<std::pair<std::string, std::string>> variables{
      {"RANK", std::to_string(rank)},
      {"WORLD_SIZE", std::to_string(world)},
      {"LOCAL_RANK", std::to_string(local_rank)},
      {"LOCAL_WORLD_SIZE", std::to_string(local_world)}};
  cpu_set_t set;
  const int cores = ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  if (std::getenv("OMP_NUM_THREADS") == nullptr)
    variables.emplace_back("OMP_NUM_THREADS", std::to_string(std::max(1, cores / local_world)));
  return variables;
}

std::filesystem::path rank_log(const std::filesystem::path& log_dir, int rank) {
  return log_dir / fmt::format("log.rank{}.txt", rank);
}

std::filesystem::path host_log(const std::filesystem::path& log_dir, const HostRanks& host) {
  return log_dir / fmt::format("log.host.{}.txt", host.name);
}

RemoteHost::RemoteHost(HostRanks host, const std::string& remote_shell, const std::string& program,
                       const JobThere& job, const std::filesystem::path& log_dir,
                       bool rank_0_has_log)
    : host_(std::move(host)),
      first_rank_(job.first_rank),
      patience_s_(job.patience_s),
      ranks_(static_cast<size_t>(job.count)),
      log_(host_log(log_dir, host_)) {
  for (int rank = first_rank_; rank < first_rank_ + job.count; ++rank) {
    const bool has_log = rank != 0 || rank_0_has_log;
    logs_.push_back(has_log ? open_log(rank_log(log_dir, rank)) : Descriptor());
  }
  const Descriptor errors = open_log(log_);
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw IoError(fmt::format("launch: no socket: {}; raise 'ulimit -n'", std::strerror(errno)));
  Descriptor ours(ends[0]);
  const Descriptor theirs(ends[1]);
  ProcessRequest request;
  request.arguments = {"/usr/bin/env"};  // finds the shell by PATH
  std::istringstream words(remote_shell);
  for (std::string word; words >> word;) request.arguments.push_back(word);
  request.arguments.push_back(host_.name);
  request.arguments.push_back("exec " + quoted_for_shell(program) + " host-ranks");
  request.input = request.output = theirs.number();
  request.errors = errors.number();
  request.is_ours = false;
  Descriptor second(::fcntl(ours.number(), F_DUPFD_CLOEXEC, 0));
  channel_ = std::make_unique<HostChannel>(std::move(ours), std::move(second), true);
  shell_ = start_process(request);
  const std::vector<std::string> fields = fields_of(job);
  channel_->send({fields.begin(), fields.end()});
}

RemoteHost::~RemoteHost() {
  // The end of its input ends the agent and its ranks.
  ::shutdown(channel_->output(), SHUT_WR);
  const auto deadline = HostClock::now() + kGoodbye;
  while (!peek_end(shell_) && HostClock::now() < deadline && !channel_->is_over()) {
    channel_->receive();
    std::this_thread::sleep_for(5ms);
  }
  channel_.reset();
  ::kill(-shell_, SIGKILL);
  while (::waitpid(shell_, nullptr, 0) < 0 && errno == EINTR) {
  }
  std::error_code ignored;
  if (std::filesystem::is_empty(log_, ignored)) std::filesystem::remove(log_, ignored);
}

void RemoteHost::send_signal(int rank, int signal) {
  if (this->rank(rank).has_ended) return;
  channel_->send({"signal", std::to_string(rank), std::to_string(signal)});
  channel_->flush();
}

bool RemoteHost::all_have_ended() const {
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [](const RankThere& rank) { return rank.has_ended; });
}

void RemoteHost::pump() {
  if (all_have_ended()) return;
  channel_->flush();
  for (const HostChannel::Message& message : channel_->receive()) take(message);
  if (all_have_ended()) return;
  if (channel_->is_over()) {
    // The shell's exit code says more than the closed connection: it comes in a moment.
    if (!over_since_) over_since_ = HostClock::now();
    if (peek_end(shell_) || HostClock::now() - *over_since_ > 1s) lose(why_over());
  } else if (channel_->silent_s() > patience_s_) {
    lose(channel_->is_greeted() ? fmt::format("nothing heard of it for {:.0f} s: cut off, stopped "
                                              "or without power",
                                              channel_->silent_s())
                                : fmt::format("no answer from it in {:.0f} s", patience_s_));
  }
}

std::string RemoteHost::why_over() const {
  const auto end = peek_end(shell_);
  const std::string how = end ? ", the remote shell ended with " + describe(*end) : "";
  if (channel_->is_greeted()) return "the connection to it was closed" + how;
  return fmt::format("this program did not start there{}; {} says why", how, log_.string());
}

void RemoteHost::lose(const std::string& why) {
  for (RankThere& rank : ranks_) {
    if (rank.has_ended) continue;
    rank.has_ended = true;
    rank.end.exit_code = 1;
    rank.lost = fmt::format("its host {} was lost: {}", host_.name, why);
  }
  ::kill(-shell_, SIGKILL);
}

void RemoteHost::take(const HostChannel::Message& message) {
  if (message[0] == "fail" && message.size() == 2) return lose(message[1]);
  int number = 0;
  if (message.size() < 3 || !read_number(message[1], number)) return;
  const auto index = static_cast<size_t>(number - first_rank_);
  if (number < first_rank_ || index >= ranks_.size()) return;
  RankThere& rank = ranks_[index];
  if (message[0] == "out" || message[0] == "err") {
    write_output(number, message[0] == "err", message[2]);
  } else if (message[0] == "stopped") {
    rank.is_stopped = message[2] == "1";
  } else if (message[0] == "end" && message.size() == 4 && !rank.has_ended) {
    rank.has_ended =
        read_number(message[2], rank.end.exit_code) && read_number(message[3], rank.end.signal);
  }
}

void RemoteHost::write_output(int rank, bool is_error, const std::string& bytes) {
  const int log = logs_[static_cast<size_t>(rank - first_rank_)].number();
  const int file = log >= 0 ? log : is_error ? 2 : 1;
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const ssize_t written = ::write(file, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // a full disk costs the log, not the job
    rest.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace moonshard::launch
