#include "runtime/weights/safetensors_header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <tuple>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "runtime/base/check.h"
#include "runtime/base/utf8.h"
#include "runtime/weights/safetensors.h"

namespace moonshard::weights {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr const char* kMetadataKey = "__metadata__";
constexpr const char* kDamaged = "the file is damaged or foreign";

// Fills the header while the text is walked: no tree of JSON values is ever built. A tree of a
// hostile header would take ten times its size, and nlohmann's ordered maps quadratic time.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(SafetensorsHeader& header, const std::string& where)
      : header_(header), where_(where) {}

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("true or false"); }
  bool number_integer(number_integer_t value) override {
    return unexpected(fmt::format("{}", value).c_str());
  }
  bool number_float(number_float_t, const string_t& text) override {
    return unexpected(fmt::format("the number {}", in_quotes(text)).c_str());
  }
  bool binary(binary_t&) override { return unexpected("binary"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (at_ != At::Shape && at_ != At::Offsets) return unexpected(fmt::format("{}", value).c_str());
    auto& list = at_ == At::Shape ? entry_.shape : offsets_;
    const size_t most = at_ == At::Shape ? kMaxRank : 2;
    if (list.size() == most) {
      fail(fmt::format("expected at most {} numbers in {}, got more", most, field_name()));
    }
    if (value > static_cast<number_unsigned_t>(INT64_MAX)) {
      fail(fmt::format("expected numbers below 2^63 in {}, got {}", field_name(), value));
    }
    list.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool string(string_t& value) override {
    if (at_ == At::MetadataValue) {
      header_.metadata[key_] = std::move(value);
      at_ = At::Metadata;
      return true;
    }
    if (at_ != At::Dtype) return unexpected("a text");
    entry_.dtype = dtype_from_label(value, place());
    at_ = At::Tensor;
    return true;
  }

  bool start_object(std::size_t) override {
    if (at_ == At::Start) {
      at_ = At::Top;
    } else if (at_ == At::MetadataStart) {
      at_ = At::Metadata;
    } else if (at_ == At::TensorStart) {
      at_ = At::Tensor;
    } else {
      return unexpected("an object");
    }
    return true;
  }

  bool key(string_t& value) override {
    if (value.size() > kMaxNameBytes) {
      fail(fmt::format("expected names of at most {} bytes, got one of {}", kMaxNameBytes,
                       value.size()));
    }
    if (at_ == At::Top) return start_top_entry(value);
    if (at_ == At::Metadata) {
      if (header_.metadata.contains(value)) {
        fail(fmt::format("expected each key once, got {} twice in {}", in_quotes(value),
                         kMetadataKey));
      }
      if (header_.metadata.size() == kMaxMetadataEntries) {
        fail(fmt::format("expected at most {} entries in {}, got more", kMaxMetadataEntries,
                         kMetadataKey));
      }
      key_ = std::move(value);
      at_ = At::MetadataValue;
      return true;
    }
    return start_field(value);
  }

  bool end_object() override {
    if (at_ == At::Tensor) {
      finish_tensor();
      at_ = At::Top;
    } else if (at_ == At::Metadata) {
      at_ = At::Top;
    } else {
      at_ = At::End;
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (at_ == At::ShapeStart) {
      at_ = At::Shape;
    } else if (at_ == At::OffsetsStart) {
      at_ = At::Offsets;
    } else {
      return unexpected("a list");
    }
    return true;
  }

  bool end_array() override {
    at_ = At::Tensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    fail(fmt::format("expected JSON in the header, got something else at byte {} of it", position));
  }

 private:
  enum class At {
    Start,
    Top,
    MetadataStart,
    Metadata,
    MetadataValue,
    TensorStart,
    Tensor,
    Dtype,
    ShapeStart,
    Shape,
    OffsetsStart,
    Offsets,
    End
  };

  bool start_top_entry(string_t& name) {
    if (name == kMetadataKey) {
      if (has_metadata_) fail(fmt::format("expected {} once, got it twice", kMetadataKey));
      has_metadata_ = true;
      at_ = At::MetadataStart;
      return true;
    }
    if (header_.entries.size() == kMaxTensors) {
      fail(fmt::format("expected at most {} tensors, got more", kMaxTensors));
    }
    entry_ = TensorEntry();
    entry_.name = std::move(name);
    in_tensor_ = true;
    has_dtype_ = has_shape_ = has_offsets_ = false;
    offsets_.clear();
    at_ = At::TensorStart;
    return true;
  }

  bool start_field(const string_t& name) {
    const auto take = [&](bool& seen, At next) {
      if (seen) fail(fmt::format("expected each key once, got {} twice", in_quotes(name)));
      seen = true;
      at_ = next;
      return true;
    };
    if (name == "dtype") return take(has_dtype_, At::Dtype);
    if (name == "shape") return take(has_shape_, At::ShapeStart);
    if (name == "data_offsets") return take(has_offsets_, At::OffsetsStart);
    fail(fmt::format("expected the keys dtype, shape and data_offsets, got {}", in_quotes(name)));
  }

  void finish_tensor() {
    if (!has_dtype_ || !has_shape_ || !has_offsets_) {
      fail(fmt::format("expected the keys dtype, shape and data_offsets, got no {}",
                       !has_dtype_   ? "dtype"
                       : !has_shape_ ? "shape"
                                     : "data_offsets"));
    }
    if (offsets_.size() != 2 || offsets_[0] > offsets_[1]) {
      fail(fmt::format("expected data_offsets [begin, end] with begin <= end, got {}",
                       shape_text(offsets_)));
    }
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
    // Zeros are left out of the first product: a shape whose other sizes overflow stays refused
    // wherever the zero stands, and LibTorch may compute its strides.
    int64_t bytes = static_cast<int64_t>(c10::elementSize(entry_.dtype));
    bool is_empty = false;
    for (const int64_t size : entry_.shape) {
      is_empty = is_empty || size == 0;
      if (__builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes)) {
        fail(fmt::format("expected a shape of less than 2^63 bytes, got {}",
                         shape_text(entry_.shape)));
      }
    }
    if (is_empty) bytes = 0;
    if (entry_.end - entry_.begin != bytes) {
      fail(fmt::format("expected {} bytes for shape {} of {}, got data_offsets {} of {} bytes",
                       bytes, shape_text(entry_.shape), dtype_label(entry_.dtype, where_),
                       shape_text(offsets_), entry_.end - entry_.begin));
    }
    header_.entries.push_back(std::move(entry_));
    in_tensor_ = false;
  }

  const char* field_name() const { return at_ == At::Shape ? "shape" : "data_offsets"; }
  std::string place() const {
    return in_tensor_ ? fmt::format("{}: tensor {}", where_, in_quotes(entry_.name)) : where_;
  }
  [[noreturn]] void fail(const std::string& text) const {
    throw IoError(fmt::format("{}: {}; {}", place(), text, kDamaged));
  }
  bool unexpected(const char* got) const {
    const char* expected = "an object of tensors";
    switch (at_) {
      case At::MetadataStart:
      case At::MetadataValue:
        expected = "__metadata__ as a map of text to text";
        break;
      case At::TensorStart:
        expected = "an object with dtype, shape and data_offsets";
        break;
      case At::Dtype:
        expected = "a dtype's name";
        break;
      case At::ShapeStart:
      case At::Shape:
        expected = "a list of whole numbers from 0 as shape";
        break;
      case At::OffsetsStart:
      case At::Offsets:
        expected = "a list of whole numbers from 0 as data_offsets";
        break;
      default:
        break;
    }
    fail(fmt::format("expected {}, got {}", expected, got));
  }

  SafetensorsHeader& header_;
  const std::string& where_;
  At at_ = At::Start;
  bool has_metadata_ = false, in_tensor_ = false;
  bool has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
  std::string key_;
  TensorEntry entry_;
  std::vector<int64_t> offsets_;
};

// What the JSON library would accept silently: a zero byte counts as the end of its input, and
// a text or number may have any length. Texts are bounded here, before it gathers them.
void check_bytes(std::string_view text, const std::string& where) {
  if (text.empty() || text[0] != '{') {
    throw IoError(fmt::format("{}: expected a header that begins with '{{', got {}; {}", where,
                              text.empty() ? "an empty one" : in_quotes(text.substr(0, 1)),
                              kDamaged));
  }
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos) {
    throw IoError(fmt::format("{}: expected JSON in the header, got a zero byte at byte {}; {}",
                              where, zero, kDamaged));
  }
  int64_t run = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') run = 0;
    if (c == '\\') ++i;
    if (c != ' ' && ++run > kMaxTextBytes) {
      throw IoError(
          fmt::format("{}: expected texts of at most {} bytes in the header, got more; {}", where,
                      kMaxTextBytes, kDamaged));
    }
  }
}

