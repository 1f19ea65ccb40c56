#!/bin/sh
# mnist: nodes on one engine: 2; ends with the job's exit code.
set -eu
docker network create mnist >/dev/null
trap 'docker rm --force mnist-0 mnist-1 >/dev/null 2>&1 || true; docker network rm mnist >/dev/null 2>&1 || true' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
docker run --detach --name mnist-1 --network mnist --cap-drop ALL --security-opt no-new-privileges --stop-timeout 45 --shm-size 4096m --cpus 4 --memory 8192m --mount type=bind,source=/home/ann/mnist,target=/job,readonly --mount type=volume,source=team-data,target=/data --env NVIDIA_VISIBLE_DEVICES=void --env MODE=distributed --env STOP_GRACE=30 --env RENDEZVOUS_TIMEOUT=900 --env GROUP_TIMEOUT=600 --env JOB_DIR=/job --env NNODES=2 --env NPROC_PER_NODE=1 --env NODE_RANK=1 --env MASTER_ADDR=mnist-0 --env MASTER_PORT=49875 registry.example.com/team/pytorch:2.13.0-cpu run train.py
timeout --foreground 86400 docker run --rm --name mnist-0 --network mnist --cap-drop ALL --security-opt no-new-privileges --stop-timeout 45 --shm-size 4096m --cpus 4 --memory 8192m --mount type=bind,source=/home/ann/mnist,target=/job,readonly --mount type=volume,source=team-data,target=/data --env NVIDIA_VISIBLE_DEVICES=void --env MODE=distributed --env STOP_GRACE=30 --env RENDEZVOUS_TIMEOUT=900 --env GROUP_TIMEOUT=600 --env JOB_DIR=/job --env NNODES=2 --env NPROC_PER_NODE=1 --env NODE_RANK=0 --env MASTER_ADDR=mnist-0 --env MASTER_PORT=49875 registry.example.com/team/pytorch:2.13.0-cpu run train.py
