#include "sync/checkpoint/manifest.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/hex.hpp>

#include "core/base/digest.hpp"
#include "core/base/excerpt.hpp"
#include "core/base/foreign_json.hpp"
#include "sync/checkpoint/failure.hpp"
#include "sync/checkpoint/program_state.hpp"

namespace lockstep {
namespace {

constexpr std::int64_t format = 1;

[[noreturn]] void fail_member(std::string_view key, const OrderedJson& value, std::string_view expected) {
  throw Error{fmt::format("{} is {}; expected {}", shown(key), shown(value), expected)};
}

const OrderedJson& member(const OrderedJson& json, const char* key) {
  const auto found = json.is_object() ? json.find(key) : json.end();
  if (found == json.end()) throw Error{fmt::format("it has no \"{}\"", key)};
  return *found;
}

template <class Number>
Number number_from(const OrderedJson& json, const char* key) {
  const OrderedJson& value = member(json, key);
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > std::uint64_t{1} << 62)
    fail_member(key, value, "a whole number");
  return value.get<Number>();
}

const OrderedJson::object_t& object_from(const OrderedJson& json, const char* key) {
  const OrderedJson& value = member(json, key);
  if (!value.is_object()) fail_member(key, value, "an object");
  return value.get_ref<const OrderedJson::object_t&>();
}

const std::string& text_from(std::string_view key, const OrderedJson& value) {
  if (!value.is_string()) fail_member(key, value, "a text");
  return value.get_ref<const std::string&>();
}

std::map<std::string, std::string> texts_from(const OrderedJson& json, const char* key) {
  std::map<std::string, std::string> texts;
  for (const auto& [name, text] : object_from(json, key)) texts.emplace(name, text_from(name, text));
  return texts;
}

CheckpointLoss loss_from(const OrderedJson& json) {
  const OrderedJson& loss = member(json, "loss");
  if (!loss.is_number() || !std::isfinite(loss.get<double>())) fail_member("loss", loss, "a number");
  return {number_from<std::int64_t>(json, "step"), loss.get<double>()};
}

std::uint64_t digest_from(const std::string& tensor, const OrderedJson& value) {
  const std::string& hex = text_from(tensor, value);
  std::uint64_t digest = 0;
  const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), digest, 16);
  if (error != std::errc{} || hex.size() != 16 || end != hex.data() + hex.size())
    fail_member(tensor, value, "16 hexadecimal digits");
  return digest;
}

/// Files are looked for in the checkpoint's folder only. The system's names end at a zero byte.
std::string file_name_from(const std::string& name) {
  if (name.empty() || name.front() == '.' || name.find_first_of(std::string_view{"/\0", 2}) != std::string::npos)
    throw Error{fmt::format("it names a file {}; expected one in its folder", shown(name))};
  return name;
}

/// Of everything in the manifest but this itself.
std::string digest_of_content(const OrderedJson& json) {
  OrderedJson content = json;
  content.erase("digest");
  return to_hex(digest_of(content.dump(-1, ' ', false, OrderedJson::error_handler_t::replace)));
}

Manifest::File file_from(const std::string& name, const OrderedJson& json) {
  Manifest::File file{.name = file_name_from(name), .bytes = number_from<std::uint64_t>(json, "bytes")};
  for (const auto& [tensor, digest] : object_from(json, "digests"))
    file.digests.emplace_back(tensor, digest_from(tensor, digest));
  return file;
}

Manifest from_json(const OrderedJson& json) {
  Manifest manifest;
  manifest.program = json.contains("program") ? text_from("program", member(json, "program")) : "";
  manifest.step = number_from<std::int64_t>(json, "step");
  if (json.contains("best")) manifest.best = loss_from(member(json, "best"));
  for (const auto& [key, value] : object_from(json, "training"))
    manifest.training.emplace_back(key, text_from(key, value));
  manifest.kernels = text_from("kernels", member(json, "kernels"));
  if (json.contains("compression")) manifest.compression = text_from("compression", member(json, "compression"));
  manifest.state = texts_from(json, "state");
  // Checkpoints of releases that wrote none have the same format: those releases pass over what they do not know.
  if (json.contains("metadata")) manifest.metadata = texts_from(json, "metadata");
  for (const auto& [name, file] : object_from(json, "files")) manifest.files.push_back(file_from(name, file));
  return manifest;
}