void check_offsets(const std::vector<TensorEntry>& entries, int64_t data_bytes,
                   const std::string& where) {
  int64_t position = 0;
  const TensorEntry* before = nullptr;
  for (const TensorEntry& entry : entries) {
    if (entry.begin != position) {
      throw IoError(
          fmt::format("{}: tensor {}: expected its data at byte {}, where {} ends, got {}: {}; {}",
                      where, in_quotes(entry.name), position,
                      before != nullptr ? in_quotes(before->name) : "the header", entry.begin,
                      entry.begin < position ? "the two overlap" : "there is a gap", kDamaged));
    }
    position = entry.end;
    before = &entry;
  }
  if (position != data_bytes) {
    throw IoError(fmt::format(
        "{}: expected {} bytes of data, as the header says, got {}; {}", where, position,
        data_bytes, data_bytes < position ? "the file is cut short: copy it again" : kDamaged));
  }
}

void index_names(SafetensorsHeader& header, const std::string& where) {
  header.by_name.resize(header.entries.size());
  std::iota(header.by_name.begin(), header.by_name.end(), 0u);
  const auto name_of = [&](uint32_t i) -> const std::string& { return header.entries[i].name; };
  std::sort(header.by_name.begin(), header.by_name.end(),
            [&](uint32_t a, uint32_t b) { return name_of(a) < name_of(b); });
  const auto twice =
      std::adjacent_find(header.by_name.begin(), header.by_name.end(),
                         [&](uint32_t a, uint32_t b) { return name_of(a) == name_of(b); });
  if (twice != header.by_name.end()) {
    throw IoError(fmt::format("{}: expected each tensor once, got {} twice; {}", where,
                              in_quotes(name_of(*twice)), kDamaged));
  }
}

}  // namespace

