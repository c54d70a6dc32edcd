// The seed documents' result file.
#include "runtime/experiment/experiment.h"

namespace moonshard::experiment {

Json seed_result(const Json& record) {
  const Json& options = record.at("options");
  const Json& metrics = record.at("metrics");
  const bool on_gpu = options.at("device").get<std::string>().starts_with("cuda");
  const int64_t ranks =
      record.contains("sharding") ? record.at("sharding").at("world").get<int64_t>() : 1;
  Json result{{"mode", options.at("mode")},
              {"seq_length", options.at("seq_length")},
              {"batch_size", options.at("batch_size")},
              {"total_batch_size", options.at("batch_size").get<int64_t>() * ranks},
              {"num_gpus", on_gpu ? ranks : 0},
              {"peak_memory_mb", metrics.at("peak_memory_mb")},
              {"peak_memory_gb", metrics.at("peak_memory_gb")},
              {"avg_time_ms", metrics.at("avg_time_ms")},
              {"config",
               {{"model_name", options.at("model")},
                {"vocab_size", options.at("vocab_size")},
                {"learning_rate", options.at("lr")},
                {"sigma", options.at("noise_multiplier")},
                {"max_grad_norm", options.at("max_grad_norm")}}}};
  // Beyond the documents' keys: the other ranks of this run were only modelled.
  if (record.contains("sharding") && record.at("sharding").at("fake").get<bool>())
    result["modelled_world"] = options.at("world");
  return result;
}

}  // namespace moonshard::experiment
