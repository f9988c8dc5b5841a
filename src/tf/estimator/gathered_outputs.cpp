#include "tf/estimator/gathered_outputs.hpp"

#include <iterator>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

#include "core/values/walks.hpp"

namespace lockstep::detail {
namespace {

/// Where a tensor belongs in a specification.
enum class Part : std::uint8_t { prediction, output, value, scores, classes };

/// The part, the name of the export and the key of the tensor, as far as the part has them.
using Place = std::tuple<Part, std::string, std::string>;
using Parts = std::map<Place, Tensor>;

/// What a rank needs to know of a tensor that it lacks, to bring no rows of it.
struct OutputOutline {
  DType dtype = DType::f32;
  DeviceKind device = DeviceKind::cpu;
  Shape shape = {};  ///< with the first extent of the rank that has it
};

/// What a rank tells the others.
struct OutputOutlines {
  std::map<Place, OutputOutline> tensors;
  std::map<std::string, std::uint8_t> exports;  ///< the kind of each: its place in the variant
};

}  // namespace
}  // namespace lockstep::detail

template <>
struct lockstep::Nest<lockstep::detail::OutputOutline> {
  using OutputOutline = lockstep::detail::OutputOutline;
  static constexpr auto members = std::tuple{&OutputOutline::dtype, &OutputOutline::device, &OutputOutline::shape};
};
template <>
struct lockstep::Nest<lockstep::detail::OutputOutlines> {
  using OutputOutlines = lockstep::detail::OutputOutlines;
  static constexpr auto members = std::tuple{&OutputOutlines::tensors, &OutputOutlines::exports};
};

