#include "viewer/readers/point_summary.h"

#include "runtime/input/json_fields.h"
#include "viewer/readers/record_stream.h"

namespace moonshard::viewer {
namespace {

// What a person can read in a table, and what keeps 100,000 points of a hostile folder small.
constexpr size_t kMaxKeyBytes = 256, kMaxCellBytes = 16 * 1024, kMaxLettersPerPoint = 1 << 20;
constexpr size_t kMaxStatusBytes = 64, kMaxErrorBytes = 16 * 1024;

}  // namespace

void Cells::read(JsonStream& stream) {
  std::string key;
  while (stream.next() == JsonToken::Key) {
    key = stream.text();
    const JsonToken token = stream.next();
    if (token == JsonToken::Number) {
      add(key, Value::Kind::Number, stream.number(), "");
    } else if (token == JsonToken::True || token == JsonToken::False) {
      add(key, Value::Kind::Bool, token == JsonToken::True ? 1 : 0, "");
    } else if (token == JsonToken::Null) {
      add(key, Value::Kind::None, 0, "");
    } else {
      add(key, Value::Kind::Text, 0, text_of_value(stream, token, kMaxCellBytes));
    }
  }
}

void Cells::add(const std::string& key, Value::Kind kind, double number, std::string text) {
  const size_t after = num_letters_ + key.size() + text.size();
  if (key.size() > kMaxKeyBytes || after > kMaxLettersPerPoint) {
    was_cut_ = true;
    return;
  }
  num_letters_ = after;
  list_.push_back({key, std::move(text), kind, number});
}

void read_summary_field(FieldReader& field, JsonStream& stream, PointSummary& point) {
  field("status", JsonToken::String,
        [&] { point.status = cut_text(stream.text(), kMaxStatusBytes); });
  field("error", JsonToken::String, [&] { point.error = cut_text(stream.text(), kMaxErrorBytes); });
  field("metrics", JsonToken::BeginObject, [&] { point.metrics.read(stream); });
  field("options", JsonToken::BeginObject, [&] {
    point.has_options = true;
    point.options.read(stream);
  });
}

void read_point_summary(JsonStream& stream, PointSummary& point) {
  begin_object(stream);
  read_fields(stream, [&](FieldReader& field) { read_summary_field(field, stream, point); });
  stream.next();  // nothing may follow
}

}  // namespace moonshard::viewer
