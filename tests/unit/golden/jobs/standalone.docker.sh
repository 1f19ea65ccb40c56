#!/bin/sh
# mnist: nodes on one engine: 1; ends with the job's exit code.
set -eu
docker run --rm --name mnist --cap-drop ALL --security-opt no-new-privileges --stop-timeout 45 --shm-size 4096m --cpus 4 --memory 8192m --mount type=bind,source=/home/ann/mnist,target=/job,readonly --env NVIDIA_VISIBLE_DEVICES=void --env MODE=standalone --env STOP_GRACE=30 --env JOB_DIR=/job registry.example.com/team/pytorch:2.13.0-cpu run train.py --epochs 3
