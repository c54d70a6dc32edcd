// What the sources of the decoder family share: presets by sizes, and the parts of config.json that
// Llama's and Gemma's have in common. For the sources of this folder.
#pragma once

#include <vector>

#include "runtime/models/config_object.h"
#include "runtime/models/family.h"

namespace moonshard::models {

struct DecoderSizes {
  int64_t vocab = 0, width = 0, inner = 0, layers = 0, heads = 0, kv_heads = 0;
};

/// Untied, with positions that are not stretched; the rest as the caller sets it.
Preset decoder_preset(const char* name, const DecoderSizes& sizes, int64_t tokens, const char* doc);

/// task and num_labels from architectures and id2label. Throws UsageError for another architecture.
void read_task(const ConfigObject& config, ModelOptions& o);
/// id2label and label2id.
void write_labels(const ModelOptions& o, Json& config);
/// What the config.json of every decoder has.
Json shared_config(const ModelOptions& o, const std::string& architecture, const char* type);

std::vector<Preset> gemma_presets();
/// Of types gemma2, gemma3_text, vaultgemma, and gemma3, whose text part alone is taken.
ModelOptions read_gemma_config(const ConfigObject& config);
Json write_gemma_config(const ModelOptions& o);

}  // namespace moonshard::models
