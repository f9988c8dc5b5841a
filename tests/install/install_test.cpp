// What `meson install` puts down is a package: whole, usable with nothing else's development files, and the programs
// run from where they are. Installed into a folder of its own, as a packager does, so no path of the build helps it.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "support/job.hpp"

namespace lockstep::test::install_test_cases {

namespace fs = std::filesystem;

namespace {

std::string from_meson(const char* name) {
  const char* value = std::getenv(name);
  if (!value) throw std::runtime_error{fmt::format("{} is not set: run this with `meson test`", name)};
  return value;
}

/// LD_LIBRARY_PATH without the build's folders, which Meson puts there: nothing but the installation must be found.
std::string library_path_outside_the_build() {
  const char* all = std::getenv("LD_LIBRARY_PATH");
  std::istringstream folders{all ? all : ""};
  std::string kept;
  for (std::string folder; std::getline(folders, folder, ':');)
    if (!folder.starts_with(from_meson("LOCKSTEP_BUILD"))) kept += (kept.empty() ? "" : ":") + folder;
  return kept;
}

/// An installation of this build, below a folder that stands for the root of the file system.
class Installation {
 public:
  Installation() {
    const Outcome outcome = run_command({from_meson("LOCKSTEP_MESON"), "install", "-C", from_meson("LOCKSTEP_BUILD"),
                                         "--no-rebuild", "--quiet", "--destdir", root()});
    INFO(outcome.out << outcome.err);
    REQUIRE(outcome.exit_code == 0);
  }

  fs::path root() const { return folder_.path() / "root"; }
  /// Where a folder of the prefix (LOCKSTEP_BINDIR, …) came to lie.
  fs::path folder(const char* variable) const { return root() / fs::path{from_meson(variable)}.relative_path(); }
  fs::path scratch() const { return folder_.path(); }

  /// Runs a line of shell that knows this installation, not the build; pkg-config is reduced to what is installed here.
  Outcome shell(const std::string& line) const {
    Environment environment = mpi_environment();
    environment["LD_LIBRARY_PATH"] = library_path_outside_the_build();
    environment["PKG_CONFIG_LIBDIR"] = folder("LOCKSTEP_LIBDIR") / "pkgconfig";
    environment["PKG_CONFIG_PATH"] = "";
    return run_command({"sh", "-c", line}, {.environment = environment, .timeout = std::chrono::seconds{300}});
  }

