// lockstep's three models as modules of LibTorch, with the sizes of scripts/peers/measure.py, and one that is mostly an
// embedding.
#pragma once

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <torch/nn.h>
#include <torch/version.h>

namespace lockstep::bench_torch {

namespace nn = ::torch::nn;

constexpr std::int64_t side = 28, classes = 10, hidden = 512;
constexpr std::int64_t layers = 4, heads = 4, width = 128, context = 128, vocabulary = 256;
// Of the embedding: rows of the table and their width, and rows that a sample has.
constexpr std::int64_t rows = 100'000, row_width = 64, rows_of_sample = 4;
constexpr double embedding_stddev = 0.02, norm_epsilon = 1e-5;

/// What is trained: names, and samples of a step over all ranks.
const std::map<std::string, std::int64_t> batch_of{{"mlp", 256}, {"convnet", 128}, {"gpt", 16}, {"embedding", 128}};

struct Model : nn::Module {
  virtual at::Tensor forward(const at::Tensor& inputs) = 0;
};

struct Layers final : Model {
  explicit Layers(nn::Sequential all) : all{register_module("all", std::move(all))} {}
  at::Tensor forward(const at::Tensor& inputs) override { return all->forward(inputs); }
  nn::Sequential all;
};

inline nn::Sequential mlp() {
  return nn::Sequential{nn::Flatten{}, nn::Linear{side * side, hidden}, nn::ReLU{}, nn::Linear{hidden, hidden},
                        nn::ReLU{},    nn::Linear{hidden, classes}};
}

inline nn::Sequential convnet() {
  constexpr std::int64_t pooled = (side - 4) / 2;
  return nn::Sequential{nn::Conv2d{nn::Conv2dOptions{1, 32, 3}},
                        nn::ReLU{},
                        nn::Conv2d{nn::Conv2dOptions{32, 64, 3}},
                        nn::ReLU{},
                        nn::MaxPool2d{2},
                        nn::Flatten{},
                        nn::Linear{pooled * pooled * 64, 128},
                        nn::ReLU{},
                        nn::Linear{128, classes}};
}

struct Block final : nn::Module {
  Block() {
    for (const auto& [name, module] :
         std::vector<std::pair<std::string, std::shared_ptr<nn::Module>>>{{"attention_norm", attention_norm.ptr()},
                                                                          {"mlp_norm", mlp_norm.ptr()},
                                                                          {"qkv", qkv.ptr()},
                                                                          {"output", output.ptr()},
                                                                          {"mlp", mlp.ptr()}})
      register_module(name, module);
  }

  at::Tensor attention(const at::Tensor& x) {
    const std::int64_t windows = x.size(0);
    std::vector<at::Tensor> parts = qkv(x).split(width, 2);
    for (at::Tensor& part : parts) part = part.view({windows, context, heads, width / heads}).transpose(1, 2);
    const at::Tensor y = causal(parts[0], parts[1], parts[2]);
    return output(y.transpose(1, 2).reshape({windows, context, width}));
  }

  static at::Tensor causal(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
#if TORCH_VERSION_MAJOR >= 2
    return at::scaled_dot_product_attention(q, k, v, {}, 0.0, true);
#else
    const at::Tensor scores = q.matmul(k.transpose(-2, -1)) / std::sqrt(static_cast<double>(q.size(-1)));
    const at::Tensor future = at::ones({q.size(-2), k.size(-2)}, at::kBool).triu(1);
    return scores.masked_fill(future, -std::numeric_limits<double>::infinity()).softmax(-1).matmul(v);
#endif
  }

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = x + attention(attention_norm(x));
    return y + mlp->forward(mlp_norm(y));
  }

  nn::LayerNorm attention_norm{nn::LayerNormOptions{{width}}.eps(norm_epsilon)},
      mlp_norm{nn::LayerNormOptions{{width}}.eps(norm_epsilon)};
  nn::Linear qkv{width, 3 * width}, output{width, width};
  nn::Sequential mlp{nn::Linear{width, 4 * width}, nn::GELU{nn::GELUOptions{}.approximate("tanh")},
                     nn::Linear{4 * width, width}};
};

struct Gpt final : Model {
  Gpt() {
    register_module("tokens", tokens);
    register_module("positions", positions);
    register_module("blocks", blocks);
    register_module("norm", norm);
    for (int i = 0; i < layers; ++i) blocks->push_back(Block{});
    for (nn::Embedding& embedding : {std::ref(tokens), std::ref(positions)})
      nn::init::normal_(embedding->weight, 0, embedding_stddev);
  }

  at::Tensor forward(const at::Tensor& inputs) override {
    const at::Tensor x = blocks->forward(tokens(inputs) + positions->weight);
    // The output weights are those of the embedding.
    return at::linear(norm(x), tokens->weight);
  }

  nn::Embedding tokens{vocabulary, width}, positions{context, width};
  nn::Sequential blocks;
  nn::LayerNorm norm{nn::LayerNormOptions{{width}}.eps(norm_epsilon)};
};

/// A large table, of which a batch touches a few hundred rows.
inline nn::Sequential embedding() {
  return nn::Sequential{nn::Embedding{nn::EmbeddingOptions{rows, row_width}.sparse(true)}, nn::Flatten{},
                        nn::Linear{rows_of_sample * row_width, 128}, nn::ReLU{}, nn::Linear{128, classes}};
}

/// Gradients of this parameter are sparse.
inline bool is_sparse(const std::string& model, const at::Tensor& parameter) {
  return model == "embedding" && parameter.size(0) == rows;
}

/// The same weights on every call.
inline std::shared_ptr<Model> make_model(const std::string& name) {
  ::torch::manual_seed(1);
  if (name == "gpt") return std::make_shared<Gpt>();
  if (name == "embedding") return std::make_shared<Layers>(embedding());
  return std::make_shared<Layers>(name == "mlp" ? mlp() : convnet());
}

struct Batch {
  at::Tensor inputs, labels;
};

/// `samples` samples of each of `batches` batches. The brightness of an image tells its label, and so does the first
/// row of an embedding, so that losses fall.
inline std::vector<Batch> make_batches(const std::string& model, std::int64_t samples, int rank, int batches) {
  ::torch::manual_seed(static_cast<std::uint64_t>(100 + rank));
  std::vector<Batch> made;
  for (int i = 0; i < batches; ++i) {
    if (model == "gpt") {
      const at::Tensor text = at::randint(vocabulary, {samples, context + 1}, at::kLong);
      made.push_back({text.slice(1, 0, context).contiguous(), text.slice(1, 1).contiguous()});
    } else if (model == "embedding") {
      const at::Tensor inputs = at::randint(rows, {samples, rows_of_sample}, at::kLong);
      made.push_back({inputs, inputs.select(1, 0).remainder(classes)});
    } else {
      const at::Tensor labels = at::randint(classes, {samples}, at::kLong);
      const at::Tensor brightness = (labels + 1).to(at::kFloat).div(classes).view({samples, 1, 1, 1});
      made.push_back({at::rand({samples, 1, side, side}) * brightness, labels});
    }
  }
  return made;
}

}  // namespace lockstep::bench_torch
