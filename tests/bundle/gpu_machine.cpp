// What scripts/gpu-check finds on a machine: the GPU, or why there is none, and libraries.
#include <algorithm>

#include <catch2/catch.hpp>

#include "bundle.hpp"
#include "support/run_tests.hpp"

using namespace lockstep::test;
namespace fs = std::filesystem;

TEST_CASE("the facts of the machine come first: GPU, driver, libraries with their versions, loopback") {
  const Bundle bundle{"libmine.so.2 libcublasLt.so.13 libnccl.so.2"};
  const fs::path packages = ".local/lib/python3.99/site-packages";
  fs::create_directories(bundle.path() / "mine");
  fs::create_directories(bundle.path() / packages / "nvidia/cu13/lib");
  fs::create_directories(bundle.path() / packages / "nvidia_cublas-13.1.0.3.dist-info");
  bundle.write("mine/libmine.so.2.7.1", "");
  fs::create_symlink("libmine.so.2.7.1", bundle.path() / "mine/libmine.so.2");
  bundle.write(packages / "nvidia/cu13/lib/libcublasLt.so.13", "");
  bundle.write("mine/libnccl.so.2", "NCCL version 2.99.1+cuda13.0");
  const Environment environment{{"LD_LIBRARY_PATH", (bundle.path() / "mine").string() + ":" +
                                                        (bundle.path() / packages / "nvidia/cu13/lib").string()}};
  const Outcome outcome = bundle.check({"--only", "unit"}, environment);
  INFO(outcome.out << outcome.err);
  const Json facts = bundle.table()["facts"];
  CHECK(facts["GPU"] == "NVIDIA \"Fake\" 9000, 81559 MiB, 9.0");
  CHECK(facts["driver"] == "999.10.01");
  CHECK(facts["libmine.so.2"] == "2.7.1, " + (bundle.path() / "mine/libmine.so.2").string());
  CHECK(facts["libcublasLt.so.13"].get<std::string>().starts_with("13.1.0.3, "));
  CHECK(facts["libnccl.so.2"].get<std::string>().starts_with("2.99.1, "));
  CHECK(bundle.table()["nccl"] == "2.99.1");
  CHECK(facts["loopback"] == "up");
  CHECK(outcome.out.find("  driver             999.10.01\n") < outcome.out.find("GPU unit tests"));

  if (run_command({"unshare", "-n", "true"}).exit_code != 0) return skip("a network without a loopback takes root");
  run_command({"unshare", "-n", bundle.path() / "gpu-check", "--only", "unit"},
              {.environment = bundle.environment_with(environment)});
  CHECK(bundle.table()["facts"]["loopback"].get<std::string>().starts_with("down"));
}

