#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/base/check.h"
#include "runtime/models/registry.h"
#include "runtime/weights/load_model.h"
#include "tests/runtime/weights/raw_safetensors.h"
#include "tests/support/temporary_folder.h"

namespace moonshard::weights {
namespace {

using models::ModelOptions;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

// The keys of published files of these families, with small sizes.
json llama_config() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"hidden_act", "silu"},
          {"vocab_size", 320},
          {"hidden_size", 64},
          {"intermediate_size", 160},
          {"num_hidden_layers", 3},
          {"num_attention_heads", 8},
          {"num_key_value_heads", 2},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 500000.0},
          {"rope_scaling",
           {{"factor", 8.0},
            {"low_freq_factor", 1.0},
            {"high_freq_factor", 4.0},
            {"original_max_position_embeddings", 8192},
            {"rope_type", "llama3"}}},
          {"attention_bias", false},
          {"mlp_bias", false},
          {"eos_token_id", {1, 2, 3}},
          {"tie_word_embeddings", false}};
}

json qwen_config() {
  return {{"architectures", {"Qwen2ForCausalLM"}},
          {"model_type", "qwen2"},
          {"hidden_act", "silu"},
          {"vocab_size", 320},
          {"hidden_size", 64},
          {"intermediate_size", 160},
          {"num_hidden_layers", 3},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 4},
          {"rms_norm_eps", 1e-6},
          {"rope_theta", 1000000.0},
          {"sliding_window", 32768},
          {"use_sliding_window", false},
          {"tie_word_embeddings", true}};
}

json dit_config() {
  return {{"model_type", "dit"},    {"hidden_size", 64},        {"intermediate_size", 256},
          {"num_hidden_layers", 2}, {"num_attention_heads", 4}, {"image_size", 32},
          {"patch_size", 4},        {"in_channels", 3},         {"num_classes", 10},
          {"positions", "learned"}, {"norm_affine", true}};
}

ModelOptions read(const json& config) {
  const TemporaryFolder folder;
  write_bytes(folder.path() / "config.json", config.dump());
  return options_from_config(folder.path());
}

std::string read_error(const json& config) {
  return error_of([&] { read(config); });
}

json with(json config, const char* key, const json& value) {
  config[key] = value;
  return config;
}

json without(json config, const char* key) {
  config.erase(key);
  return config;
}

TEST(HfConfig, ReadsLlama) {
  const ModelOptions o = read(llama_config());
  EXPECT_EQ(o.model, "llama");
  EXPECT_EQ(o.task, "lm");
  EXPECT_EQ(o.vocab_size, 320);
  EXPECT_EQ(o.hidden_dim, 64);
  EXPECT_EQ(o.intermediate_dim, 160);
  EXPECT_EQ(o.num_layers, 3);
  EXPECT_EQ(o.num_heads, 8);
  EXPECT_EQ(o.num_kv_heads, 2);
  EXPECT_EQ(o.head_dim, 8);
  EXPECT_EQ(o.norm_eps, 1e-5);
  EXPECT_EQ(o.rope_base, 500000);
  EXPECT_EQ(o.rope_scaling, "llama3");
  EXPECT_EQ(o.rope_factor, 8);
  EXPECT_EQ(o.rope_low_freq_factor, 1);
  EXPECT_EQ(o.rope_high_freq_factor, 4);
  EXPECT_EQ(o.rope_original_length, 8192);
  EXPECT_EQ(o.tie_embeddings, "no");
  EXPECT_EQ(o.qkv_bias, "no");
  EXPECT_EQ(o.pad_token_id, -1);
}

TEST(HfConfig, ReadsQwen) {
  const ModelOptions o = read(qwen_config());
  EXPECT_EQ(o.model, "qwen");
  EXPECT_EQ(o.qkv_bias, "yes");
  EXPECT_EQ(o.tie_embeddings, "yes");
  EXPECT_EQ(o.rope_scaling, "none");
  EXPECT_EQ(o.rope_base, 1000000);
  EXPECT_EQ(o.norm_eps, 1e-6);
}

// The keys that published files of Gemma hold beside those of Llama.
json gemma_config(const char* type, const char* architecture) {
  return {{"architectures", {architecture}},
          {"model_type", type},
          {"hidden_activation", "gelu_pytorch_tanh"},
          {"vocab_size", 320},
          {"hidden_size", 64},
          {"intermediate_size", 160},
          {"num_hidden_layers", 7},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 1},
          {"head_dim", 32},
          {"query_pre_attn_scalar", 24},
          {"sliding_window", 512},
          {"rms_norm_eps", 1e-6}};
}

