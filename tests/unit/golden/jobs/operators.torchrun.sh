#!/bin/sh
# mnist, on 2 bare hosts: sh FILE 0 HOST0, sh FILE 1 HOST0
# Its Python has what this image has: registry.example.com/team/pytorch:2.13.0-cpu
set -eu
if [ "$#" -ne 2 ]; then
    echo "usage: sh $0 NUMBER HOST0: the number of this host, 0 to 1, and the name of host 0" >&2
    exit 64
fi
export MODE=distributed
export STOP_GRACE=30
export RENDEZVOUS_TIMEOUT=900
export GROUP_TIMEOUT=600
export PET_NPROC_PER_NODE=1
export PET_RDZV_ID=mnist
export PET_NNODES=2
export PET_MASTER_PORT=49875
export PET_MAX_RESTARTS=0
export PET_RDZV_CONF=timeout=900
export PET_MASTER_ADDR="$2"
export PET_NODE_RANK="$1"
exec "${TORCHRUN:-torchrun}" train.py
