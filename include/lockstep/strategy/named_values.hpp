// Values of any type by name, such as the outputs of a loop of steps.
#pragma once

#include <any>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>

namespace lockstep {

/// A value can be read only as the type it was set as, locality included: a PerReplica<double> is not a
/// Mirrored<double>. Values must be copyable, and a copy of this object has its own.
class NamedValues {
 public:
  /// Replaces what the name held, whatever its type.
  template <class T>
  void set(std::string_view name, T value) {
    values_.insert_or_assign(std::string{name}, std::any{std::move(value)});
  }

  /// The reference is valid until the name is set again. InvalidArgument, which lists what there is, if the name was
  /// not set or its value has another type.
  template <class T>
  const T& get(std::string_view name) const {
    const auto found = values_.find(name);
    const T* const value = found == values_.end() ? nullptr : std::any_cast<T>(&found->second);
    if (!value) refuse(name, typeid(T));
    return *value;
  }

  bool contains(std::string_view name) const { return values_.find(name) != values_.end(); }
  bool empty() const { return values_.empty(); }

 private:
  [[noreturn]] void refuse(std::string_view name, const std::type_info& wanted) const;

  std::map<std::string, std::any, std::less<>> values_;
};

}  // namespace lockstep
