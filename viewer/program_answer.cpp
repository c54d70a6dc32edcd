#include "viewer/program_answer.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include <fmt/format.h>

#include "runtime/base/errors.h"
#include "runtime/base/files.h"
#include "runtime/input/control.h"
#include "runtime/launch/child_process.h"

namespace moonshard::viewer {
namespace {

constexpr size_t kMostBytes = 64u << 20;
constexpr double kMostSeconds = 120;
constexpr int kNothingFits = 3;

struct Pipe {
  Descriptor out, in;
};

Pipe open_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    throw IoError("plan: expected a pipe, got none; too many files are open");
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

// False at the end of the pipe.
bool take_bytes(int descriptor, std::string& into) {
  char buffer[16384];
  const ssize_t got = ::read(descriptor, buffer, sizeof buffer);
  if (got < 0) return errno == EINTR || errno == EAGAIN;
  into.append(buffer, static_cast<size_t>(got));
  return got > 0;
}

}  // namespace

std::string ask_program(const std::vector<std::string>& arguments, const std::atomic<bool>& stop) {
  const std::filesystem::path program = launch::sibling_program("moonshard");
  std::error_code ignored;
  if (!std::filesystem::exists(program, ignored))
    throw IoError(
        fmt::format("expected the program moonshard beside the viewer, got nothing at {}; install "
                    "moonshard whole",
                    program.string()));
  Pipe answer = open_pipe(), errors = open_pipe();
  launch::ProcessRequest request;
  request.arguments = {program.string()};
  request.arguments.insert(request.arguments.end(), arguments.begin(), arguments.end());
  const Descriptor nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  request.input = nothing.number();
  request.output = answer.in.number();
  request.errors = errors.in.number();
  launch::ChildProcess child(request, kMostSeconds);
  answer.in = Descriptor();
  errors.in = Descriptor();
  std::string text, problem;
  bool is_open[2] = {true, true};
  while (is_open[0] || is_open[1]) {
    if (stop.load(std::memory_order_relaxed)) throw Cancelled();  // ends the child
    pollfd waits[2] = {{is_open[0] ? answer.out.number() : -1, POLLIN, 0},
                       {is_open[1] ? errors.out.number() : -1, POLLIN, 0}};
    if (::poll(waits, 2, 50) < 0 && errno != EINTR) break;
    if (waits[0].revents != 0) is_open[0] = take_bytes(answer.out.number(), text);
    if (waits[1].revents != 0) is_open[1] = take_bytes(errors.out.number(), problem);
    if (text.size() + problem.size() > kMostBytes)
      throw IoError("expected an answer of some kilobytes from moonshard, got megabytes");
    if (const auto early = child.poll(); early && early->ended_by != launch::EndedBy::Itself) break;
  }
  std::optional<launch::ProcessResult> result;
  while (!(result = child.poll())) {
    if (stop.load(std::memory_order_relaxed)) throw Cancelled();
    ::usleep(2000);
  }
  const bool good = result->signal == 0 && result->ended_by == launch::EndedBy::Itself &&
                    (result->exit_code == 0 || result->exit_code == kNothingFits);
  if (good) return text;
  while (problem.ends_with('\n')) problem.pop_back();
  const size_t line = problem.rfind('\n');
  throw IoError(problem.empty() ? "moonshard ended with " + launch::describe(*result)
                                : problem.substr(line == std::string::npos ? 0 : line + 1));
}

}  // namespace moonshard::viewer
