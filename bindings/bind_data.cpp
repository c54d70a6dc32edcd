// Datasets and loaders for Lua: ms.data.
#include "bindings/bindings.h"
#include "bindings/convert.h"
#include "bindings/docs.h"
#include "bindings/handles.h"
#include "bindings/usertype.h"
#include "runtime/base/check.h"
#include "runtime/core/device.h"
#include "runtime/data/classification_dataset.h"
#include "runtime/data/dataset_source.h"
#include "runtime/data/text_dataset.h"
#include "runtime/models/registry.h"
#include "runtime/privacy/account.h"

namespace moonshard::bindings {
namespace {

// Options without those that are no plain values: `model` (a model or nil) and `labels`.
struct GivenOptions {
  Json plain = Json::object();
  Json labels;
  const models::ModelOptions* model = nullptr;
};

GivenOptions given_options(const Arguments& args, bool with_labels) {
  GivenOptions given;
  const sol::table table = args.table(1, "options");
  sol::table rest(args.state(), sol::create);
  const auto as_json = [&](const sol::object& value) {
    sol::stack::push(args.state(), value);
    Json json = to_json(args.state(), -1, args.function_name());
    lua_pop(args.state(), 1);
    return json;
  };
  for (const auto& [key, value] : table) {
    const std::string name = key.is<std::string>() ? key.as<std::string>() : "";
    if (name == "model") {
      MS_CHECK(value.is<ModelHandle>(),
               "{}: option 'model': expected a model, got something else; make one with ms.model",
               args.function_name());
      given.model = &value.as<ModelHandle&>().model->options();
    } else if (name == "labels" && with_labels) {
      given.labels = as_json(value);
    } else {
      rest[key] = value;
    }
  }
  given.plain = as_json(rest);
  return given;
}

void expect_option(const Arguments& args, const GivenOptions& given, const char* name) {
  MS_CHECK(given.plain.contains(name), "{}: expected option '{}', got none", args.function_name(),
           name);
}

sol::object make_text(const Arguments& args) {
  const GivenOptions given = given_options(args, false);
  data::TextOptions options;
  data::text_schema().assign_all(&options, given.plain);
  expect_option(args, given, "folder");
  expect_option(args, given, "max_length");
  return sol::make_object(args.state(),
                          DatasetHandle{std::make_shared<data::TextDataset>(options, given.model)});
}

sol::object make_classification(const Arguments& args) {
  const GivenOptions given = given_options(args, true);
  data::ClassificationOptions options;
  data::classification_schema().assign_all(&options, given.plain);
  expect_option(args, given, "file");
  expect_option(args, given, "max_length");
  if (!given.labels.is_null()) {
    bool good = given.labels.is_array();
    for (const Json& name : given.labels) good = good && name.is_string();
    MS_CHECK(good, "{}: option 'labels': expected a list of texts, got something else",
             args.function_name());
    options.labels = given.labels.get<std::vector<std::string>>();
  }
  return sol::make_object(args.state(), DatasetHandle{std::make_shared<data::ClassificationDataset>(
                                            options, given.model)});
}

const data::Dataset& own_dataset(const Arguments& args) {
  return *args.self<DatasetHandle>("Dataset").dataset;
}

sol::object take_batch(const Arguments& args) {
  const data::Dataset& dataset = own_dataset(args);
  if (!args.missing(2) && lua_type(args.state(), 2) != LUA_TTABLE)
    args.fail(2, "a list of numbers of examples");
  std::vector<int64_t> examples = args.sizes(2, "examples");
  for (int64_t& example : examples) {
    MS_CHECK(example >= 1 && example <= dataset.size(),
             "{}: expected examples from 1 to {}, got {}", args.function_name(), dataset.size(),
             example);
    --example;
  }
  return push_batch(args.state(), dataset.batch(examples));
}

void bind_dataset(lua_State* L, sol::table sources) {
  ObjectType<DatasetHandle> type(L, "Dataset");
  type.method("size", "() -> number", "How many examples there are.",
              [](const Arguments& args) { return static_cast<double>(own_dataset(args).size()); });
  type.method("facts", "() -> table",
              "What was read and how: files, documents, tokens, what was passed over and repaired, "
              "the cache, the unit of privacy.",
              [](const Arguments& args) { return own_dataset(args).facts(); });
  type.method("batch", "(examples) -> batch",
              "These examples (numbers from 1) in this order, a table of tensors on the CPU.",
              &take_batch);
  type.fields({}, [](const Arguments& args) -> sol::object {
    throw UsageError(fmt::format("Dataset: expected a method (size, facts, batch), got {}",
                                 describe_value(args.state(), 2).substr(0, 60)));
  });
  type.text([](const DatasetHandle& handle) {
    return fmt::format("Dataset of {} examples", handle.dataset->size());
  });
  document_options<data::TextOptions>("ms.data.text", data::text_schema());
  document_options<data::ClassificationOptions>("ms.data.classification",
                                                data::classification_schema());
  define(sources, "ms.data", "text",
         "{ folder, max_length, tokenizer, packing, invalid_utf8, end_of_text, cache, model } -> "
         "Dataset",
         "The text of a folder (.txt, .json, .jsonl) as samples for a language model.", make_text);
  define(sources, "ms.data", "classification",
         "{ file, max_length, tokenizer, part, test_share, split_seed, labels, invalid_utf8, model "
         "} -> Dataset",
         "Labelled texts of a .jsonl file with \"text\" and \"label\" on every line.",
         make_classification);
}

// Data sources for Lua: ms.data.synthetic, and ms.data.loader, which draws from a dataset.

struct DataOptions {
  int64_t batch_size = 0, seq_length = 0;
};

const OptionSchema& data_schema() {
  static const OptionSchema schema("data.synthetic", [](OptionSchema& s) {
    using T = DataOptions;
    s.also_known({"model"});
    s.integer<T>("batch_size", &T::batch_size, 0, 1e9,
                 "samples per step; 0 takes the model preset's");
    s.integer<T>("seq_length", &T::seq_length, 0, 1e8,
                 "tokens per sample; 0 takes the model preset's");
  });
  return schema;
}

const OptionSchema& loader_schema() {
  static const OptionSchema schema("data.loader", [](OptionSchema& s) {
    using T = data::LoaderOptions;
    s.also_known({"dataset"});
    s.choice<T>("sampler", &T::sampler, {"fixed", "shuffled", "poisson"},
                "in order, in a new order each epoch, or by Poisson subsampling, which an epsilon "
                "requires");
    s.integer<T>("batch_size", &T::batch_size, 1, 1e9,
                 "samples per micro-batch and rank; poisson: the most of them");
    s.integer<T>("expected_batch_size", &T::expected_batch_size, 0, 1e12,
                 "poisson: samples per step over all ranks; 0: batch_size x grad_accum x ranks");
    s.integer<T>("prefetch", &T::prefetch, 0, 64, "steps that are fetched ahead; 0: none");
    s.boolean<T>("pad_batches", &T::pad_batches,
                 "poisson: every micro-batch has batch_size rows, filled up with rows that count "
                 "nowhere; otherwise their sizes change from step to step");
  });
  return schema;
}

std::shared_ptr<data::SyntheticData> synthetic(const DataHandle& handle, const models::Model& model,
                                               int rank = 0, int world = 1) {
  const models::Preset& preset = models::find_preset(model.options().model);
  return std::make_shared<data::SyntheticData>(
      model.options(), handle.batch_size > 0 ? handle.batch_size : preset.batch_size,
      handle.seq_length > 0 ? handle.seq_length : preset.seq_length, rank, world);
}

sol::object make_data(const Arguments& args) {
  DataHandle handle;
  Json options = Json::object();
  std::shared_ptr<models::Model> model;
  if (!args.missing(1)) {
    sol::table table = args.table(1, "options");
    const sol::object given = table.raw_get<sol::object>("model");
    if (given.is<ModelHandle>()) model = given.as<ModelHandle&>().model;
    sol::table rest(args.state(), sol::create);
    for (const auto& [key, value] : table) {
      if (model == nullptr || !key.is<std::string>() || key.as<std::string>() != "model")
        rest[key] = value;
    }
    sol::stack::push(args.state(), rest);
    options = to_json(args.state(), -1, args.function_name());
    lua_pop(args.state(), 1);
  }
  DataOptions read;
  data_schema().assign_all(&read, options);
  handle.batch_size = read.batch_size;
  handle.seq_length = read.seq_length;
  if (model != nullptr) handle.source = synthetic(handle, *model);
  return sol::make_object(args.state(), std::move(handle));
}

sol::object next_batch(const Arguments& args) {
  DataHandle& handle = args.self<DataHandle>("Data");
  MS_CHECK(handle.source != nullptr,
           "{}: expected data that knows its model's shapes; make it with ms.data.synthetic {{ "
           "model = m }}",
           args.function_name());
  return push_batch(args.state(), handle.source->next());
}

sol::object make_loader(const Arguments& args) {
  const sol::table table = args.table(1, "options");
  const sol::object given = table.raw_get<sol::object>("dataset");
  MS_CHECK(given.is<DatasetHandle>(),
           "{}: option 'dataset': expected a dataset, got something else; make one with "
           "ms.data.text or ms.data.classification",
           args.function_name());
  sol::table rest(args.state(), sol::create);
  for (const auto& [key, value] : table) {
    if (!key.is<std::string>() || key.as<std::string>() != "dataset") rest[key] = value;
  }
  sol::stack::push(args.state(), rest);
  const Json options = to_json(args.state(), -1, args.function_name());
  lua_pop(args.state(), 1);
  DataHandle handle;
  handle.dataset = given.as<DatasetHandle&>().dataset;
  loader_schema().assign_all(&handle.loader, options);
  MS_CHECK(handle.loader.batch_size > 0, "{}: expected option 'batch_size', got none",
           args.function_name());
  return sol::make_object(args.state(), std::move(handle));
}

}  // namespace

void bind_data(sol::table ms) {
  bind_dataset(ms.lua_state(), ms["data"].get<sol::table>());
}

std::unique_ptr<data::Source> open_source(const DataHandle& handle, const models::Model& model,
                                          comm::World& world, const train::StepOptions& step,
                                          bool secure, const std::string& mode) {
  if (handle.dataset == nullptr) {
    return std::make_unique<data::SyntheticData>(
        *synthetic(handle, model, world.rank(), world.size()));
  }
  data::LoaderOptions options = handle.loader;
  options.grad_accum = step.grad_accum;
  options.skip_empty = mode == "none";
  if (options.expected_batch_size == 0) options.expected_batch_size = step.expected_batch_size;
  const RandomWords words =
      privacy::sampling_words(world, model.options().seed, secure, mode, options.sampler);
  return std::make_unique<data::DatasetSource>(handle.dataset, options, words,
                                               resolve_device(model.options().device), world.rank(),
                                               world.size());
}

void bind_loader(sol::table ms) {
  lua_State* L = ms.lua_state();
  ObjectType<DataHandle> data(L, "Data");
  data.method("next", "() -> batch", "The next batch, a table of tensors.", &next_batch);
  data.fields({}, [](const Arguments& args) -> sol::object {
    throw UsageError(fmt::format("Data: expected the method next, got {}",
                                 describe_value(args.state(), 2).substr(0, 60)));
  });
  data.text([](const DataHandle& handle) {
    if (handle.dataset == nullptr) return std::string("Data (synthetic)");
    return fmt::format("Data ({} of {} examples)", handle.loader.sampler, handle.dataset->size());
  });
  sol::table sources(L, sol::create);
  document_options<DataOptions>("ms.data.synthetic", data_schema());
  document_options<data::LoaderOptions>("ms.data.loader", loader_schema());
  define(sources, "ms.data", "synthetic", "{ batch_size, seq_length, model } -> Data",
         "Random batches of the model's shapes. No privacy claim comes with them.", make_data);
  define(sources, "ms.data", "loader",
         "{ dataset, sampler, batch_size, expected_batch_size, pad_batches, prefetch } -> Data",
         "Batches of a dataset for ms.trainer: fixed, shuffled or drawn by Poisson sampling, "
         "without which there is no epsilon.",
         make_loader);
  ms["data"] = sources;
  document(sources, "ms.data", "ms.data", "Data: synthetic, text, classification, loader.");
}

}  // namespace moonshard::bindings
