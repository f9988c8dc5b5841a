import pathlib

from spack_repo.builtin.build_systems.cuda import CudaPackage
from spack_repo.builtin.build_systems.meson import MesonPackage

from spack.package import *


class Lockstep(MesonPackage, CudaPackage):
    """Synchronous data-parallel training under mpirun, for programs in C++20. Training ends in
    the same weights, byte for byte, on any number of ranks."""

    # It has no public address: what is built is the branch main of the repository that this file
    # is in, or with `dev_path=CHECKOUT` a checkout, with its changes.
    git = pathlib.Path(__file__).resolve().parents[6].as_uri()

    license("Apache-2.0")

    version("0.2.0", branch="main")

    variant("fortran", default=False, description="The modules for Fortran, lockstep-fortran and lockstep-torch-fortran")
    variant("onednn", default=True, description="Fast CPU kernels, those of oneDNN")
    variant("tensorboard", default=False, description="Event files for TensorBoard")
    variant("torch", default=False, description="The bridge to LibTorch, lockstep-torch")

    depends_on("cxx", type="build")
    depends_on("c", type="build", when="+fortran")
    depends_on("fortran", type="build", when="+fortran")
    depends_on("meson@1.0.1:", type="build")
    depends_on("python@3.9:", type="build")
    depends_on("cli11@2.1:", type="build")
    depends_on("catch2@2", type="test")

    # lockstep-run starts mpirun.
    depends_on("mpi", type=("build", "link", "run"))
    depends_on("fmt@9:")
    depends_on("nlohmann-json@3.11:")
    depends_on("xxhash@0.8:")
    depends_on("libsodium@1.0.18:")
    depends_on("zlib-api")
    # Later ones have another interface.
    depends_on("onednn@2.6:2 cpu_runtime=omp", when="+onednn")
    depends_on("protobuf", when="+tensorboard")
    depends_on("boost", when="+tensorboard")
    depends_on("py-torch~cuda", when="+torch~cuda")
    with when("+cuda"):
        depends_on("c", type="build")  # nvcc calls gcc
        depends_on("cuda@12:")
        for arch in CudaPackage.cuda_arch_values:
            depends_on(f"nccl cuda_arch={arch}", when=f"cuda_arch={arch}")
            depends_on(f"py-torch+cuda cuda_arch={arch}", when=f"+torch cuda_arch={arch}")

    conflicts("%gcc@:11", msg="lockstep is written in C++20: g++ 12")
    conflicts("%clang@:15", msg="lockstep is written in C++20: clang 16")
    conflicts("+cuda", when="cuda_arch=none", msg="name the GPUs: cuda_arch=90")
    conflicts("default_library=static", msg="its libraries are shared ones")

    def setup_build_environment(self, env: EnvironmentModifications) -> None:
        if self.spec.satisfies("+cuda"):
            # Meson looks for NCCL where CUDA is, and besides only here.
            env.prepend_path("LIBRARY_PATH", self.spec["nccl"].prefix.lib)

    def meson_args(self):
        spec = self.spec

        def feature(variant):
            return "enabled" if spec.satisfies(f"+{variant}") else "disabled"

        args = [
            f"-Dmpi={spec['mpi'].mpicxx}",
            f"-Dfortran={feature('fortran')}",
            f"-Donednn={feature('onednn')}",
            f"-Dtensorboard={feature('tensorboard')}",
            f"-Dtorch={feature('torch')}",
            f"-Dcuda={feature('cuda')}",
            f"-Dtests={'true' if self.run_tests else 'false'}",
            "-Dapps=true",
            # It is Debian's Chart.js. Without it, the pages of lockstep-report have tables.
            "-Dcharts=disabled",
            "-Dpython=disabled",
            "-Ddocs=disabled",
        ]
        if spec.satisfies("buildtype=release"):
            # lockstep's own choice, which Meson's 3 of a release would overrule.
            args.append("-Doptimization=2")
        if spec.satisfies("+torch"):
            cmake = pathlib.Path(spec["py-torch"].package.cmake_prefix_paths[0])
            args.append(f"-Dtorch_path={cmake.parents[1]}")  # it is torch/share/cmake
        if spec.satisfies("+cuda"):
            archs = ",".join(f"sm_{arch}" for arch in spec.variants["cuda_arch"].value)
            args.append(f"-Dgpu_archs={archs}")
        return args
