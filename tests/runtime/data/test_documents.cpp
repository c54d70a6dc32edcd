// Files of text as they come: what is read, repaired and counted, refused with file and line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "runtime/base/check.h"
#include "runtime/data/text/documents.h"
#include "tests/support/temporary_folder.h"

namespace moonshard::data {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

class Documents : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& bytes) {
    const fs::path path = folder_.path() / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
  }
  std::vector<std::string> read(bool replace = false) {
    counts_ = {};
    std::vector<std::string> texts;
    parts_ = 0;
    for (const DocumentFile& file : list_documents(folder_.path()).files) {
      read_documents(file, replace, counts_, [&](const DocumentPart& part) {
        ++parts_;
        if (part.first) texts.emplace_back();
        texts.back() += part.text;
      });
    }
    return texts;
  }
  /// The only file's error, or "" when it is read.
  std::string error_of(const std::string& name, const std::string& bytes, bool replace = false) {
    write(name, bytes);
    std::string message;
    try {
      read(replace);
    } catch (const IoError& error) {
      message = error.what();
    }
    fs::remove(folder_.path() / name);
    return message;
  }

  TemporaryFolder folder_;
  DocumentCounts counts_;
  int parts_ = 0;
};

TEST_F(Documents, AreFoundInAllFoldersInTheOrderOfTheirNames) {
  write("b.txt", "two");
  write("a/deep/x.jsonl",
        "{\"text\": \"one\"}\r\n\n{\"other\": [1, {\"text\": 3}], \"text\": \"and\"}");
  write("c.json", "[{\"text\": \"three\"}, {\"n\": {\"text\": \"not this\"}, \"text\": \"four\"}]");
  write("d.JSON", "{\"text\": \"five\"}");
  write("notes.md", "not text of ours");
  write(".hidden/x.txt", "hidden");
  write(".moonshard/x.txt", "hidden");
  EXPECT_THAT(read(), ElementsAre("one", "and", "two", "three", "four", "five"));
  EXPECT_EQ(counts_.files, 4);
  EXPECT_EQ(counts_.documents, 6);
  EXPECT_EQ(counts_.blank_lines, 1);
  const FolderListing listing = list_documents(folder_.path());
  EXPECT_EQ(listing.files[0].name, "a/deep/x.jsonl");
  EXPECT_EQ(listing.other_files, 1);
  EXPECT_EQ(listing.hidden, 2);
}

TEST_F(Documents, LinksAreCountedAndNotFollowed) {
  const TemporaryFolder other;
  std::ofstream(other.path() / "secret.txt") << "secret";
  write("a.txt", "mine");
  fs::create_symlink(other.path() / "secret.txt", folder_.path() / "b.txt");
  fs::create_symlink(other.path(), folder_.path() / "c");
  fs::create_symlink(folder_.path(), folder_.path() / "loop");
  EXPECT_THAT(read(), ElementsAre("mine"));
  EXPECT_EQ(list_documents(folder_.path()).links, 3);
}

TEST_F(Documents, AFolderWithNothingToReadIsAnError) {
  EXPECT_THAT([&] { read(); }, ThrowsMessage<UsageError>(HasSubstr("got none")));
  EXPECT_THROW(list_documents(folder_.path() / "no"), UsageError);
  write("x.txt", "x");
  EXPECT_THROW(list_documents(folder_.path() / "x.txt"), UsageError);
}

TEST_F(Documents, EmptyFilesAndTextsAreCounted) {
  write("a.txt", "");
  write("b.jsonl", "");
  write("c.json", "");
  write("d.json", "[]");
  write("e.jsonl", "{\"text\": \"\"}\n\n  \r\n{\"text\": \"x\"}\n");
  write("f.txt", "\xEF\xBB\xBF");
  EXPECT_THAT(read(), ElementsAre("x"));
  EXPECT_EQ(counts_.empty_files, 5);
  EXPECT_EQ(counts_.empty_texts, 1);
  EXPECT_EQ(counts_.blank_lines, 2);
  EXPECT_EQ(counts_.repairs.byte_order_marks, 1);
  EXPECT_EQ(counts_.to_json()["skipped"]["empty_files"], 5);
}

