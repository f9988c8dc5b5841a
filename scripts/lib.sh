# What the commands in this folder share. Sourced by bash, never run.

# Everything the build and the tests need, as Debian 12 names it. Meson asks dpkg-dev where libraries go, and else puts
# them into lib64, where neither CMake nor pkg-config looks.
build_packages=(
  g++ meson ninja-build pkg-config dpkg-dev
  libopenmpi-dev openmpi-bin
  libcli11-dev libfmt-dev nlohmann-json3-dev
  libdnnl-dev zlib1g-dev libxxhash-dev libsodium-dev
  libjs-chart.js
  catch2 python3
)

# For parts that a build may do without, and their tests: event files for TensorBoard, the module for Fortran, and what
# CMake finds.
optional_packages=(libprotobuf-dev protobuf-compiler libboost-dev gfortran cmake make)

# Open MPI refuses to start as root unless both are set: two, so that nobody does it by accident. A root that runs
# these scripts is a container's.
if [ "$(id -u)" -eq 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

# MPI looks at the machine through hwloc, whose plug-in for X displays asks the name server where localhost is: five
# seconds for each job where there is no /etc/hosts.
export HWLOC_COMPONENTS=-gl

# suit_any_machine: for jobs of Open MPI on one machine, however small. Two ranks on one core start too, give way to each
# other, and are not tied to a core; they share memory without the kernel call that containers forbid.
suit_any_machine() {
  export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1
  export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader OMPI_MCA_btl_vader_single_copy_mechanism=none
}

say() { printf '\n== %s\n' "$*"; }

fail() {
  printf '%s: error: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# install_missing PACKAGE...: installs those that are not there yet, and asks nothing.
install_missing() {
  command -v dpkg-query > /dev/null || fail "this is not Debian: install what Debian calls $*, then use meson by hand"
  local package missing=()
  for package in "$@"; do
    # One word for each architecture; "not-installed" and "config-files" are others.
    [[ " $(dpkg-query -W -f='${db:Status-Status} ' "$package" 2> /dev/null)" == *" installed "* ]] || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0

  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    # Without a terminal, a password prompt would wait for ever.
    as_root=(sudo)
    [ -t 0 ] || as_root+=(-n)
    if ! command -v sudo > /dev/null || ! "${as_root[@]}" true; then
      fail "missing packages, and neither root nor sudo to install them: apt-get install ${missing[*]}"
    fi
  fi
  say "Installing ${missing[*]}"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive
    apt-get -qq -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0)
  # dpkg tells of every package it unpacks; only a failure makes that worth reading.
  local output
  output=$("${apt[@]}" update 2>&1 && "${apt[@]}" install --yes --no-install-recommends "${missing[@]}" 2>&1) || {
    printf '%s\n' "$output" >&2
    fail "apt-get could not install ${missing[*]}; what it said is above"
  }
}

# configure FOLDER [MESON OPTION...]: makes the build folder unless it is there.
configure() {
  local folder=$1
  shift
  [ -f "$folder/build.ninja" ] || meson setup "$@" "$folder"
}