namespace lockstep::detail {
namespace {

Parts parts_of(const EstimatorSpec& spec) {
  Parts parts;
  const auto add = [&](Part part, const std::string& name, const std::string& key, const Tensor& tensor) {
    parts.emplace(Place{part, name, key}, tensor);
  };
  for (const auto& [key, tensor] : spec.predictions) add(Part::prediction, {}, key, tensor);
  for (const auto& [name, output] : spec.export_outputs) {
    if (const auto* const predict = std::get_if<EstimatorSpec::PredictOutput>(&output)) {
      for (const auto& [key, tensor] : *predict) add(Part::output, name, key, tensor);
    } else if (const auto* const regression = std::get_if<EstimatorSpec::RegressionOutput>(&output)) {
      add(Part::value, name, {}, *regression);
    } else {
      const auto& [scores, classes] = std::get<EstimatorSpec::ClassificationOutput>(output);
      if (scores) add(Part::scores, name, {}, *scores);
      if (!classes) continue;
      // Stacking n tensors is putting n rows together.
      Shape row = classes->shape();
      row.insert(row.begin(), 1);
      add(Part::classes, name, {}, classes->sharing(classes->view().reshaped(std::move(row))));
    }
  }
  return parts;
}

EstimatorSpec::ExportOutput empty_output(std::uint8_t kind) {
  if (kind == EstimatorSpec::ExportOutput{EstimatorSpec::PredictOutput{}}.index())
    return EstimatorSpec::PredictOutput{};
  if (kind == EstimatorSpec::ExportOutput{EstimatorSpec::RegressionOutput{}}.index())
    return EstimatorSpec::RegressionOutput{};
  return EstimatorSpec::ClassificationOutput{};
}

void put(const Place& place, Tensor tensor, EstimatorSpec& spec) {
  const auto& [part, name, key] = place;
  switch (part) {
    case Part::prediction: spec.predictions[key] = std::move(tensor); break;
    case Part::output:
      std::get<EstimatorSpec::PredictOutput>(spec.export_outputs[name])[key] = std::move(tensor);
      break;
    case Part::value: std::get<EstimatorSpec::RegressionOutput>(spec.export_outputs[name]) = std::move(tensor); break;
    case Part::scores:
      std::get<EstimatorSpec::ClassificationOutput>(spec.export_outputs[name]).scores = std::move(tensor);
      break;
    case Part::classes:
      std::get<EstimatorSpec::ClassificationOutput>(spec.export_outputs[name]).classes = std::move(tensor);
      break;
  }
}

/// "prediction 'p'", "the score tensor of export 'e'".
std::string title_of(const Place& place) {
  const auto& [part, name, key] = place;
  switch (part) {
    case Part::prediction: return fmt::format("prediction '{}'", key);
    case Part::output: return fmt::format("output '{}' of export '{}'", key, name);
    case Part::value: return fmt::format("the value of export '{}'", name);
    case Part::scores: return fmt::format("the score tensor of export '{}'", name);
    case Part::classes: break;
  }
  return fmt::format("the tensor of classes of export '{}'", name);
}

void require_rows(const Parts& parts) {
  for (const auto& [place, tensor] : parts)
    if (tensor.shape().empty())
      throw InvalidArgument{
          fmt::format("{} is {}; expected rows, its first dimension", title_of(place), describe(tensor.view()))};
}

/// The same on all ranks: each has all outlines.
void require_alike(const Place& place, const OutputOutline& one, const OutputOutline& other) {
  const auto row_of = [](const OutputOutline& each) { return Shape(each.shape.begin() + 1, each.shape.end()); };
  if (one.dtype != other.dtype || one.device != other.device || row_of(one) != row_of(other))
    throw MismatchError{fmt::format("{} has rows of {}{}{} on one replica, and of {}{}{} on another", title_of(place),
                                    lockstep::name_of(one.dtype), lockstep::describe(row_of(one)),
                                    one.device == DeviceKind::cuda ? " on a GPU" : "", lockstep::name_of(other.dtype),
                                    lockstep::describe(row_of(other)),
                                    other.device == DeviceKind::cuda ? " on a GPU" : "")};
}

/// What any rank has; of what several have, the lowest rank's.
OutputOutlines outlines_of_all(const EstimatorSpec& spec, const Parts& parts, ReplicaContext& context,
                               const Here& here) {
  OutputOutlines own;
  for (const auto& [place, tensor] : parts) own.tensors[place] = {tensor.dtype(), tensor.device(), tensor.shape()};
  for (const auto& [name, output] : spec.export_outputs) own.exports[name] = static_cast<std::uint8_t>(output.index());
  std::vector<std::byte> bytes;
  append_bytes(description_of<OutputOutlines>(), &own, bytes);
  const std::span<const std::uint8_t> numbers{reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()};
  const Tensor gathered = context.all_gather(Tensor::from(numbers, {std::ssize(numbers)}), here);

  OutputOutlines all;
  for (std::span<const std::byte> left{gathered.view().data(), gathered.view().bytes()}; !left.empty();) {
    OutputOutlines one;
    take_bytes(description_of<OutputOutlines>(), &one, left);
    for (const auto& [name, kind] : one.exports)
      if (all.exports.emplace(name, kind).first->second != kind)
        throw MismatchError{fmt::format("the replicas export different kinds of output as '{}'", name)};
    for (const auto& [place, outline] : one.tensors)
      if (const auto [known, is_new] = all.tensors.emplace(place, outline); !is_new)
        require_alike(place, known->second, outline);
  }
  return all;
}

}  // namespace

void require_rows(const EstimatorSpec& spec) {
  require_rows(parts_of(spec));
}

void gather_outputs(EstimatorSpec& spec, ReplicaContext& context, const Here& here) {
  const Parts parts = parts_of(spec);
  const OutputOutlines outlines = outlines_of_all(spec, parts, context, here);
  std::vector<Tensor> tensors;
  for (const auto& [place, outline] : outlines.tensors) {
    if (const auto own = parts.find(place); own != parts.end()) {
      tensors.push_back(own->second);
      continue;
    }
    Shape no_rows = outline.shape;
    no_rows.front() = 0;
    tensors.push_back(Tensor::zeros(outline.dtype, std::move(no_rows),
                                    outline.device == DeviceKind::cpu ? Stream::host() : context.strategy().stream()));
  }
  tensors = context.all_gather(tensors, here);
  spec.predictions.clear();
  spec.export_outputs.clear();
  for (const auto& [name, kind] : outlines.exports) spec.export_outputs[name] = empty_output(kind);
  auto next = tensors.begin();
  for (const auto& [place, outline] : outlines.tensors) put(place, std::move(*next++), spec);
}

}  // namespace lockstep::detail
