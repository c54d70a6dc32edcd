// A large .json file, text by text: the JSON library's event reader over a TextStream, so that
// memory holds one document at a time.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "runtime/data/text/text_stream.h"

namespace moonshard::data {

/// Writes \uFFFD over escapes of surrogates that are not in pairs, from `from` on, as far as that
/// can be told: everything, or (not `ended`) up to an escape that may go on. Returns where it
/// stopped.
size_t repair_surrogates(std::string& json, size_t from, bool ended, Repairs& repairs);

/// Hands over the "text" of the file's object, or of each object in its list, with its line. Throws
/// IoError "file:line: …". Returns how many there were.
int64_t read_json_texts(const std::filesystem::path& path, bool replace, Repairs& repairs,
                        const std::function<void(std::string& text, int64_t line)>& take);

}  // namespace moonshard::data
