// A table: every row is as long as the header.
#include "tests/fuzz/fuzz_support.h"
#include "viewer/readers/readers.h"

using namespace moonshard;
using namespace moonshard::viewer;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::filesystem::path path = write_input("table.csv", as_text(data, size));
  return refuse_or_read([&] {
    const records::CsvTable table = read_table(path);
    for (const auto& row : table.rows) {
      if (row.size() != table.columns.size()) std::abort();
    }
    read_log(path, 64);
  });
}
