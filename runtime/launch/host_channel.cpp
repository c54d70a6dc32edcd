#include "runtime/launch/host_channel.h"

#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "runtime/comm/store_socket.h"

namespace moonshard::launch {
namespace {

using namespace std::chrono_literals;
constexpr auto kBeat = 1s;
constexpr size_t kMostBeforeGreeting = 1 << 20;

// O_NONBLOCK would hold for everybody who shares the open file: a remote shell that is a script has
// the agent's ends as well, and its commands give up where a read is not ready. So we ask first.
bool is_ready(int file, short what) {
  pollfd polled{file, what, 0};
  return ::poll(&polled, 1, 0) > 0;
}

bool is_socket(int file) {
  struct stat status {};
  return ::fstat(file, &status) == 0 && S_ISSOCK(status.st_mode);
}

// A closed socket must not raise SIGPIPE; the agent, whose output may be a pipe, ignores it.
ssize_t write_what_fits(int file, bool to_socket, std::string_view text) {
  if (to_socket) return ::send(file, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (!is_ready(file, POLLOUT)) {
    errno = EAGAIN;
    return -1;
  }
  return ::write(file, text.data(), std::min<size_t>(text.size(), PIPE_BUF));  // has room for that
}

}  // namespace

HostChannel::HostChannel(Descriptor in, Descriptor out, bool waits_for_greeting)
    : in_(std::move(in)),
      out_(std::move(out)),
      writes_to_socket_(is_socket(out_.number())),
      is_greeted_(!waits_for_greeting),
      last_heard_(std::chrono::steady_clock::now()),
      last_beat_(last_heard_) {}

void HostChannel::send(const std::vector<std::string_view>& fields) {
  out_text_ += comm::pack(fields);
}

void HostChannel::send_text(std::string_view text) {
  out_text_ += text;
}

void HostChannel::flush() {
  const auto now = std::chrono::steady_clock::now();
  if (now - last_beat_ >= kBeat) {
    last_beat_ = now;
    send({"beat"});
  }
  size_t taken = 0;
  while (taken < out_text_.size() && !is_over_) {
    const ssize_t sent = write_what_fits(out_.number(), writes_to_socket_,
                                         std::string_view(out_text_).substr(taken));
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) break;  // full; or closed: receive() sees it, after what was said before
    taken += static_cast<size_t>(sent);
  }
  out_text_.erase(0, taken);
}

bool HostChannel::skip_to_greeting() {
  const size_t at = in_text_.find(kHostGreeting);
  if (at == std::string::npos) {
    if (in_text_.size() > kMostBeforeGreeting) is_over_ = true;
    return false;
  }
  in_text_.erase(0, at + kHostGreeting.size());
  is_greeted_ = true;
  return true;
}

std::vector<HostChannel::Message> HostChannel::receive() {
  constexpr int kMostPieces = 64;  // a host that talks without end must not keep us from others
  char piece[65536];
  for (int i = 0; i < kMostPieces && !is_over_ && is_ready(in_.number(), POLLIN); ++i) {
    const ssize_t got = ::read(in_.number(), piece, sizeof piece);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;  // somebody else has made it so
    if (got <= 0) {
      is_over_ = true;
      break;
    }
    in_text_.append(piece, static_cast<size_t>(got));
    last_heard_ = std::chrono::steady_clock::now();
  }
  std::vector<Message> messages;
  if (!is_greeted_ && !skip_to_greeting()) return messages;
  size_t at = 0;
  while (in_text_.size() - at >= 4) {
    const std::string_view rest = std::string_view(in_text_).substr(at);
    const size_t size = comm::size_field(rest);
    if (size <= comm::kMaxStoreMessage && rest.size() - 4 < size) break;
    auto fields =
        size <= comm::kMaxStoreMessage ? comm::unpack(rest.substr(4, size)) : std::nullopt;
    if (!fields || fields->empty()) {
      is_over_ = true;
      break;
    }
    messages.push_back(std::move(*fields));
    at += 4 + size;
  }
  in_text_.erase(0, at);
  return messages;
}

double HostChannel::silent_s() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - last_heard_).count();
}

}  // namespace moonshard::launch
