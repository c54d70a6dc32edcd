// Text for the screen: units, numbers and cleaned text. What a file says is shown literally:
// control characters and broken UTF-8 never reach the screen, and ImGui's "##" markers lose their
// meaning.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "viewer/data/run_data.h"

namespace moonshard::viewer {

/// One line of text fit for the screen: control characters become spaces, broken UTF-8 becomes '?',
/// text longer than max_bytes ends in "...".
std::string clean_text(std::string_view text, size_t max_bytes = 4096);

/// The same for several lines: line ends stay, tabs become spaces, terminal colour codes go.
std::string clean_lines(std::string_view text, size_t max_bytes = 1u << 20);

/// A label that ImGui shows literally: text cleaned, "##" broken up, "##id" appended as the
/// identity.
std::string literal_label(std::string_view text, std::string_view id);

/// At most four significant digits, plain notation from 0.001 up to 10 million, else like
/// "1.2e-05".
std::string format_number(double value);

/// Digits after the point with which all values keep about four significant digits of the largest
/// and none ends in a needless zero: {43.1, 21.7, -3.2} -> 1. Negative: too far apart for a common
/// number.
int common_decimals(const std::vector<double>& values);

/// A value with that many digits after the point; by itself (format_number) when negative.
std::string format_decimals(double value, int decimals);

/// Short text for an axis tick: as many digits as the value has, up to six.
std::string format_tick(double value);

/// "512 B", "1.5 MiB", "23.4 GiB".
std::string format_bytes(double bytes);

/// "47.3 %"; nothing to divide by: "-".
std::string format_share(double part, double whole);

/// How the values under one metric key are shown: "peak_memory_bytes" -> {"peak memory", "MiB",
/// 2^-20}.
struct MetricFormat {
  std::string title;
  std::string unit;     ///< may be empty
  double factor = 1.0;  ///< shown value = stored value * factor
};
MetricFormat metric_format(const std::string& key);

/// What a metric is called where others like it stand beside it: the peak of the measured steps is
/// not that of the watched step, which the memory panels show.
std::string metric_title(const std::string& key);

/// Rates of eight digits cannot be read at a glance: they are told in millions, unless the least of
/// them would then be next to nothing.
inline bool are_millions(double least, double largest) {
  return largest >= 1e7 && least >= 1e4;
}

/// "title [unit]", or only the title.
std::string with_unit(const std::string& title, const std::string& unit);

/// A value as the file has it: numbers with all their digits, "yes" and "no", text as it stands
/// (not cleaned), nothing for none.
std::string value_text(const RunData& run, const Value& value);

}  // namespace moonshard::viewer
