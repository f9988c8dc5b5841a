#include "torch/sparse_tables.hpp"

#include <unordered_map>
#include <unordered_set>

#include <torch/nn/modules/embedding.h>

namespace lockstep::libtorch {
namespace {

/// Calls `visit(name, module)`, with "" for `module` itself, which need not be owned by a pointer.
template <class Visit>
void each_module(const ::torch::nn::Module& module, Visit&& visit) {
  visit(std::string{}, module);
  for (const auto& each : module.named_modules({}, false)) visit(each.key(), *each.value());
}

/// Calls `visit(module)` for a table of either kind.
template <class Visit>
void if_table(const ::torch::nn::Module& module, Visit&& visit) {
  if (const auto* const plain = dynamic_cast<const ::torch::nn::EmbeddingImpl*>(&module)) visit(*plain);
  if (const auto* const bag = dynamic_cast<const ::torch::nn::EmbeddingBagImpl*>(&module)) visit(*bag);
}

}  // namespace

std::vector<at::Tensor> sparse_tables(const ::torch::nn::Module& module) {
  std::unordered_set<const ::torch::nn::Module*> seen;
  std::unordered_map<const c10::TensorImpl*, int> holders;
  std::vector<at::Tensor> candidates, tables;
  each_module(module, [&](const std::string&, const ::torch::nn::Module& each) {
    if (!seen.insert(&each).second) return;  // one module under several names
    const auto own = each.named_parameters(false);
    for (const auto& parameter : own) ++holders[parameter.value().unsafeGetTensorImpl()];
    if_table(each, [&](const auto& table) {
      const at::Tensor* const weight = own.find("weight");
      if (table.options.sparse() && weight && weight->is_same(table.weight)) candidates.push_back(*weight);
    });
  });
  for (const at::Tensor& each : candidates)
    if (holders[each.unsafeGetTensorImpl()] == 1) tables.push_back(each);
  return tables;
}

std::vector<std::string> tables_with_max_norm(const ::torch::nn::Module& module) {
  std::vector<std::string> names;
  each_module(module, [&](const std::string& name, const ::torch::nn::Module& each) {
    if_table(each, [&](const auto& table) {
      if (table.options.max_norm()) names.push_back(name.empty() ? "weight" : name + ".weight");
    });
  });
  return names;
}

}  // namespace lockstep::libtorch
