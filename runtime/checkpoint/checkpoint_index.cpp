#include "runtime/checkpoint/checkpoint_index.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/base/json.h"
#include "runtime/base/utf8.h"
#include "runtime/checkpoint/integrity.h"
#include "runtime/weights/safetensors.h"

namespace moonshard::checkpoint {
namespace {

using nlohmann::json;

constexpr ForeignLimits kLimits = {64u << 20, 8'000'000, 8};
constexpr int64_t kLargest = int64_t{1} << 53;

// ---- checked look-ups -------------------------------------------------------------------------

// Values of one JSON object, with the file and the place for error texts.
class Fields {
 public:
  Fields(const json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) fail("an object", object);
  }

  const json& any(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) fail(key, "a value", "none");
    return *found;
  }
  int64_t integer(const char* key, int64_t least) const {
    const json& value = any(key);
    const bool fits =
        value.is_number_integer() &&
        (!value.is_number_unsigned() || value.get<uint64_t>() <= static_cast<uint64_t>(kLargest)) &&
        value.get<int64_t>() >= least && value.get<int64_t>() <= kLargest;
    if (!fits) fail(key, fmt::format("a whole number of at least {}", least), shown(value));
    return value.get<int64_t>();
  }
  double number(const char* key) const {
    const json& value = any(key);
    if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() < 0)
      fail(key, "a number of at least 0", shown(value));
    return value.get<double>();
  }
  bool boolean(const char* key) const {
    const json& value = any(key);
    if (!value.is_boolean()) fail(key, "true or false", shown(value));
    return value.get<bool>();
  }
  std::string text(const char* key) const {
    const json& value = any(key);
    if (!value.is_string()) fail(key, "a text", shown(value));
    return value.get<std::string>();
  }
  std::vector<std::string> texts(const char* key) const {
    std::vector<std::string> list;
    for (const json& item : array(key)) {
      if (!item.is_string()) fail(key, "a list of texts", shown(item));
      list.push_back(item.get<std::string>());
    }
    return list;
  }
  const json& array(const char* key) const {
    const json& value = any(key);
    if (!value.is_array()) fail(key, "a list", shown(value));
    return value;
  }
  Fields object(const char* key) const {
    return Fields(any(key), fmt::format("{}: '{}'", where_, key));
  }
  const json& raw() const { return object_; }

  [[noreturn]] void fail(const char* key, const std::string& expected,
                         const std::string& got) const {
    throw IoError(fmt::format("{}: '{}': expected {}, got {}; the file is damaged or foreign",
                              where_, key, expected, got));
  }

 private:
  static std::string shown(const json& value) {
    return value.is_structured() ? std::string(value.is_array() ? "a list" : "an object")
                                 : in_quotes(value.dump(-1, ' ', true));
  }
  [[noreturn]] void fail(const char* expected, const json& got) const {
    throw IoError(fmt::format("{}: expected {}, got {}; the file is damaged or foreign", where_,
                              expected, shown(got)));
  }

  const json& object_;
  std::string where_;
};

bool is_rank_file(const std::string& name) {
  const std::string_view head = "rank", tail = ".safetensors";
  if (!name.starts_with(head) || !name.ends_with(tail)) return false;
  const std::string digits =
      name.substr(head.size(), name.size() - std::min(name.size(), head.size() + tail.size()));
  return digits.size() >= 5 && digits.size() <= 9 &&
         digits.find_first_not_of("0123456789") == std::string::npos;
}

// Empty when the parts, in their order, are the tensor.
std::string flaw(const StoredTensor& tensor) {
  int64_t numel = 1;
  for (const int64_t size : tensor.shape) {
    if (size > 0 && numel > kLargest / size) return "a shape of fewer elements";
    numel *= size;
  }
  int64_t end = 0;
  for (const StoredPart& part : tensor.parts) {
    if (part.count <= 0 || part.first != end || part.count > numel - end)
      return fmt::format("parts without gap or overlap up to element {}", numel);
    end += part.count;
  }
  return end == numel ? "" : fmt::format("parts up to element {}", numel);
}

StoredTensor read_tensor(const json& value, const std::string& where) {
  const Fields fields(value, where);
  StoredTensor tensor;
  tensor.name = fields.text("name");
  const std::string place = fmt::format("{}: tensor {}", where, in_quotes(tensor.name));
  tensor.dtype = weights::dtype_from_label(fields.text("dtype"), place);
  for (const json& size : fields.array("shape")) {
    const bool fits = size.is_number_unsigned() &&
                      size.get<uint64_t>() <= static_cast<uint64_t>(kLargest) &&
                      tensor.shape.size() < 16;
    if (!fits) fields.fail("shape", "at most 16 sizes", "something else");
    tensor.shape.push_back(size.get<int64_t>());
  }
  for (const json& item : fields.array("parts")) {
    const Fields part(item, place);
    StoredPart stored{part.text("file"), part.integer("first", 0), part.integer("count", 1)};
    if (!is_rank_file(stored.file))
      part.fail("file", "a name like rank00000.safetensors", in_quotes(stored.file));
    tensor.parts.push_back(std::move(stored));
  }
  const std::string expected = flaw(tensor);
  if (!expected.empty()) {
    throw IoError(fmt::format("{}: expected {}, got {} parts that are not; the file is damaged",
                              place, expected, tensor.parts.size()));
  }
  return tensor;
}

