#!/bin/bash
#PBS -l select=2:ncpus=2:mpiprocs=2 -l walltime=4:00:00 -r y
# qsub -v DATA=DIR pbs.sh. Goes on without a node that fails, and if the job is run again, from the newest checkpoint.
# At a walltime of 4 hours, ends early and in order after 3:58.
cd "$PBS_O_WORKDIR" || exit
timeout --foreground --preserve-status --signal=USR1 $((238 * 60)) \
  lockstep-run -- lockstep-train --data "$DATA" --checkpoint-dir run1 --resume auto