TEST_CASE("without a GPU it says why in one line, with its version and what else is missing, and exits with 77") {
  const TemporaryDirectory root;
  const Environment nothing{{"PATH", "/usr/bin:/bin"}, {"GPU_CHECK_ROOT", root.path()}};
  const auto says = [&](const Environment& environment) {
    const Outcome outcome = Bundle{}.check({}, environment);
    INFO(outcome.out << outcome.err);
    CHECK(outcome.exit_code == 77);
    const std::string begin = "gpu-check: lockstep 1.2.3 (abcdef0), CUDA 13.0 for sm_90: no GPU: ";
    REQUIRE(outcome.out.starts_with(begin));
    CHECK(std::ranges::count(outcome.out, '\n') == 1);
    return outcome.out.substr(begin.size(), outcome.out.size() - begin.size() - 1);
  };
  const auto with = [](Environment environment, const Environment& more) {
    for (const auto& [name, value] : more) environment[name] = value;
    return environment;
  };
  if (run_command({"bash", "-c", "PATH=/usr/bin:/bin type nvidia-smi"}).exit_code == 0)
    return skip("this machine has nvidia-smi");

  CHECK(says(nothing) == "there is no NVIDIA driver and no PCI bus to find a device on");
  const fs::path devices = root.path() / "sys/bus/pci/devices";
  const auto device = [&](const std::string& address, const std::string& vendor, const std::string& type) {
    fs::create_directories(devices / address);
    root.write(devices / address / "vendor", vendor + "\n");
    root.write(devices / address / "class", type + "\n");
  };
  device("0000:00:02.0", "0x8086", "0x030000");
  device("0000:00:03.0", "0x10de", "0x040300");  // the sound of one that is not there
  CHECK(says(nothing) == "there is no NVIDIA device on the PCI bus");
  device("0000:01:00.0", "0x10de", "0x030200");
  const std::string on_bus = "there is an NVIDIA device on the PCI bus, 0000:01:00.0, but no NVIDIA driver is loaded";
  CHECK(says(nothing) == on_bus);
  fs::create_symlink("../../../bus/pci/drivers/nouveau", devices / "0000:01:00.0/driver");
  CHECK(says(nothing).find("0000:01:00.0 (its driver is nouveau), but no") != std::string::npos);
  fs::remove(devices / "0000:01:00.0/driver");
  // nvidia-smi's own words are told.
  const std::string failure = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.";
  const std::string with_tools = (from_meson("LOCKSTEP_FAKES") / "tools").string() + ":/usr/bin:/bin";
  CHECK(says(with(nothing, {{"PATH", with_tools}, {"FAKE_SMI", "\n" + failure + " Make sure\nof it"}})) ==
        on_bus + "; nvidia-smi says: " + failure + " Make sure");

  fs::create_directories(root.path() / "proc/driver/nvidia");
  root.write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27\n");
  const std::string no_device =
      "the NVIDIA driver 580.65.06 is loaded, but there is no /dev/nvidia0: a container has "
      "to be started with GPUs";
  CHECK(says(nothing) == no_device);
  CHECK(says(with(nothing, {{"NVIDIA_VISIBLE_DEVICES", "void"}})) == no_device + " (NVIDIA_VISIBLE_DEVICES is 'void')");
  // What is no file cannot be opened, not even by root.
  fs::create_directories(root.path() / "dev/nvidia0");
  CHECK(says(nothing) == (root.path() / "dev/nvidia0").string() + " cannot be opened: Is a directory");

  const Environment gpu{{"PATH", with_tools}, {"GPU_CHECK_ROOT", root.path()}};
  CHECK(says(with(gpu, {{"CUDA_VISIBLE_DEVICES", ""}})) == "CUDA_VISIBLE_DEVICES is '', which shows none");
  CHECK(says(with(gpu, {{"CUDA_VISIBLE_DEVICES", "-1"}})) == "CUDA_VISIBLE_DEVICES is '-1', which shows none");
  CHECK(says(with(gpu, {{"FAKE_DRIVER", "575.57.08 12.9"}})) ==
        "the NVIDIA driver 575.57.08 is too old for CUDA 13.0, which needs 580 or later");

  const Outcome lacking = Bundle{"libneither.so.13 libnor.so.2|libnor.so.1"}.check({}, nothing);
  CHECK(lacking.exit_code == 77);
  CHECK(std::ranges::count(lacking.out, '\n') == 1);
  CHECK(lacking.out.find("; also lacks libneither.so.13, libnor.so.2 or libnor.so.1: not in ") != std::string::npos);
}

TEST_CASE("where there may be a GPU, it is tried") {
  const TemporaryDirectory root;
  const Bundle bundle;
  // A compatibility package lets an old driver run a new CUDA.
  Outcome outcome =
      bundle.check({"--only", "probes"}, {{"FAKE_DRIVER", "535.1 13.0"}, {"GPU_CHECK_ROOT", root.path()}});
  CHECK(outcome.exit_code == 0);
  // A device is enough, without the driver's tools or with tools that fail.
  fs::create_directories(root.path() / "dev");
  root.write("dev/nvidia0", "");
  outcome =
      bundle.check({"--only", "probes"}, {{"FAKE_SMI", "Failed to initialize NVML"}, {"GPU_CHECK_ROOT", root.path()}});
  CHECK(outcome.exit_code == 0);
  CHECK(bundle.table()["facts"]["nvidia-smi"] == "Failed to initialize NVML");
}

