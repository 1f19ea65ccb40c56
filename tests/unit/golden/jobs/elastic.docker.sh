#!/bin/sh
# mnist: nodes on one engine: 3; ends with the job's exit code.
set -eu
docker network create mnist >/dev/null
trap 'docker rm --force mnist-0 mnist-1 mnist-2 >/dev/null 2>&1 || true; docker network rm mnist >/dev/null 2>&1 || true' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
docker run --detach --name mnist-2 --network mnist --cap-drop ALL --security-opt no-new-privileges --stop-timeout 45 --shm-size 4096m --cpus 4 --memory 8192m --env NVIDIA_VISIBLE_DEVICES=void --env MODE=distributed --env STOP_GRACE=30 --env RENDEZVOUS_TIMEOUT=900 --env GROUP_TIMEOUT=600 --env ELASTIC=2:3 --env PET_MAX_RESTARTS=3 --env NPROC_PER_NODE=2 --env MASTER_ADDR=mnist-0 --env MASTER_PORT=49875 registry.example.com/team/pytorch:2.13.0-cpu run train.py
docker run --detach --name mnist-1 --network mnist --cap-drop ALL --security-opt no-new-privileges --stop-timeout 45 --shm-size 4096m --cpus 4 --memory 8192m --env NVIDIA_VISIBLE_DEVICES=void --env MODE=distributed --env STOP_GRACE=30 --env RENDEZVOUS_TIMEOUT=900 --env GROUP_TIMEOUT=600 --env ELASTIC=2:3 --env PET_MAX_RESTARTS=3 --env NPROC_PER_NODE=2 --env MASTER_ADDR=mnist-0 --env MASTER_PORT=49875 registry.example.com/team/pytorch:2.13.0-cpu run train.py
docker run --rm --name mnist-0 --network mnist --cap-drop ALL --security-opt no-new-privileges --stop-timeout 45 --shm-size 4096m --cpus 4 --memory 8192m --env NVIDIA_VISIBLE_DEVICES=void --env MODE=distributed --env STOP_GRACE=30 --env RENDEZVOUS_TIMEOUT=900 --env GROUP_TIMEOUT=600 --env ELASTIC=2:3 --env PET_MAX_RESTARTS=3 --env NPROC_PER_NODE=2 --env MASTER_ADDR=mnist-0 --env MASTER_PORT=49875 registry.example.com/team/pytorch:2.13.0-cpu run train.py
