// Text from a model: prompts in, what comes behind them out. All in token ids.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/generate/generate_options.h"
#include "runtime/models/model.h"
#include "runtime/train/trainer.h"

namespace moonshard::generate {

using Tokens = std::vector<int64_t>;

struct Generated {
  std::vector<Tokens> tokens;      ///< of each prompt, without the stop token
  std::vector<std::string> ended;  ///< of each: "stop" or "length"
  int64_t prompt_tokens = 0, new_tokens = 0;
  double prefill_seconds = 0;  ///< reading prompts
  double decode_seconds = 0;   ///< from the first token of each to the last
  int64_t cache_bytes = 0;     ///< keys and values
  std::string graph;           ///< "yes", or why no CUDA graph was replayed
};

/// Called for every token as soon as it is known: the prompt's number and the token. The stop token
/// is not passed on. The host then waits for every step.
using OnToken = std::function<void(size_t prompt, int64_t token)>;

/// Continues every prompt. A row's result does not depend on the other rows, nor on batch_size.
/// Weights that are kept wider than they compute are copied in the compute dtype first, once.
/// Throws UsageError for a model without next tokens, an empty prompt, ids out of range, texts
/// longer than the model's positions, scores that are not finite; Interrupted.
Generated generate(models::Model& model, const std::vector<Tokens>& prompts,
                   const GenerateOptions& options, const OnToken& on_token = {});

/// From the trainer's model, all ranks together and with the same prompts: each continues some of
/// them, all return all results; on_token hears of a rank's own. Parameters in parts are gathered
/// unit by unit, as in a step: under zero3 for every token.
Generated generate(train::Trainer& trainer, const std::vector<Tokens>& prompts,
                   const GenerateOptions& options, const OnToken& on_token = {});

}  // namespace moonshard::generate
