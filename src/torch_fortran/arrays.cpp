// The functions of torch.h for arrays and sections of Fortran's, as lockstep_torch.F90 calls them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include <ISO_Fortran_binding.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/torch.h>

#include "c/errors.hpp"
#include "fortran/elements.hpp"

// The functions themselves, which take a place.
#undef lockstep_model_train
#undef lockstep_model_infer

using namespace lockstep::in_fortran;

namespace {

/// lockstep_array of lockstep_torch.F90: the descriptor of an array.
struct Described {
  alignas(CFI_cdesc_t) std::byte bytes[384];
};

std::size_t descriptor_bytes(int rank) {
  return sizeof(CFI_cdesc_t) + static_cast<std::size_t>(rank) * sizeof(CFI_dim_t);
}

/// What a call takes as inputs, targets or outputs. The first dimension of a tensor is the last of Fortran's array.
class Arrays {
 public:
  Arrays(const Described* arrays, int count, Elements::Use use, const std::string& name) {
    for (int i = 0; i < count; ++i) {
      const auto* const section = reinterpret_cast<const CFI_cdesc_t*>(arrays[i].bytes);
      const Elements& all = elements_.emplace_back(section, use, name + "[" + std::to_string(i) + "]");
      lockstep_array& array = arrays_.emplace_back(all.data(), all.type(), section->rank);
      for (int dimension = 0; dimension < std::min<int>(section->rank, LOCKSTEP_DIMENSIONS); ++dimension)
        array.shape[dimension] = all.dims()[static_cast<std::size_t>(section->rank - 1 - dimension)].extent;
    }
  }

  const lockstep_array* data() const { return arrays_.data(); }

  void unpack() {
    for (Elements& each : elements_) each.unpack();
  }

 private:
  std::vector<Elements> elements_;
  std::vector<lockstep_array> arrays_;
};

}  // namespace

extern "C" {

void lockstep_f_array(const CFI_cdesc_t* values, Described* array) {
  static_assert(sizeof(CFI_cdesc_t) + CFI_MAX_RANK * sizeof(CFI_dim_t) <= sizeof(Described));
  std::memcpy(array->bytes, values, descriptor_bytes(values->rank));
}

int lockstep_f_model_train(lockstep_group* group, lockstep_model* model, const Described* inputs, int input_count,
                           const Described* targets, int target_count, double* loss, const char* at) {
  // A model that does not live is a failure of this rank alone, whatever the arrays are.
  if (lockstep_model_steps(model) < 0) return lockstep_model_train(model, nullptr, 0, nullptr, 0, loss, at);
  return packed(group, "lockstep_model_train", at, [&] {
    const Arrays from{inputs, input_count, Elements::Use::read, "inputs"};
    const Arrays to{targets, target_count, Elements::Use::read, "targets"};
    return lockstep_model_train(model, from.data(), input_count, to.data(), target_count, loss, at);
  });
}

int lockstep_f_model_infer(lockstep_model* model, const Described* inputs, int input_count, const Described* outputs,
                           int output_count, const char* at) {
  const auto refuse = [](const char* why) {
    return lockstep::in_c::keep_error(std::make_exception_ptr(lockstep::InvalidArgument{why}));
  };
  return packed("lockstep_model_infer", at, refuse, [&] {
    const Arrays from{inputs, input_count, Elements::Use::read, "inputs"};
    Arrays to{outputs, output_count, Elements::Use::written, "outputs"};
    const int code = lockstep_model_infer(model, from.data(), input_count, to.data(), output_count, at);
    if (code == LOCKSTEP_OK) to.unpack();
    return code;
  });
}

}  // extern "C"
