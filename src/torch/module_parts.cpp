#include "torch/module_parts.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <unordered_set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/functional/batchnorm.h>
#include <torch/nn/functional/instancenorm.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/instancenorm.h>

#include <lockstep/torch/sync_batch_norm.hpp>

#include "torch/sparse_tables.hpp"

namespace lockstep::libtorch {
namespace {

NamedTensors each_once(const ::torch::OrderedDict<std::string, at::Tensor>& values) {
  NamedTensors result;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& each : values)
    if (each.value().defined() && seen.insert(each.value().unsafeGetTensorImpl()).second)
      result.emplace_back(each.key(), each.value());
  return result;
}

/// What a layer keeps of the batches that it has seen, if it is one of these kinds.
template <class... Norms>
void add_statistics(const ::torch::nn::Module& module, std::vector<at::Tensor>& statistics) {
  const auto add = [&](const auto* norm) {
    if (!norm) return;
    for (const at::Tensor& each : {norm->running_mean, norm->running_var, norm->num_batches_tracked})
      if (each.defined()) statistics.push_back(each);
  };
  (add(dynamic_cast<const Norms*>(&module)), ...);
}

std::vector<at::Tensor> statistics_of(const ::torch::nn::Module& module) {
  using namespace ::torch::nn;
  std::vector<at::Tensor> statistics;
  const auto visit = [&](const Module& each) {
    add_statistics<BatchNorm1dImpl, BatchNorm2dImpl, BatchNorm3dImpl, InstanceNorm1dImpl, InstanceNorm2dImpl,
                   InstanceNorm3dImpl, SyncBatchNorm::Impl>(each, statistics);
  };
  visit(module);
  for (const auto& each : module.named_modules("", false)) visit(*each.value());
  return statistics;
}

}  // namespace

std::string first_names(const std::vector<std::string>& names) {
  constexpr std::size_t most = 3;
  const auto shown = std::span{names}.first(std::min(most, names.size()));
  const std::string more = names.size() > most ? fmt::format(" and {} more", names.size() - most) : "";
  return fmt::format("{}{}", fmt::join(shown, ", "), more);
}

ModuleParts parts_of(std::shared_ptr<::torch::nn::Module> module) {
  return {.kind = module->name(),
          .parameters = [module] { return each_once(module->named_parameters()); },
          .buffers = [module] { return each_once(module->named_buffers()); },
          .tables = sparse_tables(*module),
          .statistics = statistics_of(*module),
          .max_norms = tables_with_max_norm(*module),
          .module = module};
}

}  // namespace lockstep::libtorch
