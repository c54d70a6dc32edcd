// Messages between the launcher and the ranks' agent on another machine, over whatever the remote
// shell makes of standard input and output. Nothing here blocks. The messages, by their first
// field:
//   to the agent    job (JobThere's fields), signal RANK NUMBER, beat
//   to the launcher out|err RANK BYTES, stopped RANK 0|1, end RANK CODE SIGNAL, fail TEXT, beat
// The agent begins with a greeting: a login shell may have printed something before.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/files.h"

namespace moonshard::launch {

inline constexpr std::string_view kHostGreeting = "\nmoonshard host 1\n";

class HostChannel {
 public:
  using Message = std::vector<std::string>;

  HostChannel(Descriptor in, Descriptor out, bool waits_for_greeting);

  void send(const std::vector<std::string_view>& fields);
  void send_text(std::string_view text);
  /// Sends what the other side takes, with a sign of life once a second.
  void flush();
  /// What has come since. Nonsense ends the channel.
  std::vector<Message> receive();

  bool is_over() const { return is_over_; }
  bool is_greeted() const { return is_greeted_; }
  size_t queued_bytes() const { return out_text_.size(); }
  double silent_s() const;
  int input() const { return in_.number(); }
  int output() const { return out_.number(); }

 private:
  using Time = std::chrono::steady_clock::time_point;
  bool skip_to_greeting();

  Descriptor in_, out_;
  bool writes_to_socket_, is_greeted_, is_over_ = false;
  std::string in_text_, out_text_;
  Time last_heard_, last_beat_;
};

}  // namespace moonshard::launch
