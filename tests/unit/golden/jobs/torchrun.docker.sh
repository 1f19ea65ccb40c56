#!/bin/sh
# mnist: nodes on one engine: 4; ends with the job's exit code.
set -eu
docker network create mnist >/dev/null
trap 'docker rm --force mnist-0 mnist-1 mnist-2 mnist-3 >/dev/null 2>&1 || true; docker network rm mnist >/dev/null 2>&1 || true' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
docker run --detach --name mnist-3 --network mnist --security-opt no-new-privileges --stop-timeout 45 --shm-size 4096m --cpus 4 --memory 8192m --mount type=bind,source=/home/ann/mnist,target=/job,readonly --env NVIDIA_VISIBLE_DEVICES=void --env PET_NNODES=4 --env PET_NPROC_PER_NODE=2 --env PET_NODE_RANK=3 --env PET_MASTER_ADDR=mnist-0 --env PET_MASTER_PORT=49875 --workdir /job registry.example.com/team/pytorch:2.13.0-cpu torchrun train.py --lr '$HOME'
docker run --detach --name mnist-2 --network mnist --security-opt no-new-privileges --stop-timeout 45 --shm-size 4096m --cpus 4 --memory 8192m --mount type=bind,source=/home/ann/mnist,target=/job,readonly --env NVIDIA_VISIBLE_DEVICES=void --env PET_NNODES=4 --env PET_NPROC_PER_NODE=2 --env PET_NODE_RANK=2 --env PET_MASTER_ADDR=mnist-0 --env PET_MASTER_PORT=49875 --workdir /job registry.example.com/team/pytorch:2.13.0-cpu torchrun train.py --lr '$HOME'
docker run --detach --name mnist-1 --network mnist --security-opt no-new-privileges --stop-timeout 45 --shm-size 4096m --cpus 4 --memory 8192m --mount type=bind,source=/home/ann/mnist,target=/job,readonly --env NVIDIA_VISIBLE_DEVICES=void --env PET_NNODES=4 --env PET_NPROC_PER_NODE=2 --env PET_NODE_RANK=1 --env PET_MASTER_ADDR=mnist-0 --env PET_MASTER_PORT=49875 --workdir /job registry.example.com/team/pytorch:2.13.0-cpu torchrun train.py --lr '$HOME'
docker run --rm --name mnist-0 --network mnist --security-opt no-new-privileges --stop-timeout 45 --shm-size 4096m --cpus 4 --memory 8192m --mount type=bind,source=/home/ann/mnist,target=/job,readonly --env NVIDIA_VISIBLE_DEVICES=void --env PET_NNODES=4 --env PET_NPROC_PER_NODE=2 --env PET_NODE_RANK=0 --env PET_MASTER_ADDR=mnist-0 --env PET_MASTER_PORT=49875 --workdir /job registry.example.com/team/pytorch:2.13.0-cpu torchrun train.py --lr '$HOME'
