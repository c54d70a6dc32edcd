#include "runtime/checkpoint/save_order.h"

#include <fmt/format.h>

namespace moonshard::checkpoint {

std::string failed_save(int64_t step, const std::string& error) {
  return fmt::format("the checkpoint of step {} was not saved: {}", step, error);
}

std::string write_in_order(
    AllOrNone& ranks, std::unique_ptr<PartialCheckpoint>& partial, const SaveOptions& options,
    const std::function<std::string()>& write_part,
    const std::function<IndexText(const std::vector<std::string>& answers)>& make_index) {
  const std::vector<std::string> answers = ranks.run(write_part);
  return ranks.run_on_first([&] {
    const IndexText index = make_index(answers);
    partial->publish(index.text);
    prune_checkpoints(partial->folder(), checkpoint_name(partial->step()), options.keep,
                      options.keep_every);
    partial.reset();
    return index.seal;
  });
}

}  // namespace moonshard::checkpoint
