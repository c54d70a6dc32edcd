// Tokenizers for Lua: ms.tokenizer.
#include "bindings/bindings.h"
#include "bindings/convert.h"
#include "bindings/docs.h"
#include "bindings/usertype.h"
#include "runtime/base/check.h"
#include "runtime/data/text/tokenizer.h"

namespace moonshard::bindings {
namespace {

struct TokenizerHandle {
  std::shared_ptr<const data::Tokenizer> tokenizer;
};

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
  static const OptionSchema schema("Tokenizer:encode", [](OptionSchema& s) {
    s.boolean<EncodeOptions>("special_tokens", &EncodeOptions::special_tokens,
                             "put the tokens around a whole text");
  });
  return schema;
}

const OptionSchema& decode_schema() {
  static const OptionSchema schema("Tokenizer:decode", [](OptionSchema& s) {
    s.boolean<DecodeOptions>("skip_special", &DecodeOptions::skip_special,
                             "leave special tokens out");
  });
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

}  // namespace

void bind_tokenizer(sol::table ms) {
  ObjectType<TokenizerHandle> type(ms.lua_state(), "Tokenizer");
  type.method("encode", "(text[, { special_tokens }]) -> ids",
              "The ids of a text, with the tokens that this tokenizer puts around a whole text "
              "unless special_tokens = false.",
              &encode);
  type.method("decode", "(ids[, { skip_special }]) -> text",
              "The bytes that ids stand for, special tokens written out.", &decode);
  type.method("id", "(token) -> id or nil", "The id of exactly this token.", &token_id);
  type.method("end_of_text", "() -> id or nil",
              "The id that ends a text, where the tokenizer has one of the usual names for it.",
              [](const Arguments& args) {
                const auto id = own_tokenizer(args).end_of_text();
                return id ? Json(*id) : Json();
              });
  type.method(
      "vocab_size", "() -> number", "One more than the largest id.",
      [](const Arguments& args) { return static_cast<double>(own_tokenizer(args).vocab_size()); });
  type.fields({}, [](const Arguments& args) -> sol::object {
    throw UsageError(fmt::format(
        "Tokenizer: expected a method (encode, decode, id, end_of_text, vocab_size), got {}",
        describe_value(args.state(), 2).substr(0, 60)));
  });
  type.text([](const TokenizerHandle& handle) {
    return fmt::format("Tokenizer {} ({} ids)", handle.tokenizer->name(),
                       handle.tokenizer->vocab_size());
  });
  document_options<EncodeOptions>("Tokenizer:encode", encode_schema());
  document_options<DecodeOptions>("Tokenizer:decode", decode_schema());
  define(
      ms, "ms", "tokenizer", "(\"bytes\" | path) -> Tokenizer",
      "The tokenizer of bytes, of a tokenizer.json (BPE: Llama 2 and 3, Qwen 2, Gemma, GPT-2), or "
      "of a folder that has one.",
      open_tokenizer);
}

}  // namespace moonshard::bindings
