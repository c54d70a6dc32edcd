#include "runtime/comm/pulse.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

namespace moonshard::comm {
namespace {

constexpr size_t kMaxName = 200, kMaxError = 4000, kMaxRecent = 64;
constexpr const char* kStates[] = {"running", "finished", "failed", "gave-up"};

struct ProcStat {
  char state = 0;
  uint64_t start_time = 0;
};

// Fields 3 and 22 of /proc/PID/stat; the second field, the program's name, may hold anything.
std::optional<ProcStat> read_proc(int64_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  if (!std::getline(file, text)) return std::nullopt;
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  ProcStat stat;
  std::string skipped;
  fields >> stat.state;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  fields >> stat.start_time;
  if (!fields) return std::nullopt;
  return stat;
}

std::string this_machine() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  std::error_code error;
  const auto space = std::filesystem::read_symlink("/proc/self/ns/pid", error);
  // Without either, two machines could look like one: then no rank counts as local.
  if (boot.empty() || error) return "";
  return boot + "/" + space.string();
}

std::string one_line(std::string text, size_t most) {
  if (text.size() > most) text.resize(most);
  std::replace_if(
      text.begin(), text.end(), [](char letter) { return static_cast<unsigned char>(letter) < 32; },
      ' ');
  return text;
}

template <class Integer>
bool read_integer(const std::string& text, Integer& value) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && stop == text.data() + text.size();
}

std::vector<std::string> split(const std::string& line, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(line);
  std::string part;
  while (std::getline(stream, part, separator)) parts.push_back(part);
  return parts;
}

}  // namespace

ProcessIdentity this_process() {
  ProcessIdentity process;
  process.pid = ::getpid();
  process.machine = this_machine();
  if (const auto stat = read_proc(process.pid)) process.start_time = stat->start_time;
  return process;
}

Life look_at(const ProcessIdentity& process) {
  // Never destroyed: the watchdog's thread still asks while exit runs destructors.
  static const std::string& here = *new std::string(this_machine());
  if (here.empty() || process.machine != here || process.pid <= 0) return Life::Unknown;
  const auto stat = read_proc(process.pid);
  if (!stat || stat->start_time != process.start_time) return Life::Gone;
  if (stat->state == 'Z' || stat->state == 'X') return Life::Gone;
  return stat->state == 'T' || stat->state == 't' ? Life::Stopped : Life::Alive;
}

std::string name_of(const Collective& collective) {
  if (collective.about.empty())
    return fmt::format("collective {} ({})", collective.number, collective.operation);
  return fmt::format("collective {} ({} of '{}')", collective.number, collective.operation,
                     collective.about);
}

// One field per line, the error last because it may have several lines.
std::string to_text(const Pulse& pulse) {
  std::string text =
      fmt::format("beat\t{}\nprocess\t{}\t{}\t{}\nstate\t{}\nstarted\t{}\n", pulse.beat,
                  pulse.process.pid, pulse.process.start_time, pulse.process.machine,
                  kStates[static_cast<int>(pulse.state)], pulse.started);
  for (const Collective& collective : pulse.recent) {
    text += fmt::format(
        "collective\t{}\t{}\t{}\t{}\n", collective.number, collective.is_done ? "done" : "open",
        one_line(collective.operation, kMaxName), one_line(collective.about, kMaxName));
  }
  return text + "error\t" + pulse.error.substr(0, kMaxError);
}

std::optional<Pulse> read_pulse(const std::string& text) {
  Pulse pulse;
  size_t at = 0;
  while (at < text.size()) {
    if (text.compare(at, 6, "error\t") == 0) {
      pulse.error = text.substr(at + 6, kMaxError);
      return pulse;
    }
    const size_t end = text.find('\n', at);
    if (end == std::string::npos) return std::nullopt;
    const std::vector<std::string> parts = split(text.substr(at, end - at), '\t');
    at = end + 1;
    if (parts.size() < 2) return std::nullopt;
    if (parts[0] == "beat") {
      if (!read_integer(parts[1], pulse.beat)) return std::nullopt;
    } else if (parts[0] == "process") {
      if (parts.size() < 3 || !read_integer(parts[1], pulse.process.pid) ||
          !read_integer(parts[2], pulse.process.start_time))
        return std::nullopt;
      if (parts.size() > 3) pulse.process.machine = parts[3];
    } else if (parts[0] == "state") {
      const auto* known = std::find(std::begin(kStates), std::end(kStates), parts[1]);
      if (known == std::end(kStates)) return std::nullopt;
      pulse.state = static_cast<RankState>(known - std::begin(kStates));
    } else if (parts[0] == "started") {
      if (!read_integer(parts[1], pulse.started)) return std::nullopt;
    } else if (parts[0] == "collective") {
      Collective collective;
      if (parts.size() < 4 || !read_integer(parts[1], collective.number) ||
          pulse.recent.size() >= kMaxRecent)
        return std::nullopt;
      collective.is_done = parts[2] == "done";
      collective.operation = parts[3];
      if (parts.size() > 4) collective.about = parts[4];
      pulse.recent.push_back(std::move(collective));
    } else {
      return std::nullopt;
    }
  }
  return std::nullopt;  // cut off: the error line is always there
}

std::string describe_position(const Pulse& pulse) {
  for (const Collective& collective : pulse.recent) {
    if (!collective.is_done) return "in " + name_of(collective);
  }
  if (pulse.recent.empty()) return "before any collective";
  return "after " + name_of(pulse.recent.back());
}

std::string pulse_key(int rank) {
  return fmt::format("watch/{}", rank);
}
std::string end_key(int rank) {
  return fmt::format("dead/{}", rank);
}
std::string gone_key(int rank) {
  return fmt::format("gone/{}", rank);
}

}  // namespace moonshard::comm
