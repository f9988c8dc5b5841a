#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/hex.hpp>
#include <lockstep/core/values/leaves.hpp>

#include "core/base/digest.hpp"
#include "core/tensor/digest.hpp"
#include "core/values/type_text.hpp"
#include "core/values/walks.hpp"

namespace lockstep::detail {
namespace {

using Kind = Description::Kind;

std::string digest_text(std::string_view type, std::uint64_t digest) {
  return fmt::format("{} of digest {}", type, to_hex(digest));
}

/// The texts of several values as one, in brackets, so that the boundaries between them are compared too.
std::string list_text(const std::vector<std::string>& texts) {
  const std::string all = fmt::format("[{}]", fmt::join(texts, " "));
  return all.size() < 100 ? all : digest_text("values", digest_of(all));
}

/// In quotes, unless one inside could make two texts read alike, or a control character would not be shown as it is.
std::string quoted(const std::string& text) {
  const bool plain = std::all_of(text.begin(), text.end(), [](unsigned char c) { return c >= ' ' && c != '\''; });
  return plain && text.size() < 100 ? fmt::format("'{}'", text) : digest_text("text", digest_of(text));
}

std::span<const std::byte> bytes_of(const Description& description, const void* value) {
  return {static_cast<const std::byte*>(value), description.size};
}

/// Whether all values of the type have the same signature.
bool has_one_signature(Kind kind) {
  return kind == Kind::number || kind == Kind::text || kind == Kind::range || kind == Kind::other;
}

std::string key_text(const Description& map, const void* key) {
  const Description& of_key = map.key();
  if (of_key.kind == Kind::text) return of_key.text(key);
  return map.compares_keys ? comparable_text({of_key, key}) : "a key";  // else nothing of the map is reduced
}

void append_signature(const Description& description, const void* value, Optionals optionals, std::string& text);

void append_parts(const Description& nest, const void* value, Optionals optionals, std::string& text) {
  if (nest.kind == Kind::list && has_one_signature(nest.parts.front()().kind)) {  // keeps the text of a long list short
    const std::size_t count = nest.count(value);
    text += std::to_string(count) + ' ';
    if (count > 0) append_signature(nest.parts.front()(), nullptr, optionals, text);
    return;
  }
  nest.each(value, [&](const Description& of_part, const void* part, const void* key) {
    if (key) text += key_text(nest, key) + ": ";
    append_signature(of_part, part, optionals, text);
    text += ' ';
  });
}

void append_signature(const Description& description, const void* value, Optionals optionals, std::string& text) {
  const auto append_part = [&] {
    description.each(value, [&](const Description& of_part, const void* part, const void*) {
      append_signature(of_part, part, optionals, text);
    });
  };
  const auto append_in = [&](char begin, char end) {
    text += begin;
    append_parts(description, value, optionals, text);
    text += end;
  };
  switch (description.kind) {
    case Kind::number:
      text += description.carrier ? name_of(*description.carrier) : std::string_view{description.type.name()};
      break;
    case Kind::tensor: text += fmt::format("{} tensor", name_of(static_cast<const Tensor*>(value)->dtype())); break;
    case Kind::slices:
      text += fmt::format("{} slices", name_of(static_cast<const IndexedSlices*>(value)->values.dtype()));
      break;
    case Kind::leaf: text += description.text(value); break;
    case Kind::text:
    case Kind::range:
    case Kind::other: text += description.type.name(); break;
    case Kind::mirrored: text += "mirrored "; [[fallthrough]];
    case Kind::per_replica: append_part(); break;
    case Kind::list:
      if (!description.is_optional)
        append_in('[', ']');
      else if (optionals == Optionals::by_type)
        text += "optional";
      else if (description.count(value) == 0)
        text += "nothing";
      else
        append_part();
      break;
    case Kind::map: append_in('{', '}'); break;
    case Kind::record: append_in('(', ')'); break;
    case Kind::tuple: {
      const std::size_t begin = text.size();
      append_parts(description, value, optionals, text);
      if (text.size() > begin) text.pop_back();  // the space after the last part
      break;
    }
  }
}

}  // namespace

std::string LeafText<SparseTensor>::of(const SparseTensor& value) {
  return fmt::format("{} sparse tensor", name_of(value.values.dtype()));
}

std::string text_of(double number) {
  return fmt::format("{}", number);
}
std::string text_of(long long number) {
  return fmt::format("{}", number);
}

void visit_leaves(AnyValue nest, const std::function<void(const Description& type, void* leaf)>& visit) {
  if (!nest.type.each) return visit(nest.type, nest.address);
  nest.type.each(nest.address, [&](auto& of_part, auto* part, auto*) { visit_leaves({of_part, part}, visit); });
}

std::vector<Leaf> leaves_in(AnyValue nest) {
  std::vector<Leaf> leaves;
  visit_leaves(nest, [&](const Description& type, void* leaf) {
    if (type.kind == Kind::tensor) return void(leaves.emplace_back(*static_cast<Tensor*>(leaf)));
    if (type.kind == Kind::slices) return void(leaves.emplace_back(*static_cast<IndexedSlices*>(leaf)));
    const Tensor number = Tensor::zeros(*type.carrier, {});
    std::memcpy(number.view().data(), leaf, type.size);
    leaves.emplace_back(number);
  });
  return leaves;
}

void set_leaves(AnyValue nest, std::span<const Leaf> leaves) {
  auto next = leaves.begin();
  visit_leaves(nest, [&](const Description& type, void* leaf) {
    if (type.kind == Kind::tensor) return void(*static_cast<Tensor*>(leaf) = std::get<Tensor>(*next++));
    if (type.kind == Kind::slices) return void(*static_cast<IndexedSlices*>(leaf) = std::get<IndexedSlices>(*next++));
    const TensorView number = std::get<Tensor>(*next++).view();
    if (number.dtype() != type.carrier || number.count() != 1 || number.device() != DeviceKind::cpu)
      throw InvalidArgument{
          fmt::format("{} for a number of a nest; expected {} on the host", describe(number), name_of(*type.carrier))};
    std::memcpy(leaf, number.data(), type.size);
  });
}

std::string comparable_text(AnyValue any) {
  const auto& [description, value] = any;
  if (description.kind == Kind::number) return description.text(value);
  if (description.kind == Kind::text) return quoted(description.text(value));
  if (description.kind == Kind::tensor) {
    const TensorView tensor = static_cast<const Tensor*>(value)->view();
    return digest_text(describe(tensor), digest_of_elements(tensor));
  }
  if (!description.each) return digest_text("value", digest_of(bytes_of(description, value)));
  if (description.is_optional && description.count(value) == 0) return "nothing";
  std::vector<std::string> texts;
  description.each(value, [&](const Description& of_part, const void* part, const void* key) {
    const std::string text = comparable_text({of_part, part});
    texts.push_back(key ? list_text({comparable_text({description.key(), key}), text}) : text);
  });
  return list_text(texts);
}

std::string signature(AnyValue value, Optionals optionals) {
  std::string text;
  if (value.type.kind != Kind::tuple || !value.type.parts.empty())
    append_signature(value.type, value.address, optionals, text);
  return text;
}

std::string structure_of(AnyValue nest) {
  const Kind kind = nest.type.kind;
  const bool has_parts = kind == Kind::list || kind == Kind::map || kind == Kind::tuple || kind == Kind::record;
  return has_parts ? " in " + signature(nest) : "";
}

std::string layout_text(const Description& description) {
  if (description.is_flat) return fmt::format("{} of {} bytes", type_text(description.type), description.size);
  std::vector<std::string> of_parts;
  for (const Description::Of part : description.parts) of_parts.push_back(layout_text(part()));
  const std::string parts = fmt::format("{}", fmt::join(of_parts, ", "));
  if (description.kind == Kind::text) return "text";
  if (description.is_optional) return "optional " + parts;
  if (description.kind == Kind::map) return fmt::format("{{{}: {}}}", layout_text(description.key()), parts);
  if (description.grows) return fmt::format("[{}]", parts);
  if (description.kind == Kind::list) return fmt::format("{} of {}", description.count(nullptr), parts);
  return fmt::format("({})", parts);
}

void append_bytes(const Description& description, const void* value, std::vector<std::byte>& bytes) {
  const auto append = [&](std::span<const std::byte> some) { bytes.insert(bytes.end(), some.begin(), some.end()); };
  const auto append_count = [&](std::uint64_t count) { append(std::as_bytes(std::span{&count, 1})); };
  if (description.is_flat) return append(bytes_of(description, value));
  if (description.kind == Kind::text) {
    const std::string text = description.text(value);
    append_count(text.size());
    return append(std::as_bytes(std::span{text}));
  }
  if (description.grows) append_count(description.count(value));
  description.each(value, [&](const Description& of_part, const void* part, const void* key) {
    if (key) append_bytes(description.key(), key, bytes);
    append_bytes(of_part, part, bytes);
  });
}

void take_bytes(const Description& description, void* value, std::span<const std::byte>& bytes) {
  const auto take = [&](void* to, std::size_t count) {
    std::copy_n(bytes.begin(), count, static_cast<std::byte*>(to));
    bytes = bytes.subspan(count);
  };
  const auto take_count = [&] {
    std::uint64_t count = 0;
    take(&count, sizeof count);
    return static_cast<std::size_t>(count);
  };
  const Description::Visit take_part = [&](const Description& of_part, const void* part, const void* key) {
    if (key) take_bytes(description.key(), const_cast<void*>(key), bytes);
    take_bytes(of_part, const_cast<void*>(part), bytes);
  };
  if (description.is_flat) return take(value, description.size);
  if (description.kind == Kind::text) {
    std::string& text = *static_cast<std::string*>(value);
    text.resize(take_count());
    return take(text.data(), text.size());
  }
  if (!description.grows) return description.each(value, take_part);
  description.clear(value);  // a member of a struct may begin with parts
  for (std::size_t left = take_count(); left > 0; --left) description.append(value, take_part);
}

}  // namespace lockstep::detail
