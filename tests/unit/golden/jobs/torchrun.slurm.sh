#!/bin/bash
#SBATCH --job-name=mnist
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
#SBATCH --nodes=4
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
export PET_NNODES=4
export PET_NPROC_PER_NODE=2
export PET_MASTER_PORT=49875
read -r first < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
export PET_MASTER_ADDR="$first"
exec srun --kill-on-bad-exit=0 --wait=45 --label --mpi=none --cpus-per-task=4 --export=PATH,HOME,NVIDIA_VISIBLE_DEVICES,PET_NNODES,PET_NPROC_PER_NODE,PET_MASTER_PORT,PET_MASTER_ADDR apptainer exec --no-mount home,cwd --pwd /job --mount 'type=bind,"source=/home/ann/mnist",destination=/job,ro' "$image" sh -c 'export PET_NODE_RANK="$SLURM_NODEID"; exec "$@"' sh torchrun train.py --lr '$HOME'
