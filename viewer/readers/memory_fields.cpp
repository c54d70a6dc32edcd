#include "viewer/readers/memory_fields.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_map>

namespace moonshard::viewer {
namespace {

OwnedBytes read_owned(JsonStream& stream) {
  OwnedBytes owned;
  for_each_key(stream, [&](const std::string& key, JsonToken token) {
    if (key == "owner") {
      take_text(stream, token, owned.owner);
    } else if (key == "bytes") {
      take_number(stream, token, owned.bytes);
    } else {
      stream.skip_rest(token);
    }
  });
  return owned;
}

void read_phase_names(JsonStream& stream, MemoryTimeline& timeline) {
  std::unordered_map<std::string, uint32_t> places;
  for_each_element(stream, [&](JsonToken token) {
    std::string name;
    take_text(stream, token, name);
    if (timeline.phase.size() >= kMaxNumbers) return;
    // Beyond a thousand different names they are no phases; the last one stands for all of them.
    auto place = places.find(name);
    if (place == places.end()) {
      if (timeline.phases.size() < kMaxParts) timeline.phases.push_back(name);
      place =
          places.emplace(std::move(name), static_cast<uint32_t>(timeline.phases.size() - 1)).first;
    }
    timeline.phase.push_back(place->second);
  });
}

// Lists of unequal length are cut to the shortest, so that every moment has every number. A list
// that is not there at all is filled.
void make_equally_long(MemoryTimeline& timeline) {
  size_t size = timeline.ms.size();
  if (!timeline.total.empty()) size = std::min(size, timeline.total.size());
  if (!timeline.phase.empty()) size = std::min(size, timeline.phase.size());
  for (const MemoryTimeline::Owner& owner : timeline.owners) {
    size = std::min(size, owner.bytes.size());
  }
  timeline.ms.resize(size);
  timeline.total.resize(size, NAN);
  if (timeline.phase.empty() && size > 0) timeline.phases.emplace_back();
  timeline.phase.resize(size, 0);
  for (MemoryTimeline::Owner& owner : timeline.owners) owner.bytes.resize(size);
}

void read_timeline(JsonStream& stream, MemoryTimeline& timeline) {
  for_each_key(stream, [&](const std::string& key, JsonToken token) {
    if (key == "ms" || key == "total") {
      take_numbers(stream, token, key == "ms" ? timeline.ms : timeline.total);
    } else if (key == "phase" && token == JsonToken::BeginArray) {
      read_phase_names(stream, timeline);
    } else if (key == "owners" && token == JsonToken::BeginObject) {
      for_each_key(stream, [&](const std::string& name, JsonToken value) {
        if (value != JsonToken::BeginArray || timeline.owners.size() >= kMaxParts) {
          return stream.skip_rest(value);
        }
        timeline.owners.push_back({name, {}});
        take_numbers(stream, value, timeline.owners.back().bytes);
      });
    } else {
      stream.skip_rest(token);
    }
  });
  make_equally_long(timeline);
}

}  // namespace

void take_numbers(JsonStream& stream, JsonToken token, std::vector<double>& into) {
  if (token != JsonToken::BeginArray) return stream.skip_rest(token);
  for_each_element(stream, [&](JsonToken value) {
    double number = NAN;  // null and the like keep their place
    take_number(stream, value, number);
    if (into.size() < kMaxNumbers) into.push_back(number);
  });
}

MemoryStage read_stage(JsonStream& stream) {
  MemoryStage stage;
  for_each_key(stream, [&](const std::string& key, JsonToken token) {
    double ignored = 0;
    if (key == "stage") return take_text(stream, token, stage.stage);
    double& field = key == "rank"                  ? stage.rank
                    : key == "allocated_bytes"     ? stage.allocated
                    : key == "max_allocated_bytes" ? stage.max_allocated
                    : key == "reserved_bytes"      ? stage.reserved
                    : key == "max_reserved_bytes"  ? stage.max_reserved
                    : key == "rss_bytes"           ? stage.rss
                                                   : ignored;
    take_number(stream, token, field);
  });
  return stage;
}

void read_memory(JsonStream& stream, PointDetail& detail) {
  for_each_key(stream, [&](const std::string& key, JsonToken token) {
    if (key == "peak_bytes" || key == "rest_bytes") {
      take_number(stream, token, key == "peak_bytes" ? detail.peak_bytes : detail.rest_bytes);
    } else if (key == "peak_phase") {
      take_text(stream, token, detail.peak_phase);
    } else if ((key == "breakdown" || key == "after_step") && token == JsonToken::BeginArray) {
      take_objects(stream, key == "breakdown" ? detail.breakdown : detail.after_step, read_owned);
    } else if (key == "timeline" && token == JsonToken::BeginObject) {
      read_timeline(stream, detail.timeline);
    } else {
      stream.skip_rest(token);
    }
  });
}

}  // namespace moonshard::viewer
