// A run folder of hostile files. The input is sweep.json, a line of four dashes, result.json of the
// point p0, and so on for env.json and progress.json.
#include <array>

#include "tests/fuzz/fuzz_support.h"
#include "viewer/readers/readers.h"

using namespace moonshard;
using namespace moonshard::viewer;

namespace {

constexpr std::array<const char*, 4> kNames = {"sweep.json", "points/p0/result.json", "env.json",
                                               "progress.json"};
using Texts = std::array<std::string_view, kNames.size()>;

// A folder of these files and no others.
class MemoryFolder final : public InsideFolder {
 public:
  explicit MemoryFolder(const Texts& texts) : InsideFolder("run"), texts_(texts) {}

  std::optional<OpenFile> open(const std::filesystem::path& relative) const override {
    for (size_t i = 0; i < kNames.size(); ++i) {
      if (relative.native() == kNames[i])
        return OpenFile(texts_[i], std::string("run/") + kNames[i]);
    }
    return std::nullopt;
  }
  std::optional<records::RecordStamp> stamp(const std::filesystem::path&) const override {
    return std::nullopt;
  }
  std::vector<std::string> names(const std::filesystem::path&,
                                 const std::vector<std::string>&) const override {
    return {};
  }

 private:
  const Texts& texts_;
};

void check(const RunData& run) {
  const size_t rows = run.points.size();
  if (run.options.cells.size() != rows * run.options.keys.size()) std::abort();
  if (run.metrics.cells.size() != rows * run.metrics.keys.size()) std::abort();
  if (run.problems.size() > 100) std::abort();
}

void read_from_disk(const Texts& texts) {
  static const bool kMade = std::filesystem::create_directories(fuzz_folder() / "run/points/p0");
  (void)kMade;
  for (size_t i = 0; i < kNames.size(); ++i) write_input(std::string("run/") + kNames[i], texts[i]);
  check(read_run(fuzz_folder() / "run"));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest = as_text(data, size);
  Texts texts;
  for (std::string_view& text : texts) {
    const size_t end = std::min(rest.find("\n----\n"), rest.size());
    text = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 6, rest.size()));
  }
  if (wants_file(as_text(data, size))) refuse_or_read([&] { read_from_disk(texts); });
  return refuse_or_read([&] { check(read_run_in(MemoryFolder(texts))); });
}
