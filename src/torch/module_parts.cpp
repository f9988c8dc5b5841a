#include "torch/module_parts.hpp"

#include <cstddef>
#include <span>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/functional/batchnorm.h>
#include <torch/nn/functional/instancenorm.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/instancenorm.h>

#include <lockstep/torch/sync_batch_norm.hpp>

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
  for_each_module(module, [&](const std::string&, const Module& each) {
    add_statistics<BatchNorm1dImpl, BatchNorm2dImpl, BatchNorm3dImpl, InstanceNorm1dImpl, InstanceNorm2dImpl,
                   InstanceNorm3dImpl, SyncBatchNorm::Impl>(each, statistics);
  });
  return statistics;
}

/// Calls `visit(module)` for a table of either kind.
template <class Visit>
void if_table(const ::torch::nn::Module& module, Visit&& visit) {
  if (const auto* const plain = dynamic_cast<const ::torch::nn::EmbeddingImpl*>(&module)) visit(*plain);
  if (const auto* const bag = dynamic_cast<const ::torch::nn::EmbeddingBagImpl*>(&module)) visit(*bag);
}

/// The weights of Embedding and EmbeddingBag with `sparse(true)` that no other module has registered.
std::vector<at::Tensor> sparse_tables(const ::torch::nn::Module& module) {
  std::unordered_set<const ::torch::nn::Module*> seen;
  std::unordered_map<const c10::TensorImpl*, int> holders;
  std::vector<at::Tensor> tables;
  for_each_module(module, [&](const std::string&, const ::torch::nn::Module& each) {
    if (!seen.insert(&each).second) return;  // one module under several names
    const auto own = each.named_parameters(false);
    for (const auto& parameter : own) ++holders[parameter.value().unsafeGetTensorImpl()];
    if_table(each, [&](const auto& table) {
      const at::Tensor* const weight = own.find("weight");
      if (table.options.sparse() && weight && weight->is_same(table.weight)) tables.push_back(*weight);
    });
  });
  std::erase_if(tables, [&](const at::Tensor& each) { return holders[each.unsafeGetTensorImpl()] > 1; });
  return tables;
}

/// The names of embedding weights with a `max_norm`: their forward pass changes the rows that it reads.
std::vector<std::string> tables_with_max_norm(const ::torch::nn::Module& module) {
  std::vector<std::string> names;
  for_each_module(module, [&](const std::string& name, const ::torch::nn::Module& each) {
    if_table(each, [&](const auto& table) {
      if (table.options.max_norm()) names.push_back(name.empty() ? "weight" : name + ".weight");
    });
  });
  return names;
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
