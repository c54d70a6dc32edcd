// Fits with known answers, and growth of stored results.
#include "runtime/analysis/scaling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include <fmt/format.h>

#include "runtime/records/reader.h"

namespace moonshard::analysis {
namespace {

struct OffsetFigures {
  double offset, slope, error;
};
struct FitCase {
  const char* what;
  std::vector<double> x, y;
  struct {
    double exponent, standard_error, factor, last_exponent;
  } power;
  OffsetFigures linear, quadratic;
  const char* verdict;
};

// Computed by an independent implementation in Lua, which this library replaced.
const std::vector<FitCase>& fit_cases() {
  static const std::vector<FitCase> list = {
      {"linear",
       {512, 1024, 2048, 4096},
       {10, 20.1, 39.8, 80.5},
       {1.00125392790465, 0.00396193896593571, 0.0193838644398034, 1.01622035245833},
       {0, 0.019560992314639, 0.0044535132035492},
       {10.2464445695017, 4.91914301204963e-06, 0.19471885722151},
       "O(T)"},
      {"linear with a fixed cost",
       {512, 1024, 2048, 4096},
       {60, 81, 119, 200},
       {0.576586454292194, 0.0502355804586077, 1.56070283514587, 0.749038426466781},
       {40.354431164109, 0.0388707512314905, 0.00700420952560683},
       {64.6630105081606, 8.87445762289464e-06, 0.107681835711654},
       "O(T)"},
      {"quadratic",
       {512, 1024, 2048, 4096},
       {1, 4.1, 15.8, 64.3},
       {1.99664692408808, 0.0120041662469127, 3.92537834867232e-06, 2.02489417915084},
       {0, 0.00276528437087056, 0.582867571540181},
       {5.35570957680267e-05, 3.82964675694722e-06, 0.0133733572663924},
       "O(T^2)"},
      {"quadratic with a fixed cost",
       {256, 512, 1024, 2048},
       {51, 54, 66, 114},
       {0.377090063377472, 0.113526427547668, 5.63257118823228, 0.788495894806288},
       {39.3455071415657, 0.0320544148888085, 0.0717828340669182},
       {50, 1.52587890625e-05, 1.57227192699298e-16},
       "O(T^2)"},
      {"constant",
       {512, 1024, 2048, 4096},
       {7, 7.01, 6.99, 7},
       {-0.000412198863518656, 0.000874405958698094, 7.0210279636906, 0.00206246645689232},
       {6.99998571427114, 0, 0.00101015357531957},
       {6.99998571427114, 0, 0.00101015357531957},
       "O(1)"},
      {"exactly constant",
       {512, 1024, 2048},
       {7, 7, 7},
       {0, 0, 7, 0},
       {7, 2.3242584072658e-18, 2.07198469411127e-16},
       {7, 0, 0},
       "O(1)"},
      {"in between: T + 0.08 T^2",
       {512, 1024, 2048, 4096},
       {1.08, 2.32, 5.28, 13.12},
       {1.19944066315947, 0.0333557331239543, 0.000587029449947558, 1.31315788525963},
       {0, 0.00242034657198098, 0.14988666670433},
       {0.981859174855431, 8.35150284259166e-07, 0.154362291621607},
       "between"},
      {"noise",
       {512, 1024, 2048, 4096},
       {1, 30, 2, 90},
       {1.55686686933805, 1.29113703427599, 0.000102832491238935, 5.49185309632967},
       {0.628682490855945, 0.000738868048769023, 0.677363779941558},
       {0.911926075656945, 3.07020104997086e-07, 0.670683551844735},
       "undecided"},
      {"constant noise",
       {512, 1024, 2048, 4096},
       {1, 9, 2, 1},
       {-0.216992500144231, 0.804109890485213, 9.99289365715313, -1},
       {1.15416098226467, 0, 0.496577646294569},
       {1.15416098226467, 0, 0.496577646294569},
       "undecided"},
      {"falling",
       {512, 1024, 2048, 4096},
       {80, 40, 20, 10},
       {-1, 2.86523176938186e-16, 40959.9999999999, -1},
       {14.1176470588235, 0, 0.5815799980378},
       {14.1176470588235, 0, 0.5815799980378},
       "O(1)"},
      {"two points",
       {512, 1024},
       {3, 6},
       {1, NAN, 0.00585937500000001, 1},
       {0, 0.005859375, 0},
       {2, 3.814697265625e-06, 0},
       "undecided"},
      {"two sizes, three points",
       {512, 512, 1024},
       {3, 3.1, 6},
       {0.976347142610821, 0.0409679507422378, 0.0069032482156636, 0.952694285221643},
       {0.0967221923696941, 0.00576491973401397, 0.0133833916125543},
       {2.0644814615798, 3.75320295183201e-06, 0.0133833916125543},
       "between"},
      {"out of order",
       {4096, 512, 2048, 1024},
       {80, 10, 40, 20},
       {1, 2.86523176938186e-16, 0.01953125, 1},
       {8.35932630306e-15, 0.01953125, 2.94575456503612e-16},
       {10.2564102564103, 4.89063752003205e-06, 0.196116135138184},
       "O(T)"},
      {"gaps",
       {256, 512, 1024, 2048, 4096},
       {-1, 10, 0, 41, 80},
       {1.00254456498077, 0.0132219474895406, 0.019325649412273, 0.964376090269279},
       {0, 0.0196886965941153, 0.011591135707012},
       {9.25176291543005, 4.83629880325758e-06, 0.180503034544132},
       "O(T)"},
      {"huge",
       {1e+100, 1e+101, 1e+102},
       {1e+200, 1e+201, 1e+202},
       {1, 1.51175055232408e-14, 1.00000000000004e+100, 1},
       {NAN, 0, NAN},
       {NAN, 0, NAN},
       "between"},
  };
  return list;
}

void expect_figure(double got, double expected, const std::string& what) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(got)) << what << ": " << got;
    return;
  }
  // Sums in another order, and errors of perfect fits, which are nothing but rounding.
  EXPECT_NEAR(got, expected, 1e-9 * std::abs(expected) + 1e-12) << what;
}

