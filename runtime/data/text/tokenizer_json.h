// Hugging Face's tokenizer.json, as far as it describes byte-level BPE: Llama 3, Qwen 2 and GPT-2
// kinds. The file is untrusted: everything is checked, and what is not supported is refused by the
// name of its field, since silently different ids would be worse.
#pragma once

#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "runtime/data/text/tokenizer.h"

namespace moonshard::data {

/// Of the parsed file. `where` opens every error. Throws IoError.
std::shared_ptr<const Tokenizer> tokenizer_of_json(const nlohmann::json& file,
                                                   const std::string& where, uint64_t fingerprint);

}  // namespace moonshard::data