 private:
  TemporaryDirectory folder_;
};

const Installation& installed() {
  static const Installation installation;
  return installation;
}

/// The files below `folder`, by their paths from there, in order.
std::vector<std::string> files_below(const fs::path& folder) {
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator{folder})
    if (!entry.is_directory()) files.push_back(entry.path().lexically_relative(folder));
  std::ranges::sort(files);
  return files;
}

bool has_fortran() {
  return from_meson("LOCKSTEP_HAS_FORTRAN") == "yes";
}

bool has_torch() {
  return from_meson("LOCKSTEP_HAS_TORCH") == "yes";
}

/// Those that other programs link.
std::vector<std::string> installed_libraries() {
  std::vector<std::string> libraries{"lockstep-models", "lockstep-c", "lockstep"};
  if (has_torch()) libraries.insert(libraries.end(), {"lockstep-torch", "lockstep-torch-c"});
  if (has_fortran()) libraries.push_back("lockstep-fortran");
  if (has_fortran() && has_torch()) libraries.push_back("lockstep-torch-fortran");
  return libraries;
}

/// How a program ends that links all that the package names, and the flags that pkg-config gives for it.
std::pair<Outcome, std::string> outcome_of_linking(const std::string& package) {
  const fs::path source = installed().scratch() / "empty.cpp";
  std::ofstream{source} << "int main() {}\n";
  Outcome outcome =
      installed().shell(fmt::format("{0} -Wl,--no-as-needed {1} $(pkg-config --cflags --libs {2}) "
                                    "-Wl,-rpath,$(pkg-config --variable=libdir {2}) -o {1}.out && {1}.out",
                                    from_meson("LOCKSTEP_CXX"), source.string(), package));
  return {std::move(outcome), installed().shell("pkg-config --cflags --libs " + package).out};
}

bool has_cuda() {
  return from_meson("LOCKSTEP_HAS_CUDA") == "yes";
}

/// A program of another project, in another language than C++.
struct Consumer {
  std::string language;  ///< as CMake calls it
  std::string compiler, flags, source;
  std::string part;     ///< of lockstep, as CMake calls it
  std::string library;  ///< which it links, too
};

/// Builds it by pkg-config, and by CMake where there is one; then runs it, as `run` says with its path for {}, and
/// expects success and this output.
void check_consumer(const Consumer& consumer, const std::string& run, const std::string& output) {
  const auto& [language, compiler, flags, source, part, library] = consumer;
  const fs::path folder = installed().scratch() / ("consumer-of-" + part);
  fs::create_directories(folder);
  std::ofstream{folder / "CMakeLists.txt"} << fmt::format(
      "cmake_minimum_required(VERSION 3.16)\nproject(consumer {0})\n"
      "find_package(lockstep REQUIRED COMPONENTS {1})\nadd_executable(consumer {2})\n"
      "target_link_libraries(consumer lockstep::{1} {3})\n",
      language, part, source, library);
  std::string package = "lockstep-" + part;
  std::ranges::replace(package, '_', '-');
  const std::string by_hand = folder / "by-hand", by_cmake = folder / "build/consumer";
  std::vector<std::string> ways{
      fmt::format("{0} {1} {2} $(pkg-config --cflags --libs {3}) {4} "
                  "-Wl,-rpath,$(pkg-config --variable=libdir {3}) -o {5} && {6}",
                  compiler, flags, source, package, library.empty() ? "" : "-l" + library, by_hand,
                  fmt::format(fmt::runtime(run), by_hand))};
  if (const std::string cmake = from_meson("LOCKSTEP_CMAKE"); !cmake.empty())
    ways.push_back(
        fmt::format("{0} -S {1} -B {1}/build -DCMAKE_{2}_COMPILER={3} -DCMAKE_PREFIX_PATH={4} >&2 && "
                    "{0} --build {1}/build >&2 && {5}",
                    cmake, folder.string(), language, compiler,
                    (installed().root() / fs::path{from_meson("LOCKSTEP_PREFIX")}.relative_path()).string(),
                    fmt::format(fmt::runtime(run), by_cmake)));
  for (const std::string& way : ways) {
    const Outcome outcome = installed().shell(way);
    INFO(way << '\n' << outcome.err);
    CHECK(outcome.exit_code == 0);
    CHECK(outcome.out == output);
  }
}

}  // namespace

TEST_CASE("the installed headers are those of include/lockstep, and no others") {
  const std::vector<std::string> files = files_below(installed().folder("LOCKSTEP_INCLUDEDIR"));
  const fs::path sources = from_meson("LOCKSTEP_PUBLIC_HEADERS");
  std::vector<std::string> headers = files_below(sources);
  std::erase_if(headers, [](const std::string& file) {
    return file.ends_with(".md") || (!has_torch() && file.starts_with("lockstep/torch"));
  });
  CHECK(files == headers);
  CHECK(std::ranges::count(files, "lockstep/lockstep.hpp") == 1);
  for (const std::string& header : files)
    CHECK(read_file(installed().folder("LOCKSTEP_INCLUDEDIR") / header) == read_file(sources / header));
}

TEST_CASE("the installed library comes with its links and its pkg-config file, and without the layers it is made of") {
  const std::vector<std::string> libraries = files_below(installed().folder("LOCKSTEP_LIBDIR"));
  const std::string version = from_meson("LOCKSTEP_EXPECTED_VERSION");
  std::vector<std::string> expected;
  // Of one version only, by which liblockstep.so opens it.
  if (has_cuda()) expected = {"liblockstep-cuda.so", "liblockstep-cuda.so." + version};
  for (const std::string& name : installed_libraries())
    for (const std::string& end : {std::string{}, "." + version.substr(0, version.rfind('.')), "." + version})
      expected.push_back("lib" + name + ".so" + end);
  for (const std::string& name : installed_libraries()) expected.push_back("pkgconfig/" + name + ".pc");
  for (const char* const name : {"lockstep-config.cmake", "lockstep-config-version.cmake"})
    expected.push_back(std::string{"cmake/lockstep/"} + name);
  // Of one version, too: lockstep-train opens it.
  if (from_meson("LOCKSTEP_HAS_TENSORBOARD") == "yes")
    for (const std::string& end : {std::string{}, "." + version})
      expected.push_back("liblockstep-tensorboard.so" + end);
  if (has_fortran()) expected.push_back("lockstep-fortran/lockstep.mod");
  if (has_fortran() && has_torch()) expected.push_back("lockstep-fortran/lockstep_torch.mod");
  std::ranges::sort(expected);
  CHECK(libraries == expected);
}

