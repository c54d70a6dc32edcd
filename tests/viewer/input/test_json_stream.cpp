// The token stream against nlohmann's parser: what that accepts is read alike, what it refuses is
// refused.
#include <cmath>
#include <cstdlib>

#include "runtime/input/json_stream.h"
#include "tests/viewer/reader_support.h"

namespace moonshard::viewer {
namespace {

Json build(JsonStream& stream, JsonToken token) {
  switch (token) {
    case JsonToken::BeginObject: {
      Json object = Json::object();
      while (stream.next() == JsonToken::Key) {
        const std::string key(stream.text());
        object[key] = build(stream, stream.next());
      }
      return object;
    }
    case JsonToken::BeginArray: {
      Json list = Json::array();
      for (JsonToken next = stream.next(); next != JsonToken::EndArray; next = stream.next()) {
        list.push_back(build(stream, next));
      }
      return list;
    }
    case JsonToken::String:
      return std::string(stream.text());
    case JsonToken::Number:
      return stream.number();
    case JsonToken::True:
      return true;
    case JsonToken::False:
      return false;
    default:
      return nullptr;
  }
}

Json read_all(std::string_view text, size_t step) {
  TricklingSource source(text, step);
  JsonStream stream(source, "text");
  Json value = build(stream, stream.next());
  if (stream.next() != JsonToken::End) throw IoError("text: more than one value");
  return value;
}

// Numbers as doubles everywhere, so that 1 and 1.0 compare equal.
Json with_doubles(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_structured()) return value;
  Json made = value.is_object() ? Json::object() : Json::array();
  for (auto entry = value.begin(); entry != value.end(); ++entry) {
    if (value.is_object()) {
      made[entry.key()] = with_doubles(*entry);
    } else {
      made.push_back(with_doubles(*entry));
    }
  }
  return made;
}

const char* const kTexts[] = {
    "{}", "[]", "null", "true", " false ", "0", "-0", "1e5", "-1.5E-3", "\"\"", "[1,2,[3,{}]]",
    "{\"a\":{\"b\":[true,false,null]},\"c\":\"\\u00e9\\n\\\"\\ud83d\\ude00\"}",
    "[0.1,123456789012345678901234567890,1e-320,1.7976931348623157e308,3896771589217.926]",
    "{\"\":1,\"%n%s\":2,\"\\u0000\":3}", "\"caf\xc3\xa9\"", " [ 1 , 2 ] \n",
    // refused
    "", " ", "[", "{", "[1,]", "{\"a\":}", "{\"a\" 1}", "{a:1}", "[1 2]", "01", "1.", ".5", "1e",
    "-", "+1", "nul", "truely", "NaN", "[Infinity]", "\"\\x\"", "\"\\u12g4\"", "\"\\ud800\"",
    "\"\\udc00\"", "\"tab\there\"", "\"open", "[1]]", "{} {}", "{\"a\":1,\"a\":2}", "1e999", "[-]",
    "{\"a\":1,}", "[\"a\" : 1]", "\"\\", "\"\\u00", "]", "}", ",", ":", "[}", "{]"};

TEST(JsonStream, reads_and_refuses_what_the_records_parser_does) {
  for (const char* text : kTexts) {
    Json expected;
    const std::string refused =
        io_error_of([&] { expected = with_doubles(parse_json(text, "text")); });
    for (const size_t step : {1u, 2u, 7u, 100u}) {
      Json got;
      const std::string error = io_error_of([&] { got = with_doubles(read_all(text, step)); });
      EXPECT_EQ(error.empty(), refused.empty()) << text << "\n" << error << "\n" << refused;
      if (refused.empty()) {
        EXPECT_EQ(got, expected) << text;
      }
    }
  }
}

TEST(JsonStream, reads_a_real_record_like_the_records_parser_and_refuses_each_beginning_of_it) {
  const std::string text =
      read_bytes(source_folder() / "examples/results/document_004_dit_l/env.json");
  ASSERT_GT(text.size(), 100u);
  EXPECT_EQ(read_all(text, 3), with_doubles(parse_json(text, "text")));
  const size_t whole = text.find_last_of('}') + 1;
  for (size_t size = 0; size < whole; ++size) {
    const std::string error = io_error_of([&] { read_all(text.substr(0, size), 4096); });
    ASSERT_FALSE(error.empty()) << size;
    EXPECT_TRUE(contains(error, "malformed at byte")) << error;
  }
}

TEST(JsonStream, rounds_numbers_like_the_C_library) {
  for (const char* text :
       {"0.1", "123456789.123456789", "9007199254740993", "1e22", "1e23", "8.41e21", "5e-324",
        "2.2250738585072011e-308", "179769313486231570000", "0.000000000000000000000001",
        "-3896771589217.926", "1.00000000000000011102230246251565"}) {
    const double got = read_all(text, 100).get<double>();
    EXPECT_EQ(got, std::strtod(text, nullptr)) << text;
  }
}

TEST(JsonStream, bounds_depth_strings_and_the_whole_text) {
  EXPECT_EQ(io_error_of([] { read_all(std::string(256, '[') + std::string(256, ']'), 999); }), "");
  EXPECT_TRUE(
      contains(io_error_of([] { read_all(std::string(257, '['), 999); }), "deeper than 256"));
  EXPECT_TRUE(
      contains(io_error_of([] { read_all(std::string(10'000'000, '['), 65536); }), "deeper"));
  const std::string large = "\"" + std::string((16u << 20) + 1, 'x') + "\"";
  EXPECT_TRUE(contains(io_error_of([&] { read_all(large, 65536); }), "a string of"));
  const std::string escaped = "\"\\n" + std::string((16u << 20) + 1, 'x') + "\"";
  EXPECT_TRUE(contains(io_error_of([&] { read_all(escaped, 65536); }), "a string of"));
  const std::string spaces(65u << 20, ' ');
  EXPECT_TRUE(contains(io_error_of([&] { read_all(spaces, 1u << 20); }), "at most"));
  const std::string digits = "[" + std::string(17u << 20, '1') + "]";
  EXPECT_FALSE(io_error_of([&] { read_all(digits, 1u << 20); }).empty());
}

TEST(JsonStream, refuses_duplicate_keys_also_of_large_objects_and_too_many_keys) {
  std::string text = "{";
  for (int i = 0; i < 10'000; ++i) text += "\"k" + std::to_string(i) + "\":1,";
  EXPECT_EQ(io_error_of([&] { read_all(text + "\"k9999x\":1}", 4096); }).find("duplicate"),
            std::string::npos);
  EXPECT_TRUE(contains(io_error_of([&] { read_all(text + "\"k77\":1}", 4096); }), "duplicate key"));
  EXPECT_TRUE(contains(io_error_of([&] { read_all(text + "\"last\":1}", 4096); }), "10000 keys"));
  // The same key in neighbours is no duplicate.
  EXPECT_EQ(io_error_of([] { read_all("[{\"a\":1},{\"a\":1},{\"b\":{\"a\":1},\"a\":2}]", 1); }),
            "");
}

TEST(JsonStream, passes_over_values_without_losing_its_place) {
  const std::string text =
      "{\"a\":{\"x\":[1,{\"]\":\"}\\\"{\"}],\"y\":\"\\\\\"},\"b\":\"a\\\"]\",\"c\":[[],[{}]],\"d\":"
      "-1.5,"
      "\"e\":null,\"end\":7}";
  for (size_t step = 1; step < 40; ++step) {
    TricklingSource source(text, step);
    JsonStream stream(source, "text");
    EXPECT_EQ(stream.next(), JsonToken::BeginObject);
    std::string keys;
    while (stream.next() == JsonToken::Key) {
      keys += stream.text();
      if (stream.text() == "end") {
        stream.next();
        EXPECT_EQ(stream.number(), 7);
      } else {
        stream.skip_value();
      }
    }
    EXPECT_EQ(keys, "abcdeend");
    EXPECT_EQ(stream.next(), JsonToken::End);
  }
}

TEST(JsonStream, refuses_what_is_unbalanced_or_deep_while_passing_over_it) {
  const auto skip = [](const std::string& value) {
    const std::string text = "{\"a\":" + value;
    MemorySource source(text);
    JsonStream stream(source, "text");
    stream.next(), stream.next();
    stream.skip_value();
  };
  EXPECT_FALSE(io_error_of([&] { skip("[1,2}"); }).empty());
  EXPECT_FALSE(io_error_of([&] { skip("[[1]"); }).empty());
  EXPECT_FALSE(io_error_of([&] { skip("\"abc"); }).empty());
  EXPECT_FALSE(io_error_of([&] { skip(std::string("[\0]", 3)); }).empty());
  EXPECT_TRUE(contains(io_error_of([&] { skip(std::string(100'000, '[')); }), "deeper"));
}

TEST(JsonStream, takes_the_words_of_Python_only_when_asked_to) {
  const std::string text = "[NaN,Infinity,-Infinity,1e999]";
  MemorySource source(text);
  JsonStreamOptions options;
  options.allow_nan = true;
  JsonStream stream(source, "text", options);
  stream.next(), stream.next();
  EXPECT_TRUE(std::isnan(stream.number()));
  for (const double expected : {HUGE_VAL, -HUGE_VAL, HUGE_VAL}) {
    EXPECT_EQ(stream.next(), JsonToken::Number);
    EXPECT_EQ(stream.number(), expected);
  }
  EXPECT_EQ(stream.next(), JsonToken::EndArray);
}

}  // namespace
}  // namespace moonshard::viewer