OrderedJson parse_text(std::string_view json) {
  try {
    return parse_foreign_json(json);
  } catch (const Error& error) {
    throw Error{fmt::format("it {}", error.what())};
  }
}

/// CheckpointError if it is of a newer format.
void require_format(const OrderedJson& json, std::string_view source) {
  const auto version = number_from<std::int64_t>(json, "format");
  if (version < format) throw Error{fmt::format("it is of format {}, which there never was", version)};
  if (version > format)
    fail_checkpoint(
        source, fmt::format("was written in format {} by {}; this is lockstep " LOCKSTEP_VERSION
                            ", which reads up to format {}",
                            version, shown(json.value("program", OrderedJson{"a program without a name"})), format));
}

OrderedJson texts(const std::map<std::string, std::string>& texts) {
  return texts.empty() ? OrderedJson::object() : OrderedJson(texts);
}

OrderedJson json_of(const Manifest::File& file) {
  // Not by `digests[name]`, which would look for the name among all others.
  OrderedJson::object_t digests;
  for (const auto& [name, digest] : file.digests) digests.emplace_back(name, to_hex(digest));
  return {{"bytes", file.bytes}, {"digests", std::move(digests)}};
}

}  // namespace

const Manifest::File* Manifest::file(std::string_view name) const {
  const auto found = std::ranges::find(files, name, &File::name);
  return found == files.end() ? nullptr : &*found;
}

std::string to_json(const Manifest& manifest) {
  OrderedJson training = OrderedJson::object(), files = OrderedJson::object();
  for (const auto& [key, value] : manifest.training) training[key] = value;
  for (const Manifest::File& file : manifest.files) files[file.name] = json_of(file);
  OrderedJson json{{"format", format}, {"program", manifest.program}, {"step", manifest.step}};
  if (manifest.best) json["best"] = {{"step", manifest.best->step}, {"loss", manifest.best->loss}};
  json["training"] = std::move(training);
  json["kernels"] = manifest.kernels;
  if (!manifest.compression.empty()) json["compression"] = manifest.compression;
  json["state"] = texts(manifest.state);
  if (!manifest.metadata.empty()) json["metadata"] = texts(manifest.metadata);
  json["files"] = std::move(files);
  json["digest"] = digest_of_content(json);
  return json.dump(1, ' ', false, OrderedJson::error_handler_t::replace);
}

Manifest parse_manifest(std::string_view json, std::string_view source) {
  try {
    const OrderedJson parsed = parse_text(json);
    require_format(parsed, source);
    Manifest manifest = from_json(parsed);
    if (text_from("digest", member(parsed, "digest")) != digest_of_content(parsed))
      fail_checkpoint(source, "has been altered: its digest is another");
    return manifest;
  } catch (const CheckpointError&) {
    throw;
  } catch (const Error& error) {
    fail_checkpoint(source, fmt::format("is no manifest: {}", error.what()));
  }
}

std::string difference(const TrainingFacts& there, const TrainingFacts& here) {
  const auto value_in = [](const TrainingFacts& facts, const std::string& key) {
    const auto found = std::ranges::find(facts, key, &TrainingFacts::value_type::first);
    return found == facts.end() ? std::nullopt : std::optional{found->second};
  };
  for (const TrainingFacts* const facts : {&here, &there})
    for (const auto& [key, unused] : *facts) {
      const auto theirs = value_in(there, key), ours = value_in(here, key);
      if (theirs == ours) continue;
      if (!theirs) return fmt::format("does not say its {}, and this training has {}", excerpt(key), excerpt(*ours));
      return fmt::format("is of a training with {} {}, and this one has {}", excerpt(key), excerpt(*theirs),
                         ours ? excerpt(*ours) : "none");
    }
  return {};
}

}  // namespace lockstep
