// The functions of lockstep.h for arrays and sections of Fortran's, as lockstep.F90 calls them.
#include <ISO_Fortran_binding.h>

#include <lockstep/lockstep.h>

#include "fortran/elements.hpp"

// The functions themselves, which take a place.
#undef lockstep_all_reduce
#undef lockstep_exact_sum
#undef lockstep_broadcast
#undef lockstep_same_on_all
#undef lockstep_check_replicas

using namespace lockstep::in_fortran;

namespace {

int op_of(int exact) {
  return exact != 0 ? LOCKSTEP_EXACT_SUM : LOCKSTEP_SUM;
}

}  // namespace

extern "C" {

int lockstep_f_sum_in_place(lockstep_group* group, const CFI_cdesc_t* values, int exact, const char* at) {
  return packed(group, "lockstep_all_reduce", at, [&] {
    Elements all{values};
    const int code =
        lockstep_all_reduce(group, LOCKSTEP_IN_PLACE, all.data(), all.count(), all.type(), op_of(exact), at);
    if (code == LOCKSTEP_OK) all.unpack();
    return code;
  });
}

int lockstep_f_sum_apart(lockstep_group* group, const CFI_cdesc_t* values, const CFI_cdesc_t* sums, int exact,
                         const char* at) {
  return packed(group, "lockstep_all_reduce", at, [&] {
    const Elements own{values};
    Elements all{sums, Elements::Use::written};
    if (!all.has_shape_of(own)) throw Refused{"values and sums have different shapes; expected the same"};
    const int code = lockstep_all_reduce(group, own.data(), all.data(), all.count(), all.type(), op_of(exact), at);
    if (code == LOCKSTEP_OK) all.unpack();
    return code;
  });
}

int lockstep_f_exact_sum(lockstep_group* group, const CFI_cdesc_t* values, const CFI_cdesc_t* total, const char* at) {
  return packed(group, "lockstep_exact_sum", at, [&] {
    const Elements own{values};
    return lockstep_exact_sum(group, own.data(), own.count(), own.type(), total->base_addr, at);
  });
}

int lockstep_f_broadcast(lockstep_group* group, const CFI_cdesc_t* values, int root, const char* at) {
  return packed(group, "lockstep_broadcast", at, [&] {
    Elements all{values};
    const int code = lockstep_broadcast(group, all.data(), all.count(), all.type(), root, at);
    if (code == LOCKSTEP_OK) all.unpack();
    return code;
  });
}

int lockstep_f_same_on_all(lockstep_group* group, const char* name, const CFI_cdesc_t* value, const char* at) {
  return packed(group, "lockstep_same_on_all", at, [&] {
    const Elements all{value};
    return lockstep_same_on_all(group, name, all.data(), all.bytes(), at);
  });
}

int lockstep_f_check_replicas(lockstep_group* group, const char* name, const CFI_cdesc_t* replica, int* differing,
                              const char* at) {
  *differing = -1;
  return packed(group, "lockstep_check_replicas", at, [&] {
    const Elements all{replica};
    return lockstep_check_replicas(group, name, all.data(), all.bytes(), differing, at);
  });
}

}  // extern "C"
