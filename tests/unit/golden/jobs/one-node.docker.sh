#!/bin/sh
# mnist: nodes on one engine: 1; ends with the job's exit code.
set -eu
docker run --rm --name mnist --cap-drop ALL --security-opt no-new-privileges --stop-timeout 45 --shm-size 4096m --cpus 4 --memory 8192m --env NVIDIA_VISIBLE_DEVICES=void --env MODE=distributed --env STOP_GRACE=30 --env RENDEZVOUS_TIMEOUT=900 --env GROUP_TIMEOUT=600 --env NNODES=1 --env NPROC_PER_NODE=4 --env NODE_RANK=0 --env MASTER_PORT=49875 registry.example.com/team/pytorch:2.13.0-cpu run train.py
