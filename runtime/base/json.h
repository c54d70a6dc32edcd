// JSON of run folders. Files may come from anybody: the reader bounds size and depth before it
// builds anything, refuses duplicate keys and numbers that do not fit, and says which file and why.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "runtime/base/errors.h"

namespace moonshard {

/// Keys keep their order, so that files read the way they were written.
using Json = nlohmann::ordered_json;

/// Version of every file of a run folder. Readers refuse a newer one.
inline constexpr int kSchemaVersion = 1;

struct JsonLimits {
  size_t max_bytes = 64u << 20;         ///< of the text
  int max_depth = 256;                  ///< nesting of arrays and objects
  size_t max_string_bytes = 16u << 20;  ///< of one string
  size_t max_keys = 10'000;             ///< of one object: looking a key up walks all before it
};

/// Parses text. Throws IoError "where: …" on malformed, too deep, too large or duplicate-key input.
Json parse_json(std::string_view text, const std::string& where, const JsonLimits& limits = {});

/// Parses text whose outermost object has a long list: each object in it is handed over and not
/// kept, so that memory does not grow with the list. The value that is returned has the list
/// without them.
Json parse_json_list(std::string_view text, const std::string& where, const std::string& list,
                     const std::function<void(Json&&)>& take, const JsonLimits& limits = {});

/// Reads and parses one file; a file above the limit is refused before it is read.
Json read_json_file(const std::filesystem::path& path, const JsonLimits& limits = {});

/// Text with two-space indentation and a final newline. NaN and infinities become null.
std::string to_text(const Json& value);

/// Text on one line, bad UTF-8 replaced. json's own dump() would be compiled again in every file
/// that calls it.
std::string one_line(const Json& value);

/// Whole small file as bytes. Throws IoError naming the path and the system's reason.
std::string read_text_file(const std::filesystem::path& path, size_t max_bytes);

// Typed look-ups for records made by others: the fallback when the key is absent or of another
// type.
double number_or(const Json& object, const char* key, double fallback);
std::string string_or(const Json& object, const char* key, const std::string& fallback);

/// Small JSON files that come with weights (config.json, the index of shards); untrusted. Unlike
/// the records' reader this one keeps keys sorted: a map with 100,000 names takes no quadratic
/// time.
struct ForeignLimits {
  size_t max_bytes = 0;
  size_t max_values = 0;  ///< of all kinds together, which bounds the memory
  int max_depth = 32;
};

/// Throws IoError "path: …" for what is not one object of JSON within the limits, or has a key
/// twice.
nlohmann::json read_foreign_json(const std::filesystem::path& path, const ForeignLimits& limits);
/// Its two halves, for who must look at the text as well.
std::string read_foreign_text(const std::filesystem::path& path, const ForeignLimits& limits);
nlohmann::json parse_foreign_json(const std::string& text, const std::string& where,
                                  const ForeignLimits& limits);

}  // namespace moonshard
