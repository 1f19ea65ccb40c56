#!/bin/sh
# mnist, on 1 bare hosts: sh FILE
# Its Python has what this image has: registry.example.com/team/pytorch:2.13.0-cpu
set -eu
export MODE=distributed
export STOP_GRACE=30
export RENDEZVOUS_TIMEOUT=900
export GROUP_TIMEOUT=600
export PET_NPROC_PER_NODE=4
export PET_RDZV_ID=mnist
export PET_NNODES=1
export PET_MASTER_PORT=49875
export PET_MAX_RESTARTS=0
export PET_RDZV_CONF=timeout=900
export PET_MASTER_ADDR=127.0.0.1
export PET_NODE_RANK=0
exec "${TORCHRUN:-torchrun}" train.py
