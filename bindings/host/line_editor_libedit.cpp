// Line editing with libedit: emacs keys, Tab completion, history search. Without the library the
// only function here returns null and the plain editor takes over.
#include "bindings/host/line_editor.h"

#ifdef MOONSHARD_HAS_LIBEDIT

#include <histedit.h>
#include <langinfo.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstring>
#include <cwchar>
#include <utility>

namespace moonshard::host {

namespace {

constexpr int kHistorySize = 5000;

// libedit works on wide characters; in the "C" locale it would refuse everything but ASCII.
void choose_utf8_locale() {
  std::setlocale(LC_CTYPE, "");
  if (std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
}

class LibeditEditor : public LineEditor {
 public:
  explicit LibeditEditor(Completer completer) : completer_(std::move(completer)) {
    choose_utf8_locale();
    // Results may be redirected to a file; the prompt belongs on the terminal.
    out_ = ::isatty(STDOUT_FILENO) ? stdout : stderr;
    history_ = history_init();
    edit_ = el_init("moonshard", stdin, out_, stderr);
    if (!edit_ || !history_) return;
    HistEvent event;
    history(history_, &event, H_SETSIZE, kHistorySize);
    history(history_, &event, H_SETUNIQUE, 1);
    el_set(edit_, EL_CLIENTDATA, this);
    el_set(edit_, EL_PROMPT, &LibeditEditor::show_prompt);
    el_set(edit_, EL_EDITOR, "emacs");
    el_set(edit_, EL_SIGNAL, 0);  // PromptSignals does it, see there
    el_set(edit_, EL_GETCFN, &LibeditEditor::next_char);
    el_set(edit_, EL_HIST, &history, history_);
    // The wide call keeps the pointers; the narrow one makes copies that it never frees.
    el_wset(edit_, EL_ADDFN, L"ms-complete", L"Complete the word before the cursor",
            &LibeditEditor::on_tab);
    el_set(edit_, EL_BIND, "^I", "ms-complete", nullptr);
    el_set(edit_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    el_set(edit_, EL_BIND, "^S", "em-inc-search-next", nullptr);
    el_set(edit_, EL_BIND, "^W", "ed-delete-prev-word", nullptr);
    el_set(edit_, EL_BIND, "\\e[1;5C", "em-next-word", nullptr);
    el_set(edit_, EL_BIND, "\\e[1;5D", "ed-prev-word", nullptr);
    el_source(edit_, nullptr);  // the user's own ~/.editrc takes precedence
  }

  ~LibeditEditor() override {
    if (edit_) el_end(edit_);
    if (history_) history_end(history_);
  }

  bool usable() const { return edit_ != nullptr && history_ != nullptr; }

  ReadResult read(const std::string& prompt) override {
    prompt_ = prompt;
    ended_by_ = ReadStatus::EndOfInput;
    PromptSignals signals;
    signals_ = &signals;
    // libedit would do this after the prompt is shown; a quick Ctrl-R would meet the other mode.
    el_set(edit_, EL_PREP_TERM, 1);
    int size = 0;
    const char* line = el_gets(edit_, &size);
    signals_ = nullptr;
    if (!line || size <= 0 || ended_by_ == ReadStatus::Interrupted) {
      std::fputs(ended_by_ == ReadStatus::Interrupted ? "^C\n" : "\n", out_);
      std::fflush(out_);
      return {ended_by_, {}};
    }
    std::string text(line, static_cast<size_t>(size));
    if (text.back() == '\n') text.pop_back();
    return {ReadStatus::Line, std::move(text)};
  }

  void remember(const std::string& entry) override {
    HistEvent event;
    history(history_, &event, H_ENTER, entry.c_str());
  }

 private:
  static LibeditEditor* self(EditLine* edit) {
    void* data = nullptr;
    el_get(edit, EL_CLIENTDATA, &data);
    return static_cast<LibeditEditor*>(data);
  }

  static char* show_prompt(EditLine* edit) { return self(edit)->prompt_.data(); }

  // One byte from the terminal, or false when the line is over (Ctrl-C, end of file, error).
  bool next_byte(char* byte) {
    for (;;) {
      switch (signals_->wait_for_input()) {
        case PromptSignals::Event::Input: {
          const ssize_t count = ::read(STDIN_FILENO, byte, 1);
          if (count < 0 && errno == EINTR) continue;
          return count == 1;
        }
        case PromptSignals::Event::Interrupt:
          ended_by_ = ReadStatus::Interrupted;
          return false;
        case PromptSignals::Event::Resize:
          el_resize(edit_);
          break;
        case PromptSignals::Event::Suspend:
          el_set(edit_, EL_PREP_TERM, 0);
          signals_->suspend();
          break;
        case PromptSignals::Event::Resume:
          el_set(edit_, EL_PREP_TERM, 1);
          el_set(edit_, EL_REFRESH);
          break;
        case PromptSignals::Event::Terminate:
          el_set(edit_, EL_PREP_TERM, 0);
          signals_->terminate();
          break;
      }
    }
  }

  // libedit's contract: 1 for a character, 0 for the end of input, -1 for an error.
  static int next_char(EditLine* edit, wchar_t* character) {
    LibeditEditor* editor = self(edit);
    std::mbstate_t state = {};
    for (;;) {
      char byte = 0;
      if (!editor->next_byte(&byte)) {
        return editor->ended_by_ == ReadStatus::Interrupted ? -1 : 0;
      }
      const size_t used = std::mbrtowc(character, &byte, 1, &state);
      if (used == static_cast<size_t>(-2)) continue;  // more bytes of this character to come
      if (used == static_cast<size_t>(-1)) {
        state = {};  // not UTF-8: drop the byte rather than the line
        continue;
      }
      return 1;
    }
  }

  static unsigned char on_tab(EditLine* edit, int) {
    LibeditEditor* editor = self(edit);
    // Called from C: an exception (out of memory) must not leave.
    try {
      const LineInfo* line = el_line(edit);
      const Completion completion =
          editor->completer_(std::string(line->buffer, line->cursor - line->buffer));
      if (!completion.insert.empty()) {
        return el_insertstr(edit, completion.insert.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
      }
      if (completion.listing.empty()) return CC_REFRESH_BEEP;
      std::fprintf(editor->out_, "\n%s\n", completion.listing.c_str());
      return CC_REDISPLAY;
    } catch (...) {
      return CC_ERROR;
    }
  }

  Completer completer_;
  EditLine* edit_ = nullptr;
  History* history_ = nullptr;
  FILE* out_ = nullptr;
  std::string prompt_;
  ReadStatus ended_by_ = ReadStatus::EndOfInput;
  PromptSignals* signals_ = nullptr;
};

}  // namespace

std::unique_ptr<LineEditor> make_libedit_editor(Completer completer) {
  auto editor = std::make_unique<LibeditEditor>(std::move(completer));
  if (!editor->usable()) return nullptr;
  return editor;
}

}  // namespace moonshard::host

#else

namespace moonshard::host {

std::unique_ptr<LineEditor> make_libedit_editor(Completer) {
  return nullptr;
}

}  // namespace moonshard::host

#endif
