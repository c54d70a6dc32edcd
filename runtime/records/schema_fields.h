// What the parts of a record are made of: a field's key, unit and meaning, and the values that
// several parts have.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moonshard::records {

enum class Unit { None, Count, Bytes, Milliseconds, Seconds, PerSecond, Percent, Fraction };

/// What is written where a value is missing.
enum class Missing { LeftOut, Null, Empty };

struct Field {
  const char* key;
  Unit unit;
  const char* doc;
  Missing missing = Missing::LeftOut;
};

/// An entry of an object whose keys are names: phases, owners, parts.
template <class T>
struct Named {
  std::string name;
  T value{};
};

/// A list of names of which few differ: written as a list of names, held as indices.
struct Labels {
  std::vector<std::string> names;  ///< in order of first appearance
  std::vector<uint32_t> index;     ///< into names, one per entry

  /// Appends a name. Beyond `most_names` different ones the last stands for the others.
  void add(std::string_view name, size_t most_names = 1000);
};

struct Statistics {
  double count = NAN, mean = NAN, median = NAN, min = NAN, max = NAN, p95 = NAN, iqr = NAN;
};
template <class V>
void fields(V& v, Statistics& s) {
  v({"count", Unit::Count, "How many there were."}, s.count);
  v({"mean", Unit::None, "Sum over count."}, s.mean);
  v({"median", Unit::None, "Half are below."}, s.median);
  v({"min", Unit::None, "The smallest."}, s.min);
  v({"max", Unit::None, "The largest."}, s.max);
  v({"p95", Unit::None, "95 of 100 are at most this."}, s.p95);
  v({"iqr", Unit::None, "Third quartile minus first: the spread of the middle half."}, s.iqr);
}

}  // namespace moonshard::records
