#include "python/arrays.hpp"

#include <functional>
#include <optional>
#include <span>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/group/group.hpp>

#include "python/place.hpp"
#include "python/process.hpp"
#include "python/python_lock.hpp"

namespace py = pybind11;

namespace lockstep::python {
namespace {

std::optional<DType> type_of(const py::array& array) {
  const char kind = array.dtype().kind();
  const py::ssize_t bytes = array.itemsize();
  if (kind == 'f' && bytes == 4) return DType::f32;
  if (kind == 'f' && bytes == 8) return DType::f64;
  if (kind == 'i' && bytes == 4) return DType::i32;
  if (kind == 'i' && bytes == 8) return DType::i64;
  return {};
}

std::string text_of(const py::array& array) {
  return py::str(array.dtype()).cast<std::string>() + py::str(py::list(array.attr("shape"))).cast<std::string>();
}

/// `submit` submits a request of all ranks, which compares `text`.
void wait_for(const std::string& text, const std::function<Group::Request(Group&, const Here&)>& submit) {
  const py::gil_scoped_release without_lock;
  const Here here = place_of_call();
  Group told = Process::current()->make_group({}, here).group.anywhere(text);
  Interrupts interrupts;
  submit(told, here).wait([&] { interrupts.look(); });
}

template <class T>
double exact_sum_of(const py::array& numbers) {
  const auto values = numbers.cast<py::array_t<T, py::array::c_style>>();
  ExactSum<T> sum;
  sum.add(std::span{values.data(), static_cast<std::size_t>(values.size())});
  typename ExactSum<T>::Words words = sum.words();
  wait_for("exact_sum: " + py::str(numbers.dtype()).cast<std::string>(),
           [&](Group& group, const Here& here) { return group.submit_all_reduce(std::span{words}, {}, here); });
  return static_cast<double>(ExactSum<T>::of_words(words).value());
}

}  // namespace

void all_reduce(py::array& array, const std::string& op) {
  const std::optional<DType> type = type_of(array);
  const bool is_exact = op == "exact_sum";
  if (!type || (is_exact && array.dtype().kind() == 'i'))
    throw InvalidArgument{fmt::format("all_reduce: {} of {}{}: expected float32, float64{}", op, text_of(array),
                                      bracketed(place_of_call()), is_exact ? "" : ", int32 or int64")};
  const TensorView view{static_cast<std::byte*>(array.mutable_data()), {array.size()}, *type};
  wait_for(fmt::format("all_reduce: {} of {}", op, text_of(array)), [&](Group& group, const Here& here) {
    return group.submit_all_reduce(view, {.op = is_exact ? ReduceOp::exact_sum : ReduceOp::sum}, here);
  });
}

double exact_sum(const py::array& numbers) {
  const std::optional<DType> type = type_of(numbers);
  if (type == DType::f32) return exact_sum_of<float>(numbers);
  if (type == DType::f64) return exact_sum_of<double>(numbers);
  throw InvalidArgument{
      fmt::format("exact_sum of {}{}: expected float32 or float64", text_of(numbers), bracketed(place_of_call()))};
}

void same_on_all(const std::string& text) {
  wait_for("same_on_all: " + text, [](Group& group, const Here& here) { return group.submit_barrier(here); });
}

}  // namespace lockstep::python
