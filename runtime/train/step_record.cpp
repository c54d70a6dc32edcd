#include "runtime/train/step_record.h"

namespace moonshard::train {

using records::Json;

Json held_by_rank(const Trainer& trainer, const StepReport& report) {
  const sharding::ShardingMemory& memory = report.sharding;
  return Json{{"parameter_bytes", memory.parameters},
              {"gradient_bytes", memory.gradients},
              {"optimizer_bytes", trainer.optimizer().state_bytes()},
              {"gathered_peak_bytes", memory.whole_peak},
              {"gathered_peak_units", memory.whole_units_peak},
              {"in_flight_peak_bytes", memory.in_flight_peak}};
}

Json traffic_of(const StepReport& report) {
  Json list = Json::array();
  for (const comm::Traffic& kind : report.traffic)
    list.push_back({{"operation", kind.operation}, {"count", kind.count}, {"bytes", kind.bytes}});
  return list;
}

}  // namespace moonshard::train
