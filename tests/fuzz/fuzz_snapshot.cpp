// A memory snapshot: any bytes as a pickle.
#include "tests/fuzz/fuzz_support.h"
#include "viewer/tracing/memory_snapshot.h"

using namespace moonshard;
using namespace moonshard::viewer;

namespace {

void check(const MemorySnapshot& snapshot) {
  if (snapshot.segments.size() > 1000 || snapshot.largest.size() > 100) std::abort();
  if (snapshot.history_bytes.size() > 4000) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes = as_text(data, size);
  if (wants_file(bytes)) {
    const std::filesystem::path path = write_input("snapshot.pickle", bytes);
    refuse_or_read([&] { check(read_snapshot(path)); });
  }
  return refuse_or_read([&] { check(read_snapshot(OpenFile(bytes, "snapshot.pickle"))); });
}
