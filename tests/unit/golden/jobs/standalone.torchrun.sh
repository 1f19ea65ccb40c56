#!/bin/sh
# mnist, on 1 bare hosts: sh FILE
# Its Python has what this image has: registry.example.com/team/pytorch:2.13.0-cpu
set -eu
export MODE=standalone
export STOP_GRACE=30
export JOB_DIR=/home/ann/mnist
cd -- /home/ann/mnist
exec "${PYTHON:-python3}" train.py --epochs 3