std::map<std::string, FileSum> read_sums(const Fields& files) {
  std::map<std::string, FileSum> sums;
  for (const auto& [name, value] : files.raw().items()) {
    if (!is_rank_file(name))
      files.fail("files", "names like rank00000.safetensors", in_quotes(name));
    const Fields fields = files.object(name.c_str());
    const auto digits = [&](const char* key) {
      if (!fields.raw().contains(key)) return std::string();
      const std::string sum = fields.text(key);
      if (sum.size() != 64) fields.fail(key, "64 digits", in_quotes(sum));
      return sum;
    };
    FileSum sum{fields.integer("bytes", 0), digits("header_sha256"), digits("data_sha256"),
                digits("sha256")};
    if (sum.header_sha256.empty() && sum.sha256.empty())
      fields.fail("header_sha256", "64 digits", "none");
    sums[name] = std::move(sum);
  }
  return sums;
}

void check_tensors_of(const CheckpointIndex& index, const std::string& where) {
  const auto twice = std::adjacent_find(
      index.tensors.begin(), index.tensors.end(),
      [](const StoredTensor& a, const StoredTensor& b) { return a.name == b.name; });
  if (twice != index.tensors.end()) {
    throw IoError(fmt::format("{}: expected each tensor once, got {} twice; the file is damaged",
                              where, in_quotes(twice->name)));
  }
  for (const StoredTensor& tensor : index.tensors) {
    for (const StoredPart& part : tensor.parts) {
      if (!index.has_sums || index.files.contains(part.file)) continue;
      throw IoError(
          fmt::format("{}: expected a checksum of every file, got none of {}; the file is damaged",
                      where, part.file));
    }
  }
}

// The text of an index with its seal checked, parsed. Says so in `seal`; none for version 1.
json read_sealed(const std::filesystem::path& path, const std::string& key,
                 std::optional<Seal>& seal, std::string& digits) {
  const std::string where = path.string();
  const std::string text = read_foreign_text(path, kLimits);
  json whole = parse_foreign_json(text, where, kLimits);
  const Fields fields(whole, where);
  if (whole.value("kind", json()) != "moonshard checkpoint")
    fields.fail("kind", "'moonshard checkpoint'", "something else");
  const int64_t version = fields.integer("schema_version", 1);
  if (version > kCheckpointVersion) {
    throw IoError(
        fmt::format("{}: expected schema_version {} at most, got {}; a newer moonshard wrote it: "
                    "update this one",
                    where, kCheckpointVersion, version));
  }
  // A newer one that says it is old is not.
  if (version > 1 || whole.contains("sha256")) {
    seal = check_seal(text, key, where);
    digits = seal_of(text);
  } else if (!key.empty()) {
    refuse_missing_hmac(where);
  }
  return whole;
}

// Why nobody vouches for an account; empty when the seal does.
std::string why_unsealed(const std::optional<Seal>& seal) {
  if (!seal) return "an older version saved it, without checksums: an edit would go unseen";
  if (*seal == Seal::UncheckedHmac)
    return fmt::format("its HMAC was not checked, as {} was not set", kKeyVariable);
  return "";
}

}  // namespace

const StoredTensor* CheckpointIndex::find(const std::string& name) const {
  const auto found = std::lower_bound(
      tensors.begin(), tensors.end(), name,
      [](const StoredTensor& tensor, const std::string& wanted) { return tensor.name < wanted; });
  return found != tensors.end() && found->name == name ? &*found : nullptr;
}

bool CheckpointIndex::is_in_base(const std::string& parameter) const {
  return base && std::binary_search(base->parameters.begin(), base->parameters.end(), parameter);
}

std::string state_tensor_name(const std::string& state, const std::string& parameter) {
  return "optimizer/" + state + "/" + parameter;
}

std::string rank_file_name(int rank) {
  return fmt::format("rank{:05}.safetensors", rank);
}

