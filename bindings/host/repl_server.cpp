// See repl_server.h. What the code prints must not mix with the answers: standard output becomes a
// pipe that a thread turns into stream objects, and answers go where it pointed to before.
#include "bindings/host/repl_server.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bindings/host/repl_session.h"
#include "runtime/base/check.h"
#include "runtime/base/interrupt.h"
#include "runtime/base/json.h"

namespace moonshard::host {
namespace {

constexpr size_t kMostRequestBytes = 64u << 20;

// Bytes at the end of a text that begin a UTF-8 sequence without ending it.
size_t unfinished_bytes(const std::string& text) {
  const size_t longest = std::min<size_t>(3, text.size());
  for (size_t back = 1; back <= longest; ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;
    const size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return length > back ? back : 0;
  }
  return 0;
}

// Writes objects, one per line, from two threads.
class AnswerWriter {
 public:
  explicit AnswerWriter(int fd) : fd_(fd) {}
  void write(const Json& object) {
    // to_text replaces bytes that are no UTF-8, whatever a program printed.
    const std::string line = one_line(parse_json(to_text(object), "repl --json")) + "\n";
    const std::lock_guard lock(mutex_);
    for (size_t done = 0; done < line.size();) {
      const ssize_t count = ::write(fd_, line.data() + done, line.size() - done);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return;  // nobody listens any more; the end of the input will tell
      done += static_cast<size_t>(count);
    }
  }

 private:
  int fd_;
  std::mutex mutex_;
};

// Standard output as stream objects.
class OutputStream {
 public:
  explicit OutputStream(AnswerWriter& answers) : answers_(answers) {
    int ends[2] = {};
    MS_CHECK(::pipe2(ends, O_CLOEXEC) == 0, "repl --json: cannot make a pipe: {}",
             std::strerror(errno));
    read_end_ = ends[0];
    write_end_ = ends[1];
    std::fflush(stdout);
    ::dup2(write_end_, STDOUT_FILENO);
    // Lines appear as they are printed, as on a terminal.
    std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
    thread_ = std::thread([this] { pump(); });
  }
  ~OutputStream() {
    flush({}, /*is_last=*/true);
    thread_.join();
    ::close(read_end_);
    ::close(write_end_);
  }
  OutputStream(const OutputStream&) = delete;
  OutputStream& operator=(const OutputStream&) = delete;

  void belongs_to(const Json& id) {
    const std::lock_guard lock(mutex_);
    id_ = id;
  }
  /// Returns when all that was printed until now is sent.
  void flush(const Json& next_id = {}, bool is_last = false) {
    std::fflush(stdout);
    std::unique_lock lock(mutex_);
    mark_ = std::string("\0moonshard ", 11) + std::to_string(++marks_) + std::string("\0", 1);
    is_last_ = is_last;
    const std::string mark = mark_;
    lock.unlock();
    const ssize_t ignored = ::write(write_end_, mark.data(), mark.size());
    (void)ignored;
    lock.lock();
    reached_.wait(lock, [&] { return mark_.empty(); });
    id_ = next_id;
  }

 private:
  void pump() {
    std::string held;
    char block[65536];
    for (;;) {
      const ssize_t count = ::read(read_end_, block, sizeof block);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return;
      held.append(block, static_cast<size_t>(count));
      const std::lock_guard lock(mutex_);
      const size_t at = mark_.empty() ? std::string::npos : held.find(mark_);
      if (at != std::string::npos) {
        send(held.substr(0, at));
        held.erase(0, at + mark_.size());
        mark_.clear();
        reached_.notify_all();
        if (is_last_) return;
        continue;
      }
      // A mark comes whole: it is shorter than what a pipe writes at once.
      const size_t kept = unfinished_bytes(held);
      send(held.substr(0, held.size() - kept));
      held.erase(0, held.size() - kept);
    }
  }

  void send(const std::string& text) {
    if (!text.empty()) answers_.write(Json{{"id", id_}, {"stream", "stdout"}, {"text", text}});
  }

