// The readers without libedit, and the signals of a prompt.
#include "bindings/host/line_editor.h"

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace moonshard::host {

namespace {

constexpr std::array<int, 7> kPromptSignals = {SIGINT,  SIGWINCH, SIGTSTP, SIGCONT,
                                               SIGTERM, SIGHUP,   SIGQUIT};

// Written by the handler, read by the thread that waits at the prompt.
volatile std::sig_atomic_t g_seen[NSIG];
pthread_t g_prompt_thread;

extern "C" void note_prompt_signal(int signal) {
  // The library's worker threads do not block these signals: hand them on to the waiting thread.
  if (!pthread_equal(pthread_self(), g_prompt_thread)) {
    pthread_kill(g_prompt_thread, signal);
    return;
  }
  g_seen[signal] = 1;
}

bool take(int signal) {
  const bool seen = g_seen[signal] != 0;
  g_seen[signal] = 0;
  return seen;
}

sigset_t prompt_signal_set() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kPromptSignals) sigaddset(&set, signal);
  return set;
}

// Takes signals that wait behind the mask. ppoll prefers input over a pending signal, so that what
// was typed after Ctrl-C would otherwise still go to the line that Ctrl-C throws away.
bool collect_pending() {
  const sigset_t set = prompt_signal_set();
  const struct timespec at_once = {};
  bool any = false;
  for (int signal; (signal = ::sigtimedwait(&set, nullptr, &at_once)) > 0;) {
    g_seen[signal] = 1;
    any = true;
  }
  return any;
}

// getline(3) keeps its buffer between calls; this owns it.
class StdinLines {
 public:
  ~StdinLines() { std::free(buffer_); }

  ReadResult next() {
    errno = 0;
    const ssize_t size = ::getline(&buffer_, &capacity_, stdin);
    if (size < 0) {
      const bool interrupted = errno == EINTR;
      if (interrupted) std::clearerr(stdin);
      return {interrupted ? ReadStatus::Interrupted : ReadStatus::EndOfInput, {}};
    }
    std::string text(buffer_, static_cast<size_t>(size));
    if (!text.empty() && text.back() == '\n') text.pop_back();
    if (!text.empty() && text.back() == '\r') text.pop_back();
    return {ReadStatus::Line, std::move(text)};
  }

 private:
  char* buffer_ = nullptr;
  size_t capacity_ = 0;
};

class PipeReader : public LineEditor {
 public:
  ReadResult read(const std::string&) override { return lines_.next(); }
  void remember(const std::string&) override {}

 private:
  StdinLines lines_;
};

class PlainEditor : public LineEditor {
 public:
  ReadResult read(const std::string& prompt) override {
    if (!std::exchange(announced_, true)) {
      std::fputs("repl: built without libedit: no line editing, completion or history search\n",
                 stderr);
    }
    std::fputs(prompt.c_str(), stdout);
    std::fflush(stdout);
    PromptSignals signals;
    // The terminal delivers whole lines, so once something can be read the call does not block.
    for (;;) {
      switch (signals.wait_for_input()) {
        case PromptSignals::Event::Input: {
          ReadResult result = lines_.next();
          if (result.status == ReadStatus::EndOfInput) std::fputs("\n", stdout);
          return result;
        }
        case PromptSignals::Event::Interrupt:
          std::fputs("\n", stdout);
          return {ReadStatus::Interrupted, {}};
        case PromptSignals::Event::Suspend:
          signals.suspend();
          break;
        case PromptSignals::Event::Terminate:
          signals.terminate();
          break;
        default:
          break;
      }
    }
  }
  void remember(const std::string&) override {}

 private:
  StdinLines lines_;
  bool announced_ = false;
};

}  // namespace

struct PromptSignals::Saved {
  sigset_t mask;
  std::array<struct sigaction, kPromptSignals.size()> actions;
};

PromptSignals::PromptSignals() : saved_(std::make_unique<Saved>()) {
  g_prompt_thread = pthread_self();
  const sigset_t blocked = prompt_signal_set();
  pthread_sigmask(SIG_BLOCK, &blocked, &saved_->mask);
  struct sigaction action = {};
  action.sa_handler = note_prompt_signal;
  sigfillset(&action.sa_mask);
  for (size_t i = 0; i < kPromptSignals.size(); ++i) {
    g_seen[kPromptSignals[i]] = 0;
    sigaction(kPromptSignals[i], &action, &saved_->actions[i]);
  }
}

PromptSignals::~PromptSignals() {
  for (size_t i = 0; i < kPromptSignals.size(); ++i) {
    sigaction(kPromptSignals[i], &saved_->actions[i], nullptr);
  }
  pthread_sigmask(SIG_SETMASK, &saved_->mask, nullptr);
}

PromptSignals::Event PromptSignals::wait_for_input() {
  for (;;) {
    collect_pending();
    if (take(SIGINT)) return Event::Interrupt;
    if (take(SIGWINCH)) return Event::Resize;
    if (take(SIGTSTP)) return Event::Suspend;
    if (take(SIGCONT)) return Event::Resume;
    if (g_seen[SIGTERM] || g_seen[SIGHUP] || g_seen[SIGQUIT]) return Event::Terminate;
    struct pollfd input = {STDIN_FILENO, POLLIN, 0};
    const bool interrupted = ::ppoll(&input, 1, nullptr, &saved_->mask) < 0 && errno == EINTR;
    // An error of another kind counts as input too: the read that follows reports it.
    if (!interrupted && !collect_pending()) return Event::Input;
  }
}

void PromptSignals::suspend() {
  ::raise(SIGSTOP);
}

void PromptSignals::terminate() {
  for (const int signal : {SIGTERM, SIGHUP, SIGQUIT}) {
    if (!take(signal)) continue;
    std::signal(signal, SIG_DFL);
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, signal);
    pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
    ::raise(signal);
  }
}

std::unique_ptr<LineEditor> make_pipe_reader() {
  return std::make_unique<PipeReader>();
}

std::unique_ptr<LineEditor> make_plain_editor() {
  return std::make_unique<PlainEditor>();
}

std::unique_ptr<LineEditor> make_line_editor(bool interactive, Completer completer) {
  if (!interactive) return make_pipe_reader();
  auto editor = make_libedit_editor(std::move(completer));
  return editor ? std::move(editor) : make_plain_editor();
}

}  // namespace moonshard::host