std::string index_text(CheckpointIndex& index, const std::string& key) {
  std::sort(index.tensors.begin(), index.tensors.end(),
            [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
  Json head{{"schema_version", index.base ? kCheckpointVersion : kCheckpointVersion - 1},
            {"kind", "moonshard checkpoint"},
            {"id", index.id},
            {"previous", index.previous},
            {"step", index.step},
            {"seed", index.seed},
            {"world", index.world},
            {"parallel", index.parallel},
            {"model", index.model},
            {"frozen", index.frozen},
            {"optimizer",
             {{"optimizer", index.optimizer},
              {"states", index.optimizer_states},
              {"steps", index.optimizer_steps}}},
            {"data", {{"position", index.data_position ? Json(*index.data_position) : Json()}}},
            {"privacy",
             {{"private", index.is_private},
              {"steps", index.privacy_steps},
              {"noise_multiplier", index.noise_multiplier},
              {"clipping", index.clipping},
              {"bound", index.clip_bound},
              {"engine", index.engine},
              {"history", index.privacy_history},
              {"noised_steps", index.noised_steps},
              {"secret_steps", index.secret_steps},
              {"why_no_epsilon", index.why_no_epsilon},
              {"note", index.noised_steps > 0 && index.secret_steps == index.noised_steps
                           ? "noise from secrets that were not kept"
                           : "the seed gives the noise: with it, nothing here is private"}}},
            {"files", Json::object()}};
  if (index.base)
    head["base"] = {{"path", index.base->path},
                    {"fingerprint", index.base->fingerprint},
                    {"parameters", index.base->parameters}};
  for (const auto& [name, sum] : index.files)
    head["files"][name] = {{"bytes", sum.bytes}, {"header_sha256", sum.header_sha256}};
  for (const auto& [name, sum] : index.files)
    if (!sum.data_sha256.empty()) head["files"][name]["data_sha256"] = sum.data_sha256;
  // One line for each key and each tensor: readable, and a tenth of the indented text's length.
  std::string text = "{\n";
  for (const auto& [name, value] : head.items())
    text += fmt::format("\"{}\": {},\n", name, one_line(value));
  text += "\"tensors\": [";
  const char* separator = "\n";
  for (StoredTensor& tensor : index.tensors) {
    std::sort(tensor.parts.begin(), tensor.parts.end(),
              [](const StoredPart& a, const StoredPart& b) { return a.first < b.first; });
    const std::string expected = flaw(tensor);
    MS_ASSERT(expected.empty(), "checkpoint: tensor '{}': expected {}", tensor.name, expected);
    Json parts = Json::array();
    for (const StoredPart& part : tensor.parts)
      parts.push_back({{"file", part.file}, {"first", part.first}, {"count", part.count}});
    const Json line{{"name", tensor.name},
                    {"dtype", weights::dtype_label(tensor.dtype, "checkpoint")},
                    {"shape", tensor.shape},
                    {"parts", std::move(parts)}};
    text += separator + one_line(line);
    separator = ",\n";
  }
  return sealed(text + "\n],\n", key);
}

CheckpointIndex read_index(const std::filesystem::path& folder, const std::string& key) {
  const std::filesystem::path path = folder / kIndexName;
  const std::string where = path.string();
  std::optional<Seal> seal;
  CheckpointIndex index;
  const json whole = read_sealed(path, key, seal, index.seal);
  const Fields fields(whole, where);
  index.id = fields.text("id");
  if (whole.contains("previous")) index.previous = fields.text("previous");
  index.step = fields.integer("step", 0);
  index.seed = fields.integer("seed", 0);
  index.world = fields.integer("world", 1);
  index.parallel = Json(fields.object("parallel").raw());
  index.model = Json(fields.object("model").raw());
  index.frozen = fields.texts("frozen");
  if (whole.contains("base")) {
    const Fields base = fields.object("base");
    index.base =
        weights::BaseWeights{base.text("path"), base.text("fingerprint"), base.texts("parameters")};
    std::sort(index.base->parameters.begin(), index.base->parameters.end());
  }
  const Fields optimizer = fields.object("optimizer");
  index.optimizer = optimizer.text("optimizer");
  index.optimizer_states = optimizer.texts("states");
  const Fields steps = optimizer.object("steps");
  for (const auto& [name, value] : steps.raw().items())
    index.optimizer_steps[name] = steps.integer(name.c_str(), 0);
  const Fields data = fields.object("data");
  if (!data.any("position").is_null()) index.data_position = data.integer("position", 0);
  const Fields privacy = fields.object("privacy");
  index.is_private = privacy.boolean("private");
  index.privacy_steps = privacy.integer("steps", 0);
  index.noise_multiplier = privacy.number("noise_multiplier");
  index.clipping = privacy.text("clipping");
  index.clip_bound = privacy.number("bound");
  index.engine = privacy.text("engine");
  if (privacy.raw().contains("history")) {  // older ones have no account
    index.privacy_history = Json(privacy.any("history"));
    index.noised_steps = privacy.integer("noised_steps", 0);
    index.secret_steps = privacy.integer("secret_steps", 0);
  }
  index.why_no_epsilon = privacy.raw().contains("why_no_epsilon")
                             ? privacy.text("why_no_epsilon")
                             : "an older version saved it, without saying whether its claim held";
  if (index.why_no_epsilon.empty()) index.why_no_epsilon = why_unsealed(seal);
  index.has_sums = seal.has_value();
  if (index.has_sums) index.files = read_sums(fields.object("files"));
  for (const auto& [name, sum] : index.files) {
    // Whoever has no key can meet a CRC-32C.
    if (seal == Seal::CheckedHmac && sum.data_sha256.empty() && sum.sha256.empty())
      fields.fail("files", "the SHA-256 of data under an HMAC", "none");
  }
  for (const json& tensor : fields.array("tensors"))
    index.tensors.push_back(read_tensor(tensor, where));
  std::sort(index.tensors.begin(), index.tensors.end(),
            [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
  check_tensors_of(index, where);
  return index;
}

}  // namespace moonshard::checkpoint
