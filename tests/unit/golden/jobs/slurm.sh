#!/bin/bash
#SBATCH --job-name=mnist
#SBATCH --comment=team=vision
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=2
#SBATCH --mem=8192M
#SBATCH --gpus-per-node=1
#SBATCH --time=1-00:00:00
#SBATCH --signal=TERM@75
#SBATCH --requeue
# mnist: sbatch FILE; it ends with the job's exit code.
set -euo pipefail
: "${HF_TOKEN:?is the key token of the secret hub: export it before sbatch}"
: "${JOB_TOKEN:?is the key token of the secret job: export it before sbatch}"
if [ "${SLURM_RESTART_COUNT:-0}" -gt 2 ]; then
    echo 'mnist: a node was lost once more after 2 restarts: it is not started again.' >&2
    exit 89
fi
image="${SLURM_SUBMIT_DIR:?}/"pytorch-2.13.0-cpu.sif
export APPTAINER_MKSQUASHFS_ARGS="${APPTAINER_MKSQUASHFS_ARGS--comp zstd -Xcompression-level 1}"
# once FILE FUNCTION: let the function make the file, unless another job has made it
once() {
    if [ -e "$1" ]; then
        touch -c "$1" 2> /dev/null || true
        return
    fi
    part="$1.part-$SLURM_JOB_ID"
    (
        flock 9 2> /dev/null && rm -rf "$1".part-*
        [ -e "$1" ] || { "$2" "$part" 9>&- && sync "$part" && mv "$part" "$1"; }
    ) 9> "$1.lock" && rm -f "$1.lock" && return
    free=$(df -h --output=avail "${1%/*}" | tail -n 1 | tr -d ' ') || free=unknown
    rm -rf "$part"
    echo mnist": $1 cannot be made: the reason is above. Free there: $free." >&2
    exit 1
}
convert() {
    apptainer build --force "$1" docker://registry.example.com/team/pytorch:2.13.0-cpu
}
once "$image" convert
export MODE=distributed
export STOP_GRACE=60
export RENDEZVOUS_TIMEOUT=300
export GROUP_TIMEOUT=120
export JOB_DIR=/job
export HF_HOME=/data/hub
export EMPTY=''
export ODD='a b$c'
export NPROC_PER_NODE=2
export MASTER_PORT=29500
stopping='' code=0
trap 'stopping=1' TERM
srun --kill-on-bad-exit=0 --wait=75 --label --mpi=none --cpus-per-task=2 --export=PATH,HOME,MODE,STOP_GRACE,RENDEZVOUS_TIMEOUT,GROUP_TIMEOUT,JOB_DIR,HF_HOME,EMPTY,ODD,NPROC_PER_NODE,MASTER_PORT,HF_TOKEN,JOB_TOKEN apptainer exec --no-mount home,cwd --pwd /app --nv --mount 'type=bind,"source=/home/ann/mnist/job",destination=/job,ro' --mount 'type=bind,"source=/srv/cache",destination=/cache' "$image" /opt/torchbake/entrypoint run train.py --data /data 'it'"'"'s $HOME' || code=$?
if [ "$code" -eq 89 ] && [ -z "$stopping" ] && [ "${SLURM_RESTART_COUNT:-0}" -lt 2 ]; then
    echo 'mnist: a node was lost: the job goes into the queue again.' >&2
    scontrol requeue "$SLURM_JOB_ID" && exec sleep infinity
fi
exit "$code"
