#include "viewer/export_job.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <vector>

#include <fmt/format.h>

#include "runtime/base/files.h"
#include "viewer/render/plot_table.h"
#include "viewer/widgets/format.h"

extern char** environ;

namespace moonshard::viewer {
namespace {

namespace fs = std::filesystem;

// A temporary folder, removed with all its contents.
class WorkFolder {
 public:
  WorkFolder() {
    std::string name = (fs::temp_directory_path() / "moonshard_export_XXXXXX").string();
    if (!::mkdtemp(name.data())) throw IoError("export: no temporary folder can be made");
    path_ = name;
  }
  ~WorkFolder() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// Runs a program with its words into a file; returns its exit code, -1 when it did not end well.
int run_program(std::vector<std::string> words, const fs::path& output) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t child = 0;
  const int failed = ::posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0)
    throw IoError(fmt::format("export: cannot start {}: {}", words[0], std::strerror(failed)));
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string first_line(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return clean_text(line, 1024);
}

ExportResult save_picture(records::PlotSpec spec, const ExportOptions& options,
                          const fs::path& program) {
  spec.width = options.width;
  spec.height = options.height;
  const WorkFolder work;
  const fs::path spec_file = work.path() / "picture.plot.json", said = work.path() / "said.txt";
  write_file_atomically(spec_file, to_text(to_json(spec)));
  const int code = run_program(
      {program.string(), "--render", spec_file.string(), "-o", options.file.string(), "--scale",
       std::to_string(options.scale), "--theme", options.theme == Theme::Light ? "light" : "dark"},
      said);
  if (code != 0) return {false, "export: " + first_line(said)};
  return {true, "saved " + options.file.string()};
}

}  // namespace

std::future<ExportResult> start_export(const records::PlotSpec& spec, const ExportOptions& options,
                                       const fs::path& program) {
  return std::async(std::launch::async, [spec, options, program]() -> ExportResult {
    try {
      if (options.file.extension() != ".csv") return save_picture(spec, options, program);
      write_file_atomically(options.file, plot_csv(spec));
      return {true, "saved " + options.file.string()};
    } catch (const std::exception& problem) {
      return {false, problem.what()};
    }
  });
}

fs::path own_program() {
  if (const char* set = std::getenv("MOONSHARD_VIEW"); set && *set) return set;
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error);
}

}  // namespace moonshard::viewer