TEST_CASE("the bridge to LibTorch, if it is built, brings all that a program links") {
  if (!has_torch()) {
    WARN("skipped: the bridge to LibTorch is not built");
    return;
  }
  const auto [outcome, flags] = outcome_of_linking("lockstep-torch");
  INFO(outcome.err);
  CHECK(outcome.exit_code == 0);
  for (const char* const part : {"torch/csrc/api/include", "-llockstep-torch", "-llockstep ", "torch_cpu", "c10"}) {
    CAPTURE(part, flags);
    CHECK(flags.find(part) != std::string::npos);
  }
}

TEST_CASE("the package of the models brings theirs and lockstep's library") {
  const auto [outcome, flags] = outcome_of_linking("lockstep-models");
  INFO(outcome.err);
  CHECK(outcome.exit_code == 0);
  CHECK_THAT(flags, Catch::Contains("-llockstep-models ") && Catch::Contains("-llockstep "));
}

TEST_CASE("pkg-config needs no package but the installed one") {
  for (const char* question : {"--exists", "--cflags", "--libs", "--cflags --libs --static"}) {
    CAPTURE(question);
    const Outcome outcome = installed().shell(fmt::format("pkg-config --print-errors {} lockstep", question));
    CHECK(outcome.err == "");
    CHECK(outcome.exit_code == 0);
  }
  CHECK(installed().shell("pkg-config --modversion lockstep").out == from_meson("LOCKSTEP_EXPECTED_VERSION") + "\n");
  // What a consumer gets is lockstep and nothing of what it stands on.
  const std::string flags = installed().shell("pkg-config --cflags --libs lockstep").out;
  INFO(flags);
  CHECK(flags.starts_with("-I"));
  CHECK(fs::canonical(flags.substr(2, flags.find(' ') - 2)) ==
        fs::canonical(installed().folder("LOCKSTEP_INCLUDEDIR")));
  CHECK(installed().shell("PKG_CONFIG_SYSROOT_DIR=/ pkg-config --cflags --libs lockstep").out == flags);
  CHECK(installed()
            .shell(fmt::format("PKG_CONFIG_SYSROOT_DIR={} pkg-config --cflags --libs lockstep",
                               installed().root().string()))
            .out == flags);
  CHECK(flags.find(" -llockstep") != std::string::npos);
  CHECK(flags.find(" -l") == flags.rfind(" -l"));
}

TEST_CASE("a program of another project builds against the installed package and runs on two ranks") {
  const fs::path program = installed().scratch() / "consumer";
  const Outcome compiled = installed().shell(fmt::format(
      "{} {} $(pkg-config --cflags --libs lockstep) -Wl,-rpath,$(pkg-config --variable=libdir lockstep) -o {}",
      from_meson("LOCKSTEP_CXX"), from_meson("LOCKSTEP_CONSUMER"), program.string()));
  INFO(compiled.err);
  REQUIRE(compiled.exit_code == 0);

  const Outcome outcome = installed().shell("mpirun -n 2 " + program.string());
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  CHECK(lines_starting_with(outcome.out, "lockstep ") ==
        std::vector<std::string>{"lockstep " + from_meson("LOCKSTEP_EXPECTED_VERSION")});
  // Gradients of 1 + 2 and 10 + 20 over 4 + 4 samples, half of that off zero.
  for (const char* rank : {"rank 0", "rank 1"})
    CHECK(lines_starting_with(outcome.out, rank) ==
          std::vector<std::string>{fmt::format("{} of 2: total 3, weights -0.4375 -2.125", rank)});
}

TEST_CASE("a program in C builds against the installed package, by pkg-config and by CMake without C++") {
  const std::string mpicc = from_meson("LOCKSTEP_MPICC"), source = from_meson("LOCKSTEP_C_CONSUMER");
  if (mpicc.empty()) {
    WARN("skipped: mpicc may be another MPI's, or the libraries are sanitized");
    return;
  }
  check_consumer({"C", mpicc, "-std=c99", source, "c", "m"}, "{}", "2606 steps, heat 0x1.325c98a01ea29p+12\n");
}

