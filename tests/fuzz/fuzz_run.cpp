// A run folder of hostile files. The input is sweep.json, a line of four dashes, result.json of the
// point p0, and so on for env.json and progress.json.
#include "tests/fuzz/fuzz_support.h"
#include "viewer/readers/readers.h"

using namespace moonshard;
using namespace moonshard::viewer;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool kMade = std::filesystem::create_directories(fuzz_folder() / "run/points/p0");
  (void)kMade;
  std::string_view rest = as_text(data, size);
  for (const char* name :
       {"run/sweep.json", "run/points/p0/result.json", "run/env.json", "run/progress.json"}) {
    const size_t end = std::min(rest.find("\n----\n"), rest.size());
    write_input(name, rest.substr(0, end));
    rest.remove_prefix(std::min(end + 6, rest.size()));
  }
  return refuse_or_read([] {
    const RunData run = read_run(fuzz_folder() / "run");
    const size_t rows = run.points.size();
    if (run.options.cells.size() != rows * run.options.keys.size()) std::abort();
    if (run.metrics.cells.size() != rows * run.metrics.keys.size()) std::abort();
    if (run.problems.size() > 100) std::abort();
  });
}
