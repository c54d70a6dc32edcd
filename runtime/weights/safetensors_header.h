// The header of a safetensors file: 8 bytes of little-endian length, then JSON
//   {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, …, "__metadata__": {…}}
// then the bytes of all tensors without gaps. Files are untrusted: what is returned here has been
// checked to the last byte, so that readers need no checks of their own.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <c10/core/ScalarType.h>

namespace moonshard::weights {

inline constexpr int64_t kMaxHeaderBytes = 100'000'000;  ///< the format's own limit
inline constexpr size_t kMaxTensors = 1'000'000;         ///< in one file
inline constexpr size_t kMaxRank = 16;
inline constexpr size_t kMaxNameBytes = 4096;
inline constexpr size_t kMaxMetadataEntries = 65'536;
inline constexpr int64_t kMaxTextBytes = 16 << 20;  ///< of one metadata value

using Metadata = std::map<std::string, std::string>;

struct TensorEntry {
  std::string name;
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  ///< bytes, counted from the end of the header
  c10::ScalarType dtype = c10::ScalarType::Float;
};

struct SafetensorsHeader {
  std::vector<TensorEntry> entries;  ///< in the order of their bytes
  Metadata metadata;
  std::vector<uint32_t> by_name;  ///< positions in entries, sorted by name

  /// Null when there is none.
  const TensorEntry* find(std::string_view name) const;
};

/// Reads the JSON part; `data_bytes` is what follows it in the file. Throws IoError "where: …".
/// Memory stays near the size of the text, whatever it contains.
SafetensorsHeader parse_safetensors_header(std::string_view text, int64_t data_bytes,
                                           const std::string& where);

/// Length field and JSON of a file with these entries, padded with spaces to a multiple of 8 bytes.
/// Throws UsageError for what no reader would accept.
std::string make_safetensors_header(const std::vector<TensorEntry>& entries,
                                    const Metadata& metadata, const std::string& where);

}  // namespace moonshard::weights
