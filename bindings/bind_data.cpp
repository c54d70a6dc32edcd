// Text for Lua: ms.tokenizer, and the datasets ms.data.text and ms.data.classification.
#include "bindings/batch_table.h"
#include "bindings/bindings.h"
#include "bindings/convert.h"
#include "bindings/docs.h"
#include "bindings/handles.h"
#include "bindings/usertype.h"
#include "runtime/data/classification_dataset.h"
#include "runtime/data/text/tokenizer.h"
#include "runtime/data/text_dataset.h"

namespace moonshard::bindings {
namespace {

struct TokenizerHandle {
  std::shared_ptr<const data::Tokenizer> tokenizer;
};

// ---- tokenizers -------------------------------------------------------------------------------

const data::Tokenizer& own_tokenizer(const Arguments& args) {
  return *args.self<TokenizerHandle>("Tokenizer").tokenizer;
}

struct EncodeOptions {
  bool special_tokens = true;
};
struct DecodeOptions {
  bool skip_special = false;
};

const OptionSchema& encode_schema() {
  static const OptionSchema schema = [] {
    OptionSchema s("Tokenizer:encode");
    s.boolean<EncodeOptions>("special_tokens", &EncodeOptions::special_tokens,
                             "put the tokens around a whole text");
    return s;
  }();
  return schema;
}

const OptionSchema& decode_schema() {
  static const OptionSchema schema = [] {
    OptionSchema s("Tokenizer:decode");
    s.boolean<DecodeOptions>("skip_special", &DecodeOptions::skip_special,
                             "leave special tokens out");
    return s;
  }();
  return schema;
}

sol::object encode(const Arguments& args) {
  const data::Tokenizer& tokenizer = own_tokenizer(args);
  const std::string text = args.text(2, "text");
  EncodeOptions options;
  encode_schema().assign_all(&options, args.options(3));
  std::vector<int32_t> ids;
  if (options.special_tokens) {
    ids = data::encode_whole(tokenizer, text);
  } else {
    tokenizer.encode(text, ids);
  }
  sol::table list(args.state(), sol::create);
  for (size_t i = 0; i < ids.size(); ++i) list.raw_set(i + 1, ids[i]);
  return list;
}

sol::object decode(const Arguments& args) {
  const data::Tokenizer& tokenizer = own_tokenizer(args);
  if (!args.missing(2) && lua_type(args.state(), 2) != LUA_TTABLE) args.fail(2, "a list of ids");
  const std::vector<int64_t> given = args.sizes(2, "ids");
  DecodeOptions options;
  decode_schema().assign_all(&options, args.options(3));
  std::vector<int32_t> ids;
  ids.reserve(given.size());
  for (const int64_t id : given) {
    MS_CHECK(id >= 0 && id < tokenizer.vocab_size(), "{}: expected ids from 0 to {}, got {}",
             args.function_name(), tokenizer.vocab_size() - 1, id);
    ids.push_back(static_cast<int32_t>(id));
  }
  return sol::make_object(args.state(), tokenizer.decode(ids, options.skip_special));
}

sol::object token_id(const Arguments& args) {
  const auto id = own_tokenizer(args).find(args.text(2, "token"));
  if (!id) return sol::make_object(args.state(), sol::lua_nil);
  return sol::make_object(args.state(), *id);
}

sol::object open_tokenizer(const Arguments& args) {
  return sol::make_object(args.state(),
                          TokenizerHandle{data::open_tokenizer(args.path(1, "tokenizer"))});
}

void bind_tokenizer(sol::table ms) {
  ObjectType<TokenizerHandle> type(ms.lua_state(), "Tokenizer");
  type.method("encode", "(text[, { special_tokens }]) -> ids",
              "The ids of a text, with the tokens that this tokenizer puts around a whole text "
              "unless special_tokens = false.",
              &encode);
  type.method("decode", "(ids[, { skip_special }]) -> text",
              "The bytes that ids stand for, special tokens written out.", &decode);
  type.method("id", "(token) -> id or nil", "The id of exactly this token.", &token_id);
  type.method("vocab_size", "() -> number", "One more than the largest id.",
              [](const Arguments& args) {
                return sol::make_object(args.state(),
                                        static_cast<double>(own_tokenizer(args).vocab_size()));
              });
  type.fields({}, [](const Arguments& args) -> sol::object {
    throw UsageError(
        fmt::format("Tokenizer: expected a method (encode, decode, id, vocab_size), got {}",
                    describe_value(args.state(), 2).substr(0, 60)));
  });
  type.text([](const TokenizerHandle& handle) {
    return fmt::format("Tokenizer {} ({} ids)", handle.tokenizer->name(),
                       handle.tokenizer->vocab_size());
  });
  define(ms, "ms", "tokenizer", "(\"bytes\" | path) -> Tokenizer",
         "The tokenizer of bytes, of a tokenizer.json (byte-level BPE: Llama 3, Qwen 2, GPT-2), or "
         "of a folder that has one.",
         open_tokenizer);
}

// ---- datasets ---------------------------------------------------------------------------------

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
  type.method("size", "() -> number", "How many examples there are.", [](const Arguments& args) {
    return sol::make_object(args.state(), static_cast<double>(own_dataset(args).size()));
  });
  type.method(
      "facts", "() -> table",
      "What was read and how: files, documents, tokens, what was passed over and repaired, "
      "the cache, the unit of privacy.",
      [](const Arguments& args) { return to_lua(args.state(), own_dataset(args).facts()); });
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

}  // namespace

void bind_data(sol::table ms) {
  bind_tokenizer(ms);
  bind_dataset(ms.lua_state(), ms["data"].get<sol::table>());
}

}  // namespace moonshard::bindings
