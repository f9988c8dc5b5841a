// Values of any type by their names, as the outputs of a loop of steps are.
#pragma once

#include <any>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>

namespace lockstep {

/// A value is read as the type it was set as, no other: locality included, so a PerReplica<double> is not a
/// Mirrored<double>. Values can be copied, and copies of this object have values of their own.
class NamedValues {
 public:
  /// In the place of what the name held, whatever its type was.
  template <class T>
  void set(std::string_view name, T value) {
    values_.insert_or_assign(std::string{name}, std::any{std::move(value)});
  }

  /// Valid until the name is set again. InvalidArgument, with a list of what there is, where the name was not set or
  /// its value is of another type.
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
