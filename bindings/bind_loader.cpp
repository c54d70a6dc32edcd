// Data sources for Lua: ms.data.synthetic, and ms.data.loader, which draws from a dataset.
#include "bindings/loader.h"

#include "bindings/batch_table.h"
#include "bindings/bindings.h"
#include "bindings/convert.h"
#include "bindings/docs.h"
#include "bindings/usertype.h"
#include "runtime/core/device.h"
#include "runtime/data/dataset_source.h"
#include "runtime/models/registry.h"
#include "runtime/privacy/run_secret.h"

namespace moonshard::bindings {
namespace {

struct DataOptions {
  int64_t batch_size = 0, seq_length = 0;
};

const OptionSchema& data_schema() {
  static const OptionSchema schema = [] {
    OptionSchema s("data.synthetic");
    s.integer<DataOptions>("batch_size", &DataOptions::batch_size, 0, 1e9,
                           "samples per step; 0 takes the model preset's");
    s.integer<DataOptions>("seq_length", &DataOptions::seq_length, 0, 1e8,
                           "tokens per sample; 0 takes the model preset's");
    return s;
  }();
  return schema;
}

const OptionSchema& loader_schema() {
  static const OptionSchema schema = [] {
    using T = data::LoaderOptions;
    OptionSchema s("data.loader");
    s.also_known({"dataset"});
    s.choice<T>("sampler", &T::sampler, {"fixed", "shuffled", "poisson"},
                "in order, in a new order each epoch, or by Poisson subsampling, which an epsilon "
                "requires");
    s.integer<T>("batch_size", &T::batch_size, 1, 1e9,
                 "samples per micro-batch and rank; poisson: the most of them");
    s.integer<T>("expected_batch_size", &T::expected_batch_size, 0, 1e12,
                 "poisson: samples per step over all ranks; 0: batch_size x grad_accum x ranks");
    s.integer<T>("prefetch", &T::prefetch, 0, 64, "steps that are fetched ahead; 0: none");
    return s;
  }();
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

std::unique_ptr<data::Source> open_source(const DataHandle& handle, const models::Model& model,
                                          comm::World& world, const train::StepOptions& step,
                                          bool secure, bool plain) {
  if (handle.dataset == nullptr) {
    return std::make_unique<data::SyntheticData>(
        *synthetic(handle, model, world.rank(), world.size()));
  }
  data::LoaderOptions options = handle.loader;
  options.grad_accum = step.grad_accum;
  options.skip_empty = plain;
  if (options.expected_batch_size == 0) options.expected_batch_size = step.expected_batch_size;
  const RandomWords words = privacy::sampling_words(world, model.options().seed, secure);
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
  define(sources, "ms.data", "synthetic", "{ batch_size, seq_length, model } -> Data",
         "Random batches of the model's shapes. No privacy claim comes with them.", make_data);
  define(sources, "ms.data", "loader",
         "{ dataset, sampler, batch_size, expected_batch_size, prefetch } -> Data",
         "Batches of a dataset for ms.trainer: fixed, shuffled or drawn by Poisson sampling, which "
         "alone carries an epsilon.",
         make_loader);
  ms["data"] = sources;
  document(sources, "ms.data", "ms.data", "Data: synthetic, text, classification, loader.");
}

}  // namespace moonshard::bindings
