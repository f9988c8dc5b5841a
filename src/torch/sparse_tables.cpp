#include "torch/sparse_tables.hpp"

#include <unordered_map>
#include <unordered_set>

#include <torch/nn/modules/embedding.h>

namespace lockstep::libtorch {
namespace {

/// Calls `visit(module, options)` for a table of either kind.
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
  for (const auto& each : module.modules()) {
    if (!seen.insert(each.get()).second) continue;  // one module under several names
    const auto own = each->named_parameters(false);
    for (const auto& parameter : own) ++holders[parameter.value().unsafeGetTensorImpl()];
    if_table(*each, [&](const auto& table) {
      const at::Tensor* const weight = own.find("weight");
      if (table.options.sparse() && weight && weight->is_same(table.weight)) candidates.push_back(*weight);
    });
  }
  for (const at::Tensor& each : candidates)
    if (holders[each.unsafeGetTensorImpl()] == 1) tables.push_back(each);
  return tables;
}

std::vector<std::string> tables_with_max_norm(const ::torch::nn::Module& module) {
  std::vector<std::string> names;
  for (const auto& each : module.named_modules())
    if_table(*each.value(), [&](const auto& table) {
      if (table.options.max_norm()) names.push_back(each.key().empty() ? "weight" : each.key() + ".weight");
    });
  return names;
}

}  // namespace lockstep::libtorch
