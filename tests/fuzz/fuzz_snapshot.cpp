// A memory snapshot: any bytes as a pickle.
#include "tests/fuzz/fuzz_support.h"
#include "viewer/tracing/memory_snapshot.h"

using namespace moonshard;
using namespace moonshard::viewer;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::filesystem::path path = write_input("snapshot.pickle", as_text(data, size));
  return refuse_or_read([&] {
    const MemorySnapshot snapshot = read_snapshot(path);
    if (snapshot.segments.size() > 1000 || snapshot.largest.size() > 100) std::abort();
    if (snapshot.history_bytes.size() > 4000) std::abort();
  });
}
