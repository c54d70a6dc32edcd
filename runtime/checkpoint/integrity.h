// That a checkpoint is as it was saved. Its index has the size of every other file and the SHA-256
// of that file's header, which has the CRC-32C of every block of every tensor; it names the index
// before it, and ends with a seal: the SHA-256 of its text before the seal and, under a key that is
// never stored, its HMAC. Under a key it has the SHA-256 of every file's data as well: a CRC-32C is
// easily met on purpose.
//
// What a seal is worth: the checksum finds damage and careless edits, but who can write the index
// can write another checksum. The HMAC takes the key. Neither finds a whole older checkpoint in the
// place of a newer one, unless the one after it is still there and names it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>

namespace moonshard::checkpoint {

inline constexpr const char* kKeyVariable = "MOONSHARD_CHECKPOINT_KEY_FILE";

/// Texts of 64 hexadecimal digits; empty where there is none.
struct FileSum {
  int64_t bytes = 0;
  std::string header_sha256;
  std::string data_sha256;  ///< if it was saved under a key
  std::string sha256;       ///< of the whole file: of version 2, which has no others
};

/// All bytes of the file that the environment variable names; empty when it is not set. Throws
/// UsageError when they are fewer than 16, IoError when they cannot be read.
std::string checkpoint_key();

/// Closes the text of an index, which ends with a comma and a new line, by its seal. The text
/// itself is what is summed, byte by byte: no way of writing numbers has to stay the same for ever,
/// and `sha256sum` can check it. With an empty key there is no HMAC.
std::string sealed(std::string text, const std::string& key);

enum class Seal { Checksum, CheckedHmac, UncheckedHmac };
/// Throws IoError unless the text is as `sealed` made it, with an HMAC under the key if one is
/// given. `where` is the index's path.
Seal check_seal(const std::string& text, const std::string& key, const std::string& where);

/// What to say of an index without an HMAC where a key is given.
[[noreturn]] void refuse_missing_hmac(const std::string& where);

/// The SHA-256 in the seal of an index, by which the next one names it; empty without a seal.
std::string seal_of(const std::string& text);

/// Checks what the index says of these files of a folder: sizes and headers, and every byte where
/// there is a SHA-256 of it. Throws IoError that names the first that is missing or is not what its
/// sum says.
void check_files(const std::filesystem::path& folder, const std::map<std::string, FileSum>& sums,
                 const std::set<std::string>& names);

}  // namespace moonshard::checkpoint
