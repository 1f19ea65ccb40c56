#!/bin/sh
# mnist, on 3 bare hosts: sh FILE 0 HOST0, sh FILE 1 HOST0, …
# Its Python has what this image has: registry.example.com/team/pytorch:2.13.0-cpu
set -eu
if [ "$#" -ne 2 ]; then
    echo "usage: sh $0 NUMBER HOST0: the number of this host, 0 to 2, and the name of host 0" >&2
    exit 64
fi
export PET_NPROC_PER_NODE=2
export PET_RDZV_ID=mnist
export PET_NNODES=2:3
export PET_RDZV_BACKEND=c10d
export PET_MAX_RESTARTS=3
export PET_RDZV_CONF=join_timeout=900
export PET_RDZV_ENDPOINT="$2":49875
exec torchrun train.py
