#include "runtime/records/digest.h"

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/base/sha256.h"

namespace moonshard::records {
namespace {

constexpr std::string_view kObjectEnd = "\n}\n";
constexpr std::string_view kDigestKey = ",\n  \"digest\": \"";
constexpr std::string_view kDigestEnd = "\"\n}\n";
constexpr size_t kDigits = 64;
constexpr size_t kEndBytes = kDigestKey.size() + kDigits + kDigestEnd.size();

bool ends_with_digest(std::string_view text) {
  return text.size() > kEndBytes && text.ends_with(kDigestEnd) &&
         text.substr(text.size() - kEndBytes).starts_with(kDigestKey);
}

}  // namespace

std::string digest_end(const std::string& hex) {
  return std::string(kDigestKey) + hex + std::string(kDigestEnd);
}

std::string with_digest(std::string text) {
  MS_ASSERT(text.ends_with(kObjectEnd), "digest: expected the text of an object");
  text.resize(text.size() - kObjectEnd.size());
  Sha256 hash;
  hash.add(text);
  return text + digest_end(hash.hex());
}

std::string digest_in(std::string_view text) {
  if (!ends_with_digest(text)) return "";
  return std::string(text.substr(text.size() - kEndBytes + kDigestKey.size(), kDigits));
}

Digest check_digest(std::string_view text) {
  if (!ends_with_digest(text)) {
    // Another program has written the file anew: it has the key, but not as we write it.
    const std::string_view end = text.substr(text.size() - std::min(text.size(), 4 * kEndBytes));
    return end.find("\"digest\"") == std::string_view::npos ? Digest::None : Digest::Wrong;
  }
  Sha256 hash;
  hash.add(text.substr(0, text.size() - kEndBytes));
  return hash.hex() == digest_in(text) ? Digest::Right : Digest::Wrong;
}

}  // namespace moonshard::records
