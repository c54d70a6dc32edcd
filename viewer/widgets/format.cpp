#include "viewer/widgets/format.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "runtime/base/utf8.h"

namespace moonshard::viewer {
namespace {

// Characters that steer the display instead of being shown: C0, DEL, C1, separators of lines and
// the bidirectional controls.
bool is_control(uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || (code >= 0x2028 && code <= 0x202E) ||
         (code >= 0x2066 && code <= 0x2069);
}

// Skips "ESC [ ... letter" at position i; returns the position after it, or i when there is none.
size_t skip_color_code(std::string_view text, size_t i) {
  if (text[i] != '\x1b' || i + 1 >= text.size() || text[i + 1] != '[') return i;
  size_t end = i + 2;
  while (end < text.size() && (text[end] < '@' || text[end] > '~')) ++end;
  return std::min(end + 1, text.size());
}

std::string clean(std::string_view text, size_t max_bytes, bool keep_lines) {
  std::string result;
  result.reserve(std::min(text.size(), max_bytes));
  for (size_t i = 0; i < text.size();) {
    if (result.size() >= max_bytes) return result + "...";
    if (const size_t after = skip_color_code(text, i); after != i) {
      i = after;
      continue;
    }
    const Utf8Character letter = read_character(text, i);
    const std::string_view sequence =
        text.substr(i, letter.valid ? static_cast<size_t>(letter.length) : 1);
    i += sequence.size();
    if (!letter.valid) {
      result += '?';
    } else if (sequence == "\n" && keep_lines) {
      result += '\n';
    } else if (sequence == "\r" && keep_lines && i < text.size() && text[i] == '\n') {
      continue;
    } else if (sequence == "\t" && keep_lines) {
      result += "    ";
    } else if (is_control(letter.code)) {
      result += ' ';
    } else {
      result += sequence;
    }
  }
  return result;
}

}  // namespace

std::string clean_text(std::string_view text, size_t max_bytes) {
  return clean(text, max_bytes, false);
}

std::string clean_lines(std::string_view text, size_t max_bytes) {
  return clean(text, max_bytes, true);
}

std::string literal_label(std::string_view text, std::string_view id) {
  std::string shown = clean_text(text, 256);
  // ImGui hides what follows "##". A zero-width space between the two keeps them visible.
  for (size_t at = shown.find("##"); at != std::string::npos; at = shown.find("##", at + 1)) {
    shown.insert(at + 1, "\u200b");
  }
  if (shown.ends_with('#')) shown += "\u200b";
  return fmt::format("{}##{}", shown, id);
}

std::string format_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  const double size = std::abs(value);
  if (value == std::floor(value) && size < 1e7) return fmt::format("{:.0f}", value);
  if (size >= 1e7 || size < 1e-3) return fmt::format("{:.3g}", value);
  const int digits_before = static_cast<int>(std::floor(std::log10(size))) + 1;
  return fmt::format("{:.{}f}", value, std::max(0, 4 - digits_before));
}

int common_decimals(const std::vector<double>& values) {
  double largest = 0, smallest = std::numeric_limits<double>::infinity();
  for (const double value : values) {
    if (value == 0) continue;
    largest = std::max(largest, std::abs(value));
    smallest = std::min(smallest, std::abs(value));
  }
  if (largest == 0) return 0;
  if (largest >= 1e7 || largest < 1e-3 || smallest < largest * 1e-3) return -1;
  const int digits_before = static_cast<int>(std::floor(std::log10(largest))) + 1;
  const auto ends_in_zero = [](double value, int decimals) {
    return fmt::format("{:.{}f}", value, decimals).ends_with('0');
  };
  int decimals = std::clamp(4 - digits_before, 0, 6);
  while (decimals > 0 &&
         std::ranges::all_of(values, [&](double value) { return ends_in_zero(value, decimals); })) {
    --decimals;
  }
  return decimals;
}

std::string format_decimals(double value, int decimals) {
  return decimals < 0 ? format_number(value) : fmt::format("{:.{}f}", value, decimals);
}

std::string format_tick(double value) {
  const double size = std::abs(value);
  if (size < 1e-300) return "0";
  if (size >= 1e6 || size < 1e-4) {
    std::string text = fmt::format("{:.6g}", value);
    // "1e+07" -> "1e7": shorter, and no digit is lost.
    if (const size_t at = text.find('e'); at != std::string::npos) {
      const int exponent = std::stoi(text.substr(at + 1));
      text = fmt::format("{}e{}", text.substr(0, at), exponent);
    }
    return text;
  }
  return fmt::format("{:.7g}", value);
}

std::string format_bytes(double bytes) {
  static constexpr std::array<const char*, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t unit = 0;
  while (std::abs(bytes) >= 1024 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{} {}", format_number(bytes), kUnits[unit]);
}

std::string format_share(double part, double whole) {
  return whole > 0 ? fmt::format("{:.1f} %", 100 * part / whole) : "-";
}

MetricFormat metric_format(const std::string& key) {
  struct Suffix {
    const char* text;
    const char* unit;
    double factor;
  };
  // The longest suffix of a family stands first.
  static constexpr std::array<Suffix, 7> kSuffixes = {{{"_bytes", "MiB", 1.0 / (1 << 20)},
                                                       {"_ms", "ms", 1.0},
                                                       {"_us", "us", 1.0},
                                                       {"_mb", "MiB", 1.0},
                                                       {"_gb", "GiB", 1.0},
                                                       {"_percent", "%", 1.0},
                                                       {"_s", "s", 1.0}}};
  MetricFormat format{key, "", 1.0};
  constexpr std::string_view kRate = "_per_s";
  if (key.ends_with(kRate) && key.size() > kRate.size()) {  // "tokens/s" is its own unit
    format.title = key.substr(0, key.size() - kRate.size()) + "/s";
    std::ranges::replace(format.title, '_', ' ');
    return format;
  }
  for (const Suffix& suffix : kSuffixes) {
    if (key.size() > std::string_view(suffix.text).size() && key.ends_with(suffix.text)) {
      format.title = key.substr(0, key.size() - std::string_view(suffix.text).size());
      format.unit = suffix.unit;
      format.factor = suffix.factor;
      break;
    }
  }
  std::ranges::replace(format.title, '_', ' ');
  return format;
}

std::string metric_title(const std::string& key) {
  // Their keys alone leave open of which step or of how many ranks they are.
  if (key == "peak_memory_bytes") return "measured peak memory";
  if (key == "parameter_bytes") return "parameters, all ranks";
  if (key == "optimizer_bytes") return "optimizer state, this rank";
  if (key == "engine_kept_bytes") return "engine kept, layer to layer";
  return metric_format(key).title;
}

std::string with_unit(const std::string& title, const std::string& unit) {
  return unit.empty() ? title : fmt::format("{} [{}]", title, unit);
}

std::string value_text(const RunData& run, const Value& value) {
  if (value.kind == Value::Kind::None) return "";
  if (value.kind == Value::Kind::Bool) return value.number != 0 ? "yes" : "no";
  if (value.kind == Value::Kind::Text) return run.text_of(value);
  // Whole numbers without an exponent, as people write them; others with all their digits.
  return std::abs(value.number) < 1e15 && value.number == std::floor(value.number)
             ? fmt::format("{:.0f}", value.number)
             : fmt::format("{}", value.number);
}

}  // namespace moonshard::viewer