TEST(HfConfig, ReadsGemma2) {
  const json config = gemma_config("gemma2", "Gemma2ForCausalLM");
  const ModelOptions o = read(config);
  EXPECT_EQ(o.model, "gemma2");
  EXPECT_EQ(o.task, "lm");
  EXPECT_EQ(o.block_style, "gemma2");
  EXPECT_EQ(o.head_dim, 32);
  EXPECT_EQ(o.num_kv_heads, 1);
  EXPECT_EQ(o.attention_scalar, 24);
  EXPECT_EQ(o.attention_softcap, 50);  // what transformers takes for a key that is not there
  EXPECT_EQ(o.logit_softcap, 30);
  EXPECT_EQ(o.attention_window, 512);
  EXPECT_EQ(o.attention_pattern, "lg");
  EXPECT_EQ(o.rope_base, 10000);
  EXPECT_EQ(o.tie_embeddings, "yes");
  EXPECT_EQ(o.pad_token_id, 0);
  EXPECT_EQ(read(with(config, "attn_logit_softcapping", nullptr)).attention_softcap, 0);
  EXPECT_EQ(read(with(config, "pad_token_id", nullptr)).pad_token_id, -1);
  EXPECT_EQ(read(with(config, "sliding_window", nullptr)).attention_window, -1);
}

TEST(HfConfig, ReadsGemma3OfBothMajorVersionsOfTransformers) {
  json old = gemma_config("gemma3_text", "Gemma3ForCausalLM");
  old["sliding_window_pattern"] = 3;
  old["rope_theta"] = 500000.0;
  old["rope_local_base_freq"] = 20000.0;
  old["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
  json recent = gemma_config("gemma3_text", "Gemma3ForCausalLM");
  const json l = "sliding_attention", g = "full_attention";
  recent["layer_types"] = {l, l, g, l, l, g, l};
  recent["rope_parameters"] = {
      {l.get<std::string>(), {{"rope_type", "default"}, {"rope_theta", 20000.0}}},
      {g.get<std::string>(), {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 500000.0}}}};
  for (const json& config : {old, recent}) {
    const ModelOptions o = read(config);
    EXPECT_EQ(o.model, "gemma3");
    EXPECT_EQ(o.attention_pattern, "llg");
    EXPECT_EQ(o.rope_base, 500000);
    EXPECT_EQ(o.rope_local_base, 20000);
    EXPECT_EQ(o.rope_scaling, "linear");
    EXPECT_EQ(o.rope_factor, 8);
    EXPECT_EQ(o.attention_softcap, 0);
  }
  EXPECT_EQ(read(without(old, "sliding_window_pattern")).attention_pattern, "lllllg");
}

TEST(HfConfig, TakesTheTextPartOfAGemma3ThatSeesImages) {
  // As published: what the class's defaults give is left out.
  const json config = {{"architectures", {"Gemma3ForConditionalGeneration"}},
                       {"model_type", "gemma3"},
                       {"vision_config", {{"hidden_size", 1152}}},
                       {"text_config",
                        {{"model_type", "gemma3_text"},
                         {"hidden_size", 2560},
                         {"intermediate_size", 10240},
                         {"num_hidden_layers", 34},
                         {"sliding_window", 1024},
                         {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}}}}};
  const ModelOptions o = models::resolve_model_options(read(config));
  ModelOptions asked;
  asked.model = "gemma-3-4b";
  asked.pad_token_id = 0;
  ModelOptions preset = models::resolve_model_options(asked);
  preset.model = o.model;
  OptionSchema schema("model");
  models::add_model_options<ModelOptions>(schema);
  EXPECT_EQ(schema.to_json(&o), schema.to_json(&preset));
  EXPECT_THAT(read_error(without(config, "text_config")), HasSubstr("key 'text_config'"));
}

TEST(HfConfig, ReadsVaultGemmaWhoseLayersAreGlobal) {
  json config = gemma_config("vaultgemma", "VaultGemmaForCausalLM");
  config["layer_types"] = json::array();
  for (int i = 0; i < 7; ++i) config["layer_types"].push_back("full_attention");
  const ModelOptions o = read(config);
  EXPECT_EQ(o.model, "vaultgemma");
  EXPECT_EQ(o.attention_pattern, "g");
  EXPECT_EQ(o.attention_window, 0);
}