TEST_CASE("a GPU without the libraries is one line that names them, and the version that is there instead") {
  const Bundle bundle{"libneither.so.13 libc.so.6"};
  fs::create_directories(bundle.path() / ".local/lib/python3.99/site-packages/nvidia/neither/lib");
  const fs::path other = ".local/lib/python3.99/site-packages/nvidia/neither/lib/libneither.so.12";
  bundle.write(other, "");
  const Outcome outcome = bundle.check();
  CHECK(outcome.exit_code == 1);
  CHECK(outcome.out == "");
  CHECK(std::ranges::count(outcome.err, '\n') == 1);
  CHECK(outcome.err.find("lacks libneither.so.13: not in ") != std::string::npos);
  CHECK(outcome.err.find("there is " + (bundle.path() / other).string()) != std::string::npos);
}

TEST_CASE("libraries are found in LD_LIBRARY_PATH, in the loader's cache and in PyTorch's packages") {
  const Bundle bundle{"libwheel.so.13 libmine.so.2 libc.so.6"};
  const fs::path wheel = ".local/lib/python3.99/site-packages/nvidia/cu13/lib", mine = "mine";
  fs::create_directories(bundle.path() / wheel);
  fs::create_directories(bundle.path() / mine);
  bundle.write(wheel / "libwheel.so.13", "");
  bundle.write(mine / "libmine.so.2", "");
  bundle.write("bin/show", "#!/bin/sh\necho \"$LD_LIBRARY_PATH\"\n");
  fs::permissions(bundle.path() / "bin/show", fs::perms::owner_all);
  const std::string own = bundle.path() / mine;
  const Outcome outcome = bundle.check({"--run", "1", "show"}, {{"LD_LIBRARY_PATH", own}});
  INFO(outcome.err);
  CHECK(outcome.exit_code == 0);
  // The bundle's own before the target's.
  CHECK(outcome.out == (bundle.path() / "lib").string() + ":" + (bundle.path() / wheel).string() + ":" + own + "\n");
  CHECK(outcome.err == "");
}

TEST_CASE("a library that only the loader's cache still knows is looked for elsewhere") {
  const Bundle bundle{"libwheel.so.13"};
  const fs::path wheel = ".local/lib/python3.99/site-packages/nvidia/cu13/lib", old = "old";
  fs::create_directories(bundle.path() / wheel);
  for (const fs::path& folder : {old, fs::path{"tools"}}) fs::create_directories(bundle.path() / folder);
  bundle.write(wheel / "libwheel.so.13", "");
  const std::string cached = bundle.path() / old / "libwheel.so.13";
  bundle.write("tools/ldconfig",
               "#!/bin/sh\necho '1 libs found in cache'\n"
               "echo '\tlibwheel.so.13 (libc6,x86-64) => " +
                   cached + "'\n");
  fs::permissions(bundle.path() / "tools/ldconfig", fs::perms::owner_all);
  const Environment environment{{"PATH", (bundle.path() / "tools").string() + ":" +
                                             (from_meson("LOCKSTEP_FAKES") / "tools").string() + ":/usr/bin:/bin"}};
  CHECK(bundle.check({"--only", "probes"}, environment).exit_code == 0);
  CHECK(bundle.table()["facts"]["libwheel.so.13"].get<std::string>().ends_with(
      (bundle.path() / wheel / "libwheel.so.13").string()));
  bundle.write(old / "libwheel.so.13", "");
  CHECK(bundle.check({"--only", "probes"}, environment).exit_code == 0);
  CHECK(bundle.table()["facts"]["libwheel.so.13"].get<std::string>().ends_with(cached));
}

TEST_CASE("of libraries that can take each other's place, the first that there is counts") {
  const Bundle bundle{"libpair.so.13|libpair.so.12"};
  const fs::path packages = ".local/lib/python3.99/site-packages/nvidia";
  for (const char* name : {"12", "13"}) {
    const fs::path file = packages / ("cu" + std::string{name}) / "lib" / ("libpair.so." + std::string{name});
    fs::create_directories((bundle.path() / file).parent_path());
    bundle.write(file, "");
    CHECK(bundle.check({"--only", "probes"}).exit_code == 0);
    CHECK(bundle.table()["facts"].contains("libpair.so." + std::string{name}));
    CHECK(bundle.table()["facts"].contains("libpair.so.12") == (std::string{name} == "12"));
    // The probes are linked with the first.
    CHECK(results(bundle.table()) ==
          Lines{std::string{"probes of CUDA 1 "} + (std::string{name} == "12" ? "skipped" : "passed")});
  }
}
