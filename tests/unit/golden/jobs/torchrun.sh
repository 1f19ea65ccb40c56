#!/bin/sh
# mnist, on 3 bare hosts: sh FILE 0 HOST0, sh FILE 1 HOST0, …
# Their Python needs the packages of this image: registry.example.com/team/pytorch:2.13.0-cpu
set -eu
: "${HF_TOKEN:?is the key token of the secret hub: export it on each host}"
: "${JOB_TOKEN:?is the key token of the secret job: export it on each host}"
if [ "$#" -ne 2 ]; then
    echo "usage: sh $0 NUMBER HOST0: the number of this host, 0 to 2, and the name of host 0" >&2
    exit 64
fi
export MODE=distributed
export STOP_GRACE=60
export RENDEZVOUS_TIMEOUT=300
export GROUP_TIMEOUT=120
export JOB_DIR=/home/ann/mnist/job
export HF_HOME=/data/hub
export EMPTY=''
export ODD='a b$c'
export PET_NPROC_PER_NODE=2
export PET_RDZV_ID=mnist
export PET_NNODES=3
export PET_MASTER_PORT=29500
export PET_MAX_RESTARTS=0
export PET_RDZV_CONF=timeout=300
export PET_MASTER_ADDR="$2"
export PET_NODE_RANK="$1"
export CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES-0}"
cd -- /home/ann/mnist/job
exec timeout --kill-after=75 86400 "${TORCHRUN:-torchrun}" train.py --data /data 'it'"'"'s $HOME'