  AnswerWriter& answers_;
  int read_end_ = -1, write_end_ = -1;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable reached_;
  std::string mark_;  ///< what flush waits for; empty when it has come
  bool is_last_ = false;
  int64_t marks_ = 0;
  Json id_;
};

Json failed_request(const Json& id, const std::string& message) {
  return {{"id", id},
          {"status", "error"},
          {"error", {{"message", "repl --json: " + message}, {"traceback", Json::array()}}}};
}

class Server {
 public:
  Server(lua_State* L, AnswerWriter& answers, OutputStream& output)
      : answers_(answers), output_(output), session_(L, &entries_) {}

  bool is_open() const { return session_.is_open(); }
  const std::string& problem() const { return session_.problem(); }
  void greet() { answers_.write(Json{{"ready", true}, {"banner", session_.banner()}}); }

  /// False when the session is over.
  bool answer(const std::string& line) {
    Json request, id;
    try {
      request = parse_json(line, "repl --json");
      if (request.is_object() && request.contains("id")) id = request["id"];
      answers_.write(answer_to(request, id));
    } catch (const std::exception& error) {
      std::string message = error.what();
      const std::string where = "repl --json: ";
      if (message.starts_with(where)) message.erase(0, where.size());
      answers_.write(failed_request(id, message));
    }
    return !leaves_;
  }

 private:
  Json answer_to(const Json& request, const Json& id) {
    static constexpr std::pair<const char*, const char*> kMethods[] = {
        {"code", "answer_code"},
        {"complete", "answer_complete"},
        {"inspect", "answer_inspect"},
        {"is_complete", "answer_is_complete"}};
    for (const auto& [key, method] : kMethods) {
      if (!request.is_object() || !request.contains(key)) continue;
      if (!request[key].is_string())
        return failed_request(id, std::string("expected a text as ") + key);
      output_.belongs_to(id);
      clear_interrupt();
      const std::string reply = session_.answer(method, request[key].get<std::string>());
      output_.flush();
      Json answer{{"id", id}};
      if (reply.empty()) return failed_request(id, std::string(method) + " gave no answer");
      answer.update(parse_json(reply, "repl --json"));
      leaves_ = answer.value("status", "") == "exit";
      return answer;
    }
    return failed_request(
        id, "expected an object with code, complete, inspect or is_complete, got none of them");
  }

  AnswerWriter& answers_;
  OutputStream& output_;
  std::vector<std::string> entries_;
  ReplSession session_;
  bool leaves_ = false;
};

// Moves a standard stream elsewhere; its number then belongs to what `instead` opens.
int moved_away(int fd) {
  const int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, 10);
  MS_CHECK(moved >= 0, "repl --json: expected standard input and output to be open: {}",
           std::strerror(errno));
  return moved;
}

}  // namespace

int serve_repl(lua_State* L, const ReplOptions& options) {
  AnswerWriter answers(moved_away(STDOUT_FILENO));
  // io.read in the code would eat requests.
  std::FILE* requests = ::fdopen(moved_away(STDIN_FILENO), "r");
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::dup2(nothing, STDIN_FILENO);
  OutputStream output(answers);
  Server server(L, answers, output);
  if (!server.is_open()) {
    answers.write(failed_request({}, fmt::format("cannot load 'moonshard.repl' from {}: {}",
                                                 options.scripts_dir, server.problem())));
    return 1;
  }
  server.greet();
  char* line = nullptr;
  size_t room = 0;
  for (;;) {
    const ssize_t count = ::getline(&line, &room, requests);
    if (count < 0 && errno == EINTR && std::feof(requests) == 0) {
      std::clearerr(requests);
      continue;
    }
    if (count < 0 || static_cast<size_t>(count) > kMostRequestBytes) break;
    const std::string text(line, static_cast<size_t>(count));
    if (text.find_first_not_of(" \t\r\n") == std::string::npos) continue;
    if (!server.answer(text)) break;
  }
  std::free(line);
  std::fclose(requests);
  return 0;
}

}  // namespace moonshard::host
