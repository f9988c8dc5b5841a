# What gpu-check needs of the machine it runs on, and how it starts a program there. Sourced by it, never run: `here` is
# the bundle's folder.

# version_of WORD: what the bundle's VERSION says after it; nothing where it says nothing.
version_of() { sed -n "s/^$1 //p" "$here/VERSION"; }

# Where a Python with packages may be installed, beside those on PATH.
prefixes() {
  compgen -G "${VIRTUAL_ENV:-/nowhere}"
  compgen -G "${CONDA_PREFIX:-/nowhere}"
  compgen -G "${HOME:-/nowhere}/.local"
  compgen -G "${HOME:-/nowhere}/.venv"
  compgen -G "${HOME:-/nowhere}/*"
  compgen -G "${HOME:-/nowhere}/*/.venv"
  compgen -G '/opt/*'
  compgen -G '/opt/*/.venv'
  printf '%s\n' /usr/local /usr
}

# The Pythons of this machine, each once.
pythons() {
  local prefix
  {
    type -P python3 python
    prefixes | while read -r prefix; do compgen -G "$prefix/bin/python3"; done
  } | awk '!seen[$0]++'
}

# The folders where Python keeps packages: those of the Pythons on PATH, and where others usually lie.
python_folders() {
  local python prefix
  for python in python3 python; do
    command -v $python > /dev/null && timeout 20 $python -c 'import sys; print("\n".join(filter(None, sys.path)))' < /dev/null
  done 2> /dev/null
  prefixes | while read -r prefix; do compgen -G "$prefix/lib/python3*/*-packages"; done
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

# place_of NAME FOLDER...: the file that the loader takes, or else of the first of these folders that has it. The
# loader's cache also lists files that are gone.
place_of() {
  local name=$1 path folder own
  IFS=: read -r -a own <<< "${LD_LIBRARY_PATH-}"
  for folder in "${own[@]}"; do
    [ -n "$folder" ] && [ -e "$folder/$name" ] && echo "$folder/$name" && return
  done
  while read -r path; do
    [ -e "$path" ] && echo "$path" && return
  done < <(awk -v name="$name" '$1 == name && /x86-64/ { print $NF }' <<< "$cache")
  for folder in "${@:2}"; do
    [ -e "$folder/$name" ] && echo "$folder/$name" && return
  done
  return 1
}

# find_cuda: for every library that the bundle leaves to the target, where it is (`found`), or that it is nowhere
# (`lacking`); `cuda_path` are the folders that the loader has to be told of. VERSION separates by | what can take each
# other's place, best first. The driver's own library is lockstep's to miss: it says more about it.
declare -A found=()
found_names=()
lacking=()
cuda_path=
find_cuda() {
  local wanted name names path folders cache
  cache=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2> /dev/null)
  mapfile -t folders < <(cuda_folders)
  for wanted in $(version_of gpu_libraries); do
    IFS='|' read -r -a names <<< "$wanted"
    for name in "${names[@]}"; do
      path=$(place_of "$name" "${folders[@]}") && found_at "$name" "$path" && continue 2
    done
    lacking+=("${wanted//|/ or }")
  done
  # Where containers and WSL put it without telling the loader.
  path=$(place_of libcuda.so.1 /usr/local/nvidia/lib64 /usr/local/nvidia/lib /usr/lib/wsl/lib) && found_at libcuda.so.1 "$path"
  cuda_path=${cuda_path#:}
}

# found_at NAME PATH
found_at() {
  local folder=${2%/*}
  found[$1]=$2
  found_names+=("$1")
  # Others than the loader's own places only, which hold more than CUDA.
  [[ ":${LD_LIBRARY_PATH-}:$cuda_path:" == *":$folder:"* || $cache == *" => $2"* ]] || cuda_path=$cuda_path:$folder
}

# What is missing, where it was looked for, and which other version is there instead.
what_is_lacking() {
  local name other others= all
  for name in "${lacking[@]}"; do
    while read -r other; do
      others+="; there is $other"
    done < <(cuda_folders | while read -r folder; do compgen -G "$folder/${name%%.so*}.so.*"; done | awk '!seen[$0]++' | head -n 2)
  done
  printf -v all ', %s' "${lacking[@]}"
  echo "lacks ${all#, }: not in LD_LIBRARY_PATH, the loader's cache, /usr/local/cuda*, /opt/cuda, nor in nvidia/*/lib" \
    "and torch/lib of $(python_folders | sort -u | wc -l) folders of Python packages$others"
}

# ---- Why there is no GPU ---------------------------------------------------------------------------------------------

# Where /dev, /proc and /sys are. Tests have others.
machine_root=${GPU_CHECK_ROOT-}

# ask_driver: what nvidia-smi and the kernel know, if anything: `gpus` (a line each), `gpu`, `driver`, `smi_says`.
ask_driver() {
  local asked=
  gpus= smi_says=
  if command -v nvidia-smi > /dev/null; then
    smi_says=$(timeout 20 nvidia-smi -L 2>&1)
    gpus=$(grep '^GPU' <<< "$smi_says")
    asked=$(timeout 20 nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2> /dev/null | head -n 1)
    [[ $asked == *,* ]] || asked=
  fi
  gpu=${asked%,*} driver=${asked##*, }
  [ -n "$gpu" ] || gpu=$(sed -n 's/^Model:[ \t]*//p' "$machine_root"/proc/driver/nvidia/gpus/*/information 2> /dev/null | head -n 1)
  [ -n "$driver" ] || driver=$(sed -n 's/.*Kernel Module[^0-9]*\([0-9.]*\).*/\1/p' "$machine_root/proc/driver/nvidia/version" 2> /dev/null)
}

# The display controllers of NVIDIA on the PCI bus, each with the driver that has it, if any.
cards_on_bus() {
  local card driver
  for card in "$machine_root"/sys/bus/pci/devices/*; do
    [ "$(cat "$card/vendor" 2> /dev/null)" = 0x10de ] && [[ $(cat "$card/class" 2> /dev/null) == 0x03* ]] || continue
    driver=$(readlink "$card/driver")
    echo "${card##*/}${driver:+ (its driver is ${driver##*/})}"
  done
}

# why_no_gpu: in a clause; nothing where there may be a GPU. After ask_driver.
why_no_gpu() {
  local shown=${CUDA_VISIBLE_DEVICES-all} device said cards need
  case $shown in
    '' | -1* | none | void | NoDevFiles) echo "CUDA_VISIBLE_DEVICES is '$shown', which shows none"; return ;;
  esac
  device=$(compgen -G "$machine_root/dev/nvidia[0-9]*" | head -n 1)
  if [ -n "$gpus" ]; then
    driver_too_old
  elif [ -n "$device" ]; then
    # The driver's tools may be missing in a container: then the device alone tells.
    said=$({ : 3<> "$device"; } 2>&1) || echo "$device cannot be opened: ${said##*: }$(smi_sentence)"
  else
    cards=$(cards_on_bus | paste -sd ' ')
    if [ -e "$machine_root/proc/driver/nvidia/version" ]; then
      echo "the NVIDIA driver${driver:+ $driver} is loaded, but there is no /dev/nvidia0: a container has to be started with GPUs$(
        [ -z "${NVIDIA_VISIBLE_DEVICES+set}" ] || echo " (NVIDIA_VISIBLE_DEVICES is '$NVIDIA_VISIBLE_DEVICES')"
      )$(smi_sentence)"
    elif [ -n "$cards" ]; then
      echo "there is an NVIDIA device on the PCI bus, $cards, but no NVIDIA driver is loaded$(smi_sentence)"
    elif [ -d "$machine_root/sys/bus/pci/devices" ]; then
      echo "there is no NVIDIA device on the PCI bus$(smi_sentence)"
    else
      echo "there is no NVIDIA driver and no PCI bus to find a device on$(smi_sentence)"
    fi
  fi
}

# nvidia-smi's own words, where it failed.
smi_sentence() { [ -z "$smi_says" ] || echo "; nvidia-smi says: $(grep . <<< "$smi_says" | head -n 1)"; }

# The driver says which CUDA it can run; a newer one by a compatibility package too, whatever its own version.
driver_too_old() {
  local built=$(version_of cuda) needed can
  case ${built%%.*} in
    13) needed=580 ;;
    12) needed=525 ;;
    *) return ;;
  esac
  can=$(timeout 20 nvidia-smi 2> /dev/null | sed -n 's/.*CUDA [A-Za-z ]*Version: *\([0-9]*\).*/\1/p' | head -n 1)
  [ "${can:-0}" -lt "${built%%.*}" ] && [[ ${driver%%.*} =~ ^[0-9]+$ ]] && [ "${driver%%.*}" -lt $needed ] || return
  echo "the NVIDIA driver $driver is too old for CUDA $built, which needs $needed or later"
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