TEST_CASE("a program in C with a model builds against the installed package, by pkg-config and by CMake") {
  const std::string mpicc = from_meson("LOCKSTEP_MPICC"), source = from_meson("LOCKSTEP_TORCH_C_CONSUMER");
  if (mpicc.empty() || !has_torch()) {
    WARN("skipped: mpicc may be another MPI's, or there is no bridge to LibTorch");
    return;
  }
  // Without arguments it exits with 2, once its libraries are loaded.
  check_consumer({"C", mpicc, "-std=c99", source, "torch_c", "m"}, "{{ {}; test $? = 2; }}", "");
}

TEST_CASE("a program in Fortran builds against the installed package, by pkg-config and by CMake") {
  if (!has_fortran()) {
    WARN("skipped: the module for Fortran is not built");
    return;
  }
  check_consumer(
      {"Fortran", from_meson("LOCKSTEP_MPIFORT"), "", from_meson("LOCKSTEP_FORTRAN_CONSUMER"), "fortran", ""}, "{}",
      "2606 steps, heat 4901.787262077015\n");
  const fs::path library = installed().folder("LOCKSTEP_LIBDIR") / "liblockstep-fortran.so";
  CHECK(installed().shell("ldd " + library.string()).out.find("libtorch") == std::string::npos);
}

TEST_CASE("a program in Fortran with a model builds against the installed package, by pkg-config and by CMake") {
  if (!has_fortran() || !has_torch()) {
    WARN("skipped: the module for Fortran or the bridge to LibTorch is not built");
    return;
  }
  check_consumer({"Fortran", from_meson("LOCKSTEP_MPIFORT"), "", from_meson("LOCKSTEP_TORCH_FORTRAN_CONSUMER"),
                  "torch_fortran", ""},
                 "{{ {}; test $? = 2; }}", "");
}

TEST_CASE("the first error of a compiler without C++20 names those that have it") {
  const Outcome refused = installed().shell(
      fmt::format("echo '#include <lockstep/lockstep.hpp>' | {} -std=c++17 -I{} -fsyntax-only -x c++ -",
                  from_meson("LOCKSTEP_CXX"), installed().folder("LOCKSTEP_INCLUDEDIR").string()));
  CHECK(refused.exit_code != 0);
  CAPTURE(refused.err);
  CHECK(refused.err.find("error: #error \"lockstep needs C++20 with std::source_location: g++ 12 or clang 16") ==
        refused.err.find("error: "));
}

namespace {

/// What CMake says of a project that asks for `package` of an installation at `prefix`, builds `source` with `target`,
/// and where the program is then.
std::pair<Outcome, fs::path> cmake_project(const fs::path& prefix, const std::string& package,
                                           const std::string& target, const std::string& source) {
  const fs::path folder = installed().scratch() / "project", build = folder / "build";
  // Always the same folder: CMake asks the compiler what it can only once.
  fs::create_directories(folder);
  std::ofstream{folder / "CMakeLists.txt"} << "cmake_minimum_required(VERSION 3.16)\n"
                                              "project(consumer CXX)\n"
                                              "find_package("
                                           << package << " REQUIRED)\nadd_executable(consumer " << source
                                           << ")\ntarget_link_libraries(consumer " << target << ")\n";
  const std::string cmake = from_meson("LOCKSTEP_CMAKE");
  return {installed().shell(fmt::format("{0} -S {1} -B {2} -U lockstep_DIR -DCMAKE_PREFIX_PATH={3} "
                                        "-DCMAKE_CXX_FLAGS='{4}' && {0} --build {2}",
                                        cmake, folder.string(), build.string(), prefix.string(),
                                        from_meson("LOCKSTEP_CXX_FLAGS"))),
          build / "consumer"};
}

}  // namespace