TEST_F(Documents, NewlinesStayAsTheyAreAndAByteOrderMarkGoes) {
  write("a.txt", "\xEF\xBB\xBFone\r\ntwo\rthree\n");
  write("b.jsonl", "\xEF\xBB\xBF{\"text\": \"x\\r\\ny\"}\r\n{\"text\": \"z\"}");
  EXPECT_THAT(read(), ElementsAre("one\r\ntwo\rthree\n", "x\r\ny", "z"));
  EXPECT_EQ(counts_.repairs.byte_order_marks, 2);
}

TEST_F(Documents, IllFormedBytesAreErrorsWithLineAndByte) {
  EXPECT_THAT(error_of("a.txt", "one\ntwo \xff"),
              HasSubstr("a.txt:2: expected text in UTF-8, got byte 0xff at byte 8"));
  EXPECT_THAT(error_of("a.txt", "\xEF\xBB\xBFx\xc3"),
              HasSubstr("a.txt:1: expected text in UTF-8, got byte 0xc3 at byte 4"));
  EXPECT_THAT(error_of("a.txt", std::string("a\0b", 3)), HasSubstr("zero byte at byte 1"));
  EXPECT_THAT(error_of("a.txt", std::string("\xff\xfe"
                                            "a\0",
                                            4)),
              HasSubstr("UTF-16"));
  EXPECT_THAT(error_of("a.jsonl", "{\"text\": \"x\"}\n{\"text\": \"\xc0\xaf\"}\n"),
              HasSubstr("a.jsonl:2:"));
  EXPECT_THAT(error_of("a.json", "{\n\"text\":\n\"\xed\xa0\x80\"}"), HasSubstr("a.json:3:"));
  // Far into the file, at the seam of two reads.
  for (const int shift : {-3, -2, -1, 0, 1}) {
    const std::string head(static_cast<size_t>((1 << 20) + shift), 'x');
    EXPECT_EQ(error_of("a.txt", head + "\xF0\x9F\x98\x80 end"), "");
    EXPECT_THAT(error_of("a.txt", head + "\xF0\x9F\x98 end"),
                HasSubstr("byte " + std::to_string(head.size())));
  }
}