const TensorEntry* SafetensorsHeader::find(std::string_view name) const {
  const auto found =
      std::lower_bound(by_name.begin(), by_name.end(), name,
                       [this](uint32_t i, std::string_view n) { return entries[i].name < n; });
  if (found == by_name.end() || entries[*found].name != name) return nullptr;
  return &entries[*found];
}

SafetensorsHeader parse_safetensors_header(std::string_view text, int64_t data_bytes,
                                           const std::string& where) {
  check_bytes(text, where);
  SafetensorsHeader header;
  HeaderReader reader(header, where);
  nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  std::sort(header.entries.begin(), header.entries.end(),
            [](const TensorEntry& a, const TensorEntry& b) {
              return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
            });
  index_names(header, where);
  check_offsets(header.entries, data_bytes, where);
  return header;
}

std::string make_safetensors_header(const std::vector<TensorEntry>& entries,
                                    const Metadata& metadata, const std::string& where) {
  MS_CHECK(entries.size() <= kMaxTensors, "{}: expected at most {} tensors, got {}", where,
           kMaxTensors, entries.size());
  const auto text_of = [&](const std::string& text) {
    try {
      return nlohmann::json(text).dump();
    } catch (const nlohmann::json::exception&) {
      throw UsageError(fmt::format("{}: expected names and metadata in UTF-8, got {}; rename it",
                                   where, in_quotes(text)));
    }
  };
  std::string json = "{";
  if (!metadata.empty()) {
    json += fmt::format("\"{}\":{{", kMetadataKey);
    for (const auto& [key, value] : metadata) json += text_of(key) + ":" + text_of(value) + ",";
    json.back() = '}';
  }
  for (const TensorEntry& entry : entries) {
    MS_CHECK(entry.name != kMetadataKey && entry.name.size() <= kMaxNameBytes,
             "{}: expected a tensor's name of at most {} bytes that is not {}, got {}; rename it",
             where, kMaxNameBytes, kMetadataKey, in_quotes(entry.name));
    json += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                        json.size() > 1 ? "," : "", text_of(entry.name),
                        dtype_label(entry.dtype, where), fmt::join(entry.shape, ","), entry.begin,
                        entry.end);
  }
  json += "}";
  json.resize((json.size() + 7) / 8 * 8, ' ');
  MS_CHECK(static_cast<int64_t>(json.size()) <= kMaxHeaderBytes,
           "{}: expected a header of at most {} bytes, got {}; write fewer tensors into one file",
           where, kMaxHeaderBytes, json.size());
  std::string result(8, '\0');
  const uint64_t length = json.size();
  std::memcpy(result.data(), &length, sizeof length);
  return result + json;
}

}  // namespace moonshard::weights
