#!/bin/bash
#SBATCH --job-name=mnist
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
#SBATCH --nodes=2-3
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=4
#SBATCH --mem=8192M
#SBATCH --signal=TERM@45
#SBATCH --no-requeue
#SBATCH --no-kill
# mnist: sbatch FILE; it ends with the job's exit code.
set -euo pipefail
image="${SLURM_SUBMIT_DIR:?}/"pytorch-2.13.0-cpu.sif
if [ ! -e "$image" ]; then
    export APPTAINER_MKSQUASHFS_ARGS="${APPTAINER_MKSQUASHFS_ARGS--comp zstd -Xcompression-level 1}"
    apptainer build "$image.$SLURM_JOB_ID" docker://registry.example.com/team/pytorch:2.13.0-cpu
    mv "$image.$SLURM_JOB_ID" "$image"
fi
export NVIDIA_VISIBLE_DEVICES=void
export MODE=distributed
export STOP_GRACE=30
export RENDEZVOUS_TIMEOUT=900
export GROUP_TIMEOUT=600
export ELASTIC=2:3
export PET_MAX_RESTARTS=3
export NPROC_PER_NODE=2
export MASTER_PORT=49875
exec srun --no-kill --kill-on-bad-exit=0 --wait=0 --label --mpi=none --cpus-per-task=4 --export=PATH,HOME,NVIDIA_VISIBLE_DEVICES,MODE,STOP_GRACE,RENDEZVOUS_TIMEOUT,GROUP_TIMEOUT,ELASTIC,PET_MAX_RESTARTS,NPROC_PER_NODE,MASTER_PORT apptainer exec --no-mount home,cwd --pwd /app "$image" /opt/torchbake/entrypoint run train.py