TEST_F(Documents, RepairsReplaceWhatPythonWouldAndAreCounted) {
  // What bytes.decode("utf-8", "replace") gives.
  const std::pair<std::string, std::string> cases[] = {
      {"a\xff"
       "b",
       "a\uFFFDb"},
      {"\xF0\x9F\x98", "\uFFFD"},
      {"\xE2\x82x", "\uFFFDx"},
      {"\xC0\xAF", "\uFFFD\uFFFD"},
      {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},
      {"\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},
      {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
       "A",
       "\uFFFD\uFFFD\uFFFD\uFFFDA"}};
  for (const auto& [bytes, expected] : cases) {
    write("a.txt", bytes);
    EXPECT_THAT(read(true), ElementsAre(expected));
    EXPECT_GT(counts_.repairs.replaced_characters, 0);
  }
  write("a.txt", std::string("x\0y", 3));
  write("b.jsonl",
        "{\"text\": \"\\ud800 \\ud83d\\ude00 \\udc00\\u0000\"}\n{\"text\": \"\\\\ud800\"}\n");
  write("c.json", "{\"text\": \"\\uD83D\xff\"}");
  EXPECT_THAT(read(true),
              ElementsAre("x\uFFFDy", "\uFFFD \U0001F600 \uFFFD\uFFFD", "\\ud800", "\uFFFD\uFFFD"));
  EXPECT_EQ(counts_.repairs.replaced_characters, 6);
}

TEST_F(Documents, LoneSurrogatesAreErrorsUnlessReplaced) {
  EXPECT_THAT(error_of("a.jsonl", "{\"text\": \"\\ud800\"}"), HasSubstr("a.jsonl:1"));
  EXPECT_THAT(error_of("a.json", "{\"text\":\n\"\\udc00\"}"), HasSubstr("a.json:2"));
  // At the seam of two reads, whole and halved.
  for (int shift = 0; shift < 14; ++shift) {
    const std::string head(static_cast<size_t>((1 << 20) - 12 - shift), 'x');
    EXPECT_EQ(error_of("a.json", "{\"text\": \"" + head + "\\ud83d\\ude00\"}", true), "");
    EXPECT_EQ(counts_.repairs.replaced_characters, 0);
    EXPECT_EQ(error_of("a.json", "{\"text\": \"" + head + "\\ud83d\"}", true), "");
    EXPECT_EQ(counts_.repairs.replaced_characters, 1);
  }
}

TEST_F(Documents, WhatIsNoJsonOfTextsIsAnErrorWithItsLine) {
  const std::string good = "{\"text\": \"x\"}\n";
  for (const char* line :
       {"{\"text\": \"x\"", "{\"text\": 5}", "{\"text\": null}", "{\"txt\": \"x\"}", "[1]", "\"x\"",
        "{\"text\": \"x\"} more", "{\"text\": \"x\", \"text\": \"y\"}", "{'text': 'x'}",
        "{\"text\": \"tab\there\"}", "{\"text\": \"x\\q\"}", "nul",
        "{\"text\": \"x\", \"n\": 1e999}"}) {
    EXPECT_THAT(error_of("a.jsonl", good + good + line + "\n" + good), HasSubstr("a.jsonl:3"))
        << line;
    EXPECT_NE(error_of("a.json", line), "") << line;
  }
  EXPECT_THAT(error_of("a.json", "[\n{\"text\": \"x\"},\n{\"text\": 7}]"),
              HasSubstr("a.json:3: expected a text under \"text\", got a number"));
  EXPECT_THAT(error_of("a.json", "[\n{\"text\": \"x\"},\n[]]"),
              HasSubstr("a.json:3: expected an object with \"text\""));
  EXPECT_THAT(error_of("a.json", "[{\"text\": \"x\"}"), HasSubstr("expected JSON"));
  EXPECT_THAT(error_of("a.json", "{\"text\": \"x\"}{"), HasSubstr("expected JSON"));
  EXPECT_THAT(error_of("a.json", "{\"text\": \"x\", \"a\": " + std::string(300, '[')),
              HasSubstr("levels of nesting"));
  EXPECT_THAT(error_of("a.jsonl", "{\"text\": \"x\", \"a\": " + std::string(300, '[')),
              HasSubstr("a.jsonl:1"));
  EXPECT_THAT(error_of("a.jsonl", "{\"text\": \"a\\u0000\"}"), HasSubstr("zero character"));
}

TEST_F(Documents, OfTooManyOrTooLongKeysAreRefused) {
  std::string keys;
  for (int i = 0; i < 10'000; ++i) keys += fmt::format("\"k{}\": 0, ", i);
  EXPECT_THAT(error_of("a.json", "{\n" + keys + "\"text\": \"x\"}"),
              HasSubstr("a.json:2: expected at most 10000 keys of at most 4096 bytes, got more"));
  EXPECT_THAT(error_of("a.json", "{\"" + std::string(4097, 'k') + "\": 0, \"text\": \"x\"}"),
              HasSubstr("a.json:1: expected at most 10000 keys"));
}

TEST_F(Documents, AFileThatChangesAfterItWasListedIsAnError) {
  for (const char* other : {"longer text", "texts"}) {  // another size, another time
    write("a.txt", "text!");
    const DocumentFile listed = list_documents(folder_.path()).files.at(0);
    write("a.txt", other);
    fs::last_write_time(listed.path, fs::file_time_type::clock::now() + std::chrono::seconds(5));
    EXPECT_THAT([&] { read_documents(listed, false, counts_, [](const DocumentPart&) {}); },
                ThrowsMessage<IoError>(HasSubstr("a.txt: expected a file that stays as it is")));
  }
}

TEST_F(Documents, LongTextComesInPartsThatEndWithALine) {
  std::string text;
  while (text.size() < (40u << 20)) text += "A line of text, and some more of it.\n\n  indented\n";
  write("a.txt", text);
  const auto texts = read();
  ASSERT_EQ(texts.size(), 1u);
  EXPECT_TRUE(texts[0] == text);
  EXPECT_GT(parts_, 1);
  EXPECT_EQ(counts_.documents, 1);
}

TEST_F(Documents, ALineThatNeverEndsIsAnError) {
  const std::string endless(kMaxLineBytes + (2u << 20), 'x');
  EXPECT_THAT(error_of("a.txt", "one\n" + endless),
              HasSubstr("a.txt:2: expected lines of at most"));
  EXPECT_THAT(error_of("a.jsonl", "{\"text\": \"x\"}\n{\"text\": \"" + endless),
              HasSubstr("a.jsonl:2: expected lines of at most"));
  EXPECT_THAT(error_of("a.json", "\n\n{\"text\": \"" + endless),
              HasSubstr("a.json:3: expected values of at most"));
}

}  // namespace
}  // namespace moonshard::data