TEST_CASE("a project of CMake builds against an installation that was moved, and refuses another version or part") {
  if (from_meson("LOCKSTEP_CMAKE").empty()) {
    WARN("skipped: cmake was not found");
    return;
  }
  const fs::path moved = installed().scratch() / "elsewhere/lockstep";
  fs::create_directories(moved.parent_path());
  fs::copy(installed().root() / fs::path{from_meson("LOCKSTEP_PREFIX")}.relative_path(), moved,
           fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  const std::string version = from_meson("LOCKSTEP_EXPECTED_VERSION");
  const std::string series = version.substr(0, version.rfind('.'));

  const std::string consumer = from_meson("LOCKSTEP_CONSUMER");
  const auto [built, program] =
      cmake_project(moved, "lockstep " + series + " COMPONENTS models", "lockstep::models", consumer);
  INFO(built.out << built.err);
  REQUIRE(built.exit_code == 0);
  const Outcome outcome = installed().shell("mpirun -n 2 " + program.string());
  INFO(outcome.err);
  CHECK(outcome.exit_code == 0);
  CHECK(lines_starting_with(outcome.out, "rank 1 of 2: total 3, weights -0.4375 -2.125").size() == 1);

  const std::string later = version.substr(0, version.rfind('.') + 1) + "99";
  for (const auto& [package, said] : {std::pair<std::string, std::string>{"lockstep " + later, later},
                                      {"lockstep 99", "99"},
                                      {"lockstep COMPONENTS charts", "has no component 'charts'"}}) {
    CAPTURE(package);
    const Outcome refused = cmake_project(moved, package, "lockstep::lockstep", consumer).first;
    CHECK(refused.exit_code != 0);
    CHECK_THAT(refused.err, Catch::Contains(said));
  }
  // The examples are such a project too.
  const fs::path examples = moved / "share/doc/lockstep/examples", build = installed().scratch() / "examples";
  std::string models = has_torch() ? "surrogate" : "";
  if (has_torch() && has_fortran()) models += " heat_surrogate";
  const Outcome shown = installed().shell(fmt::format(
      "{0} -S {1} -B {2} -DCMAKE_PREFIX_PATH={3} -DCMAKE_CXX_FLAGS='{4}' && {0} --build {2} --target sums {5} && "
      "{0} --build {2} --target help",
      from_meson("LOCKSTEP_CMAKE"), examples.string(), build.string(), moved.string(), from_meson("LOCKSTEP_CXX_FLAGS"),
      models));
  INFO(shown.out << shown.err);
  CHECK(shown.exit_code == 0);
  CHECK(installed().shell("mpirun -n 2 " + (build / "sums").string()).out == "0.1 from 2 ranks\n");
  for (const auto& entry : fs::directory_iterator{examples})
    if (entry.path().extension() == ".cpp" && !entry.path().stem().string().starts_with("torch"))
      CHECK_THAT(shown.out, Catch::Contains("... " + entry.path().stem().string()));

  // What it finds and links. To compile LibTorch's headers, or all of lockstep's again, would say no more.
  const fs::path source = installed().scratch() / "bridge.cpp";
  std::ofstream{source} << "#include <lockstep/core/base/version.hpp>\n"
                           "#if !__has_include(<lockstep/torch.hpp>) || !__has_include(<torch/nn.h>)\n"
                           "#error a header is missing\n"
                           "#endif\n"
                           "int main() { return lockstep::version().empty(); }\n";
  const auto bridge = cmake_project(moved, "lockstep COMPONENTS torch", "lockstep::torch", source).first;
  INFO(bridge.out << bridge.err);
  CHECK((bridge.exit_code == 0) == has_torch());
}

TEST_CASE("no installed program or library needs CUDA, but the one that is opened for a GPU") {
  const fs::path libraries = installed().folder("LOCKSTEP_LIBDIR");
  std::vector<fs::path> files{libraries / "liblockstep.so"};
  for (const std::string& name : files_below(installed().folder("LOCKSTEP_BINDIR")))
    files.push_back(installed().folder("LOCKSTEP_BINDIR") / name);
  const auto needs_cuda = [&](const fs::path& file) {
    const std::string needed = installed().shell("ldd " + file.string()).out;
    REQUIRE(needed.find("\tlibc.so") != std::string::npos);
    return needed.find("libcudart") != std::string::npos || needed.find("libnccl") != std::string::npos;
  };
  for (const fs::path& file : files) {
    CAPTURE(file);
    CHECK_FALSE(needs_cuda(file));
  }
  if (has_cuda()) CHECK(needs_cuda(libraries / "liblockstep-cuda.so"));
}

TEST_CASE("every installed program has a man page with all its options, and a completion for bash") {
  if (from_meson("LOCKSTEP_HAS_PAGES") != "yes") return;
  const bool has_groff = installed().shell("command -v groff").exit_code == 0;
  if (!has_groff) WARN("pages are not rendered: groff was not found");
  for (const std::string& name : files_below(installed().folder("LOCKSTEP_BINDIR"))) {
    CAPTURE(name);
    const fs::path page = installed().folder("LOCKSTEP_MANDIR") / "man1" / (name + ".1");
    const std::string text = read_file(page);
    const std::string help =
        installed().shell(installed().folder("LOCKSTEP_BINDIR").string() + "/" + name + " --help").out;
    std::istringstream lines{help};
    int options = 0;
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with("  -")) continue;
      std::string option = line.substr(2, line.find_first_of(" ,", 2) - 2);
      for (std::size_t at = 0; (at = option.find('-', at)) != option.npos; at += 2) option.insert(at, "\\");
      CAPTURE(option);
      CHECK(text.find("\n\\fB" + option) != text.npos);
      ++options;
    }
    CHECK(options >= 2);
    if (has_groff) {
      const Outcome rendered = installed().shell("groff -man -Tutf8 -ww -z " + page.string());
      CHECK(rendered.exit_code == 0);
      CHECK(rendered.err == "");
    }
    const fs::path completion =
        installed().folder("LOCKSTEP_DATADIR") / "bash-completion/completions" / (name + ".bash");
    const Outcome sourced =
        installed().shell(fmt::format("bash -c '. {} && complete -p {}'", completion.string(), name));
    CHECK(sourced.exit_code == 0);
    CHECK(sourced.out.find(" --version") != std::string::npos);
  }
}