void expect_offset(const OffsetFit& got, const OffsetFigures& expected, const std::string& what) {
  expect_figure(got.offset, expected.offset, what + ", offset");
  expect_figure(got.slope, expected.slope, what + ", slope");
  expect_figure(got.error, expected.error, what + ", error");
}

TEST(Scaling, FindsExponentsOffsetsAndErrors) {
  for (const FitCase& item : fit_cases()) {
    const auto fit = fit_scaling(item.x, item.y);
    ASSERT_TRUE(fit) << item.what;
    expect_figure(fit->exponent, item.power.exponent, item.what);
    expect_figure(fit->standard_error, item.power.standard_error, item.what);
    expect_figure(fit->factor, item.power.factor, item.what);
    expect_figure(fit->last_exponent, item.power.last_exponent, item.what);
    expect_offset(fit->linear, item.linear, std::string(item.what) + ", linear");
    expect_offset(fit->quadratic, item.quadratic, std::string(item.what) + ", quadratic");
    EXPECT_STREQ(verdict_text(fit->verdict), item.verdict) << item.what;
  }
}

TEST(Scaling, VerdictsAreThoseThatTheNamesSay) {
  std::vector<std::string> verdicts;
  for (const FitCase& item : fit_cases())
    verdicts.push_back(verdict_text(fit_scaling(item.x, item.y)->verdict));
  EXPECT_THAT(verdicts, testing::ElementsAre("O(T)", "O(T)", "O(T^2)", "O(T^2)", "O(1)", "O(1)",
                                             "between", "undecided", "undecided", "O(1)",
                                             "undecided", testing::_, "O(T)", "O(T)", testing::_));
}

TEST(Scaling, NeedsTwoSizesAndFiguresAboveZero) {
  EXPECT_FALSE(fit_scaling({}, {}));
  EXPECT_FALSE(fit_scaling({512}, {1}));
  EXPECT_FALSE(fit_scaling({512, 512}, {1, 2}));
  EXPECT_FALSE(fit_scaling({512, 1024}, {NAN, 2}));
  EXPECT_FALSE(fit_scaling({512, 1024}, {0, 2}));
  EXPECT_FALSE(fit_scaling({-1, 1024}, {1, 2}));
  EXPECT_FALSE(fit_scaling({1, INFINITY}, {1, 2}));
}

TEST(Scaling, TheBestCurveSeesAFixedCost) {
  const auto power = fit_scaling({1, 2, 4, 8}, {3, 12, 48, 192});
  EXPECT_EQ(exponent_text(*power), "T^2.00");
  const Curve curve = best_curve(*power);
  EXPECT_DOUBLE_EQ(curve.x.front(), 1);
  EXPECT_DOUBLE_EQ(curve.x.back(), 8);
  EXPECT_NEAR(curve.y.back(), 192, 1e-9);
  EXPECT_NEAR(best_curve(*fit_scaling({512, 1024, 2048, 4096}, {60, 81, 119, 200})).y.front(),
              40.354431164109 + 512 * 0.0388707512314905, 1e-9);
  EXPECT_EQ(exponent_text(*fit_scaling({1, 2, 4}, {7, 6.999, 7})), "T^0.00") << "without a minus";
}

