#include "torch/module_parts.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <unordered_set>

#include <fmt/format.h>
#include <fmt/ranges.h>

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
          .max_norms = tables_with_max_norm(*module),
          .module = module};
}

}  // namespace lockstep::libtorch
