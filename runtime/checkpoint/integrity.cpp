#include "runtime/checkpoint/integrity.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/base/sha256.h"
#include "runtime/weights/safetensors.h"

namespace moonshard::checkpoint {
namespace {

constexpr int64_t kLeastKeyBytes = 16, kMostKeyBytes = 1 << 16;
constexpr size_t kHexDigits = 64;

// Lines of the index: no text in it can look like them, since JSON has no new lines in texts.
constexpr std::string_view kSumLine = "\n\"sha256\": \"", kHmacLine = ",\n\"hmac_sha256\": \"",
                           kEnd = "}\n";

std::string sha256_of_text(std::string_view text) {
  Sha256 hash;
  hash.add(text);
  return hash.hex();
}

[[noreturn]] void refuse_seal(const std::string& where, const std::string& expected,
                              const std::string& got) {
  throw IoError(
      fmt::format("{}: expected {}, got {}; it was changed or damaged after the save: "
                  "take another checkpoint",
                  where, expected, got));
}

}  // namespace

std::string checkpoint_key() {
  const char* path = std::getenv(kKeyVariable);
  if (path == nullptr) return "";
  // An empty name is a mistake in a script, and must not pass for no key.
  MS_CHECK(*path != '\0',
           "checkpoint: {}: expected the path of a file, got an empty text; name one or unset it",
           kKeyVariable);
  const ReadOnlyFile file = ReadOnlyFile::open(path);
  MS_CHECK(file.size() >= kLeastKeyBytes && file.size() <= kMostKeyBytes,
           "checkpoint: {} = {}: expected a key of {} to {} bytes, got {}; make one of 32 random "
           "bytes",
           kKeyVariable, path, kLeastKeyBytes, kMostKeyBytes, file.size());
  std::string key(static_cast<size_t>(file.size()), '\0');
  file.read_at(0, key.data(), file.size(), "key");
  return key;
}

std::string sealed(std::string text, const std::string& key) {
  MS_ASSERT(text.ends_with(",\n"), "checkpoint: an index of {} bytes without its last comma",
            text.size());
  const std::string sum = sha256_of_text(text);
  const std::string hmac = key.empty() ? "" : hmac_sha256(key, text);
  text += fmt::format("{}{}\"", kSumLine.substr(1), sum);
  if (!hmac.empty()) text += fmt::format("{}{}\"", kHmacLine, hmac);
  return text.append(kEnd);
}

Seal check_seal(const std::string& text, const std::string& key, const std::string& where) {
  const size_t line = text.rfind(kSumLine);
  if (line == std::string::npos) refuse_seal(where, "its checksum at the end", "none");
  const std::string_view summed = std::string_view(text).substr(0, line + 1);
  const std::string_view seal = std::string_view(text).substr(line + 1);
  const std::string_view told = seal.substr(kSumLine.size() - 1).substr(0, kHexDigits);
  const std::string sum = sha256_of_text(summed);
  if (told != sum) refuse_seal(where, fmt::format("SHA-256 {}, as it says itself", told), sum);

  std::string_view rest = seal.substr(kSumLine.size() - 1 + kHexDigits);
  const bool has_hmac = rest.starts_with("\"" + std::string(kHmacLine));
  std::string_view hmac;
  if (has_hmac) {
    rest.remove_prefix(1 + kHmacLine.size());
    hmac = rest.substr(0, kHexDigits);
    rest.remove_prefix(hmac.size());
  }
  if (rest != "\"" + std::string(kEnd)) refuse_seal(where, "nothing after its seal", "more");
  if (key.empty()) return has_hmac ? Seal::UncheckedHmac : Seal::Checksum;
  if (!has_hmac) refuse_missing_hmac(where);
  if (hmac != hmac_sha256(key, summed)) {
    throw IoError(
        fmt::format("{}: expected an HMAC under the key that {} names, got another; it was saved "
                    "with another key, or changed by somebody without it: give the key that it "
                    "was saved with, or take another checkpoint",
                    where, kKeyVariable));
  }
  return Seal::CheckedHmac;
}

void refuse_missing_hmac(const std::string& where) {
  throw IoError(fmt::format(
      "{}: expected an HMAC under the key that {} names, got none; it was saved without "
      "a key, or somebody took the HMAC away: take another checkpoint, or unset the "
      "variable if you trust this one",
      where, kKeyVariable));
}

std::string seal_of(const std::string& text) {
  const size_t line = text.rfind(kSumLine);
  return line == std::string::npos ? "" : text.substr(line + kSumLine.size(), kHexDigits);
}

void check_files(const std::filesystem::path& folder, const std::map<std::string, FileSum>& sums,
                 const std::set<std::string>& names) {
  for (const std::string& name : names) {
    const std::filesystem::path path = folder / name;
    const FileSum& saved = sums.at(name);
    const auto refuse = [&](const std::string& expected, const std::string& got) {
      throw IoError(
          fmt::format("{}: expected {}, as the index says, got {}; the file was changed or damaged "
                      "after the save: copy it again, or take another checkpoint",
                      path.string(), expected, got));
    };
    const auto compare = [&](const char* what, const std::string& told, const std::string& found) {
      if (told != found) refuse(fmt::format("SHA-256 {} of its {}", told, what), found);
    };
    const auto file = weights::SafetensorsFile::open(path);
    if (file.bytes() != saved.bytes)
      refuse(fmt::format("{} bytes", saved.bytes), fmt::format("{}", file.bytes()));
    if (!saved.sha256.empty()) compare("bytes", saved.sha256, file.whole_sha256());
    if (!saved.header_sha256.empty()) compare("header", saved.header_sha256, file.header_sha256());
    if (!saved.data_sha256.empty()) compare("data", saved.data_sha256, file.data_sha256());
  }
}

}  // namespace moonshard::checkpoint
