// Tokenizers against Hugging Face's own answers (tests/data/tokenizers, made by
// tests/golden/make_tokenizers.py), and files that are not as they should be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "runtime/base/check.h"
#include "runtime/base/utf8.h"
#include "runtime/data/text/bpe_tokenizer.h"
#include "runtime/data/text/tokenizer.h"
#include "tests/support/temporary_folder.h"

namespace moonshard::data {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::ThrowsMessage;

const std::string kFolder = std::string(MOONSHARD_SOURCE_DIR) + "/tests/data/tokenizers/";

json read(const std::string& name) {
  std::ifstream in(kFolder + name);
  return json::parse(in);
}

std::string whole_characters(const std::string& text) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const Utf8Character character = read_character(text, at);
    append_character(result, character.code);
    at += static_cast<size_t>(character.length);
  }
  return result;
}

class Reference : public testing::TestWithParam<const char*> {};

TEST_P(Reference, IdsAndTextEqualTheReferenceTokenizersOnTrickyText) {
  static const json expected = read("expected.json");
  const std::string name = GetParam();
  const auto tokenizer = open_tokenizer(kFolder + name + ".json");
  const json& texts = expected["texts"];
  ASSERT_GE(texts.size(), 200u);
  ASSERT_EQ(expected[name].size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto text = texts[i].get<std::string>();
    const std::vector<int32_t> ids = encode_whole(*tokenizer, text);
    EXPECT_EQ(ids, expected[name][i]["ids"].get<std::vector<int32_t>>())
        << texts[i].dump(-1, ' ', true);
    // The reference decodes to whole characters.
    EXPECT_EQ(whole_characters(tokenizer->decode(ids, true)), expected[name][i]["text"])
        << texts[i].dump(-1, ' ', true);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Reference,
                         testing::Values("llama3", "qwen2", "gpt2", "roberta", "gemma", "llama2"),
                         [](const auto& kind) { return std::string(kind.param); });

TEST(ByteTokenizer, IsItsOwnInverseOnAllBytes) {
  const auto tokenizer = open_tokenizer("bytes");
  std::string text;
  for (int i = 0; i < 256; ++i) text.push_back(static_cast<char>(i));
  const std::vector<int32_t> ids = encode_whole(*tokenizer, text);
  ASSERT_EQ(ids.size(), 256u);
  EXPECT_EQ(ids[255], 255);
  EXPECT_EQ(tokenizer->decode(ids, false), text);
  EXPECT_EQ(tokenizer->end_of_text(), 0);
  EXPECT_THROW(tokenizer->decode({256}, false), UsageError);
  EXPECT_THROW(tokenizer->decode({-1}, false), UsageError);
}

TEST(BpeTokenizer, KnowsItsSpecialTokensAndTheirIds) {
  const auto tokenizer = open_tokenizer(kFolder + "llama3.json");
  ASSERT_TRUE(tokenizer->end_of_text().has_value());
  EXPECT_EQ(tokenizer->decode({*tokenizer->end_of_text()}, false), "<|end_of_text|>");
  EXPECT_EQ(tokenizer->decode({*tokenizer->end_of_text()}, true), "");
  EXPECT_EQ(tokenizer->prefix(), std::vector<int32_t>{*tokenizer->find("<|begin_of_text|>")});
  EXPECT_FALSE(tokenizer->find("<|no_such|>").has_value());
  EXPECT_THROW(tokenizer->decode({static_cast<int32_t>(tokenizer->vocab_size())}, false),
               UsageError);
  std::vector<int32_t> ids;
  EXPECT_THAT([&] { tokenizer->encode("ab\xff", ids); },
              ThrowsMessage<UsageError>(HasSubstr("got byte 0xff at position 2")));
}

TEST(BpeTokenizer, OfCharactersRefusesWhatItWouldReadDifferently) {
  std::string name = "gemma.json";
  const auto error_of = [&](const std::string& pointer, const json& value) {
    json file = read(name);
    file[json::json_pointer(pointer)] = value;
    try {
      tokenizer_of_json(file, "file", 1);
    } catch (const IoError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(error_of("/pre_tokenizer", nullptr), "no error");
  EXPECT_THAT(error_of("/pre_tokenizer/type", "Metaspace"), HasSubstr("'pre_tokenizer.type'"));
  EXPECT_THAT(error_of("/pre_tokenizer/pattern/String", "a"), HasSubstr("'pre_tokenizer.pattern'"));
  EXPECT_THAT(error_of("/normalizer/content", "_"), HasSubstr("field 'normalizer.content'"));
  EXPECT_THAT(error_of("/normalizer/pattern/String", "x"), HasSubstr("field 'normalizer.pattern'"));
  EXPECT_THAT(error_of("/normalizer/type", "Lowercase"), HasSubstr("'normalizer.type': expected"));
  EXPECT_THAT(error_of("/decoder/decoders/1/type", "Fuse"), HasSubstr("field 'decoder': expected"));
  EXPECT_THAT(error_of("/normalizer/pattern", {{"Regex", " "}}), HasSubstr("'normalizer.pattern'"));
  EXPECT_THAT(error_of("/normalizer", nullptr),
              HasSubstr("blanks, which a normaliser has replaced"));
  for (const char* type : {"ByteLevel", "Sequence"})
    EXPECT_THAT(error_of("/pre_tokenizer/type", type), HasSubstr("field 'model.byte_fallback'"));
  EXPECT_THAT(error_of("/decoder/decoders/3", {{"type", "Fuse"}}), HasSubstr("got 'Fuse'"));
  EXPECT_THAT(
      error_of("/decoder/decoders",
               json::array(
                   {{{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}}})),
      HasSubstr("got fewer steps"));

  name = "llama2.json";  // with Prepend and Strip
  EXPECT_EQ(error_of("/decoder", nullptr), "no error");
  const json strip = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}};
  EXPECT_EQ(error_of("/decoder/decoders/3", strip), "no error");
  EXPECT_THAT(error_of("/decoder/decoders/4", strip), HasSubstr("field 'decoder': expected"));
  for (const json& other : {json{{"content", "_"}}, {{"start", 2}}, {{"stop", 1}}}) {
    json changed = strip;
    changed.update(other);
    EXPECT_THAT(error_of("/decoder/decoders/3", changed), HasSubstr("Strip of one blank")) << other;
  }
  for (const char* missing : {"start", "stop"}) {
    json changed = strip;
    changed.erase(missing);
    EXPECT_THAT(error_of("/decoder/decoders/3", changed), HasSubstr("Strip of one blank"));
  }
  EXPECT_THAT(error_of("/normalizer/normalizers/0/prepend", "_"),
              HasSubstr("field 'normalizer.prepend': expected U+2581, got '_'"));
  EXPECT_THAT(error_of("/normalizer/normalizers/2", {{"type", "Prepend"}, {"prepend", "\u2581"}}),
              HasSubstr("Prepend once, got twice"));
  EXPECT_THAT(error_of("/normalizer/normalizers/2", {{"type", "NFC"}}),
              HasSubstr("a normal form as the first step, got NFC"));
  for (const json& list : {json(nullptr), json::object(), json(std::vector<json>(17))})
    EXPECT_THAT(error_of("/normalizer/normalizers", list), HasSubstr("a list of up to 16"));
  EXPECT_THAT(error_of("/normalizer", {{"type", "Sequence"}}), HasSubstr("a list of up to 16"));
  json file = read("gemma.json");
  file["model"]["vocab"].erase("<0x41>");
  EXPECT_THAT([&] { tokenizer_of_json(file, "file", 1); },
              ThrowsMessage<IoError>(HasSubstr("expected a token for each of the 256 bytes")));
}

TEST(BpeTokenizer, TakesWhatChangesNoId) {
  json file = read("gpt2.json");
  const std::string text = "Hello, it's a test \u65e5";
  const std::vector<int32_t> expected = encode_whole(*tokenizer_of_json(file, "file", 1), text);
  file["model"]["dropout"] = 0.0;
  file["model"]["continuing_subword_prefix"] = file["model"]["end_of_word_suffix"] = "";
  file["model"]["vocab"][""] = 1001;
  EXPECT_EQ(encode_whole(*tokenizer_of_json(file, "file", 1), text), expected);
  // Beyond the alphabet: in the vocabulary as it is written, and found as an added token only.
  file["model"]["vocab"]["\u65e5"] = 1002;
  EXPECT_EQ(encode_whole(*tokenizer_of_json(file, "file", 1), text), expected);
  file["added_tokens"].push_back({{"id", 1002}, {"content", "\u65e5"}});
  const auto tokenizer = tokenizer_of_json(file, "file", 1);
  EXPECT_EQ(encode_whole(*tokenizer, text).back(), 1002);
  EXPECT_EQ(tokenizer->decode(encode_whole(*tokenizer, text), false), text);
}

TEST(BpeTokenizer, PrependsAMarkWhereOnlyThatIsAskedFor) {
  json file = read("llama2.json");
  file["normalizer"] = {{"type", "Prepend"}, {"prepend", "\u2581"}};
  const auto tokenizer = tokenizer_of_json(file, "file", 1);
  std::vector<int32_t> ids;
  tokenizer->encode("the", ids);
  std::vector<int32_t> marked;
  tokenizer_of_json(read("llama2.json"), "file", 1)->encode("the", marked);
  EXPECT_EQ(ids, marked);
  EXPECT_EQ(tokenizer->decode(ids, false), "the");
}

TEST(BpeTokenizer, FindsTokensByTheirText) {
  const auto gpt2 = open_tokenizer(kFolder + "gpt2.json");
  EXPECT_EQ(gpt2->decode({*gpt2->find("a")}, false), "a");
  for (const char* unknown : {"\u65e5", "\xff", "no such token"})
    EXPECT_EQ(gpt2->find(unknown), std::nullopt) << unknown;
  const auto llama2 = open_tokenizer(kFolder + "llama2.json");
  EXPECT_EQ(llama2->decode({*llama2->find("<0x41>")}, false), "A");
  EXPECT_EQ(llama2->end_of_text(), llama2->find("</s>"));
  json file = read("gpt2.json");
  file["added_tokens"] = json::array();
  EXPECT_EQ(tokenizer_of_json(file, "file", 1)->end_of_text(), std::nullopt);
  file["added_tokens"].push_back({{"id", 1005}, {"content", "<far>"}});
  for (const int32_t id : {-1, 1002, 1006})
    EXPECT_THAT([&] { tokenizer_of_json(file, "file", 1)->decode({id}, false); },
                ThrowsMessage<UsageError>(HasSubstr(
                    fmt::format("expected ids from 0 to 1005 that have a token, got {}", id))));
}

TEST(BpeTokenizer, ForgetsWordsBeforeTheyFillTheMemory) {
  const auto tokenizer = open_tokenizer(kFolder + "gpt2.json");
  std::string text;
  for (int i = 0; i < 70'000; ++i) text += fmt::format(" {}", i);
  const std::vector<int32_t> first = encode_whole(*tokenizer, text);
  EXPECT_EQ(encode_whole(*tokenizer, text), first);
  EXPECT_EQ(tokenizer->decode(first, false), text);
}

TEST(BpeTokenizer, IsTheSameFromSeveralThreads) {
  const auto tokenizer = open_tokenizer(kFolder + "qwen2.json");
  std::string text;
  for (int i = 0; i < 300; ++i) text += "word" + std::to_string(i) + " and e\u0301 others, ";
  const std::vector<int32_t> alone = encode_whole(*tokenizer, text);
  std::vector<std::vector<int32_t>> results(4);
  {
    std::vector<std::jthread> threads;
    for (auto& result : results)
      threads.emplace_back([&] { result = encode_whole(*tokenizer, text); });
  }
  for (const auto& result : results) EXPECT_EQ(result, alone);
}

TEST(BpeTokenizer, TakesLongPiecesInLittleTime) {
  // A way that is quadratic in a piece's length would need minutes here, and the test's time limit.
  const auto tokenizer = open_tokenizer(kFolder + "qwen2.json");
  std::string text;
  for (int i = 0; i < 400'000; ++i) text += "ab";
  EXPECT_EQ(tokenizer->decode(encode_whole(*tokenizer, text), false), text);
  text.clear();
  for (int i = 0; i < 200'000; ++i) text += "\u0301\u0323";  // accents in the wrong order
  EXPECT_EQ(tokenizer->decode(encode_whole(*tokenizer, text), false),
            normalized(text, NormalForm::Nfc));
  EXPECT_NE(normalized(text, NormalForm::Nfc), text);
}

TEST(Normalizer, GivesTheFourForms) {
  EXPECT_EQ(normalized("e\u0301\u212b\uac00", NormalForm::Nfc), "\u00e9\u00c5\uac00");
  EXPECT_EQ(normalized("\u00e9\uac01", NormalForm::Nfd), "e\u0301\u1100\u1161\u11a8");
  EXPECT_EQ(normalized("\ufb01\u00bd", NormalForm::Nfkc), "fi1\u20442");
  EXPECT_EQ(normalized("\u1e9b\u0323", NormalForm::Nfkd), "s\u0323\u0307");
  EXPECT_EQ(normalized("\u1e9b\u0323", NormalForm::None), "\u1e9b\u0323");
  EXPECT_EQ(normalized("\u0958", NormalForm::Nfc), "\u0915\u093c");  // is never put together again
}

// ---- malformed files ----------------------------------------------------------------------------

struct Mistake {
  const char* name;
  const char* pointer;  ///< where in the file
  const char* value;    ///< JSON that is put there; empty removes it
  const char* expected;
};

class Malformed : public testing::TestWithParam<Mistake> {};

TEST_P(Malformed, IsAnErrorThatNamesTheField) {
  static const json good = read("llama3.json");
  json file = good;
  const Mistake& mistake = GetParam();
  const json::json_pointer pointer(mistake.pointer);
  if (*mistake.value == '\0') {
    json& parent = file[pointer.parent_pointer()];
    if (parent.is_array()) {
      parent.erase(static_cast<size_t>(std::stoul(pointer.back())));
    } else {
      parent.erase(pointer.back());
    }
  } else {
    file[pointer] = json::parse(mistake.value);
  }
  EXPECT_THAT([&] { tokenizer_of_json(file, "file", 1); },
              ThrowsMessage<IoError>(HasSubstr(mistake.expected)));
}

INSTANTIATE_TEST_SUITE_P(
    Fields, Malformed,
    testing::Values(
        Mistake{"model_type", "/model/type", "\"WordPiece\"",
                "field 'model.type': expected BPE, got 'WordPiece'"},
        Mistake{"no_model", "/model", "", "field 'model'"},
        Mistake{"no_vocab", "/model/vocab", "", "field 'model.vocab'"},
        Mistake{"model_type_number", "/model/type", "7", "field 'model.type': expected a text"},
        Mistake{"flag_number", "/model/ignore_merges", "1",
                "field 'model.ignore_merges': expected true or false, got number"},
        Mistake{"no_merges", "/model/merges", "", "field 'model.merges'"},
        Mistake{"merges_object", "/model/merges", "{}", "field 'model.merges': expected a list"},
        Mistake{"dropout", "/model/dropout", "0.1", "field 'model.dropout'"},
        Mistake{"subword_prefix", "/model/continuing_subword_prefix", "\"##\"",
                "continuing_subword_prefix"},
        Mistake{"byte_fallback", "/model/byte_fallback", "true", "byte_fallback"},
        Mistake{"negative_id", "/model/vocab/a", "-1", "ids from 0"},
        Mistake{"huge_id", "/model/vocab/a", "99999999", "ids from 0"},
        Mistake{"far_id", "/model/vocab/a", "9999999", "without large gaps"},
        Mistake{"fraction_id", "/model/vocab/a", "1.5", "ids from 0"},
        Mistake{"text_id", "/model/vocab/a", "\"1\"", "ids from 0"},
        Mistake{"id_twice", "/model/vocab/a", "5", "each id once"},
        Mistake{"missing_byte", "/model/vocab/a", "", "256 bytes"},
        Mistake{"unknown_merge", "/model/merges/0", "\"a zzzzzz\"", "model.merges[0]"},
        Mistake{"three_merge", "/model/merges/0", "\"a b c\"", "two tokens"},
        Mistake{"number_merge", "/model/merges/3", "7", "model.merges[3]"},
        Mistake{"one_merge", "/model/merges/0", "[\"a\"]", "two tokens"},
        Mistake{"left_merge", "/model/merges/0", "[1, \"a\"]", "two tokens"},
        Mistake{"right_merge", "/model/merges/0", "[\"a\", 1]", "two tokens"},
        Mistake{"merge_without_blank", "/model/merges/0", "\"ab\"", "two tokens"},
        Mistake{"merge_beyond_the_alphabet", "/model/merges/0", "\"a \u4e00\"",
                "tokens of the vocabulary"},
        Mistake{"merge_twice", "/model/merges/1", "[\"o\",\"n\"]", "each pair once"},
        Mistake{"normalizer", "/normalizer", "{\"type\":\"Lowercase\"}", "field 'normalizer.type'"},
        Mistake{"pre_tokenizer", "/pre_tokenizer", "{\"type\":\"Metaspace\"}", "Metaspace"},
        Mistake{"no_pre_tokenizer", "/pre_tokenizer", "null", "field 'pre_tokenizer'"},
        Mistake{"no_byte_level", "/pre_tokenizer/pretokenizers/1", "", "ByteLevel"},
        Mistake{"no_type", "/pre_tokenizer/type", "", "field 'pre_tokenizer.type'"},
        Mistake{"no_steps", "/pre_tokenizer/pretokenizers", "", "a list of 1 to 16"},
        Mistake{"steps_object", "/pre_tokenizer/pretokenizers", "{}", "a list of 1 to 16"},
        Mistake{"steps_empty", "/pre_tokenizer/pretokenizers", "[]", "a list of 1 to 16"},
        Mistake{"steps_many", "/pre_tokenizer/pretokenizers",
                "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]", "a list of 1 to 16"},
        Mistake{"byte_level_twice", "/pre_tokenizer/pretokenizers/0",
                "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}", "ByteLevel as the last one"},
        Mistake{"behavior", "/pre_tokenizer/pretokenizers/0/behavior", "\"Removed\"", "behavior"},
        Mistake{"invert", "/pre_tokenizer/pretokenizers/0/invert", "true", "invert"},
        Mistake{"string_pattern", "/pre_tokenizer/pretokenizers/0/pattern", "{\"String\":\" \"}",
                "a Regex"},
        Mistake{"bad_pattern", "/pre_tokenizer/pretokenizers/0/pattern/Regex", "\"(\"",
                "pattern.Regex"},
        Mistake{"prefix_space", "/pre_tokenizer/pretokenizers/1/add_prefix_space", "true",
                "add_prefix_space"},
        Mistake{"decoder", "/decoder", "{\"type\":\"WordPiece\"}", "field 'decoder.type'"},
        Mistake{"decoder_number", "/decoder", "5", "field 'decoder.type': expected a text"},
        Mistake{"truncation", "/truncation", "{\"max_length\":5}", "field 'truncation'"},
        Mistake{"padding", "/padding", "{}", "field 'padding'"},
        Mistake{"added_id", "/added_tokens/0/id", "5", "each id once"},
        Mistake{"added_far", "/added_tokens/0/id", "9000000", "near the others"},
        Mistake{"added_no_id", "/added_tokens/0/id", "", "'added_tokens[0].id': expected 0 to"},
        Mistake{"added_text_id", "/added_tokens/0/id", "\"5\"", "added_tokens[0].id"},
        Mistake{"added_negative_id", "/added_tokens/0/id", "-1", "added_tokens[0].id"},
        Mistake{"added_huge_id", "/added_tokens/0/id", "10000000", "added_tokens[0].id"},
        Mistake{"added_other_id", "/added_tokens/0/content", "\"a\"", "as in the vocabulary"},
        Mistake{"added_empty", "/added_tokens/0/content", "\"\"", "content"},
        Mistake{"added_twice", "/added_tokens/1/content", "\"<|begin_of_text|>\"",
                "each content once"},
        Mistake{"added_word", "/added_tokens/0/single_word", "true", "single_word"},
        Mistake{"added_text", "/added_tokens", "\"x\"", "field 'added_tokens'"},
        Mistake{"template_id",
                "/post_processor/processors/1/special_tokens/<|begin_of_text|>/ids/0", "999999",
                "ids that have a token"},
        Mistake{"template_id_text",
                "/post_processor/processors/1/special_tokens/<|begin_of_text|>/ids/0", "\"1\"",
                "ids that have a token"},
        Mistake{"template_id_negative",
                "/post_processor/processors/1/special_tokens/<|begin_of_text|>/ids/0", "-1",
                "ids that have a token"},
        Mistake{"template_id_in_a_gap", "/added_tokens/0/id", "2000", "ids that have a token"},
        Mistake{"template_ids_number",
                "/post_processor/processors/1/special_tokens/<|begin_of_text|>/ids", "7",
                "the ids of '<|begin_of_text|>'"},
        Mistake{"template_no_ids",
                "/post_processor/processors/1/special_tokens/<|begin_of_text|>/ids", "",
                "the ids of '<|begin_of_text|>'"},
        Mistake{"template_entry", "/post_processor/processors/1/special_tokens/<|begin_of_text|>",
                "7", "the ids of '<|begin_of_text|>'"},
        Mistake{"template_name", "/post_processor/processors/1/special_tokens", "{}",
                "special_tokens"},
        Mistake{"template_other_sequence", "/post_processor/processors/1/single/1/Sequence/id",
                "\"B\"", "the sequence A, got another"},
        Mistake{"template_sequence_twice", "/post_processor/processors/1/single/0",
                "{\"Sequence\":{\"id\":\"A\"}}", "the sequence A once"},
        Mistake{"template_number", "/post_processor/processors/1/single/0", "7",
                "special tokens and the sequence A once"},
        Mistake{"no_single", "/post_processor/processors/1/single", "",
                ".single': expected a list"},
        Mistake{"single_object", "/post_processor/processors/1/single", "{}",
                ".single': expected a list"},
        Mistake{"template_twice", "/post_processor/processors/0",
                "{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\"}}]}",
                "expected one template, got a second"},
        Mistake{"no_processors", "/post_processor/processors", "", "post_processor.processors"},
        Mistake{"processors_object", "/post_processor/processors", "{}",
                "post_processor.processors"},
        Mistake{"template_sequence", "/post_processor/processors/1/single/1", "", "the sequence A"},
        Mistake{"post_type", "/post_processor/processors/1/type", "\"BertProcessing\"",
                "BertProcessing"}),
    [](const auto& kind) { return std::string(kind.param.name); });

TEST(OpenTokenizer, SaysWhatIsWrongWithAFile) {
  EXPECT_THAT([] { open_tokenizer("/no/such"); },
              ThrowsMessage<UsageError>(HasSubstr("'/no/such'")));
  const TemporaryFolder folder;
  const auto path = folder.path() / "tokenizer.json";
  const auto open = [&](const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
    return open_tokenizer(folder.path().string());  // the folder's tokenizer.json
  };
  for (const char* text : {"", "{", "[]", "{\"model\": 1}", "{\"a\": 1, \"a\": 2}", "\xff\xfe"})
    EXPECT_THROW(open(text), IoError) << text;
  std::string deep(100'000, '[');
  EXPECT_THROW(open("{\"model\":" + deep), IoError);
  std::ifstream good(kFolder + "gpt2.json");
  std::string text((std::istreambuf_iterator<char>(good)), {});
  const auto first = open(text);
  text.insert(text.find("\"merges\""), " ");
  EXPECT_NE(open(text)->fingerprint(), first->fingerprint());
}

}  // namespace
}  // namespace moonshard::data
