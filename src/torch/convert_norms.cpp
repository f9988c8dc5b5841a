// Which batch norms of a module can become SyncBatchNorms, and which its code calls by their types.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/torch/sync_batch_norm.hpp>

#include "torch/module_parts.hpp"

namespace lockstep::libtorch {
namespace {

namespace nn = ::torch::nn;

/// Null unless it is exactly one of torch's: what is derived from one may compute something else.
template <class Norm>
const Norm* as_exactly(const nn::Module& module) {
  return typeid(module) == typeid(Norm) ? dynamic_cast<const Norm*>(&module) : nullptr;
}

/// Calls `use` with the batch norm that `module` is; false if it is none.
template <class Use>
bool with_norm(const nn::Module& module, Use&& use) {
  const auto call = [&](const auto* norm) {
    if (norm) use(*norm);
    return norm != nullptr;
  };
  return call(as_exactly<nn::BatchNorm1dImpl>(module)) || call(as_exactly<nn::BatchNorm2dImpl>(module)) ||
         call(as_exactly<nn::BatchNorm3dImpl>(module));
}

bool is_derived_norm(const nn::Module& module) {
  return (dynamic_cast<const nn::BatchNorm1dImpl*>(&module) || dynamic_cast<const nn::BatchNorm2dImpl*>(&module) ||
          dynamic_cast<const nn::BatchNorm3dImpl*>(&module)) &&
         !with_norm(module, [](const auto&) {});
}

/// One with the parameters and buffers of `norm`.
template <class Norm>
std::shared_ptr<SyncBatchNorm::Impl> as_sync(const Norm& norm) {
  auto sync = std::make_shared<SyncBatchNorm::Impl>(norm.options);
  const auto take = [](at::Tensor& to, const at::Tensor& from) {
    if (!from.defined()) return;
    to.set_data(from.detach());
    to.set_requires_grad(from.requires_grad());
  };
  take(sync->weight, norm.weight);
  take(sync->bias, norm.bias);
  take(sync->running_mean, norm.running_mean);
  take(sync->running_var, norm.running_var);
  take(sync->num_batches_tracked, norm.num_batches_tracked);
  sync->train(norm.is_training());
  return sync;
}

/// A batch norm that nobody can replace from outside.
struct Fixed {
  std::string path;
  std::string sentence;  ///< why, and what was expected
};

/// What a walk through a module finds.
class Norms {
 public:
  explicit Norms(nn::Module& module) {
    if (!look_at_norm(module, "", "the program")) look_at("", module);
    for (const auto& each : module.named_modules("", false)) look_at(each.key(), *each.value());
  }

  const std::vector<Fixed>& fixed() const { return fixed_; }

  void replace() {
    for (const auto& each : replacements_) each();
  }

 private:
  bool look_at_norm(const nn::Module& module, const std::string& path, const std::string& caller) {
    const std::string what = path.empty() ? "the module, a batch norm" : fmt::format("batch norm '{}'", path);
    const bool is_norm = with_norm(module, [&](const auto& norm) {
      fixed_.push_back(
          {path, fmt::format("{} calls {}, by its type: expected "
                             "lockstep::libtorch::SyncBatchNorm{{torch::nn::BatchNormOptions{{{}}}}} there",
                             caller, what, norm.options.num_features())});
    });
    if (is_norm || !is_derived_norm(module)) return is_norm;
    fixed_.push_back({path, fmt::format("{} is a {}, which may compute more than a batch norm: expected a class that "
                                        "uses a lockstep::libtorch::SyncBatchNorm",
                                        what, module.name())});
    return true;
  }

  void look_at(const std::string& path, nn::Module& holder) {
    for (const auto& part : holder.named_children()) {
      const std::string name = (path.empty() ? "" : path + ".") + part.key();
      if (with_norm(*part.value(), [](const auto&) {}) && can_replace(holder, part.key(), part.value())) continue;
      look_at_norm(*part.value(), name, holder.name());
    }
  }

  /// A holder that calls its parts by `forward` alone, or leaves that to the program.
  bool can_replace(nn::Module& holder, const std::string& key, const std::shared_ptr<nn::Module>& part) {
    if (auto* const layers = dynamic_cast<nn::SequentialImpl*>(&holder)) {
      const auto layer = std::find_if(layers->begin(), layers->end(), [&](nn::AnyModule& each) {
        return static_cast<const nn::Module*>(each.ptr().get()) == part.get();
      });
      if (layer == layers->end()) return false;
      return add([this, layers, key, part] {  // wherever it stands there
        const auto sync = sync_of(part);
        layers->replace_module(key, sync);
        for (nn::AnyModule& each : *layers)
          if (static_cast<const nn::Module*>(each.ptr().get()) == part.get()) each = nn::AnyModule{sync};
      });
    }
    if (auto* const list = dynamic_cast<nn::ModuleListImpl*>(&holder)) {
      const auto entry = std::find(list->begin(), list->end(), part);
      if (entry == list->end()) return false;
      return add([this, list, key, part] {
        const std::shared_ptr<nn::Module> sync = list->replace_module(key, sync_of(part));
        std::replace(list->begin(), list->end(), part, sync);
      });
    }
    if (auto* const dictionary = dynamic_cast<nn::ModuleDictImpl*>(&holder)) {
      if (!dictionary->contains(key)) return false;
      return add([this, dictionary, key, part] {
        dictionary->update({std::pair<std::string, std::shared_ptr<nn::Module>>{key, sync_of(part)}});
      });
    }
    return false;
  }

  bool add(std::function<void()> replacement) {
    replacements_.push_back(std::move(replacement));
    return true;
  }

  /// One that several modules share stays one.
  std::shared_ptr<SyncBatchNorm::Impl> sync_of(const std::shared_ptr<nn::Module>& norm) {
    std::shared_ptr<SyncBatchNorm::Impl>& sync = made_[norm];
    if (!sync) with_norm(*norm, [&](const auto& each) { sync = as_sync(each); });
    return sync;
  }

  std::vector<Fixed> fixed_;
  std::vector<std::function<void()>> replacements_;
  std::map<std::shared_ptr<nn::Module>, std::shared_ptr<SyncBatchNorm::Impl>> made_;
};

}  // namespace

void SyncBatchNorm::convert(nn::Module& module) {
  Norms norms{module};
  const std::vector<Fixed>& fixed = norms.fixed();
  if (fixed.empty()) return norms.replace();
  std::vector<std::string> others;
  for (const Fixed& each : std::span{fixed}.subspan(1)) others.push_back(each.path);
  throw InvalidArgument{fixed.front().sentence + (others.empty() ? "" : "; likewise for " + first_names(others))};
}

}  // namespace lockstep::libtorch
