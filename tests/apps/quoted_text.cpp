// Foreign text in messages: each quotes at most 200 characters of it, whole ones, and none that a terminal obeys.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/log.hpp>
#include <lockstep/models/input/labelled_data.hpp>
#include <lockstep/models/input/schema.hpp>
#include <lockstep/models/ops/kernels.hpp>

#include "apps/lockstep-run/hosts.hpp"
#include "apps/lockstep-train/options/command_line.hpp"
#include "core/base/log_settings.hpp"
#include "core/base/printable.hpp"
#include "core/cluster/cluster_spec.hpp"
#include "core/cluster/device_list.hpp"
#include "core/cluster/tf_config.hpp"
#include "models/fit/injected_fault.hpp"
#include "models/ops/kernel_choice.hpp"
#include "support/job.hpp"
#include "sync/checkpoint/manifest.hpp"
#include "sync/checkpoint/safetensors.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// Characters of one byte and of two in turn, so that a cut at a fixed byte would be in the middle of one. Names of
/// files have none of them.
std::string many(std::string_view pair, int pairs = 500) {
  std::string text;
  for (int i = 0; i < pairs; ++i) text += pair;
  return text;
}

const std::string text = "\x1b[2J\x9b" + many("~é"), in_json = R"(\u001b[2J)" + many("~é");

/// Something that reads foreign text, and refuses it.
struct Reader {
  const char* what;
  std::function<void()> read;
};

void train(std::vector<const char*> words) {
  words.insert(words.begin(), {"lockstep-train", "--data", "d"});
  (void)parse_command_line(static_cast<int>(words.size()), words.data());
}

void read_safetensors(const std::string& header) {
  (void)safetensors::parse_header(header, 8, "file");
}

/// A data set that is one CSV file with this text.
void read_csv(const std::string& content) {
  const TemporaryDirectory folder;
  (void)LabelledData::load(folder.write("data.csv", content), {});
}

/// A data set of arrays, of which the first has this dictionary.
void read_npy(std::string dictionary) {
  const TemporaryDirectory folder;
  dictionary += '\n';
  std::string start{"\x93NUMPY\x02\x00", 8};
  for (int byte = 0; byte < 4; ++byte) start += static_cast<char>(dictionary.size() >> 8 * byte);
  for (const char* const name : {"x_train.npy", "y_train.npy", "x_test.npy", "y_test.npy"})
    folder.write(name, start + dictionary);
  (void)LabelledData::load(folder.path(), {});
}

const std::vector<Reader> readers{
    {"a log level", [] { (void)log::parse_level(text); }},
    {"kernels", [] { (void)ops::parse_kernel_choice(text); }},
    {"a number",
     [] {
       train({"--steps", text.c_str()});
     }},
    {"a rate",
     [] {
       train({"--learning-rate", text.c_str()});
     }},
    {"sizes of layers",
     [] {
       train({"--hidden", text.c_str()});
     }},
    {"a choice",
     [] {
       train({"--optimizer", text.c_str()});
     }},
    {"shards",
     [] {
       train({"--shards", text.c_str()});
     }},
    {"an option", [] { train({("--" + text).c_str()}); }},
    {"a word", [] { train({text.c_str()}); }},
    {"a key of a cluster spec", [] { (void)ClusterSpec::parse("{\"" + in_json + "\": 1}"); }},
    {"a repeated key", [] { (void)ClusterSpec::parse("{\"" + in_json + "\": 1, \"" + in_json + "\": 1}"); }},
    {"an address", [] { (void)ClusterSpec::parse(R"({"cluster": {"worker": [")" + in_json + "\"]}}"); }},
    {"a task of TF_CONFIG",
     [] {
       (void)parse_tf_config(R"({"cluster": {"worker": ["a:1"]}, "task": {"type": ")" + in_json + R"(", "index": 0}})");
     }},
    {"a device", [] { (void)DeviceList::parse(text); }},
    {"a list of hosts", [] { (void)run::parse_host_list("--host", text + ":x"); }},
    {"a word of a hostfile", [] { (void)run::parse_hostfile("node " + text, "hosts"); }},
    {"slots of a hostfile", [] { (void)run::parse_hostfile("node slots=" + text, "hosts"); }},
    {"a field of CSV", [] { read_csv("a,label\n" + text + ",0\n"); }},
    {"the columns of CSV", [] { read_csv(text + "," + text + "\n1,0\n"); }},
    {"a type of numbers", [] { read_npy("{'descr': '" + text + "', 'fortran_order': False, 'shape': (3, 4), }"); }},
    {"a schema", [] { (void)DataSchema::parse("{\"kind\": \"" + in_json + "\"}", "schema"); }},
    {"a key of a schema", [] { (void)DataSchema::parse("{\"kind\": \"CSV\", \"" + in_json + "\": 1}", "schema"); }},
    {"the name of a tensor", [] { read_safetensors("{\"" + in_json + "\": 1}"); }},
    {"a manifest", [] { (void)parse_manifest(R"({"format": 1, "step": ")" + in_json + "\"}", "manifest"); }},
    {"a fault", [] { (void)InjectedFault::parse(text, 2); }},
};

std::string refusal_by(const std::function<void()>& read) {
  try {
    read();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

}  // namespace

TEST_CASE("messages quote at most 200 characters of foreign text, and show what a terminal would obey") {
  for (const Reader& reader : readers) {
    const std::string told = refusal_by(reader.read);
    INFO(reader.what << ": " << told);
    CHECK(printable(told) == told);
    CHECK(told.find('\n') == told.npos);
    const auto quoted = std::ranges::count(told, '~');
    CHECK((quoted > 20 && quoted <= 100));
    CHECK(told.find("…") != told.npos);
  }
}

TEST_CASE("a shape from a file is not quoted beyond the dimensions that it can have") {
  const std::string told =
      refusal_by([] { read_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (" + many("7, ") + "), }"); });
  INFO(told);
  CHECK(told.find("its header has more than 8 extents") != told.npos);
  CHECK(told.find("7, 7") == told.npos);
}
