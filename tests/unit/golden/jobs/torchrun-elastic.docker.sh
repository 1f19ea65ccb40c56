#!/bin/sh
# mnist: nodes on one engine: 3; ends with the job's exit code.
set -eu
docker network create mnist >/dev/null
trap 'docker rm --force mnist-0 mnist-1 mnist-2 >/dev/null 2>&1 || true; docker network rm mnist >/dev/null 2>&1 || true' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
docker run --detach --name mnist-2 --network mnist --security-opt no-new-privileges --stop-timeout 45 --shm-size 4096m --cpus 4 --memory 8192m --env NVIDIA_VISIBLE_DEVICES=void --env PET_NNODES=2:3 --env PET_RDZV_BACKEND=c10d --env PET_RDZV_ID=mnist --env PET_MAX_RESTARTS=3 --env PET_NPROC_PER_NODE=2 --env PET_RDZV_ENDPOINT=mnist-0:49875 registry.example.com/team/pytorch:2.13.0-cpu torchrun train.py
docker run --detach --name mnist-1 --network mnist --security-opt no-new-privileges --stop-timeout 45 --shm-size 4096m --cpus 4 --memory 8192m --env NVIDIA_VISIBLE_DEVICES=void --env PET_NNODES=2:3 --env PET_RDZV_BACKEND=c10d --env PET_RDZV_ID=mnist --env PET_MAX_RESTARTS=3 --env PET_NPROC_PER_NODE=2 --env PET_RDZV_ENDPOINT=mnist-0:49875 registry.example.com/team/pytorch:2.13.0-cpu torchrun train.py
docker run --rm --name mnist-0 --network mnist --security-opt no-new-privileges --stop-timeout 45 --shm-size 4096m --cpus 4 --memory 8192m --env NVIDIA_VISIBLE_DEVICES=void --env PET_NNODES=2:3 --env PET_RDZV_BACKEND=c10d --env PET_RDZV_ID=mnist --env PET_MAX_RESTARTS=3 --env PET_NPROC_PER_NODE=2 --env PET_RDZV_ENDPOINT=mnist-0:49875 registry.example.com/team/pytorch:2.13.0-cpu torchrun train.py
