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
export PET_NNODES=2:3
export PET_RDZV_BACKEND=c10d
export PET_RDZV_ID=mnist
export PET_MAX_RESTARTS=3
export PET_NPROC_PER_NODE=2
read -r first < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
export PET_RDZV_ENDPOINT="$first:49875"
exec srun --no-kill --kill-on-bad-exit=0 --wait=0 --label --mpi=none --cpus-per-task=4 --export=PATH,HOME,NVIDIA_VISIBLE_DEVICES,PET_NNODES,PET_RDZV_BACKEND,PET_RDZV_ID,PET_MAX_RESTARTS,PET_NPROC_PER_NODE,PET_RDZV_ENDPOINT apptainer exec --no-mount home,cwd "$image" torchrun train.py
