// A gpt written down once more, one number at a time in double, to compare with.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "models/nn/gpt.hpp"
#include "nn_support.hpp"

namespace lockstep::nn {

class NaiveGpt {
 public:
  using Vector = std::vector<double>;

  explicit NaiveGpt(const Gpt& model) : options_{model.options()} {
    for (const Variable& variable : model.variables())
      values_[std::string{variable.name()}] = in_double(variable.local());
  }

  /// The logits of the token behind the last of `tokens`.
  Vector logits(const std::vector<std::int32_t>& tokens) const {
    std::vector<Vector> x;
    for (std::size_t position = 0; position < tokens.size(); ++position)
      x.push_back(
          sum(row("token_embedding", static_cast<std::size_t>(tokens[position])), row("position_embedding", position)));
    for (std::int64_t layer = 0; layer < options_.layers; ++layer) x = block("block_" + std::to_string(layer) + '/', x);
    const Vector last = norm("final_norm", x.back());
    Vector all;
    for (std::int64_t token = 0; token < options_.vocabulary; ++token)
      all.push_back(dot(last, row("token_embedding", static_cast<std::size_t>(token)), 0, last.size()));
    return all;
  }

 private:
  static Vector sum(Vector a, const Vector& b) {
    std::transform(a.begin(), a.end(), b.begin(), a.begin(), std::plus{});
    return a;
  }
  static double dot(const Vector& a, const Vector& b, std::size_t first, std::size_t count) {
    double total = 0;
    for (std::size_t i = first; i < first + count; ++i) total += a[i] * b[i];
    return total;
  }

  Vector row(const std::string& name, std::size_t index) const {
    const auto begin = values_.at(name).begin() + static_cast<std::int64_t>(index) * options_.width;
    return {begin, begin + options_.width};
  }

  Vector norm(const std::string& name, const Vector& x) const {
    const double count = static_cast<double>(x.size());
    double mean = 0, variance = 0;
    for (const double each : x) mean += each / count;
    for (const double each : x) variance += (each - mean) * (each - mean) / count;
    Vector y;
    for (std::size_t i = 0; i < x.size(); ++i)
      y.push_back((x[i] - mean) / std::sqrt(variance + 1e-5) * values_.at(name + "/gain")[i] +
                  values_.at(name + "/bias")[i]);
    return y;
  }

  Vector dense(const std::string& name, const Vector& x) const {
    Vector y = values_.at(name + "/bias");
    for (std::size_t out = 0; out < y.size(); ++out)
      for (std::size_t in = 0; in < x.size(); ++in) y[out] += x[in] * values_.at(name + "/weight")[in * y.size() + out];
    return y;
  }

  /// What the last position of `normed` is told by those before it and itself.
  Vector attend(const std::string& name, const std::vector<Vector>& normed) const {
    const auto width = static_cast<std::size_t>(options_.width),
               each = width / static_cast<std::size_t>(options_.heads);
    std::vector<Vector> queries, keys, values;
    for (const Vector& x : normed) {
      const Vector all = dense(name + "/qkv", x);
      const auto part = [&](std::size_t which) {
        const auto begin = all.begin() + static_cast<std::int64_t>(which * width);
        return Vector(begin, begin + options_.width);
      };
      queries.push_back(part(0));
      keys.push_back(part(1));
      values.push_back(part(2));
    }
    Vector mixed(width);
    for (std::size_t head = 0; head < width; head += each) {
      Vector weights;
      double total = 0;
      for (const Vector& key : keys) {
        weights.push_back(std::exp(dot(queries.back(), key, head, each) / std::sqrt(static_cast<double>(each))));
        total += weights.back();
      }
      for (std::size_t position = 0; position < keys.size(); ++position)
        for (std::size_t i = head; i < head + each; ++i) mixed[i] += weights[position] / total * values[position][i];
    }
    return dense(name + "/output", mixed);
  }

  std::vector<Vector> block(const std::string& name, const std::vector<Vector>& x) const {
    std::vector<Vector> normed, y;
    for (const Vector& each : x) {
      normed.push_back(norm(name + "attention_norm", each));
      const Vector middle = sum(each, attend(name + "attention", normed));
      Vector hidden = dense(name + "expand", norm(name + "mlp_norm", middle));
      for (double& h : hidden) h = h / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.)) * (h + 0.044715 * h * h * h)));
      y.push_back(sum(middle, dense(name + "contract", hidden)));
    }
    return y;
  }

  GptOptions options_;
  std::map<std::string, Vector> values_;
};

}  // namespace lockstep::nn
