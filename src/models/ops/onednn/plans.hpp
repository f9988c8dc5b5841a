// oneDNN's primitives, kept from call to call.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

namespace lockstep::ops {

/// The plan owns its scratch memory; memory of the library would tie a primitive to the thread that made it. Products
/// of f32 are f32, whatever ONEDNN_DEFAULT_FPMATH_MODE says.
inline dnnl::primitive_attr own_scratchpad() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attributes.set_fpmath_mode(dnnl::fpmath_mode::strict);
  return attributes;
}

/// Plans by key. A plan is for one thread at a time, so a key has as many as threads have used at once. Plan is made of
/// a Key.
template <class Key, class Plan>
class Plans {
 public:
  /// Calls work(plan).
  template <class Work>
  void use(const Key& key, Work&& work) {
    std::unique_ptr<Plan> plan = take(key);
    work(*plan);
    const std::lock_guard lock{mutex_};
    idle_[key].push_back(std::move(plan));
  }

 private:
  std::unique_ptr<Plan> take(const Key& key) {
    {
      const std::lock_guard lock{mutex_};
      if (auto& idle = idle_[key]; !idle.empty()) {
        std::unique_ptr<Plan> plan = std::move(idle.back());
        idle.pop_back();
        return plan;
      }
    }
    return std::make_unique<Plan>(key);
  }

  std::mutex mutex_;
  std::map<Key, std::vector<std::unique_ptr<Plan>>> idle_;  ///< that no thread uses
};

}  // namespace lockstep::ops