TEST_CASE("the commit of an archive is that in its file, and unknown without") {
  const TemporaryDirectory folder;
  const fs::path archive = folder.path() / "other-project/lockstep";
  fs::create_directories(archive / "packaging");
  fs::create_directories(archive.parent_path() / ".git");
  fs::copy(from_meson("LOCKSTEP_COMMIT_PROGRAM"), archive / "packaging/commit");
  const auto commit = [&] { return installed().shell((archive / "packaging/commit").string()).out; };
  CHECK(commit() == "unknown\n");
  const std::string write = "MESON_PROJECT_DIST_ROOT=" + archive.string() + " ";
  CHECK(installed().shell(write + from_meson("LOCKSTEP_COMMIT_PROGRAM") + " --dist").exit_code == 0);
  CHECK(fs::exists(archive / "COMMIT"));
  CHECK(commit() == installed().shell(from_meson("LOCKSTEP_COMMIT_PROGRAM")).out);
}

TEST_CASE("every installed program has the layers inside, and says its version and its options") {
  const std::vector<std::string> programs = files_below(installed().folder("LOCKSTEP_BINDIR"));
  // That of the build: a developer may have committed since.
  const std::string header = read_file(fs::path{from_meson("LOCKSTEP_BUILD")} / "src/commit.hpp");
  const std::size_t begin = header.find('"') + 1;
  const std::string commit = header.substr(begin, header.rfind('"') - begin);
  CHECK_THAT(commit, Catch::Matches("[0-9a-f]{12}|unknown"));
  CHECK(programs == std::vector<std::string>{"lockstep-bench", "lockstep-bisect", "lockstep-inspect", "lockstep-report",
                                             "lockstep-run", "lockstep-train", "lockstep-verify"});
  for (const std::string& name : programs) {
    CAPTURE(name);
    const std::string program = installed().folder("LOCKSTEP_BINDIR") / name;
    const Outcome linked = installed().shell("ldd " + program);
    INFO(linked.out);
    CHECK(linked.out.find("liblockstep") == std::string::npos);
    CHECK(linked.out.find("not found") == std::string::npos);
    const Outcome version = installed().shell(program + " --version");
    CHECK(version.exit_code == 0);
    CHECK_THAT(version.out, Catch::Matches(fmt::format("{} {}\ncommit {}\nMPI .+\noneDNN .+\nCUDA .+\n", name,
                                                       from_meson("LOCKSTEP_EXPECTED_VERSION"), commit)));
    const Outcome help = installed().shell(program + " --help");
    CHECK(help.exit_code == 0);
    CHECK(help.out.find("--help") != std::string::npos);
  }
}

}  // namespace lockstep::test::install_test_cases
