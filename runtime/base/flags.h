// Words of a command line, read by option schemas: --batch-size 4, --batch_size=4, batch_size=4.
// The one parser of flags of all our programs; what an option may be is its schema's business.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/options.h"

namespace moonshard {

using Words = std::vector<std::string>;

/// An option struct that flags are read into.
struct FlagTarget {
  const OptionSchema& schema;
  void* options;
};

/// Reads all words. A flag belongs to the first target that knows its name. Words that belong to no
/// flag go to `free_words`, or are refused where that is null. Throws UsageError for unknown names,
/// bad values and missing values.
void read_flags(const std::vector<FlagTarget>& targets, const Words& words,
                Words* free_words = nullptr);

/// Reads flags up to the first word that is none, or none of the target's; returns the number of
/// words read.
size_t read_leading_flags(const FlagTarget& target, const Words& words);

/// The words without those flags, each of which takes one value.
Words without_flags(const Words& words, const std::vector<std::string>& names);

/// Help on all options, one line each: name, meaning, type, default.
std::string describe_flags(const OptionSchema& schema, const void* defaults);

}  // namespace moonshard