TEST(HfConfig, RefusesWhatOurGemmaDoesNotHave) {
  const json config = gemma_config("gemma2", "Gemma2ForCausalLM");
  EXPECT_THAT(read_error(with(config, "hidden_activation", "silu")),
              HasSubstr("key 'hidden_activation': expected gelu_pytorch_tanh"));
  EXPECT_THAT(read_error(with(config, "use_bidirectional_attention", true)),
              HasSubstr("key 'use_bidirectional_attention': expected false"));
  EXPECT_THAT(read_error(with(config, "attention_bias", true)), HasSubstr("key 'attention_bias'"));
  EXPECT_THAT(read_error(with(config, "layer_types", {"full_attention"})),
              HasSubstr("key 'layer_types': expected a list of 7"));
  EXPECT_THAT(read_error(with(config, "attn_logit_softcapping", -3)),
              HasSubstr("key 'attn_logit_softcapping': expected a number"));
  EXPECT_THAT(read_error(with(config, "rope_scaling", {{"rope_type", "yarn"}})),
              HasSubstr("key 'rope_type': expected default or linear"));
}

TEST(HfConfig, ReadsDit) {
  const ModelOptions o = read(dit_config());
  EXPECT_EQ(o.model, "dit");
  EXPECT_EQ(o.task, "denoise");
  EXPECT_EQ(o.image_size, 32);
  EXPECT_EQ(o.patch_size, 4);
  EXPECT_EQ(o.in_channels, 3);
  EXPECT_EQ(o.num_classes, 10);
  EXPECT_EQ(o.positions, "learned");
  EXPECT_EQ(o.norm_affine, "yes");
  EXPECT_EQ(o.intermediate_dim, 256);
}

TEST(HfConfig, TakesTheDefaultsOfTheLibrariesThatWriteIt) {
  json config = llama_config();
  for (const char* key :
       {"num_key_value_heads", "rms_norm_eps", "rope_theta", "rope_scaling", "tie_word_embeddings",
        "architectures", "hidden_act", "attention_bias", "mlp_bias"}) {
    config.erase(key);
  }
  const ModelOptions o = read(config);
  EXPECT_EQ(o.num_kv_heads, 8);
  EXPECT_EQ(o.norm_eps, 1e-6);
  EXPECT_EQ(o.rope_base, 10000);
  EXPECT_EQ(o.rope_scaling, "none");
  EXPECT_EQ(o.tie_embeddings, "no");
  EXPECT_EQ(o.task, "auto");
}

TEST(HfConfig, ReadsBothSpellingsOfRotaryPositions) {
  EXPECT_EQ(read(with(llama_config(), "rope_scaling", nullptr)).rope_scaling, "none");
  EXPECT_EQ(read(with(llama_config(), "rope_scaling", {{"type", "default"}})).rope_scaling, "none");
  const ModelOptions linear =
      read(with(llama_config(), "rope_scaling", {{"type", "linear"}, {"factor", 4.0}}));
  EXPECT_EQ(linear.rope_scaling, "linear");
  EXPECT_EQ(linear.rope_factor, 4);
  json old = llama_config();
  old["rope_scaling"].erase("rope_type");
  old["rope_scaling"]["type"] = "llama3";
  EXPECT_EQ(read(old).rope_scaling, "llama3");
  json recent = without(llama_config(), "rope_theta");
  recent["rope_parameters"] = recent["rope_scaling"];
  recent["rope_parameters"]["rope_theta"] = 250000.0;
  recent.erase("rope_scaling");
  EXPECT_EQ(read(recent).rope_scaling, "llama3");
  EXPECT_EQ(read(recent).rope_base, 250000);
  EXPECT_EQ(read(recent).rope_factor, 8);
}

