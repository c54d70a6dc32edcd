// The memory part of a point's result.json, and lists of numbers and objects within bounds.
#pragma once

#include <vector>

#include "viewer/data/point_detail.h"
#include "viewer/input/json_fields.h"

namespace moonshard::viewer {

inline constexpr size_t kMaxNumbers = 1'000'000;  // of one list; the rest is dropped
inline constexpr size_t kMaxParts = 1000;         // phases, owners: what a person can tell apart

void take_numbers(JsonStream& stream, JsonToken token, std::vector<double>& into);

/// Each object of a list that was begun, by `read`; others are passed over.
template <typename Row, typename Read>
void take_objects(JsonStream& stream, std::vector<Row>& into, const Read& read) {
  for_each_element(stream, [&](JsonToken token) {
    if (token == JsonToken::BeginObject && into.size() < kMaxNumbers) {
      into.push_back(read(stream));
    } else {
      stream.skip_rest(token);
    }
  });
}

MemoryStage read_stage(JsonStream& stream);
void read_memory(JsonStream& stream, PointDetail& detail);

}  // namespace moonshard::viewer
