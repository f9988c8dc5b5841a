// What the environment says of how the processes of a job were started.
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <catch2/catch.hpp>

#include "core/cluster/launch.hpp"

using namespace lockstep;

namespace {

using Variables = std::map<std::string, const char*>;

ReadVariable reading(Variables set) {
  return [set = std::move(set)](const char* name) {
    const auto found = set.find(name);
    return found == set.end() ? nullptr : found->second;
  };
}

}  // namespace

TEST_CASE("a process that Slurm started without MPI is told, once for the job") {
  const auto warning = [](const Variables& set) { return launch_warning(reading(set)); };
  CHECK(warning({{"SLURM_NTASKS", "2"}}) ==
        "SLURM_NTASKS is 2, but this process is a job of 1 rank, because MPI's launcher did not start it; expected "
        "mpirun or srun --mpi=pmix");
  CHECK_FALSE(warning({{"SLURM_NTASKS", "2"}, {"SLURM_PROCID", "0"}}).empty());
  CHECK(warning({{"SLURM_NTASKS", "2"}, {"SLURM_PROCID", "1"}}).empty());
  CHECK(warning({{"SLURM_NTASKS", "1"}}).empty());
  CHECK(warning({}).empty());
  for (const char* launcher : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"})
    CHECK(warning({{"SLURM_NTASKS", "2"}, {launcher, "1"}}).empty());
}

TEST_CASE("a launcher of another MPI promises more processes than there are ranks") {
  const auto foreign = [](const Variables& set, int ranks, std::optional<LauncherKind> nearest = std::nullopt) {
    return find_foreign_launch(reading(set), nearest, ranks);
  };
  const Variables mpirun{{"OMPI_COMM_WORLD_SIZE", "3"}, {"OMPI_COMM_WORLD_RANK", "0"}};
  const Variables mpich{{"PMI_SIZE", "2"}, {"PMI_RANK", "0"}};
  const Variables srun{{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "0"}};
  CHECK(foreign(mpirun, 1) == Launch{LauncherKind::open_mpi, 3, true, "OMPI_COMM_WORLD_RANK=0"});
  CHECK(foreign(mpich, 1) == Launch{LauncherKind::pmi, 2, true, "PMI_RANK=0"});
  CHECK(foreign(srun, 1) == Launch{LauncherKind::slurm, 4, true, "SLURM_PROCID=0"});
  CHECK(foreign(mpirun, 2));
  for (const auto& [set, ranks] : {std::pair{mpirun, 3}, {mpich, 2}, {srun, 4}, {mpich, 3}, {{}, 1}})
    CHECK_FALSE(foreign(set, ranks));
  CHECK_FALSE(foreign({{"PMI_SIZE", "1"}}, 1));
  CHECK(foreign({{"SLURM_STEP_NUM_TASKS", "1"}}, 0));  // which MPI could not join
  for (const char* size : {"", "two", "2x", "-2"}) CHECK_FALSE(foreign({{"PMI_SIZE", size}}, 1));

  SECTION("and the first of them speaks, or each whose rank is not known") {
    CHECK_FALSE(foreign({{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}}, 1)->is_first);
    CHECK_FALSE(foreign({{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "1"}, {"PMI_RANK", "0"}}, 1)->is_first);
    CHECK(foreign({{"PMI_SIZE", "2"}}, 1)->is_first);
    CHECK(foreign({{"PMI_SIZE", "2"}, {"PMI_RANK", "?"}}, 1)->is_first);
  }
  SECTION("unless its variables are inherited from the job around that of this process") {
    const auto inside = [](Variables inner, const Variables& outer) {
      inner.insert(outer.begin(), outer.end());
      return inner;
    };
    const Variables mpirun_1{{"OMPI_COMM_WORLD_SIZE", "1"}}, mpich_1{{"PMI_SIZE", "1"}};
    const Variables srun_1{{"SLURM_STEP_NUM_TASKS", "1"}};
    CHECK_FALSE(foreign(inside(mpirun_1, srun), 1));
    CHECK_FALSE(foreign(inside(mpirun_1, inside(mpich, srun)), 1));
    CHECK_FALSE(foreign(inside(mpich_1, srun), 1));
    CHECK_FALSE(foreign(inside(mpich_1, mpirun), 1, LauncherKind::pmi));
    CHECK_FALSE(foreign(inside(srun_1, inside(mpich, mpirun)), 1, LauncherKind::slurm));
    CHECK_FALSE(foreign(inside(mpich, mpirun), 2));  // of a program that knows MPICH's
    CHECK(foreign(inside(mpirun, mpich_1), 1));
    CHECK(foreign(inside(mpirun_1, mpich), 1, LauncherKind::pmi));
    CHECK(foreign(mpich, 1, LauncherKind::open_mpi));  // which says nothing
    CHECK(foreign(mpich, 1, LauncherKind::slurm));
  }
  SECTION("or of a terminal of srun, which has one task") {
    CHECK_FALSE(foreign({{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_PTY_PORT", "1"}}, 1));
  }
}

TEST_CASE("a launcher is known by the name of its process") {
  for (const char* name : {"mpirun", "mpiexec", "orted", "prterun", "prted"})
    CHECK(launcher_of_name(name) == LauncherKind::open_mpi);
  for (const char* name : {"hydra_pmi_proxy", "mpiexec.hydra"}) CHECK(launcher_of_name(name) == LauncherKind::pmi);
  CHECK(launcher_of_name("slurmstepd") == LauncherKind::slurm);
  for (const char* name : {"bash", "", "mpirun2"}) CHECK_FALSE(launcher_of_name(name));

  const auto part = [](const char* name, const Variables& set = {}) { return part_of_launcher(name, reading(set)); };
  for (const char* name : {"mpirun", "prterun"}) CHECK(part(name) == LauncherPart::job);
  for (const char* name : {"orted", "hydra_pmi_proxy"}) CHECK(part(name) == LauncherPart::node);
  for (const char* name : {"slurmstepd", "bash", ""}) CHECK(part(name) == LauncherPart::other);
  CHECK(part("prted", {{"PMIX_NAMESPACE", "prterun-node1-7@1"}}) == LauncherPart::node);
  CHECK(part("prted", {{"PMIX_NAMESPACE", "prte-node1-7@1"}}) == LauncherPart::other);
  CHECK(part("prted") == LauncherPart::other);
}

TEST_CASE("Open MPI 5's mpirun tells the others sooner that a rank has ended") {
  CHECK(launcher_waits(reading({{"PMIX_NAMESPACE", "prterun-a-7@1"}})) == std::chrono::milliseconds{250});
  CHECK(launcher_waits(reading({{"PMIX_NAMESPACE", "315162625"}})) == std::chrono::seconds{1});
  CHECK(launcher_waits(reading({})) == std::chrono::seconds{1});
}

TEST_CASE("the processes of a job have its name in common") {
  CHECK(name_of_job(reading({{"PMIX_NAMESPACE", "prterun-a-7@1"}, {"PMI_RANK", "1"}})) == "prterun-a-7@1");
  CHECK_FALSE(name_of_job(reading({{"PMI_RANK", "1"}})).empty());
  CHECK(name_of_job(reading({{"PMI_RANK", "1"}})) == name_of_job(reading({{"PMI_RANK", "0"}})));
  for (const Variables& none : {Variables{}, {{"PMIX_NAMESPACE", ""}}, {{"SLURM_PROCID", "0"}}})
    CHECK(name_of_job(reading(none)).empty());
}

TEST_CASE("an MPI is known by what its library says") {
  CHECK(mpi_kind_of("Open MPI v4.1.4, package: Debian OpenMPI") == MpiKind::open_mpi_4);
  CHECK(mpi_kind_of("Open MPI v5.0.11, package: Open MPI") == MpiKind::open_mpi_5);
  CHECK(mpi_kind_of("MPICH Version:      5.0.2\nMPICH Release date") == MpiKind::mpich);
  CHECK(mpi_kind_of("Intel(R) MPI Library 2021.19.0 for Linux* OS\n") == MpiKind::intel_mpi);
  for (const char* other : {"", "MVAPICH2 Version"}) CHECK(mpi_kind_of(other) == MpiKind::other);
}

TEST_CASE("a launcher tells a process its place in the job") {
  const auto place = [](const Variables& set, std::optional<LauncherKind> nearest = std::nullopt) {
    return find_place(reading(set), nearest);
  };
  const Variables open_mpi{{"OMPI_COMM_WORLD_RANK", "1"},
                           {"OMPI_COMM_WORLD_SIZE", "4"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                           {"PMIX_RANK", "1"}};
  Variables all{{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"MPI_LOCALNRANKS", "3"}};
  CHECK(place(open_mpi) == LaunchPlace{1, 4, 2});
  CHECK(place(all) == LaunchPlace{2, 3, 3});
  CHECK(place({{"PMIX_RANK", "5"}, {"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_PROCID", "5"}}) == LaunchPlace{5, 8, 0});
  CHECK(place({{"PMIX_RANK", "5"}, {"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_GTIDS", "1,5"}}) == LaunchPlace{5, 8, 2});
  CHECK(place({{"PMIX_RANK", "5"}}) == LaunchPlace{5, 0, 0});
  // A step of Slurm is none of MPI's.
  CHECK_FALSE(place({{"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_PROCID", "5"}}));
  CHECK_FALSE(place({{"PMI_RANK", "?"}}));
  CHECK_FALSE(place({}));

  // In the shell of a job of another launcher.
  all.insert(open_mpi.begin(), open_mpi.end());
  CHECK(place(all, LauncherKind::pmi) == LaunchPlace{2, 3, 3});
  CHECK(place(all, LauncherKind::open_mpi) == LaunchPlace{1, 4, 2});
  CHECK(place(all) == LaunchPlace{1, 4, 2});
  CHECK(place(open_mpi, LauncherKind::pmi) == LaunchPlace{1, 4, 2});
}

TEST_CASE("the line about a launcher of another MPI names both") {
  CHECK(describe_foreign_launch({LauncherKind::pmi, 2, true, {}}, 1,
                                "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4") ==
        "mpiexec of MPICH, Intel MPI or another PMI launcher started 2 processes as one job, but this program's MPI, "
        "Open MPI v4.1.4, finds 1 of them; expected the mpirun of Open MPI v4.1.4");
  CHECK(describe_foreign_launch({LauncherKind::open_mpi, 3, true, {}}, 1,
                                "MPICH Version:      4.0.2\nMPICH Release date: Thu Apr  7") ==
        "mpirun of Open MPI started 3 processes as one job, but this program's MPI, MPICH 4.0.2, finds 1 of them; "
        "expected the mpirun of MPICH 4.0.2");
  CHECK_THAT(
      describe_foreign_launch({LauncherKind::slurm, 4, true, {}}, 1, "Intel(R) MPI Library 2021.5 for Linux* OS\n"),
      Catch::StartsWith("srun started 4 processes ") &&
          Catch::EndsWith("expected the mpirun of Intel(R) MPI Library 2021.5 for Linux* OS, or srun with an "
                          "--mpi= that it supports"));
  CHECK_THAT(describe_foreign_launch({LauncherKind::slurm, 2, true, {}}, 1, "Open MPI v4.1.4, ident: 4.1.4"),
             Catch::EndsWith("expected the mpirun of Open MPI v4.1.4, or srun --mpi=pmix"));
  CHECK(
      describe_foreign_launch({LauncherKind::slurm, 1, true, {}}, 0, "Open MPI v4.1.4, ident: 4.1.4") ==
      "srun started 1 process, but this program's MPI, Open MPI v4.1.4, cannot start there without PMIx; expected the "
      "mpirun of Open MPI v4.1.4, or srun --mpi=pmix");
}

TEST_CASE("Debian's Open MPI cannot start in a step of Slurm without PMIx") {
  const std::string debian = "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4";
  const Variables step{{"SLURM_NODELIST", "a"}, {"SLURM_STEPID", "0"}};
  const auto with = [&](const char* name) {
    Variables all = step;
    all[name] = "1";
    return all;
  };
  CHECK(cannot_start(reading(step), debian));
  CHECK(cannot_start(reading(Variables{{"SLURM_NODELIST", "a"}, {"SLURM_STEP_ID", "0"}}), debian));
  CHECK(cannot_start(reading(with("PMI_SIZE")), debian));
  for (const char* name : {"PMIX_NAMESPACE", "OMPI_COMM_WORLD_SIZE"})
    CHECK_FALSE(cannot_start(reading(with(name)), debian));
  CHECK_FALSE(cannot_start(reading(Variables{{"SLURM_NODELIST", "a"}}), debian));  // in an allocation
  CHECK_FALSE(cannot_start(reading(step), "Open MPI v4.1.4, package: Open MPI root@a Distribution"));
}
