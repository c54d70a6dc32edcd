// Checkpoints of one process: what is in them, what happens to damaged ones, and what a kill or a
// full disk leaves behind. Several ranks are tests/runtime/checkpoint/checkpoint_spec.lua.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <random>

#include "runtime/base/json.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/tensor_parts.h"
#include "runtime/models/registry.h"
#include "runtime/train/trainer.h"
#include "runtime/weights/safetensors.h"
#include "tests/runtime/checkpoint/checkpoint_support.h"
#include "tests/support/temporary_folder.h"

namespace moonshard::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::ThrowsMessage;

// ---- what is saved is what goes on -------------------------------------------------------------

TEST(Checkpoint, AResumedRunEqualsTheUninterruptedOneUnderEveryWrapper) {
  const TemporaryFolder folder;
  Training whole(llama_setting());
  whole.steps(5);
  const auto want = whole.weights();
  const std::vector<std::pair<const char*, const char*>> wrappers = {{"none", "zero3"},
                                                                     {"ddp", "zero3"},
                                                                     {"fsdp", "zero3"},
                                                                     {"fsdp", "zero2"},
                                                                     {"fsdp", "zero2_replicated"}};
  for (const auto& [parallel, sharding] : wrappers) {
    const fs::path here = folder.path() / parallel / sharding;
    {
      Training first(llama_setting(parallel, sharding));
      first.steps(3);
      EXPECT_EQ(save(first.trainer, here), here / "step_00000003");
      first.steps(1);  // going on after a save changes nothing of it
    }
    for (const auto& [other, other_sharding] : wrappers) {
      Training second(llama_setting(other, other_sharding));
      second.steps(1);  // what was there before must be gone
      EXPECT_EQ(resume(second.trainer, here), 3);
      EXPECT_EQ(second.trainer.privacy_steps(), 3);
      const train::StepReport report = second.trainer.step();
      EXPECT_EQ(report.step, 4);
      EXPECT_EQ(report.privacy_steps, 4);
      second.steps(1);
      EXPECT_TRUE(same(second.weights(), want))
          << parallel << " " << sharding << " to " << other << " " << other_sharding;
      EXPECT_EQ(second.trainer.clip_bound(), whole.trainer.clip_bound());
    }
  }
}

// float32 master weights are in halves under fsdp, and whole without: the files are the same.
TEST(Checkpoint, MixedPrecisionGoesOnExactlyUnderEveryWrapper) {
  const TemporaryFolder folder;
  const auto mixed = [](const char* parallel, const char* sharding) {
    Setting setting = llama_setting(parallel, sharding);
    setting.model.param_dtype = "bfloat16";
    setting.model.seed =
        12;  // whose weights meet no exact tie on their way (split_float/split_float.h)
    return setting;
  };
  Training whole(mixed("none", "zero3"));
  whole.steps(4);
  const auto want = whole.weights();
  const std::vector<std::pair<const char*, const char*>> wrappers = {
      {"none", "zero3"}, {"fsdp", "zero3"}, {"fsdp", "zero2_replicated"}};
  for (const auto& [parallel, sharding] : wrappers) {
    const fs::path here = folder.path() / parallel / sharding;
    Training first(mixed(parallel, sharding));
    first.steps(2);
    save(first.trainer, here);
    for (const auto& [other, other_sharding] : wrappers) {
      Training second(mixed(other, other_sharding));
      resume(second.trainer, here);
      EXPECT_TRUE(same(second.weights(), first.weights())) << parallel << " to " << other;
      second.steps(2);
      EXPECT_TRUE(same(second.weights(), want)) << parallel << " to " << other;
    }
  }
}

// How a classifier's last block computes is no part of what a model is.
TEST(Checkpoint, GoesOnWithTheLastBlockForAllTokensOrForTheScoredOne) {
  const TemporaryFolder folder;
  const auto classifier = [](const char* last_block) {
    Setting setting = llama_setting("none");
    setting.model.task = "classify";
    setting.model.last_block = last_block;
    return setting;
  };
  Training all(classifier("all"));
  all.steps(2);
  save(all.trainer, folder.path());
  Training scored(classifier("scored"));
  EXPECT_EQ(resume(scored.trainer, folder.path()), 2);
  EXPECT_TRUE(same(scored.weights(), all.weights()));
  scored.steps(1);
}

