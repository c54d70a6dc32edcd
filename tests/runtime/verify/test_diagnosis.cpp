// The three answers about norms on several ranks.
#include "runtime/verify/diagnosis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moonshard::verify {
namespace {

using ::testing::HasSubstr;

NormsShown norms(std::vector<std::vector<double>> by_rank, std::vector<double> gathered,
                 std::vector<double> expected) {
  NormsShown shown;
  shown.title = "flash tiny";
  shown.before = std::move(gathered);
  shown.expected = std::move(expected);
  shown.by_rank = std::move(by_rank);
  return shown;
}

TEST(NormDiagnosis, HealthyRanksGetThreeYeses) {
  NormDiagnosis diagnosis;
  diagnosis.add(norms({}, {1}, {1}));
  EXPECT_FALSE(diagnosis.has_ranks()) << "one rank has nobody to compare with";
  diagnosis.add(norms({{1, 2}, {3}}, {1, 2, 3}, {1, 2, 3.003}));
  ASSERT_TRUE(diagnosis.has_ranks());
  const auto list = diagnosis.conclude({});
  ASSERT_EQ(list.size(), 3u);
  for (const Diagnosis& one : list) EXPECT_TRUE(one.good) << one.answer;
  EXPECT_THAT(list[2].answer, HasSubstr("1.0e-03"));
}

TEST(NormDiagnosis, EachQuestionHasItsOwnAnswer) {
  NormDiagnosis diagnosis;
  diagnosis.add(norms({{1, 2}, {1, 2}}, {1, 2, 1, 2}, {1, 2, 3, 4}));
  Cell differ, wrong, bias;
  differ.worst = "gathered norms differ between ranks";
  wrong.worst = "norm";
  wrong.layer = "linear";
  bias.worst = "clipped sum";
  bias.layer = "linear_bias";
  const auto list = diagnosis.conclude({differ, wrong, bias});
  ASSERT_EQ(list.size(), 4u);
  EXPECT_THAT(list[0].answer, HasSubstr("identical on ranks 0 and 1"));
  EXPECT_THAT(list[1].answer, HasSubstr("does not synchronise"));
  EXPECT_THAT(list[2].answer, HasSubstr("layer linear"));
  EXPECT_THAT(list[3].answer, HasSubstr("bias term"));
  for (const Diagnosis& one : list) EXPECT_FALSE(one.good);
  EXPECT_EQ(to_json(list)[1]["good"], false);
}

}  // namespace
}  // namespace moonshard::verify
