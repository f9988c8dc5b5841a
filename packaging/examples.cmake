# Builds these programs with an installed lockstep: cmake -S . -B build -DCMAKE_PREFIX_PATH=PREFIX && cmake --build build
cmake_minimum_required(VERSION 3.16)
project(lockstep-examples LANGUAGES C CXX)

find_package(lockstep REQUIRED COMPONENTS models c OPTIONAL_COMPONENTS fortran torch torch_c torch_fortran)
# Two of them call MPI themselves. CMake stops at a compiler wrapper without headers, as in Debian's openmpi-bin, instead of
# saying that it found no MPI.
find_program(wrapper mpicxx)
set(wrapper_fails 0)
if(wrapper)
  execute_process(COMMAND ${wrapper} -E -include mpi.h -x c++ /dev/null
    RESULT_VARIABLE wrapper_fails OUTPUT_QUIET ERROR_QUIET)
endif()
if(wrapper_fails EQUAL 0)
  find_package(MPI COMPONENTS C CXX)
endif()

foreach(name first gentle trainer sums tensors)
  add_executable(${name} ${name}.cpp)
  target_link_libraries(${name} lockstep::lockstep)
endforeach()

foreach(name resumed estimator sequences)
  add_executable(${name} ${name}.cpp)
  target_link_libraries(${name} lockstep::models)
endforeach()

if(MPI_CXX_FOUND)
  add_executable(solver_and_trainer solver_and_trainer.cpp)
  target_link_libraries(solver_and_trainer lockstep::lockstep MPI::MPI_CXX)
endif()

if(MPI_C_FOUND)
  add_executable(heat heat.c)
  target_link_libraries(heat lockstep::c MPI::MPI_C m)
  if(lockstep_torch_c_FOUND)
    add_executable(surrogate surrogate.c)
    target_link_libraries(surrogate lockstep::torch_c MPI::MPI_C m)
  endif()
endif()

# Those of Fortran need the gfortran of lockstep's module.
if(lockstep_fortran_FOUND)
  enable_language(Fortran)
  find_package(MPI COMPONENTS Fortran)
  if(MPI_Fortran_FOUND)
    add_executable(heat_fortran heat.f90)
    add_executable(conjugate_gradient conjugate_gradient.f90)
    foreach(name heat_fortran conjugate_gradient)
      target_link_libraries(${name} lockstep::fortran MPI::MPI_Fortran)
      # A fused operation rounds otherwise, and not everywhere.
      target_compile_options(${name} PRIVATE -ffp-contract=off)
    endforeach()
    if(lockstep_torch_fortran_FOUND)
      add_executable(heat_surrogate heat_surrogate.f90)
      target_link_libraries(heat_surrogate lockstep::torch_fortran MPI::MPI_Fortran)
      target_compile_options(heat_surrogate PRIVATE -ffp-contract=off)
    endif()
  endif()
endif()

# The first reads its data with lockstep's readers.
if(lockstep_torch_FOUND)
  foreach(name torch_classifier torch_language_model)
    add_executable(${name} ${name}.cpp)
    target_link_libraries(${name} lockstep::torch lockstep::models)
  endforeach()
endif()
