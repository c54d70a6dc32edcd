// The part of a point's result.json that the run table needs: status, error, options, metrics. The
// rest is checked and passed over.
#pragma once

#include <string>
#include <vector>

#include "runtime/input/json_stream.h"
#include "viewer/data/run_data.h"

namespace moonshard::viewer {

/// Named values of one point; nested ones become their text.
class Cells {
 public:
  struct Cell {
    std::string key, text;
    Value::Kind kind;
    double number;
  };

  /// Reads an object whose BeginObject was taken. Null is a cell of kind None.
  void read(JsonStream& stream);
  const std::vector<Cell>& list() const { return list_; }
  bool was_cut() const { return was_cut_; }  ///< something was too long to be kept whole

 private:
  void add(const std::string& key, Value::Kind kind, double number, std::string text);

  std::vector<Cell> list_;
  size_t num_letters_ = 0;
  bool was_cut_ = false;
};

struct PointSummary {
  std::string status, error;
  bool has_options = false;  ///< there is such an object
  Cells options, metrics;
};

class FieldReader;
/// Takes a field of a record that the run table needs; others are left to the caller.
void read_summary_field(FieldReader& field, JsonStream& stream, PointSummary& point);

/// Reads a whole result.json; fields it does not have stay as they are. Throws IoError.
void read_point_summary(JsonStream& stream, PointSummary& point);

}  // namespace moonshard::viewer