TEST(HfConfig, TakesTheTaskFromTheArchitecture) {
  json config = with(llama_config(), "architectures", {"LlamaForSequenceClassification"});
  EXPECT_EQ(read(config).task, "classify");
  EXPECT_EQ(read(config).num_labels, 2);
  EXPECT_EQ(read(with(config, "num_labels", 7)).num_labels, 7);
  EXPECT_EQ(
      read(with(config, "id2label", {{"0", "a"}, {"1", "b"}, {"2", "c"}, {"3", "d"}})).num_labels,
      4);
  EXPECT_EQ(read(with(llama_config(), "architectures", {"LlamaModel"})).task, "auto");
  EXPECT_THAT(read_error(with(llama_config(), "architectures", {"LlamaForTokenClassification"})),
              HasSubstr("key 'architectures': expected ...ForCausalLM"));
  EXPECT_THAT(read_error(with(llama_config(), "architectures", "LlamaForCausalLM")),
              HasSubstr("key 'architectures': expected a list of names"));
}

TEST(HfConfig, ReadsAPaddingToken) {
  EXPECT_EQ(read(with(llama_config(), "pad_token_id", 5)).pad_token_id, 5);
  EXPECT_EQ(read(with(llama_config(), "pad_token_id", nullptr)).pad_token_id, -1);
  EXPECT_EQ(read(with(llama_config(), "pad_token_id", -1)).pad_token_id, -1);
  for (const json& bad : {json({1, 2}), json(320), json("x"), json(1.5), json(-2)}) {
    EXPECT_THAT(read_error(with(llama_config(), "pad_token_id", bad)),
                HasSubstr("key 'pad_token_id': expected a whole number from -1 to 319, got "));
  }
}

TEST(HfConfig, RefusesWhatOurModelsDoNotHave) {
  const auto error = [](const json& base, const char* key, const json& value) {
    const std::string text = read_error(with(base, key, value));
    EXPECT_THAT(text, AllOf(HasSubstr("config.json: key '"), HasSubstr(key))) << key;
    return text;
  };
  EXPECT_THAT(error(llama_config(), "model_type", "mistral"),
              HasSubstr("expected llama, qwen2, gemma2, gemma3, gemma3_text, vaultgemma, dit or "
                        "linear, got \"mistral\""));
  EXPECT_THAT(error(qwen_config(), "use_sliding_window", true),
              HasSubstr("sliding-window attention is not supported"));
  EXPECT_THAT(error(llama_config(), "hidden_act", "gelu"), HasSubstr("expected silu"));
  EXPECT_THAT(error(llama_config(), "attention_bias", true), HasSubstr("expected false (biases"));
  EXPECT_THAT(error(llama_config(), "mlp_bias", true), HasSubstr("expected false (biases"));
  EXPECT_THAT(error(llama_config(), "partial_rotary_factor", 0.5), HasSubstr("expected 1"));
  EXPECT_THAT(error(llama_config(), "quantization_config", {{"bits", 4}}),
              HasSubstr("expected no quantised weights"));
  for (const char* type : {"yarn", "dynamic", "longrope"}) {
    json config = llama_config();
    config["rope_scaling"]["rope_type"] = type;
    EXPECT_THAT(
        read_error(config),
        AllOf(HasSubstr("'rope_scaling': key 'rope_type': expected default, linear or llama3"),
              HasSubstr(type)));
  }
}

TEST(HfConfig, NamesFileAndKeyOfWhatIsMissingOrWrong) {
  for (const char* key : {"model_type", "vocab_size", "hidden_size", "intermediate_size",
                          "num_hidden_layers", "num_attention_heads"}) {
    EXPECT_THAT(read_error(without(llama_config(), key)),
                AllOf(HasSubstr(fmt::format("config.json: key '{}': expected ", key)),
                      HasSubstr("got none; the config is not complete")));
  }
  for (const char* key :
       {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "image_size", "patch_size", "in_channels", "num_classes"}) {
    EXPECT_THAT(read_error(without(dit_config(), key)),
                HasSubstr(fmt::format("key '{}': expected ", key)));
    for (const json& bad : {json(0), json(-1), json(1e3), json("64"), json(true), json::array(),
                            json(1ull << 63), json(1'000'000'000'000)}) {
      EXPECT_THAT(read_error(with(dit_config(), key, bad)),
                  HasSubstr(fmt::format("key '{}': expected a whole number from 1 to ", key)))
          << bad;
    }
  }
  json low = llama_config();
  low["rope_scaling"].erase("low_freq_factor");
  EXPECT_THAT(read_error(low), HasSubstr("key 'low_freq_factor': expected a number, got none"));
  EXPECT_THAT(read_error(with(llama_config(), "rms_norm_eps", -1)),
              HasSubstr("key 'rms_norm_eps': expected a number from"));
  EXPECT_THAT(read_error(with(llama_config(), "tie_word_embeddings", "yes")),
              HasSubstr("key 'tie_word_embeddings': expected true or false, got \"yes\""));
  EXPECT_THAT(read_error(with(llama_config(), "num_key_value_heads", 3)),
              HasSubstr("key 'num_key_value_heads': expected a divisor of 8 heads, got 3"));
  EXPECT_THAT(read_error(with(llama_config(), "hidden_size", 63)),
              HasSubstr("key 'hidden_size': expected a multiple of 8 heads"));
  EXPECT_THAT(read_error(with(llama_config(), "rope_scaling", 3)),
              HasSubstr("key 'rope_scaling': expected an object, got 3"));
  EXPECT_THAT(read_error(with(dit_config(), "image_size", 33)),
              HasSubstr("key 'image_size': expected a multiple of patch_size 4, got 33"));
  EXPECT_THAT(read_error(with(dit_config(), "positions", "none")),
              HasSubstr("key 'positions': expected learned or sincos, got \"none\""));
  const std::string text = read_error(with(llama_config(), "model_type", std::string(5000, 'x')));
  EXPECT_LT(text.size(), 400u);
}

