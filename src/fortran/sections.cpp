// Arrays and sections of Fortran's, as lockstep.F90 hands them over: packed where they are not contiguous.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>

#include <ISO_Fortran_binding.h>

#include <lockstep/lockstep.h>

// The functions themselves, which take a place.
#undef lockstep_all_reduce
#undef lockstep_exact_sum
#undef lockstep_broadcast
#undef lockstep_same_on_all
#undef lockstep_check_replicas
#undef lockstep_fail

namespace {

/// What a rank refuses, for the others too.
struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The elements of a section in the order of Fortran's arrays, one after the other.
class Elements {
 public:
  explicit Elements(const CFI_cdesc_t* section)
      : base_{static_cast<std::byte*>(section->base_addr)},
        element_bytes_{section->elem_len},
        rank_{section->rank},
        type_{section->type} {
    std::ptrdiff_t next = static_cast<std::ptrdiff_t>(element_bytes_);
    for (int dimension = 0; dimension < rank_; ++dimension) {
      const CFI_dim_t& each = section->dim[dimension];
      if (each.extent < 0)
        throw Refused{"the array has no last extent; expected a section with one, as a(1:n), of an array a(*)"};
      dims_[dimension] = each;
      count_ *= each.extent;
      is_contiguous_ = is_contiguous_ && (each.extent == 1 || each.sm == next);
      next *= each.extent;
    }
    if (!base_ && count_ > 0) throw Refused{"the array is not allocated; expected one that is"};
    if (is_contiguous_ || count_ == 0) return;
    packed_ = std::make_unique<std::byte[]>(bytes());
    copy(Way::pack);
  }

  std::int64_t count() const { return count_; }
  std::size_t bytes() const { return static_cast<std::size_t>(count_) * element_bytes_; }
  void* data() const { return packed_ ? packed_.get() : base_; }

  /// Back into the section.
  void unpack() {
    if (packed_) copy(Way::unpack);
  }

  bool has_shape_of(const Elements& other) const {
    if (rank_ != other.rank_ || type_ != other.type_) return false;
    for (int dimension = 0; dimension < rank_; ++dimension)
      if (dims_[dimension].extent != other.dims_[dimension].extent) return false;
    return true;
  }

  /// 0, which no function takes, for types without one.
  int type() const {
    switch (type_) {
      case CFI_type_float: return LOCKSTEP_F32;
      case CFI_type_double: return LOCKSTEP_F64;
      case CFI_type_int32_t: return LOCKSTEP_I32;
      case CFI_type_int64_t: return LOCKSTEP_I64;
      default: return 0;
    }
  }

 private:
  enum class Way { pack, unpack };

  void copy(Way way) {
    std::byte* packed = packed_.get();
    CFI_index_t at[CFI_MAX_RANK] = {};
    for (std::int64_t element = 0; element < count_; ++element, packed += element_bytes_) {
      std::byte* place = base_;
      for (int dimension = 0; dimension < rank_; ++dimension) place += at[dimension] * dims_[dimension].sm;
      std::memcpy(way == Way::pack ? packed : place, way == Way::pack ? place : packed, element_bytes_);
      for (int dimension = 0; dimension < rank_; ++dimension) {
        if (++at[dimension] < dims_[dimension].extent) break;
        at[dimension] = 0;
      }
    }
  }

  std::byte* base_;
  std::size_t element_bytes_;
  int rank_;
  CFI_type_t type_;
  CFI_dim_t dims_[CFI_MAX_RANK] = {};
  std::int64_t count_ = 1;
  bool is_contiguous_ = true;
  std::unique_ptr<std::byte[]> packed_;
};

/// Calls `body`. A rank that refuses, or has no memory to pack, tells the others.
template <class Body>
int packed(lockstep_group* group, const char* call, const char* at, const Body& body) noexcept {
  try {
    try {
      return body();
    } catch (const Refused& refused) {
      return lockstep_fail(group, (std::string{call} + ": " + refused.what()).c_str(), at);
    }
  } catch (const std::exception&) {
    return lockstep_fail(group, "no memory is left to pack a section", at);
  }
}

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
    Elements all{sums};
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