TEST(Checkpoint, StatesOf16BitsGoOnExactlyAndOthersAreRefused) {
  const TemporaryFolder folder;
  const auto narrow = [](const char* parallel, bool offload, const char* dtype) {
    Setting setting = llama_setting(parallel);
    setting.optimizer.state_dtype = dtype;
    setting.sharding.cpu_offload = offload;
    return setting;
  };
  Training whole(narrow("none", false, "bfloat16"));
  whole.steps(2);
  save(whole.trainer, folder.path());
  whole.steps(2);
  for (const auto& [parallel, offload] : std::vector<std::pair<const char*, bool>>{
           {"none", false}, {"fsdp", false}, {"fsdp", true}}) {
    Training second(narrow(parallel, offload, "bfloat16"));
    resume(second.trainer, folder.path());
    for (const auto& part : second.trainer.parallel().updated())
      for (const auto& [name, tensor] : second.trainer.optimizer().state(*part).tensors)
        EXPECT_EQ(tensor.scalar_type(), at::kBFloat16);
    second.steps(2);
    EXPECT_TRUE(same(second.weights(), whole.weights())) << parallel << " " << offload;
  }
  Training other(narrow("none", false, "auto"));
  EXPECT_THAT([&] { resume(other.trainer, folder.path()); },
              ThrowsMessage<UsageError>(HasSubstr(
                  "expected optimizer states in bfloat16, as saved, got float32 (state_dtype = "
                  "auto); use the same state_dtype")));
}

TEST(Checkpoint, MomentumAdamAndPlainSgdGoOnExactly) {
  for (const auto& [name, momentum, dtype] :
       std::vector<std::tuple<std::string, double, std::string>>{{"sgd", 0.0, "auto"},
                                                                 {"sgd", 0.9, "auto"},
                                                                 {"adam", 0.0, "auto"},
                                                                 {"sgd", 0.9, "bfloat16"},
                                                                 {"adam", 0.0, "bfloat16"}}) {
    const TemporaryFolder folder;
    Setting setting = linear_setting();
    setting.optimizer.state_dtype = dtype;
    setting.optimizer.optimizer = name;
    setting.optimizer.momentum = momentum;
    setting.clip.mode = "none";
    Training whole(setting), second(setting);
    whole.steps(2);
    save(whole.trainer, folder.path());
    whole.steps(2);
    resume(second.trainer, folder.path());
    second.steps(2);
    EXPECT_TRUE(same(second.weights(), whole.weights())) << name << " " << momentum;
    EXPECT_EQ(second.trainer.privacy_steps(), 0) << "nothing private was done";
  }
}

TEST(Checkpoint, WeightsThatAScriptChangedAfterGatherAreSavedAndReplaced) {
  const TemporaryFolder folder;
  Training run(llama_setting("fsdp", "zero2_replicated"));
  run.steps(1);
  run.trainer.gather();
  run.model->parameter("model.norm.weight").value.fill_(7);
  run.model->parameter("model.layers.0.mlp.up_proj.weight").value.fill_(3);  // frozen
  save(run.trainer, folder.path());
  EXPECT_EQ(run.model->parameter("model.norm.weight").value[0].item<double>(), 7) << "still whole";
  const auto saved = run.weights();
  run.steps(1);
  run.trainer.gather();
  run.model->parameter("model.norm.weight").value.fill_(-1);
  resume(run.trainer, folder.path());
  EXPECT_TRUE(same(run.weights(), saved));
}

TEST(Checkpoint, AWholeRanksFileOpensAsOrdinaryWeights) {
  const TemporaryFolder folder;
  Training run(llama_setting());
  run.steps(1);
  const fs::path saved = save(run.trainer, folder.path());
  const auto file = weights::SafetensorsFile::open(saved / "rank00000.safetensors");
  for (const auto& parameter : run.model->parameters())
    EXPECT_TRUE(at::equal(file.read(parameter->name), parameter->value)) << parameter->name;
}

