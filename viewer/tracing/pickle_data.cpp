// Look-ups in what a pickle held; a value of another kind is simply not there.
#include "viewer/tracing/pickle_reader.h"

namespace moonshard::viewer {

const std::vector<PickleValue>& PickleData::items(const PickleValue& container) const {
  static const std::vector<PickleValue> kNone;
  const bool holds =
      container.kind == Kind::List || container.kind == Kind::Tuple || container.kind == Kind::Dict;
  return holds ? containers_[container.place] : kNone;
}

const std::string& PickleData::text(const PickleValue& value) const {
  static const std::string kNone;
  return value.kind == Kind::Text ? texts_[value.place] : kNone;
}

PickleValue PickleData::get(const PickleValue& dict, std::string_view key) const {
  const auto place = text_places_.find(key);
  if (dict.kind != Kind::Dict || place == text_places_.end()) return {};
  const std::vector<PickleValue>& entries = items(dict);
  for (size_t i = 0; i + 1 < entries.size(); i += 2) {
    if (entries[i].kind == Kind::Text && entries[i].place == place->second) return entries[i + 1];
  }
  return {};
}

double PickleData::number(const PickleValue& value, double fallback) const {
  if (value.kind == Kind::Int || value.kind == Kind::Bool)
    return static_cast<double>(value.integer);
  return value.kind == Kind::Float ? value.real : fallback;
}

}  // namespace moonshard::viewer
