#include "viewer/readers/point_summary.h"

#include "viewer/input/json_fields.h"

namespace moonshard::viewer {
namespace {

// What a person can read in a table, and what keeps 100,000 points of a hostile folder small.
constexpr size_t kMaxKeyBytes = 256, kMaxCellBytes = 16 * 1024, kMaxLettersPerPoint = 1 << 20;
constexpr size_t kMaxStatusBytes = 64, kMaxErrorBytes = 16 * 1024;

}  // namespace

void Cells::clear() {
  letters_.clear();
  places_.clear();
  was_cut_ = false;
}

Cells::Cell Cells::operator[](size_t index) const {
  const Place& place = places_[index];
  const std::string_view letters = letters_;
  return {letters.substr(place.key, place.key_size), letters.substr(place.text, place.text_size),
          place.kind, place.number};
}

void Cells::add(std::string_view key, Value::Kind kind, double number, std::string_view text) {
  if (key.size() > kMaxKeyBytes ||
      letters_.size() + key.size() + text.size() > kMaxLettersPerPoint) {
    was_cut_ = true;
    return;
  }
  const auto at = static_cast<uint32_t>(letters_.size());
  const auto key_size = static_cast<uint32_t>(key.size());
  letters_ += key;
  letters_ += text;
  places_.push_back(
      {at, key_size, at + key_size, static_cast<uint32_t>(text.size()), kind, number});
}

void Cells::read(JsonStream& stream) {
  std::string key;
  while (stream.next() == JsonToken::Key) {
    key = stream.text();
    const JsonToken token = stream.next();
    switch (token) {
      case JsonToken::Number:
        add(key, Value::Kind::Number, stream.number(), {});
        break;
      case JsonToken::True:
      case JsonToken::False:
        add(key, Value::Kind::Bool, token == JsonToken::True ? 1 : 0, {});
        break;
      case JsonToken::String:
        add(key, Value::Kind::Text, 0, cut_text(stream.text(), kMaxCellBytes));
        break;
      case JsonToken::BeginObject:
      case JsonToken::BeginArray:
        add(key, Value::Kind::Text, 0, compact_text(stream, token, kMaxCellBytes));
        break;
      default:  // null: the point has no such value
        break;
    }
  }
}

void read_point_summary(JsonStream& stream, PointSummary& point) {
  begin_object(stream);
  for_each_key(stream, [&](const std::string& key, JsonToken token) {
    if (key == "status") {
      take_text(stream, token, point.status, kMaxStatusBytes);
    } else if (key == "error") {
      take_text(stream, token, point.error, kMaxErrorBytes);
    } else if (key == "options" && token == JsonToken::BeginObject) {
      point.has_options = true;
      point.options.read(stream);
    } else if (key == "metrics" && token == JsonToken::BeginObject) {
      point.has_metrics = true;
      point.metrics.read(stream);
    } else {
      stream.skip_rest(token);
    }
  });
  stream.next();  // nothing may follow
}

}  // namespace moonshard::viewer