TEST(Checkpoint, OnlyTheOwnerCanReadIt) {
  const TemporaryFolder folder;
  Training run(linear_setting());
  struct stat status {};
  ASSERT_EQ(::stat(save(run.trainer, folder.path()).c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
}

TEST(Checkpoint, AFakeWorldHasNothingToSave) {
  const TemporaryFolder folder;
  Setting setting = linear_setting();
  setting.sharding.parallel = "fsdp";
  setting.sharding.world = "fake:4";
  setting.sharding.link = "instant";
  Training run(setting);
  EXPECT_THAT([&] { save(run.trainer, folder.path()); },
              ThrowsMessage<UsageError>(HasSubstr("expected real ranks, got world = fake:4")));
  EXPECT_TRUE(names_in(folder.path()).empty());
}

// ---- which one ---------------------------------------------------------------------------------

TEST(CheckpointFolder, TheNewestIsTakenUnlessOneIsNamed) {
  const TemporaryFolder folder;
  Training run(linear_setting());
  EXPECT_EQ(resume(run.trainer, folder.path(), {.if_any = true}), std::nullopt);
  EXPECT_THAT([&] { resume(run.trainer, folder.path()); },
              ThrowsMessage<UsageError>(HasSubstr("without any complete one")));
  run.steps(1);
  const fs::path first = save(run.trainer, folder.path());
  run.steps(1);
  save(run.trainer, folder.path());
  EXPECT_EQ(resume(run.trainer, folder.path()), 2);
  EXPECT_EQ(resume(run.trainer, first), 1);
  // Another run from there: its next save is the newest, whatever its number.
  save(run.trainer, folder.path());
  EXPECT_EQ(text_of(folder.path() / "latest"), "step_00000001\n");
  EXPECT_EQ(resume(run.trainer, folder.path()), 1);
  // Without the file, or with a name in it that leads elsewhere: the highest.
  for (const char* text : {"", "../other\n", "step_00000077\n", "step_00000001/../../x\n"}) {
    write_text(folder.path() / "latest", text);
    EXPECT_EQ(resume(run.trainer, folder.path()), 2) << text;
  }
  fs::remove(folder.path() / "latest");
  fs::create_directory(folder.path() / "step_00000009");  // no index: somebody's half copy
  EXPECT_EQ(resume(run.trainer, folder.path()), 2);
}

TEST(CheckpointFolder, SavingAStepAgainReplacesItAndLeavesNothingBehind) {
  const TemporaryFolder folder;
  Training run(linear_setting());
  run.steps(2);
  save(run.trainer, folder.path());
  const std::string before = read_index(folder.path() / "step_00000002").id;
  save(run.trainer, folder.path());
  EXPECT_NE(read_index(folder.path() / "step_00000002").id, before);
  EXPECT_EQ(names_in(folder.path()),
            (std::vector<std::string>{".lock", "latest", "step_00000002"}));
}

TEST(CheckpointFolder, LeftoversOfDeadWritersAreSweptAndALiveOnesAreNot) {
  const TemporaryFolder folder;
  Training run(linear_setting());
  save(run.trainer, folder.path());
  const fs::path stale = folder.path() / ".step_00000007.partial-00000000";
  fs::create_directory(stale);
  write_text(stale / "rank00000.safetensors", "half");
  {
    const PartialCheckpoint live(folder.path(), 9);
    EXPECT_FALSE(fs::exists(stale));
    resume(run.trainer, folder.path());
    EXPECT_TRUE(fs::exists(live.path())) << "a resume beside a save must not take its folder away";
    EXPECT_THAT([&] { save(run.trainer, folder.path()); },
                ThrowsMessage<UsageError>(HasSubstr("another process is saving")));
  }
  fs::create_directory(stale);
  resume(run.trainer, folder.path());
  EXPECT_EQ(names_in(folder.path()),
            (std::vector<std::string>{".lock", "latest", "step_00000000"}));
}

// ---- what does not fit -------------------------------------------------------------------------

class Misfit : public testing::Test {
 protected:
  Misfit() : saved_(llama_setting()), run_(llama_setting()) {
    saved_.steps(2);
    checkpoint_ = save(saved_.trainer, folder_.path());
    run_.steps(1);
    before_ = run_.weights();
  }
  // The error says so, and the trainer goes on as if nobody had asked.
  template <class ErrorType>
  void expect_refusal(const std::string& text) {
    EXPECT_THAT([&] { resume(run_.trainer, folder_.path()); },
                ThrowsMessage<ErrorType>(HasSubstr(text)));
    EXPECT_TRUE(same(run_.weights(), before_)) << text;
    EXPECT_EQ(run_.trainer.privacy_steps(), 1) << text;
  }
  void expect_refusal_by(const Setting& setting, const std::string& text) {
    Training other(setting);
    const auto before = other.weights();
    EXPECT_THAT([&] { resume(other.trainer, folder_.path()); },
                ThrowsMessage<UsageError>(HasSubstr(text)));
    EXPECT_TRUE(same(other.weights(), before)) << text;
    EXPECT_EQ(other.trainer.step().step, 1) << text;
  }
  Json index() { return read_json_file(checkpoint_ / "index.json"); }
  void change_index(const std::function<void(Json&)>& change) {
    Json json = index();
    change(json);
    write_text(checkpoint_ / "index.json", resealed(json));
  }
  Json& tensor(Json& json, const std::string& name) {
    for (Json& item : json["tensors"])
      if (item["name"] == name) return item;
    throw std::runtime_error(name);
  }

  TemporaryFolder folder_;
  Training saved_, run_;
  fs::path checkpoint_;
  std::vector<at::Tensor> before_;
};

TEST_F(Misfit, AnotherModelOptimizerPrivacyOrSeedIsNamed) {
  Setting setting = llama_setting();
  setting.model.num_heads = 2;
  setting.model.head_dim = 12;
  expect_refusal_by(setting, "model option 'num_heads': expected 4, as saved, got 2");
  setting = llama_setting();
  setting.model.vocab_size = 30;
  expect_refusal_by(setting, "model option 'vocab_size': expected 29, as saved, got 30");
  setting = llama_setting();
  setting.model.dtype = "float64";
  expect_refusal_by(setting, "model option 'dtype': expected \"float32\", as saved");
  setting = llama_setting();
  setting.model.frozen = "*.norm.weight";
  expect_refusal_by(setting, "expected these parameters frozen, as saved: model.layers.0.mlp.down");
  setting = llama_setting();
  setting.optimizer.optimizer = "adam";
  expect_refusal_by(setting, "expected optimizer adamw (state: mean, mean_square), as saved, got");
  setting.optimizer.optimizer = "sgd";
  expect_refusal_by(setting, "got sgd (state: none)");
  setting = llama_setting();
  setting.clip.mode = "none";
  expect_refusal_by(setting, "expected a private engine, as saved, got 'none'");
  setting = llama_setting();
  setting.clip.noise_multiplier = 0.5;
  expect_refusal_by(setting, "expected noise_multiplier 1 and clipping adaptive, as its 2 private");
  setting = llama_setting();
  setting.model.seed = 12;
  expect_refusal_by(setting, "expected a model with seed 11, as saved, got seed 12");
  Training other(setting);
  EXPECT_EQ(resume(other.trainer, folder_.path(), {.other_seed = true}), 2);
  EXPECT_TRUE(same(other.weights(), saved_.weights()));
}

TEST_F(Misfit, AnotherEngineOrLearningRateGoesOn) {
  Setting setting = llama_setting();
  setting.clip.mode = "materialize";
  setting.optimizer.lr = 0.5;
  Training other(setting);
  EXPECT_EQ(resume(other.trainer, folder_.path()), 2);
}

TEST_F(Misfit, MissingCutAndForeignFilesAreNamed) {
  const fs::path file = checkpoint_ / "rank00000.safetensors";
  const auto size = fs::file_size(file);
  fs::rename(file, checkpoint_ / "aside");
  expect_refusal<IoError>("rank00000.safetensors: cannot read: No such file");
  fs::copy_file(checkpoint_ / "aside", file);
  fs::resize_file(file, size - 1);
  expect_refusal<IoError>("the file is cut short");
  fs::resize_file(file, 4);
  expect_refusal<IoError>("the file is cut short");
  // The same tensors, of another checkpoint.
  const TemporaryFolder elsewhere;
  fs::remove(file);
  fs::copy_file(save(saved_.trainer, elsewhere.path()) / "rank00000.safetensors", file);
  expect_refusal<IoError>("the folder has files of two checkpoints");
  weights::write_safetensors(file, {{"model.norm.weight", at::zeros({3})}},
                             {{"checkpoint", index()["id"].get<std::string>()}});
  expect_refusal<IoError>("as the index says, got no such tensor; the folder is damaged");
}

TEST_F(Misfit, DamagedIndexesAreNamed) {
  const std::string good = text_of(checkpoint_ / "index.json");
  const auto expect = [&](const std::string& text, const std::function<void(Json&)>& change) {
    change_index(change);
    expect_refusal<IoError>(text);
    write_text(checkpoint_ / "index.json", good);
  };
  const std::string norm = "model.norm.weight", mean = "optimizer/mean/model.norm.weight";
  expect("expected schema_version 4 at most, got 5; a newer moonshard wrote it",
         [](Json& json) { json["schema_version"] = 5; });
  expect("'kind': expected 'moonshard checkpoint'", [](Json& json) { json["kind"] = "sweep"; });
  expect("'step': expected a whole number of at least 0", [](Json& json) { json["step"] = -1; });
  expect("'step': expected a whole number", [](Json& json) { json["step"] = 1e300; });
  expect("'step': expected a value, got none", [](Json& json) { json.erase("step"); });
  expect("'bound': expected 1e-12 to 1e12, got 0",
         [](Json& json) { json["privacy"]["bound"] = 0; });
  expect("'file': expected a name like rank00000.safetensors", [&](Json& json) {
    tensor(json, norm)["parts"][0]["file"] = "../step_00000001/rank00000.safetensors";
  });
  expect("expected parts without gap or overlap",
         [&](Json& json) { tensor(json, norm)["parts"][0]["first"] = 1; });
  expect("expected parts up to element 24",
         [&](Json& json) { tensor(json, norm)["parts"][0]["count"] = 23; });
  expect("expected a shape of fewer elements", [&](Json& json) {
    tensor(json, norm)["shape"] = {int64_t{1} << 40, int64_t{1} << 40};
  });
  expect("expected a checksum of every file, got none of rank00000.safetensors",
         [](Json& json) { json["files"].erase("rank00000.safetensors"); });
  expect("'files': expected names like rank00000.safetensors, got '../x'", [](Json& json) {
    json["files"]["../x"] = {{"bytes", 1}, {"header_sha256", ""}};
  });
  expect("'header_sha256': expected 64 digits",
         [](Json& json) { json["files"]["rank00000.safetensors"]["header_sha256"] = "00"; });
  expect("'header_sha256': expected 64 digits, got none",
         [](Json& json) { json["files"]["rank00000.safetensors"].erase("header_sha256"); });
  expect("'bytes': expected a whole number of at least 0",
         [](Json& json) { json["files"]["rank00000.safetensors"]["bytes"] = -1; });
  expect("expected each tensor once",
         [&](Json& json) { json["tensors"].push_back(tensor(json, norm)); });
  expect("got no such tensor", [&](Json& json) { tensor(json, mean)["name"] = "optimizer/x"; });
  expect("got others; the folder is damaged", [&](Json& json) {
    Json& item = tensor(json, mean);
    item["dtype"] = "F64";
  });
  // Cut anywhere, the text is refused.
  for (size_t length = 0; length < good.size() - 2; length += 97) {
    write_text(checkpoint_ / "index.json", good.substr(0, length));
    expect_refusal<IoError>("the file is damaged");
  }
}

TEST_F(Misfit, ParametersThatTheModelDoesNotHaveAreNamed) {
  change_index(
      [&](Json& json) { tensor(json, "model.norm.weight")["name"] = "model.gone.weight"; });
  expect_refusal<UsageError>("got none named 'model.norm.weight'; it belongs to another model");
  change_index([&](Json& json) {
    Json extra = tensor(json, "model.gone.weight");
    extra["name"] = "model.norm.weight";
    json["tensors"].push_back(extra);
  });
  expect_refusal<UsageError>("got 'model.gone.weight' as well; it belongs to another model");
}

// ---- parts -------------------------------------------------------------------------------------

TEST(PartReader, FindsElementsAcrossFilesOfAnyCut) {
  const TemporaryFolder folder;
  const at::Tensor whole = at::arange(35, at::kDouble).view({5, 7});
  CheckpointIndex index;
  index.id = "x";
  const std::vector<int64_t> cuts = {0, 1, 17, 17, 30, 35};  // rank 2 has nothing
  for (int rank = 0; rank < 5; ++rank) {
    const auto place = static_cast<size_t>(rank);
    RankState state;
    const int64_t count = cuts[place + 1] - cuts[place];
    if (count > 0)
      state.parts.push_back(
          {"w", {5, 7}, cuts[place], whole.flatten().narrow(0, cuts[place], count)});
    add_rank(index, rank, write_rank_file(folder.path(), "x", rank, state));
  }
  write_text(folder.path() / "index.json", index_text(index));
  EXPECT_FALSE(fs::exists(folder.path() / "rank00002.safetensors")) << "nothing to write";
  const CheckpointIndex read = read_index(folder.path());
  for (int64_t first = 0; first < 35; ++first) {
    for (int64_t count = 1; count <= 35 - first; ++count) {
      const at::Tensor target = at::full({count}, -1, at::kDouble);
      PartReader reader(folder.path(), read);
      reader.add("w", first, target);
      reader.check();
      reader.read();
      ASSERT_TRUE(at::equal(target, whole.flatten().narrow(0, first, count))) << first << count;
    }
  }
  PartReader beyond(folder.path(), read);
  EXPECT_THROW(beyond.add("w", 30, at::zeros({6}, at::kDouble)), IoError);
  EXPECT_THROW(beyond.add("w", 0, at::zeros({6}, at::kFloat)), IoError);
}

// ---- the world's doing -------------------------------------------------------------------------

TEST(CheckpointFolder, AFullDiskAtAnyByteLeavesTheOlderCheckpoint) {
  const TemporaryFolder folder;
  at::set_num_threads(1);
  Training run(linear_setting());
  run.steps(1);
  save(run.trainer, folder.path());
  run.steps(1);
  const auto size = fs::file_size(folder.path() / "step_00000001" / "rank00000.safetensors");
  for (rlim_t most = 0; most < size; most += size / 9) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::signal(SIGXFSZ, SIG_IGN);
      const rlimit limit{most, most};
      ::setrlimit(RLIMIT_FSIZE, &limit);
      try {
        save(run.trainer, folder.path());
      } catch (const IoError& error) {
        ::_exit(std::string(error.what()).find("cannot write") != std::string::npos ? 42 : 1);
      } catch (...) {
        ::_exit(3);
      }
      ::_exit(2);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(WEXITSTATUS(status), 42) << most;
    EXPECT_EQ(names_in(folder.path()),
              (std::vector<std::string>{".lock", "latest", "step_00000001"}));
    EXPECT_EQ(find_checkpoint(folder.path()).filename(), "step_00000001");
  }
}

// A child trains, saves after every step and says so; it is killed at a random moment. The newest
// checkpoint must load, be no older than the last acknowledged one, and hold the weights and the
// count of private steps that an uninterrupted run has at that step.
TEST(CheckpointFolder, AKillAtAnyMomentLosesNothingAndCountsNothingTwice) {
  const TemporaryFolder folder;
  at::set_num_threads(1);
  const char* asked = std::getenv("MOONSHARD_KILL_TRIALS");
  const int trials = asked != nullptr ? std::atoi(asked) : 200;
  Training uninterrupted(linear_setting());
  // A kill comes within the time of a child's start and first saves: long under a sanitizer.
  const auto began = std::chrono::steady_clock::now();
  {
    const TemporaryFolder elsewhere;
    Training timed(linear_setting());
    timed.trainer.step();
    save(timed.trainer, elsewhere.path());
  }
  const std::chrono::microseconds start = std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::steady_clock::now() - began);
  const auto latest = std::max<uint32_t>(30000, 2 * static_cast<uint32_t>(start.count()));
  int64_t reached = 0;
  std::mt19937 random(5);
  int kills_inside = 0;
  for (int trial = 0; trial < trials; ++trial) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      Training run(linear_setting());
      resume(run.trainer, folder.path(), {.if_any = true});
      while (true) {
        const int64_t step = run.trainer.step().step;
        save(run.trainer, folder.path());
        if (::write(ends[1], &step, sizeof step) < 0) ::_exit(1);
      }
    }
    ::close(ends[1]);
    ::usleep(static_cast<useconds_t>(random() % latest));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    int64_t acknowledged = reached, step = 0;
    while (::read(ends[0], &step, sizeof step) == sizeof step) acknowledged = step;
    ::close(ends[0]);
    for (const std::string& name : names_in(folder.path()))
      if (name.find(".partial-") != std::string::npos) ++kills_inside;

    Training resumed(linear_setting());
    const int64_t found = resume(resumed.trainer, folder.path(), {.if_any = true}).value_or(0);
    ASSERT_GE(found, acknowledged) << "trial " << trial;
    ASSERT_LE(found, acknowledged + 1) << "trial " << trial;
    ASSERT_EQ(resumed.trainer.privacy_steps(), found) << "trial " << trial;
    uninterrupted.steps(found - reached);
    reached = found;
    ASSERT_TRUE(same(resumed.weights(), uninterrupted.weights())) << "trial " << trial;
    for (const std::string& name : names_in(folder.path()))
      ASSERT_EQ(name.find(".partial-"), std::string::npos) << name;
    // Old ones are in nobody's way; all of them would only fill the disk.
    for (int64_t old = found - 3; old > 0 && fs::remove_all(folder.path() / checkpoint_name(old));)
      --old;
  }
  EXPECT_GT(reached, 0);
  EXPECT_GT(kills_inside, 0) << "no kill came while a checkpoint was written";
  RecordProperty("steps", static_cast<int>(reached));
  RecordProperty("kills_inside_a_save", kills_inside);
}

}  // namespace
}  // namespace moonshard::checkpoint
