// A table: every row is as long as the header. And the end of a log.
#include "tests/fuzz/fuzz_support.h"
#include "viewer/readers/readers.h"

using namespace moonshard;
using namespace moonshard::viewer;

namespace {

constexpr size_t kLogBytes = 64;

void check(const records::CsvTable& table) {
  for (const auto& row : table.rows) {
    if (row.size() != table.columns.size()) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = as_text(data, size);
  refuse_or_read([&] { read_log(OpenFile(text, "table.csv"), kLogBytes); });
  if (wants_file(text)) {
    const std::filesystem::path path = write_input("table.csv", text);
    refuse_or_read([&] { read_log(path, kLogBytes); });
    refuse_or_read([&] { check(read_table(path)); });
  }
  return refuse_or_read([&] { check(read_table(OpenFile(text, "table.csv"))); });
}
