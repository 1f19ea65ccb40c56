#!/bin/bash
#SBATCH --job-name=mnist
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=4
#SBATCH --mem=8192M
#SBATCH --signal=TERM@45
#SBATCH --requeue
# mnist: sbatch FILE; it ends with the job's exit code.
set -euo pipefail
if [ "${SLURM_RESTART_COUNT:-0}" -gt 3 ]; then
    echo 'mnist: a node was lost once more after 3 restarts: it is not started again.' >&2
    exit 89
fi
image="${SLURM_SUBMIT_DIR:?}/"pytorch-2.13.0-cpu.sif
if [ ! -e "$image" ]; then
    export APPTAINER_MKSQUASHFS_ARGS="${APPTAINER_MKSQUASHFS_ARGS--comp zstd -Xcompression-level 1}"
    apptainer build "$image.$SLURM_JOB_ID" docker://registry.example.com/team/pytorch:2.13.0-cpu
    mv "$image.$SLURM_JOB_ID" "$image"
fi
export NVIDIA_VISIBLE_DEVICES=void
exec srun --kill-on-bad-exit=0 --wait=45 --mpi=none --cpus-per-task=4 --export=PATH,HOME,NVIDIA_VISIBLE_DEVICES apptainer exec --no-mount home,cwd --pwd /srv/code "$image" sh -c 'cd examples/mnist && python main.py'
