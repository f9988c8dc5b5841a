// Small modules with gradients that are easy to tell, for the tests of DataParallel.
#pragma once

// clang-format off: ahead of all that includes Catch2
#include "torch_and_catch.hpp"
// clang-format on

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/ranks.hpp"

namespace lockstep::test {

using Values = std::vector<double>;

inline Values values_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().to(at::kDouble).contiguous();
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}

inline at::Tensor weights(const Values& values) {
  return torch::tensor(values, at::kDouble);
}

/// y = w x, for x of two numbers: the gradient of a sum of losses y is the sum of x.
struct Plane : torch::nn::Module {
  at::Tensor w = register_parameter("w", weights({1.0 + rank(), 2.0}));
  at::Tensor forward(const at::Tensor& x) { return (x * w).sum(); }
};

/// One with several parameters, of which a call uses those that it names.
struct Parts : torch::nn::Module {
  explicit Parts(const std::vector<std::string>& names) {
    for (const std::string& name : names) register_parameter(name, weights({1, 1}));
  }
  at::Tensor of(const std::string& name) { return named_parameters()[name]; }
  at::Tensor forward(const std::string& used, double x) {
    at::Tensor sum = torch::zeros({}, at::kDouble);
    for (const char name : used) sum = sum + (of({name}) * x).sum();
    return sum;
  }
  at::Tensor gradient(const std::string& name) { return of(name).grad(); }
};

/// A folder that all ranks share, and that is gone after a test that passes.
class SharedFolder {
 public:
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

  void remove() const {
    runtime().strategy().reduce(ReduceOp::sum, PerReplica<int>{0});
    if (runtime().is_chief()) std::filesystem::remove_all(path_);
  }

 private:
  std::string path_ = runtime()
                          .strategy()
                          .broadcast_object([] {
                            std::string name = (std::filesystem::temp_directory_path() / "torch.XXXXXX").string();
                            if (!::mkdtemp(name.data())) throw std::runtime_error{"no folder"};
                            return name;
                          })
                          .value();
};

/// 0 + 1 + … + last, or the sum of their squares.
inline int sum_to(int last, int power) {
  int sum = 0;
  for (int i = 0; i <= last; ++i) sum += power == 1 ? i : i * i;
  return sum;
}

}  // namespace lockstep::test
