#!/bin/sh
# mnist: nodes on one engine: 1; ends with the job's exit code.
set -eu
docker run --rm --name mnist --security-opt no-new-privileges --stop-timeout 45 --shm-size 4096m --cpus 4 --memory 8192m --env NVIDIA_VISIBLE_DEVICES=void --workdir /srv/code registry.example.com/team/pytorch:2.13.0-cpu sh -c 'cd examples/mnist && python main.py'