// The rows of a stored folder; its records' values as they stand.
Table stored_table(const char* name) {
  const records::RunFolder run =
      records::load_run_folder(std::string(MOONSHARD_SOURCE_DIR "/examples/results/") + name);
  Table table{run.axes, run.axes, {}};
  for (const records::PointRecord& point : run.points) {
    Row row;
    row.status = point.status;
    row.mode = point.options.value("mode", "");
    for (const std::string& axis : run.axes) {
      const Json& value = point.options.at(axis);
      row.values.push_back(value.is_number() ? Value(value.get<double>())
                                             : Value(value.get<std::string>()));
      row.shown.push_back(text_of(row.values.back()));
    }
    const auto read = [&](const records::Field& field, double& metric) {
      metric = number_or(point.metrics, field.key, NAN);
    };
    fields(read, row.metrics);
    table.rows.push_back(std::move(row));
  }
  return table;
}

// Ghost clipping of Llama-8B on an H200, and what NumPy makes of it.
TEST(Scaling, OfMeasuredTimes) {
  const auto ghost =
      fit_scaling({1024, 2048, 4096}, {504.21913470549043, 856.1762916041771, 1777.997775068041});
  ASSERT_TRUE(ghost);
  EXPECT_NEAR(ghost->exponent, 0.90906537268734933, 1e-12);
  EXPECT_NEAR(ghost->standard_error, 0.083836082637344, 1e-12);
  EXPECT_NEAR(ghost->last_exponent, 1.0542737273228, 1e-12);
  EXPECT_NEAR(ghost->linear.error, 0.038325769100907132, 1e-12);
  EXPECT_NEAR(ghost->quadratic.error, 0.055506516403281941, 1e-12);
  EXPECT_STREQ(verdict_text(ghost->verdict), "between");
}

TEST(Scaling, OfStoredResults) {
  const auto growth = growth_over(stored_table("document_000_llama3.1_8b"), "seq_length");
  std::set<std::string> names;
  for (const FamilyGrowth& one : growth) {
    names.insert(one.family.name);
    const auto fit = [&](const std::string& name) -> const ScalingFit* {
      for (const auto& [quantity, found] : one.fits)
        if (name == quantity->name) return &found;
      return nullptr;
    };
    ASSERT_NE(fit("step"), nullptr) << one.family.name;
    EXPECT_NEAR(fit("step")->exponent, 1, 0.3) << one.family.name;
    EXPECT_STREQ(verdict_text(fit("communication")->verdict), "O(1)");
    EXPECT_EQ(fit("forward"), nullptr) << "phases need the point's detail";
  }
  EXPECT_EQ(names, (std::set<std::string>{"none", "ghost", "flash", "bookkeeping",
                                          "flash_bookkeeping", "auto"}));
}

TEST(Scaling, PointsWithoutAResultAreInNoFamily) {
  Table table = stored_table("document_002_qwen1.5_1.8b");
  ASSERT_EQ(table.rows.size(), 24u);
  for (size_t i = 3; i < 24; i += 6) table.rows[i].status = "oom";
  const auto families = families_over(table, "batch_size");
  size_t points = 0;
  for (const Family& family : families) points += family.rows.size();
  EXPECT_EQ(families.size(), 6u);
  EXPECT_EQ(points, 20u) << "24 points, 4 of them out of memory";
  EXPECT_EQ(families[0].name, "1, zero2");
}

TEST(Scaling, QuantitiesAreReadFromTheDetail) {
  records::Result detail;
  detail.time.phases_ms = {{"forward", {3, 5, 4, 3.5}}, {"norm_reduce", {1, 2, 2}}};
  detail.norms_ms.local = 7;
  detail.norms_ms.reduce = 8;
  detail.memory.breakdown = {{"activations", 3 * kMiB}};
  const auto read = [&](const char* name) { return find_quantity(name)->read({}, &detail); };
  EXPECT_EQ(read("forward"), 3.5) << "the fastest";
  EXPECT_EQ(read("norm all-reduce"), 2) << "the median where there is no fastest";
  EXPECT_EQ(read("norms"), 7);
  EXPECT_EQ(read("activations"), 3);
  EXPECT_TRUE(std::isnan(read("second backward")));
  EXPECT_TRUE(std::isnan(read("step")));
  detail.layers = {{"a", 1.5, "linear"}, {"b", 2.5, "linear"}, {"c", NAN, "linear"}};
  EXPECT_EQ(read("norms"), 4) << "the sum of layers, where they were watched";
  detail.time.phases_ms.pop_back();
  EXPECT_EQ(read("norm all-reduce"), 8);
  EXPECT_TRUE(std::isnan(find_quantity("norms")->read({}, nullptr))) << "not read";
  EXPECT_EQ(find_quantity("speed"), nullptr);
}

}  // namespace
}  // namespace moonshard::analysis
