// A plot spec: what was read can be written and read again.
#include "runtime/records/plot_spec.h"
#include "tests/fuzz/fuzz_support.h"

using namespace moonshard;
using namespace moonshard::viewer;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const Json json = parse_json(as_text(data, size), "input");
    const records::PlotSpec spec = records::plot_spec_from_json(json, "input");
    const std::string text = to_text(to_json(spec));
    records::plot_spec_from_json(parse_json(text, "again"), "again");
  } catch (const Error&) {  // a spec of another kind is the writer's mistake: UsageError
  }
  return 0;
}
