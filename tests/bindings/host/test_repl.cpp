// The prompt as a user meets it: the real program behind a pseudo terminal or a pipe. The program
// is MOONSHARD_PROGRAM (environment) or MOONSHARD_PROGRAM_PATH (compile definition). Nothing
// sleeps: every step waits for the text it expects.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono_literals::operator""ms;
constexpr std::chrono::milliseconds kPatience = 20000ms;  // CI is slow; a passing test never waits
constexpr char kCtrlC[] = "\x03";
constexpr char kCtrlD[] = "\x04";
constexpr char kCtrlR[] = "\x12";

std::string program() {
  if (const char* path = std::getenv("MOONSHARD_PROGRAM")) return path;
#ifdef MOONSHARD_PROGRAM_PATH
  return MOONSHARD_PROGRAM_PATH;
#else
  return {};
#endif
}

// What a terminal would show as plain text: escape sequences and carriage returns left out.
std::string without_escapes(const std::string& raw) {
  std::string text;
  for (size_t i = 0; i < raw.size(); ++i) {
    if (raw[i] == '\x1b' && i + 1 < raw.size() && raw[i + 1] == '[') {
      i += 2;
      while (i < raw.size() && (raw[i] < '@' || raw[i] > '~')) ++i;
    } else if (raw[i] != '\r' && raw[i] != '\x1b' && raw[i] != '\a') {
      text += raw[i];
    }
  }
  return text;
}

