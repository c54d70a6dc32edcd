#include "runtime/privacy/rank_agreement.h"

#include <ATen/ATen.h>

#include "runtime/base/check.h"
#include "runtime/base/json.h"

namespace moonshard::privacy {
namespace {

// FNV-1a. Ranks trust each other: this finds differences, not attacks.
int64_t digest_of(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const unsigned char byte : text) hash = (hash ^ byte) * 0x100000001b3u;
  return static_cast<int64_t>(hash);
}

// Of every rank [ranks, n].
at::Tensor gathered(comm::World& world, const std::vector<int64_t>& own) {
  const auto count = static_cast<int64_t>(own.size());
  const at::Tensor mine = at::tensor(own, at::kLong),
                   all = at::empty({world.size() * count}, at::kLong);
  world.group("statistics", c10::kCPU)->all_gather(all, mine, "what a claim rests on").wait();
  return all.view({world.size(), count});
}

// The first rank whose number differs from rank 0's; 0 where none does.
int64_t first_other(const at::Tensor& column) {
  const at::Tensor others = column.ne(column[0]).nonzero();
  return others.size(0) == 0 ? 0 : others[0][0].item<int64_t>();
}

}  // namespace

void add_option_facts(std::vector<SharedFact>& facts, const std::string& where,
                      const Json& options) {
  for (const auto& [key, value] : options.items())
    facts.push_back({fmt::format("{}: option '{}'", where, key), one_line(value)});
}

void require_agreement(comm::World& world, const std::vector<SharedFact>& facts) {
  if (world.size() == 1 || world.is_fake()) return;
  std::string names;
  std::vector<int64_t> digests;
  for (const SharedFact& fact : facts) {
    names += fact.name + '\n';
    digests.push_back(digest_of(fact.value));
  }
  // A rank without data, say, has fewer facts: their number first.
  const at::Tensor kinds = gathered(world, {static_cast<int64_t>(facts.size()), digest_of(names)});
  for (const int64_t column : {0, 1}) {
    const int64_t other = first_other(kinds.select(1, column));
    MS_CHECK(
        other == 0,
        "trainer: expected the same parts on all ranks, got others on rank {} than on rank 0; a "
        "claim rests on them: build every rank's trainer alike",
        other);
  }
  const at::Tensor all = gathered(world, digests);
  for (size_t i = 0; i < facts.size(); ++i) {
    const int64_t other = first_other(all.select(1, static_cast<int64_t>(i)));
    MS_CHECK(other == 0,
             "trainer: {}: expected the same on all ranks, got another on rank {} than on rank 0 "
             "(here: {}); a claim rests on it: give every rank the same",
             facts[i].name, other, facts[i].is_secret ? "secret" : facts[i].value);
  }
}

}  // namespace moonshard::privacy
