#include "viewer/readers/limited_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>
#include <new>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "viewer/readers/file_rights.h"

namespace moonshard::viewer {
namespace {

constexpr uint64_t kMaxRequest = 16u << 20;
constexpr uint64_t kMaxPart = 4ull << 30;
constexpr int kStopPoll_ms = 50;
constexpr int kPipeBytes = 1 << 20;

enum class FrameKind : uint8_t { Progress, Part, Error, Done };

[[noreturn]] void fail(const char* what) {
  throw IoError(std::string("reading process: ") + what + ": " + std::strerror(errno) +
                "; start the viewer again");
}

// To a socket whose other end is gone, writing would end this process; sending only fails.
enum class Into { Pipe, Socket };

bool write_all(int fd, const void* data, size_t size, Into kind = Into::Pipe) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written =
        kind == Into::Socket ? ::send(fd, at, size, MSG_NOSIGNAL) : ::write(fd, at, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    at += written;
    size -= static_cast<size_t>(written);
  }
  return true;
}

// Until something can be read.
void wait_readable(int fd, const std::atomic<bool>& stop) {
  pollfd waiting{fd, POLLIN, 0};
  while (true) {
    if (stop) throw Cancelled();  // closing the pipe ends the worker
    const int ready = ::poll(&waiting, 1, kStopPoll_ms);
    if (ready > 0 || (ready < 0 && errno != EINTR)) return;
  }
}

// False when the other end is gone.
bool read_all(int fd, void* data, size_t size, const std::atomic<bool>* stop = nullptr) {
  char* at = static_cast<char*>(data);
  while (size > 0) {
    if (stop) wait_readable(fd, *stop);
    const ssize_t got = ::read(fd, at, size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

void write_frame(int fd, FrameKind kind, std::string_view bytes) {
  const uint64_t size = bytes.size();
  // The window has exited or cancelled the request: nothing is left to do.
  if (!write_all(fd, &kind, 1) || !write_all(fd, &size, sizeof size) ||
      !write_all(fd, bytes.data(), bytes.size())) {
    ::_exit(1);
  }
}

void set_limit(decltype(RLIMIT_CPU) what, rlim_t value) {
  const rlimit limit{value, value};
  ::setrlimit(what, &limit);
}

void take_limits(const ProcessLimits& limits) {
  set_limit(RLIMIT_CPU, limits.cpu_seconds);
  set_limit(RLIMIT_CORE, 0);
  set_limit(RLIMIT_FSIZE, 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  // Sanitizers reserve terabytes of addresses.
  set_limit(RLIMIT_AS, limits.memory_bytes);
#endif
  give_up_privileges();
}

// The worker: never returns, and exits without running destructors.
[[noreturn]] void run_worker(int out, std::string request, WorkerFunction worker,
                             const ProcessLimits& limits) {
  std::signal(SIGPIPE, SIG_DFL);
  std::signal(SIGCHLD, SIG_DFL);
  take_limits(limits);
  std::string error;
  try {
    ReadControl control;
    control.progress = [out](double share) {
      write_frame(out, FrameKind::Progress, {reinterpret_cast<const char*>(&share), sizeof share});
    };
    worker(request, control,
           [out](std::string_view part) { write_frame(out, FrameKind::Part, part); });
    write_frame(out, FrameKind::Done, "");
    ::_exit(0);
  } catch (const std::bad_alloc&) {
    error = "reading: needs more than " + std::to_string(limits.memory_bytes >> 20) +
            " MiB of memory; the file is damaged, or too large for the viewer";
  } catch (const std::exception& problem) {
    error = problem.what();
  }
  write_frame(out, FrameKind::Error, error);
  ::_exit(0);
}

// A message of one byte with room for one file descriptor beside it.
struct DescriptorMessage {
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};

  DescriptorMessage() {
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = space;
    header.msg_controllen = sizeof space;
  }
  DescriptorMessage(const DescriptorMessage&) = delete;
};

bool send_descriptor(int socket, int fd) {
  DescriptorMessage message;
  cmsghdr* header = CMSG_FIRSTHDR(&message.header);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  return ::sendmsg(socket, &message.header, MSG_NOSIGNAL) == 1;
}

int receive_descriptor(int socket) {
  DescriptorMessage message;
  ssize_t got = 0;
  do {
    got = ::recvmsg(socket, &message.header, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  const cmsghdr* header = got == 1 ? CMSG_FIRSTHDR(&message.header) : nullptr;
  if (!header || header->cmsg_type != SCM_RIGHTS) return -1;
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return fd;
}

[[noreturn]] void serve(int socket, WorkerFunction worker, const ProcessLimits& limits) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::signal(SIGCHLD, SIG_IGN);  // workers are not waited for
  std::signal(SIGINT, SIG_IGN);   // Ctrl-C in the terminal is the window's business
  uint64_t size = 0;
  while (read_all(socket, &size, sizeof size) && size <= kMaxRequest) {
    std::string request(size, '\0');
    int ends[2] = {-1, -1};
    if (!read_all(socket, request.data(), size) || ::pipe2(ends, O_CLOEXEC) != 0) break;
    ::fcntl(ends[1], F_SETPIPE_SZ, kPipeBytes);
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(socket);
      ::close(ends[0]);
      run_worker(ends[1], std::move(request), worker, limits);
    }
    ::close(ends[1]);
    const bool sent = send_descriptor(socket, ends[0]);
    ::close(ends[0]);
    if (!sent) break;
  }
  ::_exit(0);
}

// The window's end of the service. One request is handed over at a time; answers come by their own
// pipes, so that several may be under way.
struct Service {
  std::mutex mutex;
  int socket = -1;
  pid_t process = -1;
  WorkerFunction worker = nullptr;
  ProcessLimits limits;
};

Service& service() {
  static Service instance;
  return instance;
}

void start(Service& s) {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) fail("cannot be started");
  const pid_t child = ::fork();
  if (child < 0) fail("cannot be started");
  if (child == 0) {
    ::close(ends[0]);
    serve(ends[1], s.worker, s.limits);
  }
  ::close(ends[1]);
  s.socket = ends[0];
  s.process = child;
}

// Hands a request over; -1 when the service is not there any more.
int hand_over(const Service& s, const std::string& request) {
  const uint64_t size = request.size();
  if (!write_all(s.socket, &size, sizeof size, Into::Socket) ||
      !write_all(s.socket, request.data(), request.size(), Into::Socket)) {
    return -1;
  }
  return receive_descriptor(s.socket);
}

int ask_service(const std::string& request) {
  Service& s = service();
  const std::lock_guard lock(s.mutex);
  if (s.socket < 0) {
    throw IoError("reading process: was not started; this is a fault of the program");
  }
  MS_CHECK(
      request.size() <= kMaxRequest,
      "reading process: expected at most {} bytes of paths, got {}; open fewer folders at once",
      kMaxRequest, request.size());
  int fd = hand_over(s, request);
  if (fd >= 0) return fd;
  // It was killed. By now there are threads, and a copy of a process with threads is less
  // certain to work than the first one; but without it nothing could be read any more.
  ::close(s.socket);
  ::kill(s.process, SIGKILL);
  ::waitpid(s.process, nullptr, 0);
  s.socket = -1;
  start(s);
  fd = hand_over(s, request);
  if (fd < 0) fail("did not start");
  return fd;
}

void read_stoppable(int fd, void* data, size_t size, const std::atomic<bool>& stop) {
  if (read_all(fd, data, size, &stop)) return;
  throw IoError(
      "reading: the reading process died; the file is damaged, or needs more memory or time than "
      "the viewer grants");
}

}  // namespace

void start_reading_service(WorkerFunction worker, const ProcessLimits& limits) {
  Service& s = service();
  const std::lock_guard lock(s.mutex);
  if (s.socket >= 0) return;
  s.worker = worker;
  s.limits = limits;
  start(s);
}

pid_t reading_service_process() {
  Service& s = service();
  const std::lock_guard lock(s.mutex);
  return s.process;
}

void read_in_process(const std::string& request, const std::function<void(double share)>& progress,
                     const std::atomic<bool>& stop,
                     const std::function<void(std::string_view part)>& on_part) {
  const Descriptor pipe(ask_service(request));
  while (true) {
    FrameKind kind{};
    uint64_t size = 0;
    read_stoppable(pipe.number(), &kind, 1, stop);
    read_stoppable(pipe.number(), &size, sizeof size, stop);
    if (kind > FrameKind::Done || size > kMaxPart) {
      throw IoError("reading process: its answer makes no sense; the file is damaged");
    }
    std::string bytes(size, '\0');
    read_stoppable(pipe.number(), bytes.data(), size, stop);
    if (kind == FrameKind::Done) return;
    if (kind == FrameKind::Error) throw IoError(bytes);
    if (kind == FrameKind::Part) {
      on_part(bytes);
    } else if (progress && size == sizeof(double)) {
      double share = 0;
      std::memcpy(&share, bytes.data(), sizeof share);
      progress(share);
    }
  }
}

}  // namespace moonshard::viewer
