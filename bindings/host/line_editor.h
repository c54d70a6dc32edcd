// Reading lines: from a terminal with editing, completion and history search (libedit), from a
// terminal without (built without libedit), or from a pipe. One interface, so that the REPL does
// not depend on which one it has.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace moonshard::host {

enum class ReadStatus { Line, Interrupted, EndOfInput };

struct ReadResult {
  ReadStatus status;
  std::string text;  ///< without the line break; set for Line only
};

/// What Tab does: text to insert at the cursor, or lines to show when there is a choice.
struct Completion {
  std::string insert;
  std::string listing;
};

/// Gets everything on the line before the cursor. Must not throw: it is called from C frames.
using Completer = std::function<Completion(const std::string& before_cursor)>;

class LineEditor {
 public:
  virtual ~LineEditor() = default;

  /// Reads one line; Ctrl-C gives Interrupted and a clean line. `prompt` is plain text.
  virtual ReadResult read(const std::string& prompt) = 0;

  /// Makes an entry (possibly of several lines) reachable with the arrow keys and Ctrl-R.
  virtual void remember(const std::string& entry) = 0;
};

/// Reads a pipe or file through C stdio, so that a script's own io.read() takes the next line.
std::unique_ptr<LineEditor> make_pipe_reader();

/// A terminal without editing: prompt and plain lines. Says once that editing is missing.
std::unique_ptr<LineEditor> make_plain_editor();

/// A terminal with libedit; null when the library is not built in or the terminal is not usable.
std::unique_ptr<LineEditor> make_libedit_editor(Completer completer);

/// The right reader for stdin: libedit, else plain, or a pipe when not interactive.
std::unique_ptr<LineEditor> make_line_editor(bool interactive, Completer completer);

/// Signals while a line is being read on a terminal. They stay blocked except in wait_for_input, so
/// that none is lost between a check and a read, and no handler ever runs inside libedit.
class PromptSignals {
 public:
  PromptSignals();
  ~PromptSignals();

  enum class Event { Input, Interrupt, Resize, Suspend, Resume, Terminate };

  /// Waits until stdin can be read or one of the signals came. Input also stands for end of file.
  Event wait_for_input();

  /// Stops the process as Ctrl-Z would; returns when it is continued.
  void suspend();

  /// Ends the process by the signal that asked for it, once the terminal is in order again.
  void terminate();

 private:
  struct Saved;
  std::unique_ptr<Saved> saved_;
};

}  // namespace moonshard::host
