// The text that rebuilds a model.
#include <string>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "apps/lockstep-train/saved/model_description.hpp"

using namespace lockstep;

namespace {

std::string without(std::string text, const std::string& part, const std::string& other = "") {
  const std::size_t at = text.find(part);
  REQUIRE(at != std::string::npos);
  return text.replace(at, part.size(), other);
}

const ModelDescription small_mlp{.sample = {28, 28}, .outputs = 10, .hidden = {512, 16}};

}  // namespace

TEST_CASE("a model's description is one line that gives it back") {
  const ModelDescription number{.sample = {3}, .outputs = 1, .loss = nn::MlpOptions::Loss::squared_error};
  const ModelDescription convnet{.kind = ModelKind::convnet,
                                 .dtype = DType::f64,
                                 .sample = {8, 9, 3},
                                 .outputs = 4,
                                 .batch_norm = nn::ConvnetOptions::BatchNorm::whole_batch,
                                 .dropout = 0.1};
  const ModelDescription gpt{.kind = ModelKind::gpt,
                             .precision = nn::Model::Precision::bf16,
                             .layers = 2,
                             .heads = 3,
                             .embed = 12,
                             .context = 16,
                             .vocabulary = 256};
  for (const ModelDescription* const model : {&small_mlp, &number, &convnet, &gpt}) {
    const std::string text = to_json(*model);
    CHECK(text.find('\n') == std::string::npos);
    CHECK(parse_model_description(text) == *model);
  }
}

TEST_CASE("what describes no model is refused, and says which field does not") {
  const std::string text = to_json(small_mlp);
  const auto refused = [](const std::string& other, const char* message) {
    CHECK_THROWS_WITH(parse_model_description(other), Catch::Contains(message));
    CHECK_THROWS_AS(parse_model_description(other), Error);
  };
  refused("", "is no JSON object");
  refused("[1]", "is no JSON object");
  refused(std::string(100'000, '['), "is no JSON object");
  refused(without(text, "\"kind\"", "\"sort\""), "has no \"kind\"");
  refused(without(text, "\"mlp\"", "\"rnn\""), "\"kind\": \"rnn\"; expected mlp or convnet or gpt");
  refused(without(text, "[28,28]", "[28,-28]"), "\"sample\"");
  refused(without(text, "[512,16]", "[512,0]"), "\"hidden\": [512,0]; expected a whole number from 1");
  refused(without(text, "[512,16]", "512"), "\"hidden\": 512; expected a list of whole numbers");
  refused(without(text, ":10,", ":10.5,"), "\"outputs\": 10.5");
  refused(without(text, ":10,", ":1e300,"), "\"outputs\"");
  refused(without(text, "relu", "tanh"), "\"form\": {\"weight\"");
}
