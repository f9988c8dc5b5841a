# What gpu-check needs of the machine it runs on, and how it starts a program there. Sourced by it, never run: `here` is
# the bundle's folder.

# version_of WORD: what the bundle's VERSION says after it; nothing where it says nothing.
version_of() { sed -n "s/^$1 //p" "$here/VERSION"; }

# The folders where Python keeps packages: those of the Pythons on PATH, and where others usually lie.
python_folders() {
  local python
  for python in python3 python; do
    command -v $python > /dev/null && timeout 20 $python -c 'import sys; print("\n".join(filter(None, sys.path)))' < /dev/null
  done 2> /dev/null
  compgen -G "${VIRTUAL_ENV:-/nowhere}/lib/python3*/site-packages"
  compgen -G "${CONDA_PREFIX:-/nowhere}/lib/python3*/site-packages"
  compgen -G "${HOME:-/nowhere}/.local/lib/python3*/site-packages"
  compgen -G "${HOME:-/nowhere}/*/lib/python3*/site-packages"
  compgen -G '/usr/local/lib/python3*/*-packages'
  compgen -G '/usr/lib/python3*/*-packages'
  compgen -G '/opt/*/lib/python3*/site-packages'
}

# Beside the loader's own places, best first: the toolkit's folders, and those of PyTorch's wheels.
cuda_folders() {
  local packages
  compgen -G '/usr/local/cuda/lib*'
  compgen -G '/usr/local/cuda*/lib*'
  compgen -G '/usr/local/cuda*/targets/x86_64-linux/lib'
  compgen -G '/opt/cuda/lib*'
  while read -r packages; do
    compgen -G "$packages/nvidia/*/lib"
    compgen -G "$packages/torch/lib"
  done < <(python_folders)
}

# find_cuda: for every library that the bundle leaves to the target, where it is (`found`), or that it is nowhere
# (`lacking`); `cuda_path` are the folders that the loader has to be told of.
declare -A found=()
lacking=()
cuda_path=
find_cuda() {
  local name path folder cache folders own
  cache=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2> /dev/null)
  IFS=: read -r -a own <<< "${LD_LIBRARY_PATH-}"
  mapfile -t folders < <(cuda_folders)
  for name in $(version_of gpu_libraries); do
    for folder in "${own[@]}"; do
      [ -n "$folder" ] && [ -e "$folder/$name" ] && found[$name]=$folder/$name && continue 2
    done
    path=$(awk -v name="$name" '$1 == name && /x86-64/ { print $NF; exit }' <<< "$cache")
    [ -n "$path" ] && found[$name]=$path && continue
    for folder in "${folders[@]}"; do
      [ -e "$folder/$name" ] || continue
      found[$name]=$folder/$name
      [[ ":$cuda_path:" == *":$folder:"* ]] || cuda_path=$cuda_path:$folder
      continue 2
    done
    lacking+=("$name")
  done
  cuda_path=${cuda_path#:}
}

# What is missing, where it was looked for, and which other version is there instead.
what_is_lacking() {
  local name other others=
  for name in "${lacking[@]}"; do
    while read -r other; do
      others+="; there is $other"
    done < <(cuda_folders | while read -r folder; do compgen -G "$folder/${name%.so*}.so.*"; done | head -n 2)
  done
  echo "lacks ${lacking[*]}: not in LD_LIBRARY_PATH, the loader's cache, /usr/local/cuda*, /opt/cuda, nor in nvidia/*/lib" \
    "and torch/lib of $(python_folders | sort -u | wc -l) folders of Python packages$others"
}

# Open MPI takes its bearings from the environment, and so do the programs.
prepare() {
  # A job manager's or another MPI's, as in NVIDIA's containers, would lead it astray.
  unset $(compgen -v | grep -E '^(OMPI|OPAL|ORTE|PMIX?|PRTE|SLURM|PBS|LSB|HWLOC)_')
  export OPAL_PREFIX=$here OPAL_BINDIR=$here/bin OPAL_LIBDIR=$here/lib OPAL_PKGLIBDIR=$here/openmpi
  export OPAL_PKGDATADIR=$here/share OPAL_DATADIR=$here/share OPAL_SYSCONFDIR=$here/share
  export PMIX_PREFIX=$here PMIX_LIBDIR=$here/lib PMIX_PKGLIBDIR=$here/pmix PMIX_PKGDATADIR=$here/share
  # Plug-ins of another hwloc.
  export HWLOC_PLUGINS_PATH=$here/lib
  # Containers run as root.
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  # One machine, however small: no ssh, shared memory only and without the kernel call that containers forbid; more ranks
  # than cores give way to each other, and none is tied to a core.
  export OMPI_MCA_plm=isolated OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader OMPI_MCA_btl_vader_single_copy_mechanism=none
  export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1
  export OMP_NUM_THREADS=1

  library_path=$here/lib${cuda_path:+:$cuda_path}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  # A C library older than the programs ask for: they are started with the bundle's own, which knows the loader's cache
  # of this machine too.
  loader=()
  local needed there
  needed=$(version_of glibc)
  there=$(getconf GNU_LIBC_VERSION 2> /dev/null | cut -d ' ' -f 2)
  if [ "$(printf '%s\n' "$needed" "${there:-0}" | sort -V | head -n 1)" != "$needed" ]; then
    loader=("$here/glibc/ld-linux-x86-64.so.2" --library-path "$here/glibc:$library_path")
  fi
}

# start RANKS PROGRAM ARGUMENT...: the program of bin/ on so many ranks, each under `under`, all within `limited`.
under=()
limited=()
start() {
  local ranks=$1 program=$2
  shift 2
  local job=("${loader[@]}" "$here/bin/mpirun" -n "$ranks" "${under[@]}" "${loader[@]}" "$here/bin/$program" "$@")
  # Only for the job: the system's own programs do with the system's libraries.
  [ ${#loader[@]} -gt 0 ] || job=(env LD_LIBRARY_PATH="$library_path" "${job[@]}")
  "${limited[@]}" "${job[@]}" < /dev/null
}
