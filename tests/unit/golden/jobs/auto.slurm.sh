#!/bin/bash
#SBATCH --job-name=mnist
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
#SBATCH --nodes=2
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
export MODE=distributed
export STOP_GRACE=30
export RENDEZVOUS_TIMEOUT=900
export GROUP_TIMEOUT=600
export NPROC_PER_NODE=auto
export MASTER_PORT=49875
told='' code=0
trap 'told=1' TERM
srun --kill-on-bad-exit=0 --wait=45 --label --mpi=none --cpus-per-task=4 --export=PATH,HOME,NVIDIA_VISIBLE_DEVICES,MODE,STOP_GRACE,RENDEZVOUS_TIMEOUT,GROUP_TIMEOUT,NPROC_PER_NODE,MASTER_PORT apptainer exec --no-mount home,cwd --pwd /app "$image" /opt/torchbake/entrypoint run train.py || code=$?
if [ "$code" -eq 89 ] && [ -z "$told" ] && [ "${SLURM_RESTART_COUNT:-0}" -lt 3 ]; then
    echo 'mnist: a node was lost: the job goes into the queue again.' >&2
    scontrol requeue "$SLURM_JOB_ID" && exec sleep infinity
fi
exit "$code"