int wait_for_exit(pid_t child) {
  const auto deadline = Clock::now() + kPatience;
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (Clock::now() > deadline) return -1;
    ::poll(nullptr, 0, 5);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// A program on a pseudo terminal.
class Terminal {
 public:
  Terminal(const std::string& history, const std::string& startup) {
    struct winsize size = {};
    size.ws_row = 40;
    size.ws_col = 120;
    child_ = ::forkpty(&fd_, nullptr, nullptr, &size);
    // Fails at once and with the reason, e.g. in a container without /dev/pts.
    if (child_ < 0)
      throw std::runtime_error(std::string("no pseudo terminal: ") + std::strerror(errno));
    if (child_ == 0) {
      ::setenv("MOONSHARD_HISTORY", history.c_str(), 1);
      ::setenv("MOONSHARD_STARTUP", startup.c_str(), 1);
      ::setenv("TERM", "xterm", 1);
      const std::string path = program();
      ::execl(path.c_str(), path.c_str(), "repl", nullptr);
      ::_exit(127);
    }
  }

  ~Terminal() {
    if (child_ > 0 && !reaped_) {
      ::kill(child_, SIGKILL);
      ::waitpid(child_, nullptr, 0);
    }
    ::close(fd_);
  }

  void type(const std::string& keys) {
    ASSERT_EQ(::write(fd_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }

  void enter(const std::string& line) { type(line + "\r"); }

  // Waits for a text after everything that earlier waits have consumed.
  ::testing::AssertionResult shows(const std::string& expected,
                                   std::chrono::milliseconds patience = kPatience) {
    const auto deadline = Clock::now() + patience;
    for (;;) {
      const std::string text = without_escapes(raw_);
      const size_t at = text.find(expected, consumed_);
      if (at != std::string::npos) {
        consumed_ = at + expected.size();
        return ::testing::AssertionSuccess();
      }
      struct pollfd input = {fd_, POLLIN, 0};
      char block[4096];
      const bool ready = ::poll(&input, 1, 100) > 0;
      const ssize_t count = ready ? ::read(fd_, block, sizeof block) : 0;
      if (count > 0) raw_.append(block, static_cast<size_t>(count));
      if (count < 0 || Clock::now() > deadline) {
        return ::testing::AssertionFailure() << "expected \"" << expected << "\", got:\n"
                                             << text.substr(consumed_);
      }
    }
  }

  pid_t child() const { return child_; }

  int exit_code() {
    reaped_ = true;
    // The terminal must be drained, or a child that still writes would never end.
    ::fcntl(fd_, F_SETFL, O_NONBLOCK);
    return wait_for_exit(child_);
  }

 private:
  pid_t child_ = -1;
  int fd_ = -1;
  bool reaped_ = false;
  std::string raw_;
  size_t consumed_ = 0;
};

struct PipeResult {
  std::string out;
  std::string err;
  int exit_code;
};

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

class Repl : public ::testing::Test {
 protected:
  void SetUp() override {
    if (program().empty()) GTEST_SKIP() << "set MOONSHARD_PROGRAM to the program under test";
    std::string pattern = (std::filesystem::temp_directory_path() / "repl-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }

  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  std::string history() const { return (folder_ / "state" / "history").string(); }

  std::string startup(const std::string& text) const {
    std::ofstream(folder_ / "startup.lua") << text;
    return (folder_ / "startup.lua").string();
  }

  PipeResult piped(const std::string& input) const {
    std::ofstream(folder_ / "in") << input;
    const std::string command = "'" + program() + "' repl < '" + (folder_ / "in").string() +
                                "' > '" + (folder_ / "out").string() + "' 2> '" +
                                (folder_ / "err").string() + "'";
    const int status = std::system(command.c_str());
    return {read_file(folder_ / "out"), read_file(folder_ / "err"), WEXITSTATUS(status)};
  }

  std::filesystem::path folder_;
};

TEST_F(Repl, ShowsABannerAndAPromptAndLeavesWithCtrlD) {
  Terminal terminal(history(), "");
  EXPECT_TRUE(terminal.shows("moonshard "));
  EXPECT_TRUE(terminal.shows("LuaJIT "));
  EXPECT_TRUE(terminal.shows("help() for help, Ctrl-D to leave"));
  EXPECT_TRUE(terminal.shows("ms> "));
  terminal.type(kCtrlD);
  EXPECT_EQ(terminal.exit_code(), 0);
}

TEST_F(Repl, EchoesValuesAndKeepsLocalsAndTheLastValue) {
  Terminal terminal(history(), "");
  terminal.enter("local x = 6");
  terminal.enter("x * 7");
  EXPECT_TRUE(terminal.shows("\n42\n"));
  terminal.enter("_ + 1");
  EXPECT_TRUE(terminal.shows("\n43\n"));
  terminal.enter("type(ms)");
  EXPECT_TRUE(terminal.shows("\n\"table\"\n"));
}

TEST_F(Repl, ContinuesAnOpenBlockAndCtrlCDropsIt) {
  Terminal terminal(history(), "");
  terminal.enter("for i = 1, 2 do");
  EXPECT_TRUE(terminal.shows("\n.. "));
  terminal.enter("print('row ' .. i) end");
  EXPECT_TRUE(terminal.shows("\nrow 1\nrow 2\nms> "));
  terminal.enter("function broken(");
  EXPECT_TRUE(terminal.shows("\n.. "));
  terminal.type(kCtrlC);
  EXPECT_TRUE(terminal.shows("ms> "));
  terminal.enter("'fresh'");
  EXPECT_TRUE(terminal.shows("\n\"fresh\"\n"));
}

TEST_F(Repl, CtrlCAtThePromptClearsTheLine) {
  Terminal terminal(history(), "");
  EXPECT_TRUE(terminal.shows("ms> "));
  terminal.type("error('never run')");
  EXPECT_TRUE(terminal.shows("never run')"));
  terminal.type(kCtrlC);
  EXPECT_TRUE(terminal.shows("ms> "));
  terminal.enter("1 + 2");
  EXPECT_TRUE(terminal.shows("\n3\n"));
}

TEST_F(Repl, WhatIsTypedRightAfterCtrlCBelongsToTheNextLine) {
  Terminal terminal(history(), "");
  EXPECT_TRUE(terminal.shows("ms> "));
  for (int round = 0; round < 20; ++round) {
    terminal.type("ms.run{ ");
    ASSERT_TRUE(terminal.shows("ms.run{ "));
    terminal.type(std::string(kCtrlC) + "100 + " + std::to_string(round) + "\r");
    ASSERT_TRUE(terminal.shows("\n" + std::to_string(100 + round) + "\nms> "));
  }
}

TEST_F(Repl, CtrlCStopsALoopAndKeepsValues) {
  Terminal terminal(history(), "");
  terminal.enter("kept = 'safe'");
  for (const char* loop : {
           "print('go') while true do end",
           "s = 0 print('go') for i = 1, 1e15 do s = s + i end",
           "print('go') while true do pcall(error) end",
           "print('go') while true do pcall(function() while true do end end) end",
           "print('go') coroutine.wrap(function() while true do end end)()",
       }) {
    terminal.enter(loop);
    ASSERT_TRUE(terminal.shows("go\n")) << loop;
    terminal.type(kCtrlC);
    ASSERT_TRUE(terminal.shows("interrupted")) << loop;
    ASSERT_TRUE(terminal.shows("ms> ")) << loop;
    terminal.enter("kept .. '!'");
    ASSERT_TRUE(terminal.shows("\n\"safe!\"\n")) << loop;
  }
  terminal.enter("s >= 0");
  EXPECT_TRUE(terminal.shows("\ntrue\n"));
}

TEST_F(Repl, ThreeCtrlCEndWhatCannotBeStopped) {
  Terminal terminal(history(), "");
  // One native call that prints (so that we know it has begun) and then backtracks for minutes.
  terminal.enter("string.gsub('gob' .. ('a'):rep(400), ('.-'):rep(12) .. 'b', print)");
  EXPECT_TRUE(terminal.shows("\ngob\n"));
  // Two presses before the program gets a time slice are one signal, so press until it reacts.
  bool hinted = false;
  for (int press = 0; press < 20 && !hinted; ++press) {
    terminal.type(kCtrlC);
    hinted = terminal.shows("press Ctrl-C once more to end the program", 500ms);
  }
  EXPECT_TRUE(hinted);
  terminal.type(kCtrlC);
  EXPECT_EQ(terminal.exit_code(), 130);
}

TEST_F(Repl, TabCompletesFieldsOptionsKeywordsAndFiles) {
  Terminal terminal(history(), "");
  terminal.enter("t = { alpha_beta = 'found', other = 1 }");
  terminal.enter("t.al\t");
  EXPECT_TRUE(terminal.shows("t.alpha_beta"));
  EXPECT_TRUE(terminal.shows("\n\"found\"\n"));
  terminal.type("ms.run{ batch_s\t");
  EXPECT_TRUE(terminal.shows("ms.run{ batch_size"));
  terminal.type(kCtrlC);
  terminal.enter("setmeta\t");
  EXPECT_TRUE(terminal.shows("\nfunction: setmetatable\n"));
  startup("");
  terminal.enter("io.open(\"" + folder_.string() + "/start\t\") ~= nil");
  EXPECT_TRUE(terminal.shows("\ntrue\n"));
}

TEST_F(Repl, DrawsAFigureWhereTheTerminalSaysItCan) {
  std::ofstream(folder_ / "figure.png") << "stands for a picture";
  Terminal terminal(history(), "");
  EXPECT_TRUE(terminal.shows("ms> "));
  terminal.enter("'" + (folder_ / "figure.png").string() + "'");
  // The question: kitty's graphics, then the terminal's attributes.
  ASSERT_TRUE(terminal.shows("_Gi=31"));
  terminal.type("\x1b_Gi=31;OK\x1b\\\x1b[?62c");
  EXPECT_TRUE(terminal.shows("_Ga=T,f=100,q=2,m=0;c3RhbmRzIGZvciBhIHBpY3R1cmU="));
  EXPECT_TRUE(terminal.shows("ms> "));
  terminal.enter("6 * 7");
  EXPECT_TRUE(terminal.shows("\n42\n"));
}

TEST_F(Repl, NamesAFigureWhereTheTerminalSaysNothing) {
  std::ofstream(folder_ / "figure.png") << "stands for a picture";
  Terminal terminal(history(), "");
  EXPECT_TRUE(terminal.shows("ms> "));
  terminal.enter("'" + (folder_ / "figure.png").string() + "'");
  EXPECT_TRUE(terminal.shows(".open shows the first in a window"));
  terminal.enter("6 * 7");
  EXPECT_TRUE(terminal.shows("\n42\n"));
}

TEST_F(Repl, TabKnowsTheCallThatItIsIn) {
  Terminal terminal(history(), "");
  terminal.type("ms.trainer{ cl\t");
  EXPECT_TRUE(terminal.shows("ms.trainer{ clip"));
  terminal.type(kCtrlC);
  terminal.type("ms.sweep{ gri\t");
  EXPECT_TRUE(terminal.shows("ms.sweep{ grid"));
  terminal.type(kCtrlC);
  terminal.type("ms.run{ mode = \"materi\t");
  EXPECT_TRUE(terminal.shows("mode = \"materialize"));
  terminal.type(kCtrlC);
  terminal.type("ms.model(\"qwen2.5-t\t");
  EXPECT_TRUE(terminal.shows("ms.model(\"qwen2.5-tiny"));
}

TEST_F(Repl, TabListsWhatThereIsToChooseFrom) {
  Terminal terminal(history(), "");
  terminal.enter("t = { left_side = 1, left_wing = 2 }");
  terminal.type("t.l\t");
  EXPECT_TRUE(terminal.shows("t.left_"));
  terminal.type("\t");
  EXPECT_TRUE(terminal.shows("left_side  left_wing"));
}

TEST_F(Repl, HistorySurvivesAKillAndIsSearchable) {
  {
    Terminal terminal(history(), "");
    terminal.enter("needle = 'in the hay'");
    terminal.enter("for i = 1, 1 do");
    terminal.enter("  print('two ' .. 'lines') end");
    EXPECT_TRUE(terminal.shows("\ntwo lines\n"));
    terminal.enter("print('last')");
    EXPECT_TRUE(terminal.shows("\nlast\n"));
    ::kill(terminal.child(), SIGKILL);
    EXPECT_EQ(terminal.exit_code(), 128 + SIGKILL);
  }
  Terminal terminal(history(), "");
  EXPECT_TRUE(terminal.shows("ms> "));
  terminal.type(std::string(kCtrlR) + "needle");
  EXPECT_TRUE(terminal.shows("in the hay"));
  terminal.type("\r");
  EXPECT_TRUE(terminal.shows("ms> "));
  terminal.enter("needle");
  EXPECT_TRUE(terminal.shows("\n\"in the hay\"\nms> "));
  terminal.type(std::string(kCtrlR) + "two");
  EXPECT_TRUE(terminal.shows("lines"));
  terminal.type("\r");
  EXPECT_TRUE(terminal.shows("\ntwo lines\n"));
}

TEST_F(Repl, TwoProgramsShareAHistoryFile) {
  Terminal first(history(), "");
  Terminal second(history(), "");
  first.enter("print('from ' .. 'first')");
  EXPECT_TRUE(first.shows("\nfrom first\n"));
  second.enter("print('from ' .. 'second')");
  EXPECT_TRUE(second.shows("\nfrom second\n"));
  first.enter("print('from ' .. 'first')");
  EXPECT_TRUE(first.shows("\nfrom first\n"));
  EXPECT_EQ(read_file(history()), "print('from ' .. 'first')\nprint('from ' .. 'second')\n");
}

TEST_F(Repl, AStartUpFileRunsAndItsErrorsDoNotEndTheSession) {
  Terminal terminal(history(), startup("greeting = 'hello' error('trouble')"));
  EXPECT_TRUE(terminal.shows("trouble"));
  EXPECT_TRUE(terminal.shows("ms> "));
  terminal.enter("greeting");
  EXPECT_TRUE(terminal.shows("\n\"hello\"\n"));
}

TEST_F(Repl, PipedInputPrintsResultsOnly) {
  EXPECT_EQ(piped("print(1)\n").out, "1\n");
  EXPECT_EQ(piped("1+1").out, "2\n");
  const PipeResult block = piped("for i = 1, 2 do\n  print(i)\nend\n");
  EXPECT_EQ(block.out, "1\n2\n");
  EXPECT_EQ(block.err, "");
  EXPECT_EQ(block.exit_code, 0);
}

TEST_F(Repl, PipedInputGoesOnAfterAnErrorAndExitsWithOne) {
  const PipeResult result = piped("error('first')\nx = = 1\n'still here'\n");
  EXPECT_EQ(result.out, "\"still here\"\n");
  EXPECT_NE(result.err.find("first"), std::string::npos);
  EXPECT_NE(result.err.find("near '='"), std::string::npos);
  EXPECT_EQ(result.exit_code, 1);
}

TEST_F(Repl, PipedInputThatStopsInsideABlockIsAnError) {
  const PipeResult result = piped("for i = 1, 2 do\n");
  EXPECT_NE(result.err.find("'end' expected"), std::string::npos);
  EXPECT_EQ(result.exit_code, 1);
}

TEST_F(Repl, ByteCodeIsRefused) {
  const PipeResult result = piped("\x1bLJ\x02\n1\n");
  EXPECT_NE(result.err.find("expected Lua source text, got byte code"), std::string::npos);
  EXPECT_EQ(result.out, "1\n");
}

}  // namespace
