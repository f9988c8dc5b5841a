! What a compiler must know.
subroutine needs(communicator, value)
  use mpi_f08, only: MPI_Comm
  type(MPI_Comm), intent(in) :: communicator
  type(*), intent(in) :: value(..)
end subroutine
