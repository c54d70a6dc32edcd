// Digests of the files of a run folder: sweep.json and every result.json end with the SHA-256 of
// all that stands before it, so that a change by hand, a mixed-up copy or a flipped bit is noticed.
// It is no signature: whoever changes a file on purpose can write a new digest.
#pragma once

#include <string>
#include <string_view>

namespace moonshard::records {

/// What a file's digest says of it.
enum class Digest { None, Right, Wrong };

/// Text of an object, as to_text gives it, with the digest as its last key.
std::string with_digest(std::string text);

/// The last lines of such a file, after `hex`, the digest of what stands before.
std::string digest_end(const std::string& hex);

/// None for a file without one: older versions wrote none.
Digest check_digest(std::string_view text);

/// The digest that a text carries, right or wrong; "" where it has none in its place.
std::string digest_in(std::string_view text);

}  // namespace moonshard::records
