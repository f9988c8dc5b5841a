! A program with the module mpi, whose communicators are integers: on two ranks.
program old_mpi
  use mpi
  use lockstep
  implicit none
  type(lockstep_group) :: all
  real(kind(1d0)) :: sums(4)
  integer :: rank, ranks, error
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  if (ranks /= 2) call MPI_Abort(MPI_COMM_WORLD, 99, error)
  call lockstep_group_create(all, MPI_COMM_WORLD)
  sums = rank + 1
  call lockstep_all_reduce(all, sums(::2), exact=.true.)
  if (nint(sums(1)) /= 3 .or. nint(sums(2)) /= rank + 1 .or. nint(sums(3)) /= 3) call MPI_Abort(MPI_COMM_WORLD, 98, error)
  call lockstep_group_free(all)
  if (rank == 0) print '(a)', 'all checks passed'
  call MPI_Finalize(error)
end program
