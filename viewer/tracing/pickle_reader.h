// Reads Python pickles as plain data: lists, dicts, tuples, numbers and texts. A pickle is a
// program; here none of it is ever run. A call is replaced by its first argument, which is right
// for torch's own type tags. Streamed; everything it builds counts towards the limits.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/input/byte_source.h"

namespace moonshard::viewer {

struct PickleValue {
  enum class Kind : uint8_t { None, Bool, Int, Float, Text, List, Tuple, Dict, Foreign };
  Kind kind = Kind::None;
  uint32_t place = 0;  ///< of a text or a container
  union {
    int64_t integer = 0;
    double real;
  };

  PickleValue() = default;
  explicit PickleValue(Kind of, int64_t value = 0) : kind(of), integer(value) {}
  explicit PickleValue(double value) : kind(Kind::Float), real(value) {}
  static PickleValue at(Kind of, size_t place) {
    PickleValue value(of);
    value.place = static_cast<uint32_t>(place);
    return value;
  }
};

struct PickleLimits {
  uint64_t max_bytes = 4ull << 30;
  uint64_t max_values = 50'000'000;
  size_t max_text_bytes = 16u << 20;  ///< of one text
  size_t max_texts_bytes = 512u << 20;
};

/// What a pickle holds. Texts are kept once, so equal texts have equal places.
class PickleData {
 public:
  using Kind = PickleValue::Kind;

  const PickleValue& root() const { return root_; }
  const std::vector<PickleValue>& items(const PickleValue& container) const;
  const std::string& text(const PickleValue& value) const;
  /// The value of a text key; None when there is none or it is no dict.
  PickleValue get(const PickleValue& dict, std::string_view key) const;
  double number(const PickleValue& value, double fallback = 0) const;

 private:
  friend class PickleMachine;
  PickleValue root_;
  std::deque<std::string> texts_;
  std::unordered_map<std::string_view, uint32_t> text_places_;
  std::deque<std::vector<PickleValue>> containers_;  // grows without copies of itself
};

/// Sees each dict as soon as its entries were set. True: it took what it needs, the entries go.
/// That keeps a history of a million events small.
using PickleDictTaker = std::function<bool(const PickleData& data, const PickleValue& dict)>;

/// Protocols 2 to 5. Throws IoError "where: …" on damage and above a limit.
PickleData read_pickle(ByteSource& source, const std::string& where,
                       const PickleLimits& limits = {}, const PickleDictTaker& take_dict = {});

}  // namespace moonshard::viewer