TEST(HfConfig, RefusesDamagedAndHostileFiles) {
  const auto text_error = [](const std::string& text) {
    const TemporaryFolder folder;
    write_bytes(folder.path() / "config.json", text);
    try {
      options_from_config(folder.path());
    } catch (const IoError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(text_error(""), HasSubstr("config.json: expected a JSON object"));
  EXPECT_THAT(text_error("{\"model_type\": "), HasSubstr("something else at byte"));
  EXPECT_THAT(text_error("{\"a\": 1e400}"), HasSubstr("expected a JSON object"));
  EXPECT_THAT(text_error(R"({"model_type":"llama","model_type":"dit"})"),
              HasSubstr("expected each key once, got 'model_type' twice"));
  EXPECT_THAT(text_error(R"({"a":{"x":1},"b":{"x":1,"y":[{"x":1},{"x":1,"x":2}]}})"),
              HasSubstr("expected each key once, got 'x' twice"));
  EXPECT_THAT(text_error("{\"a\":" + std::string(50'000, '[')),
              HasSubstr("expected at most 32 levels of nesting, got more"));
  std::string many = "{\"a\":[0";
  for (int i = 0; i < 200'000; ++i) many += ",0";
  EXPECT_THAT(text_error(many + "]}"), HasSubstr("expected at most 200000 values, got more"));
  EXPECT_THAT(text_error(std::string((8u << 20) + 1, ' ')),
              HasSubstr("expected at most 8388608 bytes, got 8388609"));
}

TEST(HfConfig, AFolderWithoutConfigAndANameOfTheHubAreNamed) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of([&] { options_from_config(folder.path()); }),
              HasSubstr("expected a folder with a config.json"));
  EXPECT_THAT(error_of([] { options_from_config("Qwen/Qwen2.5-1.5B"); }),
              HasSubstr("hf download Qwen/Qwen2.5-1.5B --local-dir Qwen2.5-1.5B"));
}

// Every preset comes back as it was, apart from its name.
TEST(HfConfig, WhatIsWrittenIsReadBack) {
  OptionSchema schema("model");
  models::add_model_options<ModelOptions>(schema);
  for (const models::Preset& preset : models::presets()) {
    for (const char* task : {"classify", "lm"}) {
      ModelOptions options;
      options.model = preset.sizes.model;
      if (preset.family->name() == "decoder") {
        options.task = task;
        options.num_labels = 5;
        options.pad_token_id = 7;
      }
      const ModelOptions resolved = models::resolve_model_options(options);
      const TemporaryFolder folder;
      write_config(folder.path(), resolved);
      ModelOptions back = models::resolve_model_options(options_from_config(folder.path()));
      EXPECT_THAT((std::vector<std::string>{"llama", "qwen", "gemma2", "gemma3", "vaultgemma",
                                            "dit", "linear"}),
                  ::testing::Contains(back.model));
      back.model = resolved.model;
      if (resolved.task != "classify") back.num_labels = resolved.num_labels;
      EXPECT_EQ(schema.to_json(&back), schema.to_json(&resolved)) << preset.sizes.model;
    }
  }
}

}  // namespace
}  // namespace moonshard::weights
