// The part of a point's result.json that the run table needs: status, error, options, metrics. The
// rest is checked and passed over.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "viewer/data/run_data.h"
#include "viewer/input/json_stream.h"

namespace moonshard::viewer {

/// Named values of one point; their letters lie in one string.
class Cells {
 public:
  struct Cell {
    std::string_view key, text;
    Value::Kind kind;
    double number;
  };

  /// Reads an object whose BeginObject was taken. Nested values become their text.
  void read(JsonStream& stream);
  void clear();
  size_t size() const { return places_.size(); }
  Cell operator[](size_t index) const;
  bool was_cut() const { return was_cut_; }  ///< something was too long to be kept whole

 private:
  struct Place {
    uint32_t key, key_size, text, text_size;
    Value::Kind kind;
    double number;
  };
  void add(std::string_view key, Value::Kind kind, double number, std::string_view text);

  std::string letters_;
  std::vector<Place> places_;
  bool was_cut_ = false;
};

struct PointSummary {
  std::string status, error;
  bool has_options = false, has_metrics = false;  ///< there is such an object
  Cells options, metrics;
};

/// Reads a whole result.json; fields it does not have stay as they are. Throws IoError.
void read_point_summary(JsonStream& stream, PointSummary& point);

}  // namespace moonshard::viewer
