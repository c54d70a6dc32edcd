// A point's result.json. Lists of a timeline are equally long whatever the text says.
#include "tests/fuzz/fuzz_support.h"
#include "viewer/readers/readers.h"

using namespace moonshard;
using namespace moonshard::viewer;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return refuse_or_read([&] {
    MemorySource source(as_text(data, size));
    JsonStream stream(source, "result.json");
    const PointDetail detail = read_result_detail(stream);
    const MemoryTimeline& timeline = detail.memory.timeline;
    const size_t length = timeline.ms.size();
    if (timeline.total.size() != length || timeline.phase.index.size() != length) std::abort();
    for (const auto& owner : timeline.owners) {
      if (owner.value.size() != length) std::abort();
    }
    for (const uint32_t phase : timeline.phase.index) {
      if (phase >= timeline.phase.names.size()) std::abort();
    }
    const auto& claim = detail.privacy;
    if (!claim.norms_histogram.counts.empty() &&
        claim.norms_histogram.edges.size() != claim.norms_histogram.counts.size() + 1) {
      std::abort();
    }
  });
}
